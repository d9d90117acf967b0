"""Tests of `tower.web.access.audit.formats` and `tower.web.access.audit.audit`, through a gateway."""

from __future__ import annotations

import json
import re
from urllib.parse import quote

from attrs import evolve
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.audited_gateway import NOON, PODS, STAMP, SWITCHED, UPGRADE, AuditTestCase
from tests.fakes.audits import audit_to
from tests.fakes.credentials import Issues, issue
from tests.fakes.gateway import IDENTITY, Kit, get, ok
from tower.clusters import Clusters
from tower.store import MemoryStore
from tower.web.access.admission_cache import AdmissionGeneration
from tower.web.access.audit.formats import AGENT_LIMIT, FORMATS, moment, stamp
from tower.web.access.authentication.identity import ANONYMOUS, Identity, PolicyEntry, UserInfo
from tower.web.access.filters import user_chain
from tower.web.gateway.request import Request
from tower.web.outcome import RawStream, Relay, Response, StreamingResponse
from tower.web.ports.cluster_ports import ClusterPort
from tower.web.ports.kubesphere_port import KubeSpherePort


class TimeTests(SynchronousTestCase):
    """Times in events."""

    def test_stamp(self) -> None:
        """A time has microseconds, in both forms."""
        for seconds, expected in (
            (0.0, "1970-01-01T00:00:00.000000Z"),
            (1.000001, "1970-01-01T00:00:01.000000Z"),
            (1795476855.25, "2026-11-23T23:34:15.250000Z"),
            (1795476855.999999, "2026-11-23T23:34:15.999999Z"),
        ):
            self.assertEqual(moment(seconds), expected)
            self.assertEqual(stamp(seconds), expected.encode())


class EventTests(AuditTestCase):
    """``audit.k8s.io/v1``."""

    def test_event(self) -> None:
        """An event has user, request, cluster, address, user agent, time and result."""
        self.ask(PODS + b"?limit=5", b"User-Agent: kubectl/v1.36")
        self.clock.advance(1.5)
        (asked,) = self.lines.events()
        identifier = asked.pop("auditID")
        self.assertRegex(identifier, r"\A[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")
        self.assertEqual(
            asked,
            {
                "kind": "Event",
                "apiVersion": "audit.k8s.io/v1",
                "level": "Metadata",
                "stage": "RequestReceived",
                "requestURI": "/clusters/alpha/api/v1/namespaces/default/pods?limit=5",
                "verb": "list",
                "user": {"username": "jane", "groups": ["dev", "qa", "system:authenticated"]},
                "sourceIPs": ["192.0.2.7"],
                "userAgent": "kubectl/v1.36",
                "objectRef": {"resource": "pods", "namespace": "default", "apiVersion": "v1"},
                "requestReceivedTimestamp": STAMP,
                "stageTimestamp": STAMP,
                "annotations": {"cluster.kubesphere.io/name": "alpha"},
            },
        )
        self.kit.pipe.deliver(ok())
        (answered,) = self.lines.events()
        self.assertEqual(
            answered,
            asked
            | {
                "auditID": identifier,
                "stage": "ResponseComplete",
                "responseStatus": {"metadata": {}, "code": 200},
                "stageTimestamp": "2026-11-22T12:00:01.750000Z",
            },
        )

    def test_admitted_user(self) -> None:
        """The user is that of the front door; annotations name the policies and the user in the cluster."""
        entry = PolicyEntry("alpha", ("a", "b"), 0, "kubernetes", 0.0, 1e12)
        member = UserInfo("co:jane", ("dev", "ops"))
        jane = Identity("jane", ("qa",), method="x509", key="x509:1", member=member, entry=entry)

        def decided_later(request: Request) -> Relay:
            request.identity = evolve(jane, member=None, entry=None)
            request.audit("alpha")
            assert request.entry is not None
            request.identity = jane
            request.entry.admitted(jane)
            return Relay("alpha", b"/clusters/alpha")

        def decided_before(request: Request) -> Relay:
            request.identity = jane
            request.audit("alpha")
            return Relay("alpha", b"/clusters/alpha")

        plain = {"cluster.kubesphere.io/name": "alpha", "cluster.kubesphere.io/credential": "x509:1"}
        whole = {
            **plain,
            "cluster.kubesphere.io/access-policies": "a,b",
            "cluster.kubesphere.io/member-user": "co:jane",
            "cluster.kubesphere.io/member-groups": "dev,ops",
        }
        for router, first in ((decided_later, plain), (decided_before, whole)):
            self.serve(router)
            self.ask(PODS)
            self.kit.pipe.deliver(ok())
            events = self.lines.events()
            self.assertEqual([event["user"]["username"] for event in events], ["jane"] * 2)
            self.assertEqual([event["annotations"] for event in events], [first, whole])
            self.assertIn(b"Impersonate-User: co:jane\r\nImpersonate-Group: dev", self.kit.pipe.taken())

    def test_decision(self) -> None:
        """The decision of modes and its reason have upstream's annotations, in the events after it."""

        def decided(request: Request) -> Relay:
            answer = self.relayed(request)
            assert request.entry is not None
            request.entry.decided("allow", 'RBAC: allowed by "x"')
            return answer

        self.serve(decided)
        self.ask(PODS)
        self.kit.pipe.deliver(ok())
        received, complete = (event["annotations"] for event in self.lines.events())
        self.assertNotIn("authorization.k8s.io/decision", received)
        self.assertEqual(complete["authorization.k8s.io/decision"], "allow")
        self.assertEqual(complete["authorization.k8s.io/reason"], 'RBAC: allowed by "x"')

    def test_same_id(self) -> None:
        """The ID is sent to the API server after the user's own fields; each request has its own."""
        self.ask(PODS, b"X-Own: 1")
        self.user.deliver(get(PODS))
        self.kit.pipe.deliver(ok())
        sent = self.kit.pipe.taken()
        first, second, third = (event["auditID"] for event in self.lines.events())
        self.assertEqual((first, first != third), (second, True))
        self.assertEqual(re.findall(rb"(?i)\r\naudit-id: (\S+)\r\n", sent), [first.encode(), third.encode()])
        self.assertTrue(sent.startswith(b"GET /api/v1/namespaces/default/pods HTTP/1.1\r\n" + IDENTITY), sent)
        self.assertTrue(sent.endswith(b"Audit-Id: %b\r\n\r\n" % third.encode()), sent)

    def test_own_id(self) -> None:
        """A valid ID of the user is used and sent once; an invalid one is replaced."""
        self.ask(PODS, b"AUDIT-ID: my-own-7")
        self.assertEqual(self.lines.events()[0]["auditID"], "my-own-7")
        self.assertEqual(self.kit.pipe.taken().lower().count(b"audit-id:"), 1)
        for strange in (b'x","user":{"username":"joe', b"x" * 65, b""):
            self.ask(PODS, b"Audit-ID: " + strange)
            self.assertNotIn(self.lines.events()[0]["auditID"].encode(), (strange, b""))

    def test_refusal(self) -> None:
        """A rejection by Tower has its reason, and the same ID as the user's answer."""

        def refuse(request: Request) -> Response:
            self.relayed(request)
            raise RuntimeError("not for users")

        self.serve(refuse)
        self.user.deliver(get(PODS))
        answer = self.user.taken()
        self.flushLoggedErrors(RuntimeError)
        asked, answered = self.lines.events()
        self.assertEqual(answered["responseStatus"]["code"], 500)
        self.assertEqual(answered["responseStatus"]["reason"], "InternalError")
        self.assertNotIn("not for users", str(answered))
        self.assertIn(b"X-Request-Id: %b\r\n" % asked["auditID"].encode(), answer)

    def test_stages(self) -> None:
        """A long-running request also has an event at its start, and always one at its end."""
        self.ask(PODS + b"?watch=1")
        self.lines.clear()
        self.kit.pipe.deliver(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        self.assertEqual(self.lines.stages(), [("ResponseStarted", 200)])
        self.user.lose()
        self.assertEqual(self.lines.stages(), [("ResponseComplete", 200)])

    def test_upgrade(self) -> None:
        """An exec begins with the 101 and ends with its connection, whichever side closes it."""
        for end in ("user", "cluster"):
            self.ask(PODS + b"/p/exec?command=sh", *UPGRADE, method=b"POST")
            self.assertEqual(self.lines.stages(), [("RequestReceived", None)])
            self.kit.pipe.deliver(SWITCHED)
            self.assertEqual(self.lines.stages(), [("ResponseStarted", 101)])
            self.user.deliver(b"input")
            self.assertEqual(self.lines, [])
            (self.user if end == "user" else self.kit.pipe).lose()
            self.assertEqual(self.lines.stages(), [("ResponseComplete", 101)])

    def test_upgrade_refused(self) -> None:
        """An exec that the cluster rejects is logged like other requests."""
        self.ask(PODS + b"/p/exec?command=sh", *UPGRADE, method=b"POST")
        self.kit.pipe.deliver(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
        self.assertEqual(
            self.lines.stages(),
            [("RequestReceived", None), ("ResponseStarted", 403), ("ResponseComplete", 403)],
        )

    def test_raw_stream(self) -> None:
        """A raw stream is logged like an exec."""

        def stream(request: Request) -> RawStream:
            self.relayed(request)
            return RawStream("alpha", "db")

        self.serve(stream)
        self.user.deliver(
            get(b"/clusters/alpha/targets/db", b"Connection: Upgrade", b"Upgrade: tower-stream")
        )
        self.assertEqual(self.lines.stages(), [("RequestReceived", None), ("ResponseStarted", 101)])
        self.user.lose()
        self.assertEqual(self.lines.stages(), [("ResponseComplete", 101)])

    def test_user_gone(self) -> None:
        """If the client disconnects before the answer, the event has a message."""
        self.ask(PODS)
        self.user.lose()
        event = self.lines.events()[-1]
        self.assertEqual(event["stage"], "ResponseComplete")
        self.assertEqual(
            event["responseStatus"], {"metadata": {}, "status": "Failure", "message": "client disconnected"}
        )

    def test_made_here(self) -> None:
        """Tower's own answers are logged like those of clusters."""

        def answer(request: Request) -> Response | StreamingResponse:
            request.identity = self.kit.jane
            request.audit("")
            if request.query:
                return StreamingResponse(lambda body: body.finish())
            return Response(201)

        self.serve(answer)
        target = b"/apis/cluster.kubesphere.io/v1alpha1/clusters"
        self.user.deliver(get(target, method=b"POST"))
        first, last = self.lines.events()
        self.assertEqual((first["verb"], last["responseStatus"]["code"]), ("create", 201))
        self.assertEqual(
            first["objectRef"],
            {"resource": "clusters", "apiGroup": "cluster.kubesphere.io", "apiVersion": "v1alpha1"},
        )
        self.assertNotIn("annotations", first)
        self.user.deliver(get(target + b"?watch=1"))
        self.assertEqual(
            self.lines.stages(),
            [("RequestReceived", None), ("ResponseStarted", 200), ("ResponseComplete", 200)],
        )

    def test_anybody(self) -> None:
        """On a port without authentication the user is anonymous."""
        self.serve(KubeSpherePort("alpha"))
        self.user.deliver(get(b"/kapis/x"))
        (event,) = self.lines.events()
        self.assertEqual(ANONYMOUS.user, "")
        self.assertEqual(
            event["user"], {"username": "system:anonymous", "groups": ["system:unauthenticated"]}
        )
        self.assertNotIn(b"Audit-Id", self.kit.pipe.taken())

    def test_hostile(self) -> None:
        """Users cannot end a line or forge a field."""
        self.kit.jane.user = 'jane"\\\n\u2028é'
        target = PODS + b'/"}\\u0041?x=\\"'
        agent = b'kubectl "\\ \xff\xc3\xa9\t' + b"x" * 2 * AGENT_LIMIT

        def answer(request: Request) -> Response:
            self.relayed(request)
            return Response(200)

        self.serve(answer)
        self.user.deliver(get(target, b"User-Agent: " + agent))
        self.assertEqual(len(self.lines), 2)
        for line in self.lines:
            self.assertEqual((line.count(b"\n"), line[-1:]), (1, b"\n"))
        event = self.lines.events()[0]
        self.assertEqual(event["user"]["username"], self.kit.jane.user)
        self.assertEqual(event["requestURI"], target.decode())
        self.assertTrue(event["userAgent"].startswith('kubectl "\\ \\xffé\t'))
        self.assertEqual(len(event["userAgent"]), AGENT_LIMIT + len("...TRUNCATED"))

    def test_token(self) -> None:
        """The log contains no credential."""
        self.ask(PODS, b"Authorization: Bearer tower-secret", b"Cookie: secret")
        self.assertNotIn(b"secret", b"".join(self.lines))

    def test_off(self) -> None:
        """Without an audit log nothing is written, and no ID is sent."""
        kit = Kit(self.relayed)
        kit.user.deliver(get(PODS))
        self.assertEqual(self.lines, [])
        self.assertNotIn(b"Audit-Id", kit.pipe.taken())


class LegacyTests(AuditTestCase):
    """The lines of kube-apiserver 1.5."""

    form = "legacy"

    def test_pair(self) -> None:
        """One line is for the request, and one for the answer."""
        self.ask(PODS)
        self.kit.pipe.deliver(ok())
        asked, answered = (line.decode() for line in self.lines)
        identifier = asked.partition('id="')[2].partition('"')[0]
        self.assertEqual(
            asked,
            f'{STAMP} AUDIT: id="{identifier}" ip="192.0.2.7" method="GET" user="jane" '
            r'groups="\"dev\",\"qa\",\"system:authenticated\"" as="<self>" asgroups="<lookup>" '
            'namespace="default" uri="/clusters/alpha/api/v1/namespaces/default/pods" cluster="alpha"\n',
        )
        self.assertEqual(answered, f'{STAMP} AUDIT: id="{identifier}" response="200"\n')

    def test_nothing(self) -> None:
        """Missing values are written as upstream writes them."""
        self.ask(b"/clusters/alpha/version")
        self.assertIn(b' namespace="<none>" ', self.lines[0])

    def test_user_gone(self) -> None:
        """Without an answer there is no second line."""
        self.ask(PODS)
        self.user.lose()
        self.assertEqual(len(self.lines), 1)


class ChainTests(AuditTestCase):
    """Every request of a known user is logged, with any result."""

    form = "legacy"

    def setUp(self) -> None:
        """Use the chain of a cluster's port, with a credential for the cluster and one for another."""
        super().setUp()
        clusters = Clusters(MemoryStore(), None, self.clock)
        issues = Issues()
        for name in ("alpha", "beta"):
            cluster = self.successResultOf(clusters.add(name))
            issues.put(f"{name}-token".encode(), issue(cluster=name, uid=cluster.uid, expires=2 * NOON))
        chain = user_chain(issues.authenticator(self.clock), clusters.get)
        self.serve(ClusterPort(chain, "alpha", AdmissionGeneration(MemoryStore(), self.clock.seconds)))

    def answers(self, token: bytes, *fields: bytes) -> bytes:
        """Return the status line of a request with *token*."""
        self.ask(b"/api/v1/pods", b"Authorization: Bearer " + token, *fields)
        return self.user.taken().partition(b"\r\n")[0]

    def test_7_3_15_a_pair_for_a_403(self) -> None:
        """A known user without access is logged, with the 403."""
        self.assertIn(b"403", self.answers(b"beta-token"))
        asked, answered = self.lines
        self.assertIn(b' user="jane" ', asked)
        self.assertTrue(answered.endswith(b' response="403"\n'), answered)

    def test_7_3_15_none_for_a_401(self) -> None:
        """An unknown user is not logged."""
        self.assertIn(b"401", self.answers(b"nobody"))
        self.assertEqual(self.lines, [])

    def test_impersonation(self) -> None:
        """A request for impersonation is logged, with the requested identity."""
        claims = (b"Impersonate-User: joe", b"Impersonate-Group: system:masters")
        self.assertIn(b"403", self.answers(b"alpha-token", *claims))
        self.assertIn(rb' user="jane" ', self.lines[0])
        self.assertIn(rb' as="joe" asgroups="\"system:masters\"" ', self.lines[0])

    def test_each_of_a_connection(self) -> None:
        """Each request with a cached admission is logged, before anything is sent."""
        self.answers(b"alpha-token")
        for count in (2, 3):
            self.kit.pipe.deliver(ok())
            self.user.deliver(get(b"/api/v1/pods", b"Authorization: Bearer alpha-token"))
            self.assertEqual(len(self.lines), 2 * count - 1)


class HostileTextTests(AuditTestCase):
    """Values from users cannot break the lines of the log."""

    hostile = "\x9b31m\x85\u2028\u202e"

    def test_escaped(self) -> None:
        """Every line of both formats is printable, for any path, User-Agent and impersonation."""
        raw = self.hostile.encode()
        path = f"/clusters/alpha/api/v1/namespaces/{quote(self.hostile)}/pods/a%0d%0ab%1b%7f"
        for form in FORMATS:
            self.audit = audit_to(self.lines, self.clock.seconds, form)
            self.serve(self.relayed)
            self.ask(path.encode(), b"User-Agent: x" + raw, b"Impersonate-User: " + raw)
            self.assertGreaterEqual(len(self.lines), 2)
            for line in self.lines:
                self.assertTrue(line.decode().removesuffix("\n").isprintable(), line)
                self.assertIn(b"\n", line[-1:])
            self.assertIn(rb"\u009b31m\u0085\u2028\u202e", self.lines[0])
            if form == "json":
                event = json.loads(self.lines[0])
                self.assertEqual(event["userAgent"], "x" + self.hostile)
                self.assertEqual(event["objectRef"]["namespace"], self.hostile)
                self.assertEqual(event["objectRef"]["name"], "a\r\nb\x1b\x7f")
            self.lines.clear()

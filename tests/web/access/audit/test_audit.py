"""Tests of `tower.web.access.audit.audit`: levels, stages, bodies, sizes and modes, through a gateway."""

from __future__ import annotations

import json
from typing import Any

from twisted.internet.defer import Deferred

from tests.fakes.audited_gateway import PODS, SWITCHED, UPGRADE, AuditTestCase
from tests.fakes.audits import Lines, audit_to, policy_of
from tests.fakes.gateway import get, ok
from tests.fakes.protobuf import PROTOBUF, message
from tower.web.access.audit.audit import Audit, PendingEvent
from tower.web.access.audit.body_record import LIMIT
from tower.web.access.audit.destinations import BLOCKING, STRICT, Destination
from tower.web.access.audit.request_entry import UNANSWERED
from tower.web.gateway.request import Request
from tower.web.outcome import Relay, Response

POD = b'{"kind":"Pod","metadata":{"name":"p","uid":"u","managedFields":[]}}'
SECRET = b'{"data":{"k":"c2VjcmV0"}}'
TYPE = b"Content-Type: application/json"
STATUS = (
    b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"pods \\"p\\" not found",'
    b'"reason":"NotFound","details":{"name":"p"},"code":404}'
)


def body_fields(body: bytes) -> tuple[bytes, ...]:
    """Return the fields of a request with *body*."""
    return (TYPE, b"Content-Length: %d" % len(body))


def answer(body: bytes, code: bytes = b"200 OK") -> bytes:
    """Return an answer of the member."""
    return b"HTTP/1.1 %b\r\n%b\r\nContent-Length: %d\r\n\r\n%b" % (code, TYPE, len(body), body)


class PolicyTestCase(AuditTestCase):
    """Base of the tests with a policy."""

    def use(self, rules: str) -> None:
        """Use a policy."""
        self.audit.use(policy_of(rules))

    def level(self, level: str, more: str = "") -> None:
        """Record all requests at a level."""
        self.use(f"rules: [{{level: {level}{more}}}]")

    def last(self) -> dict[str, Any]:
        """Return the last event."""
        return self.lines.events()[-1]


class LevelTests(PolicyTestCase):
    """Levels and stages."""

    def test_none(self) -> None:
        """A request at level None costs nothing: it has no entry, no event, and no ID is made for it."""
        self.level("None")
        self.ask(PODS)
        self.kit.pipe.deliver(ok())
        self.assertEqual(self.lines, [])
        self.assertNotIn(b"Audit-Id", self.kit.pipe.taken())
        self.assertEqual((self.audit.levels["None"], self.audit.events), (1, 0))

    def test_stages(self) -> None:
        """Omitted stages have no event."""
        self.level("Metadata", ", omitStages: [RequestReceived, ResponseStarted]")
        self.ask(PODS)
        self.kit.pipe.deliver(ok())
        self.ask(PODS + b"?watch=1")
        self.kit.pipe.deliver(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        self.user.lose()
        self.assertEqual(self.lines.stages(), [("ResponseComplete", 200)] * 2)
        self.level("Metadata", ", omitStages: [ResponseComplete]")
        self.ask(PODS)
        self.kit.pipe.deliver(ok())
        self.assertEqual(self.lines.stages(), [("RequestReceived", None)])

    def test_groups(self) -> None:
        """Rules see the group of all authenticated users, and the path below the cluster's prefix."""
        self.use(
            "rules: [{level: Metadata, userGroups: ['system:authenticated'], nonResourceURLs: [/version]}]"
        )
        self.ask(b"/clusters/alpha/version")
        self.assertEqual(len(self.lines.events()), 1)
        self.ask(b"/clusters/alpha/versions")
        self.assertEqual(self.lines, [])

    def test_upgrade(self) -> None:
        """The end of a stream has the number of bytes in both directions, without those of other requests."""
        plain = get(PODS)
        self.user.deliver(plain)
        self.kit.pipe.deliver(ok())
        self.user.taken()
        request = get(PODS + b"/p/exec?command=sh", *UPGRADE, method=b"POST")
        self.user.deliver(request + b"early")
        self.kit.pipe.deliver(SWITCHED)
        self.user.deliver(b"x" * 1000)
        self.kit.pipe.deliver(b"y" * 300)
        sent = self.user.taken()
        self.assertIn(b"y" * 300, sent)
        self.lines.clear()
        self.user.lose()
        (event,) = self.lines.events()
        self.assertEqual(event["stage"], "ResponseComplete")
        self.assertEqual(
            [event["annotations"][f"cluster.kubesphere.io/bytes-{way}"] for way in ("received", "sent")],
            [str(len(request) + len(b"early") + 1000), str(len(sent))],
        )

    def test_member_error(self) -> None:
        """The Status of a member's error is in the event at any level, whole or in pieces; others are not."""
        self.ask(PODS + b"/p")
        self.kit.pipe.deliver(answer(STATUS, b"404 Not Found"))
        self.assertEqual(
            self.last()["responseStatus"],
            {
                "metadata": {},
                "status": "Failure",
                "message": 'pods "p" not found',
                "reason": "NotFound",
                "details": {"name": "p"},
                "code": 404,
            },
        )
        for odd in (b"{", b"[]", b'{"kind":"Pod"}', b"[" * 5000):
            self.ask(PODS + b"/p")
            self.kit.pipe.deliver(answer(odd, b"500 Error"))
            self.assertEqual(self.last()["responseStatus"], {"metadata": {}, "code": 500})

    def test_invalid_member_error(self) -> None:
        """Fields of a member's Status that have the wrong type are left out."""
        for fields, kept in (
            ('"message":5,"status":["Failure"],"reason":null,"code":"x"', {}),
            ('"details":NaN', {}),
            ('"details":{"name":1e999,"retryAfterSeconds":"1","causes":3}', {"details": {}}),
            ('"details":{"retryAfterSeconds":1e999}', {"details": {}}),
            (
                '"details":{"retryAfterSeconds":1,"uid":"u"}',
                {"details": {"retryAfterSeconds": 1, "uid": "u"}},
            ),
            (
                '"details":{"causes":[7,{"reason":"r","message":NaN,"field":"f"}]}',
                {"details": {"causes": [{"reason": "r", "field": "f"}]}},
            ),
        ):
            self.ask(PODS + b"/p")
            status = f'{{"kind":"Status",{fields}}}'.encode()
            self.kit.pipe.deliver(answer(status, b"422 Unprocessable Entity"))
            self.assertEqual(self.last()["responseStatus"], {"metadata": {}, **kept, "code": 422}, fields)


class FailingEventTests(AuditTestCase):
    """An event that cannot be made, as by a bug."""

    def test_failing(self) -> None:
        """The other events of its batch are written, and no request fails."""

        class Failing(PendingEvent):
            def add_to(self, parts: list[bytes]) -> int:
                parts.append(b"half an event")
                raise KeyError("bug")

        self.ask(PODS)
        self.kit.pipe.deliver(ok())
        entry: Any = None
        self.audit.append(Failing(entry, "", UNANSWERED, 0.0))
        self.ask(PODS)
        self.kit.pipe.deliver(ok())
        self.audit.write()
        self.assertEqual(len(self.lines.events()), 4)
        (failure,) = self.flushLoggedErrors(KeyError)
        self.assertEqual(failure.value.args, ("bug",))


class BodyTests(PolicyTestCase):
    """Bodies."""

    def create(self, body: bytes = POD, *, pieces: int = 1, target: bytes = PODS) -> None:
        """Send a request with a body, in pieces."""
        request = get(target, *body_fields(body), method=b"POST")
        self.user = self.kit.connect()
        if pieces == 1:
            self.user.deliver(request + body)
            return
        self.user.deliver(request)
        size = -(-len(body) // pieces)
        for start in range(0, len(body), size):
            self.user.deliver(body[start : start + size])

    def test_request(self) -> None:
        """At level Request the last event has the request's body, and its object's name and UID."""
        self.level("Request")
        for pieces in (1, 2, 5):
            self.create(pieces=pieces)
            self.kit.pipe.deliver(answer(b'{"kind":"Pod"}', b"201 Created"))
            first, last = self.lines.events()
            self.assertNotIn("requestObject", first)
            self.assertEqual(last["requestObject"], json.loads(POD))
            self.assertNotIn("responseObject", last)
            self.assertEqual((last["objectRef"]["name"], last["objectRef"]["uid"]), ("p", "u"))
            self.assertNotIn("name", first["objectRef"])
            self.assertEqual(last["level"], "Request")

    def test_answer(self) -> None:
        """At level RequestResponse it also has the answer's body, in pieces and chunks, too."""
        self.level("RequestResponse", ", omitManagedFields: true")
        for data in (
            [answer(POD)],
            [answer(POD)[:40], answer(POD)[40:-10], answer(POD)[-10:]],
            [
                b"HTTP/1.1 200 OK\r\n%b\r\nTransfer-Encoding: chunked\r\n\r\n10\r\n%b\r\n" % (TYPE, POD[:16]),
                b"%x\r\n%b\r\n0\r\n\r\n" % (len(POD) - 16, POD[16:]),
            ],
        ):
            self.create()
            for each in data:
                self.kit.pipe.deliver(each)
            event = self.last()
            self.assertEqual(event["responseObject"], {"kind": "Pod", "metadata": {"name": "p", "uid": "u"}})
            self.assertEqual(event["requestObject"], event["responseObject"])
        self.assertEqual(self.audit.memory.budget.lent, 0)

    def test_bounded(self) -> None:
        """A body that is too long is left out, with its size; so are all if there is no memory."""
        self.level("RequestResponse")
        long = b'"%b"' % (b"x" * LIMIT)
        self.create(long, pieces=4)
        self.kit.pipe.deliver(answer(b"{}"))
        event = self.last()
        self.assertNotIn("requestObject", event)
        self.assertEqual(
            event["annotations"]["cluster.kubesphere.io/request-body"], f"omitted: {len(long)} B"
        )
        self.assertEqual(event["responseObject"], {})
        budget = self.audit.memory.budget
        budget.borrow(budget.capacity)
        self.create()
        self.kit.pipe.deliver(answer(b"{}"))
        self.assertEqual({"requestObject", "responseObject"} & set(self.last()), set())
        self.assertEqual(budget.lent, budget.capacity)

    def test_other_user(self) -> None:
        """A user with many slow bodies does not keep the bodies of another user out of the log."""
        self.level("Request")
        body = b'{"x":"%b"}' % (b"x" * 240 * 1024)
        for _ in range(68):
            self.kit.connect().deliver(get(PODS, *body_fields(body), method=b"POST") + body[:-1])
        budget = self.audit.memory.budget
        self.assertGreater(budget.lent, budget.capacity // 2)
        self.assertLess(budget.lent, budget.capacity * 2 // 3)
        self.kit.jane.user = "joe"
        self.create(body)
        self.user.lose()
        event = self.last()
        self.assertEqual((event["user"]["username"], event["requestObject"]), ("joe", json.loads(body)))

    def test_users_of_memory(self) -> None:
        """Bodies count for the user that a trusted caller names, and without a user for the address."""
        self.level("Request")
        self.kit.jane.is_trusted_caller = True
        caller = get(PODS, *body_fields(POD), b"Impersonate-User: joe", method=b"POST")
        self.kit.connect().deliver(caller + POD)
        self.kit.jane.is_trusted_caller = False
        self.create()
        self.kit.jane.user = "system:anonymous"
        self.create()
        size = len(POD)
        self.assertEqual(self.audit.memory.loans, {"joe": size, "jane": size, "at 192.0.2.7": size})

    def test_aborted(self) -> None:
        """The memory is given back if the client disconnects."""
        self.level("RequestResponse")
        self.create()
        self.assertGreater(self.audit.memory.budget.lent, 0)
        self.user.lose()
        self.assertEqual(self.audit.memory.budget.lent, 0)
        self.assertEqual(self.last()["requestObject"], json.loads(POD))

    def test_secrets(self) -> None:
        """A general rule does not record Secrets, and an event shows that; a rule that names them does."""
        secrets = b"/clusters/alpha/api/v1/namespaces/default/secrets"
        self.level("RequestResponse")
        self.create(SECRET, target=secrets)
        self.kit.pipe.deliver(answer(SECRET))
        self.assertNotIn(b"c2VjcmV0", b"".join(self.lines))
        event = self.last()
        for which in ("request", "response"):
            self.assertEqual(event["annotations"][f"cluster.kubesphere.io/{which}-body"], "withheld: secrets")
        self.use("rules: [{level: RequestResponse, resources: [{group: '', resources: [secrets]}]}]")
        self.create(SECRET, target=secrets)
        self.kit.pipe.deliver(answer(b"{}"))
        self.assertEqual(self.last()["requestObject"], {"data": {"k": "c2VjcmV0"}})

    def test_ambiguous(self) -> None:
        """No rule records bodies of a path that the API server may parse differently, such as a Secret's."""
        for rule in ("", ", resources: [{group: ''}]"):
            self.level("RequestResponse", rule)
            for path in (b"default//secrets/x", b"default%2Fsecrets/x", b"default/pods%5C/x"):
                self.create(SECRET, target=b"/clusters/alpha/api/v1/namespaces/" + path)
                self.kit.pipe.deliver(answer(SECRET))
                self.assertNotIn(b"c2VjcmV0", b"".join(self.lines))
                annotations = self.last()["annotations"]
                for which in ("request", "response"):
                    key = f"cluster.kubesphere.io/{which}-body"
                    self.assertEqual(annotations[key], "withheld: ambiguous path")

    def test_own_answers(self) -> None:
        """Bodies of Tower's own API are recorded, too; its errors as a Status."""
        self.level("RequestResponse")

        def own(request: Request) -> Any:
            request.identity = self.kit.jane
            request.audit("")
            if request.method == b"GET":
                raise RuntimeError
            return request.body().addCallback(lambda _: Response(201, b'{"made":1}'))

        self.serve(own)
        self.create(b'{"asked":1}', target=b"/apis/cluster.kubesphere.io/v1alpha1/accesspolicies")
        event = self.last()
        self.assertEqual((event["requestObject"], event["responseObject"]), ({"asked": 1}, {"made": 1}))
        self.ask(b"/apis/cluster.kubesphere.io/v1alpha1/accesspolicies")
        self.flushLoggedErrors(RuntimeError)
        status = self.last()["responseObject"]
        self.assertEqual((status["kind"], status["code"]), ("Status", 500))
        self.assertEqual(self.audit.memory.budget.lent, 0)

    def test_own_protobuf(self) -> None:
        """Roles that `kubectl create` sends in protobuf are recorded as Tower's own API reads them."""
        self.level("Request")

        def own(request: Request) -> Any:
            request.identity = self.kit.jane
            request.audit("")
            return request.body().addCallback(lambda _: Response(201, b"{}"))

        self.serve(own)
        version = "rbac.authorization.k8s.io/v1"
        role = message(f1=message(f1="r"), f2=message(f1="get", f3="pods"))
        raw = b"k8s\0" + message(f1=message(f1=version, f2="ClusterRole"), f2=role)
        for body, expected in (
            (
                raw,
                {
                    "apiVersion": version,
                    "kind": "ClusterRole",
                    "metadata": {"name": "r"},
                    "rules": [{"verbs": ["get"], "resources": ["pods"]}],
                },
            ),
            (raw[:-1], None),
        ):
            fields = [b"Content-Type: %b" % PROTOBUF.encode(), b"Content-Length: %d" % len(body)]
            path = b"/apis/rbac.authorization.k8s.io/v1/clusterroles"
            self.user.deliver(get(path, *fields, method=b"POST") + body)
            event = self.last()
            self.assertEqual(event.get("requestObject"), expected)
        self.assertEqual(
            event["annotations"]["cluster.kubesphere.io/request-body"], "omitted: not an object in protobuf"
        )

    def test_truncated(self) -> None:
        """An event that is too large loses its bodies, or is dropped and counted."""
        self.audit = audit_to(self.lines, self.clock.seconds, limit=1000)
        self.serve(self.relayed)
        self.level("Request")
        self.create(b'"%b"' % (b"x" * 1000))
        self.create(b'["%b"]' % (b"x" * 1000))
        self.kit.pipe.deliver(answer(b"{}"))
        event = self.last()
        self.assertNotIn("requestObject", event)
        self.assertEqual(event["annotations"]["audit.k8s.io/truncated"], "true")
        self.ask(PODS + b"?x=" + b"x" * 1000)
        self.assertEqual((self.lines, self.audit.destinations[0].oversized), ([], 1))


class ModeTests(PolicyTestCase):
    """Requests that wait for the log."""

    def setUp(self) -> None:
        """Let the test decide when lines are stored."""
        super().setUp()
        self.mode(BLOCKING)

    def mode(self, mode: str) -> None:
        """Use a mode."""
        self.audit = audit_to(self.lines, self.clock.seconds, mode=mode)
        self.serve(self.waiting)

    def waiting(self, request: Request) -> Any:
        """Relay a request of jane to alpha after the log."""
        request.identity = self.kit.jane
        waiting = request.audit("alpha")
        relay = Relay("alpha", b"/clusters/alpha")
        return relay if waiting is None else waiting.addCallback(lambda _: relay)

    def sent(self) -> bytes:
        """Return the new bytes for the cluster."""
        return b"".join(pipe.taken() for pipe in self.kit.tunnel.pipes)

    def result(self) -> Deferred[bool]:
        """Let the next flush wait."""
        done: Deferred[bool] = Deferred()
        self.lines.results.append(done)
        return done

    def test_blocking(self) -> None:
        """A request is sent after its event was stored, or that has failed."""
        for is_stored in (True, False):
            done = self.result()
            self.sent()
            self.ask(PODS)
            self.assertEqual(self.sent(), b"")
            done.callback(is_stored)
            self.assertIn(b"GET /api/v1/namespaces/default/pods", self.sent())
        self.assertEqual(self.audit.rejected, 0)

    def test_strict(self) -> None:
        """In the mode blocking-strict it fails if the event is not stored."""
        self.mode(STRICT)
        done = self.result()
        self.ask(PODS)
        stored = False
        done.callback(stored)
        answered = self.user.taken()
        self.assertIn(b" 500 ", answered)
        self.assertIn(b"failed to store audit event", answered)
        self.assertEqual((self.sent(), self.audit.rejected), (b"", 1))
        self.ask(PODS)
        self.assertIn(b"GET ", self.sent())

    def test_omitted(self) -> None:
        """Without an event at the begin there is nothing to wait for."""
        self.result()
        self.level("Metadata", ", omitStages: [RequestReceived]")
        self.ask(PODS)
        self.assertIn(b"GET ", self.sent())

    def test_client_gone(self) -> None:
        """A client that disconnects meanwhile does no harm."""
        done = self.result()
        self.ask(PODS)
        self.user.lose()
        stored = True
        done.callback(stored)
        self.assertEqual(self.sent(), b"")
        self.assertEqual(self.lines.stages()[-1][0], "ResponseComplete")

    def test_two_destinations(self) -> None:
        """Each destination has its own form and mode; events are counted once."""
        legacy = Lines()
        self.audit = Audit(
            [Destination("log", legacy, "legacy"), Destination("webhook", self.lines, mode=STRICT)],
            self.clock.seconds,
        )
        self.serve(self.waiting)
        self.ask(PODS)
        self.kit.pipe.deliver(ok())
        self.assertEqual((len(legacy), len(self.lines), self.audit.events), (2, 2, 2))
        self.assertIn(b" AUDIT: id=", legacy[0])

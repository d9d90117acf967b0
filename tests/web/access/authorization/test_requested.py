"""Tests of `tower.web.access.authorization.requested`, with the real routers, filters and kept admissions."""

from __future__ import annotations

import json
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.policies import Policies, spec_of, user_of
from tests.fakes.requests import FakeChannel, FakeRequest, fields_with
from tests.fakes.servers import routes_to
from tower.clusters import Clusters
from tower.errors import Forbidden, TowerError, Unauthorized
from tower.kube.status import StatusError
from tower.web.access.admission_cache import AdmissionGeneration
from tower.web.access.authentication.identity import Identity
from tower.web.access.authentication.presented import Presented
from tower.web.access.authentication.union import AuthenticatorUnion
from tower.web.access.filters import authentication_chain, user_chain
from tower.web.outcome import RawStream, Relay, Response
from tower.web.ports.cluster_ports import ClusterPort
from tower.web.ports.door_reviews import DoorReviews
from tower.web.ports.router import FrontDoor

POD = b"/api/v1/namespaces/default/pods/web"
LIST = b"/api/v1/namespaces/default/pods"


class AnyToken:
    """A method whose tokens are ``USER:GROUP``.

    :ivar ended: users whose credentials are no longer valid.
    """

    method = "test"

    def __init__(self) -> None:
        self.ended: set[str] = set()

    def authenticate(self, presented: Presented) -> Identity | None:
        """Return the user of the token."""
        if presented.bearer is None:
            return None
        user, _, group = presented.bearer.decode().partition(":")
        return user_of(user, group)

    def check(self, identity: Identity) -> None:
        """Reject users whose credentials have ended."""
        if identity.user in self.ended or identity.entry is not None:
            raise Unauthorized("ended")


class AskedKubelets:
    """Kubelets that record their users."""

    def __init__(self) -> None:
        self.users: list[tuple[str, tuple[str, ...]]] = []

    def authorize(self, user: str, groups: tuple[str, ...], *_request: object, upgrade: bool) -> None:
        """Accept the user."""
        self.users.append((user, groups))


class RoutedTests(SynchronousTestCase):
    """Requests of users that policies admit."""

    def setUp(self) -> None:
        """Add two clusters."""
        self.policies = Policies()
        clock: Any = self.policies.clock
        self.clusters = Clusters(self.policies.store, None, clock)
        for name in ("alpha", "beta"):
            self.successResultOf(self.clusters.add(name))
        self.method = AnyToken()
        union = AuthenticatorUnion(self.method)
        chain = user_chain(union, self.clusters.get, entry=self.policies.entry)
        generation = AdmissionGeneration(self.policies.store, clock.seconds)
        self.kubelets: Any = AskedKubelets()
        self.front = FrontDoor(
            chain,
            authentication_chain(union),
            routes_to(chain, lambda _: Response(200)),
            lambda *_: None,
            generation,
            kubelets=lambda name: self.kubelets if name == "beta" else None,
            reviews=DoorReviews(self.policies.entry, self.clusters.get, None),
        )
        self.port = ClusterPort(chain, "alpha", generation)
        self.channel = FakeChannel()

    def ask(
        self,
        target: bytes,
        method: bytes = b"GET",
        router: Any = None,
        bearer: bytes = b"jane:dev",
        upgrade: bytes = b"",
    ) -> Any:
        """Route a request; return request and outcome."""
        fields = fields_with(bearer, upgrade=upgrade)
        request = FakeRequest(target, method, fields, self.channel)
        return request, (router or self.front)(request)

    def relayed(self, target: bytes, method: bytes = b"GET", **more: Any) -> Identity:
        """Check that a request is relayed; return its user."""
        request, outcome = self.ask(target, method, **more)
        self.assertIsInstance(outcome, Relay)
        identity: Identity = request.identity
        return identity

    def refused(self, target: bytes, method: bytes = b"GET", **more: Any) -> str:
        """Check that a request is refused; return the text."""
        with self.assertRaises(Forbidden) as caught:
            self.ask(target, method, **more)
        return str(caught.exception)

    def test_every_request(self) -> None:
        """A level holds for each request of a kept-alive connection, on the front door and on the port."""
        self.policies.put("p", spec_of(access="read-only"))
        for prefix, router in ((b"/clusters/alpha", self.front), (b"", self.port)):
            self.channel = FakeChannel()
            for _ in range(2):
                first = self.relayed(prefix + LIST, router=router)
                self.assertIs(self.relayed(prefix + LIST + b"?watch=1", router=router), first)
                self.refused(prefix + LIST, b"POST", router=router)
                self.refused(prefix + POD + b"/exec", router=router)
                self.refused(prefix + LIST, upgrade=b"websocket", router=router)
                self.refused(prefix + b"/api/v1/../" + LIST, router=router)

    def test_errors(self) -> None:
        """The error names verb and object, and what the policy permits."""
        self.policies.put("p", spec_of(access="read-only", targets=["*"]))
        for method, path, action in (
            (b"POST", POD + b"/exec?command=ls", "create pods/exec"),
            (b"DELETE", LIST, "deletecollection pods"),
            (b"PUT", b"/healthz", "PUT /healthz"),
            (b"POST", b"/api/v1/namespaces/d/" + b"x" * 200, "create " + "x" * 92 + "…"),
            (b"POST", b"/targets/grafana/api/%1b[31m", "POST /api/\\x1b[31m"),
        ):
            text = self.refused(b"/clusters/alpha" + path, method)
            self.assertIn(f"jane must not {action} in cluster alpha: access policy p permits only", text)

    def test_path_of_another_port(self) -> None:
        """On a cluster's own port, a path is the cluster's, even if it looks like the front door's."""
        self.policies.put("p", spec_of(access="read-only", targets=["grafana"]))
        self.relayed(b"/clusters/alpha/targets/grafana/d")
        self.channel = FakeChannel()
        self.refused(b"/clusters/alpha/targets/grafana/../../../../api", router=self.port)
        self.refused(b"/clusters/alpha/targets/grafana/d", router=self.port)

    def test_changes_count_at_once(self) -> None:
        """A changed policy, or a changed label, counts for the next request of the connection."""
        self.policies.put("p", spec_of())
        self.relayed(b"/clusters/alpha" + LIST, b"POST")
        self.policies.put("p", spec_of(access="read-only"))
        self.refused(b"/clusters/alpha" + LIST, b"POST")
        self.relayed(b"/clusters/alpha" + LIST)
        self.policies.drop("p")
        self.refused(b"/clusters/alpha" + LIST)

    def test_window(self) -> None:
        """The end of a window counts for the next request of the connection."""
        self.policies.put("p", spec_of(timeWindow={"from": "22:00", "to": "23:00", "timeZone": "UTC"}))
        self.relayed(b"/clusters/alpha" + LIST)  # at 22:13:20
        self.policies.clock.advance(3600)
        self.refused(b"/clusters/alpha" + LIST)

    def test_names_by_request(self) -> None:
        """Each request has the names of the policies that permit it, also on a kept-alive connection."""
        self.policies.put("a", spec_of(names={"groups": ["viewers"]}))
        self.policies.put("b", spec_of(access="read-only", names={"groups": ["admins"]}))
        for _ in range(2):
            read = self.relayed(b"/clusters/alpha" + LIST)
            self.assertEqual(read.in_member.groups, ("viewers", "admins"))
            write = self.relayed(b"/clusters/alpha" + LIST, b"POST")
            self.assertEqual(write.in_member.groups, ("viewers",))

    def test_targets(self) -> None:
        """Targets and raw streams need a policy that names them; streams are not read-only."""
        web, raw = b"/clusters/alpha/targets/grafana/d", b"/clusters/alpha/targets/grafana"
        self.policies.put("p", spec_of())
        self.assertIn("must not use grafana", self.refused(web))
        self.assertIn("must not use grafana", self.refused(raw, upgrade=b"tower-stream"))
        self.policies.put("p", spec_of(targets=["grafana"], access="read-only"))
        self.relayed(web)
        self.refused(web, b"POST")
        self.refused(raw, upgrade=b"tower-stream")
        self.policies.put("p", spec_of(targets=["grafana"], access="no-exec"))
        self.assertEqual(self.ask(raw, upgrade=b"tower-stream")[1], RawStream("alpha", "grafana"))
        self.assertIn("must not use kubernetes", self.refused(b"/clusters/alpha/api"))

    def test_no_destination(self) -> None:
        """Paths of no target are refused to users without all targets, and never permitted."""
        for path in (b"/clusters/alpha/targets/", b"/clusters/alpha/targets/kubernetes/api"):
            self.policies.put("p", spec_of())
            self.assertIn("must not use this path", self.refused(path))
            self.policies.put("p", spec_of(targets=["*"]))
            with self.assertRaises(StatusError) as caught:
                self.ask(path)
            self.assertIn(caught.exception.code, (403, 404))
            with self.assertRaises(TowerError):
                self.ask(path, upgrade=b"tower-stream")

    def test_kubelets(self) -> None:
        """A kubelet's user has the names of the member."""
        self.policies.put("p", spec_of("dev", "beta", targets=["kubelet"], names={"user": "co:{user}"}))
        self.relayed(b"/clusters/beta/targets/kubelet/n1/metrics")
        self.assertEqual(self.kubelets.users, [("co:jane", ("dev",))])
        self.policies.put("p", spec_of("dev", "beta", targets=["kubelet"], access="no-exec"))
        self.refused(b"/clusters/beta/targets/kubelet/n1/run/ns/pod/c", b"POST")

    def test_another_user(self) -> None:
        """Another token on the same connection is another user."""
        self.policies.put("p", spec_of())
        self.relayed(b"/clusters/alpha" + LIST)
        self.refused(b"/clusters/alpha" + LIST, bearer=b"joe:qa")
        self.relayed(b"/clusters/alpha" + LIST)
        self.refused(b"/clusters/beta" + LIST)

    def test_ended_credential(self) -> None:
        """The method checks the user as it found it, and ends the connection's admission."""
        self.policies.put("p", spec_of())
        self.relayed(b"/clusters/alpha" + LIST, b"POST")
        self.relayed(b"/clusters/alpha" + LIST, upgrade=b"websocket")
        self.method.ended.add("jane")
        with self.assertRaises(Unauthorized):
            self.ask(b"/clusters/alpha" + LIST, upgrade=b"websocket")

    def test_disabled_cluster(self) -> None:
        """Only admitted users learn that a cluster is disabled."""
        self.successResultOf(self.clusters.set_enabled("alpha", False))
        self.refused(b"/clusters/alpha" + LIST)
        self.policies.put("p", spec_of())
        with self.assertRaises(StatusError) as caught:
            self.ask(b"/clusters/alpha" + LIST)
        self.assertEqual(caught.exception.code, 503)

    def test_reviews(self) -> None:
        """A review is answered by Tower if a policy forbids the request; else the cluster answers."""
        self.policies.put("p", spec_of(access="read-only"))
        path = b"/clusters/alpha/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        for verb, is_relayed in (("list", True), ("create", False), ("impersonate", False), ("*", False)):
            spec = {"resourceAttributes": {"verb": verb, "resource": "pods", "namespace": "default"}}
            found = self.reviewed(path, {"spec": spec})
            self.assertEqual(isinstance(found, Relay), is_relayed, verb)
            if isinstance(found, Response):
                status = json.loads(found.body)["status"]
                self.assertFalse(status["allowed"])
                self.assertIn(f"must not {verb} pods", status["reason"])
        bodies: tuple[Any, ...] = (
            {},
            {"spec": {}},
            {"spec": 1},
            {"spec": {"resourceAttributes": {"verb": 1}}},
        )
        for body in bodies:
            self.assertIsInstance(self.reviewed(path, body), Relay)
        rules = path.replace(b"access", b"rules")
        found = self.reviewed(rules, {"spec": {"namespace": "default"}})
        status = json.loads(found.body)["status"]
        self.assertTrue(status["incomplete"])
        self.assertIn("access policies permit only read-only access", status["evaluationError"])
        verbs = [rule["verbs"] for rule in status["resourceRules"] + status["nonResourceRules"]]
        self.assertEqual(verbs, [["get", "list", "watch"], ["get", "head", "options"]])
        self.policies.put("q", spec_of(access="no-exec"))
        status = json.loads(self.reviewed(rules, {"spec": {"namespace": "default"}}).body)["status"]
        self.assertIn("permit only no-exec and read-only access", status["evaluationError"])
        self.assertIn("delete", status["resourceRules"][0]["verbs"])
        self.policies.drop("q")
        self.policies.put("p", spec_of())
        self.assertIsInstance(self.reviewed(rules, {"spec": {"namespace": "default"}}), Relay)

    def reviewed(self, path: bytes, body: Any) -> Any:
        """Return the outcome of a review."""
        raw = json.dumps(body).encode()
        request = FakeRequest(path, b"POST", fields_with(b"jane:dev"), self.channel, raw=raw)
        answer = self.front(request)
        return self.successResultOf(answer) if isinstance(answer, Deferred) else answer

    def test_towers_api(self) -> None:
        """Policies do not open Tower's own API, but all users may ask about themselves there."""
        self.policies.put("p", spec_of("dev", "*"))
        self.refused(b"/apis/cluster.kubesphere.io/v1alpha1/clusters")
        review = b"/apis/authentication.k8s.io/v1/selfsubjectreviews"
        self.assertEqual(self.ask(review, b"POST")[1], Response(200))
        self.refused(review)
        review = b"/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        self.assertEqual(self.ask(review, b"POST")[1], Response(200))

    def test_impersonation(self) -> None:
        """An admitted user cannot act as another."""
        self.policies.put("p", spec_of())
        fields = fields_with(b"jane:dev", foreign=b"Impersonate-User")
        request = FakeRequest(b"/clusters/alpha/api", b"GET", fields, self.channel)
        with self.assertRaises(Forbidden):
            self.front(request)

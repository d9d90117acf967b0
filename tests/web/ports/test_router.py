"""Tests for `tower.web.ports.router`."""

from __future__ import annotations

import contextlib
import json
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.credentials import issue
from tests.fakes.pipes import FakePipe
from tests.fakes.requests import EMPTY_TOKEN, FakeChannel, FakeRequest, fields_with
from tower import __version__
from tower.errors import TowerError, Unauthorized
from tower.kube.status import StatusError, refusal_of
from tower.server.chain import ServerChain
from tower.server.tower_server import TowerRoutes, tower_server
from tower.store import MemoryStore
from tower.web.access.admission_cache import AdmissionGeneration
from tower.web.access.authentication.identity import ANONYMOUS, MEMBER_ACCOUNT, Identity
from tower.web.outcome import HandOver, RawStream, Relay, Response
from tower.web.ports import cluster_ports as tested
from tower.web.ports.cluster_ports import ClusterPort, OpenClusterPort, TokenClusterPort
from tower.web.ports.plain_port import PlainPort
from tower.web.ports.router import FrontDoor

PIPE = FakePipe()
API = Response(200, b"the API")

#: The relay of requests below /clusters/alpha.
ALPHA = Relay("alpha", b"/clusters/alpha", scope=b"/clusters/alpha")


class FakeKubeletAccess:
    """Authorizes no user, a user, or a user later."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.answer: Any = None

    def authorize(
        self, user: str, groups: Any, name: str, method: bytes, path: bytes, *, upgrade: bool
    ) -> Any:
        """Record the request."""
        self.asked.append((user, groups, name, method, path, upgrade))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class RouterTestCase(SynchronousTestCase):
    """Calls a router."""

    def setUp(self) -> None:
        """Make routers whose chain records the cluster, and rejects all requests while `closed` is set."""
        self.asked: list[str] = []
        self.taken: list[bytes] = []
        self.closed = False
        chain: Any = self.chain
        api: Any = lambda request: API  # noqa: E731 - a name for the type's sake

        def take(pipe: Any, received: bytes) -> None:
            self.taken.append(received)

        self.generation = AdmissionGeneration(MemoryStore(), lambda: 1e9)
        self.problem = ""
        self.kubelets = FakeKubeletAccess()
        kubelets: dict[str, Any] = {"beta": self.kubelets}
        routes = TowerRoutes(
            chain,
            api,
            ssh_tunnel=lambda: self.problem,
            metrics=lambda: succeed([b"tower_up ", b"1.0\n"]),
            imports=lambda request: Response(200, b"imported " + request.path),
        )
        self.servers = ServerChain(chain, tower_server(routes)).prepare_run()
        self.successResultOf(Deferred.fromCoroutine(self.servers.run()))
        self.front = FrontDoor(chain, chain, self.servers.route, take, self.generation, kubelets=kubelets.get)
        self.plain = PlainPort(take, lambda: self.problem, self.servers.health.answer)
        self.port = ClusterPort(chain, "alpha", self.generation)

    def chain(self, request: Any, cluster: str, end: Any) -> Any:
        """Accept or reject a request."""
        self.asked.append(cluster)
        if self.closed:
            raise Unauthorized
        if request.identity is None:
            request.identity = Identity("jane", ("dev",), issue(cluster=cluster, expires=0.0))
        return end()

    def ask(
        self, router: Any, target: bytes, method: bytes = b"GET", upgrade: bytes = b"", **lines: bytes
    ) -> Any:
        """Return the outcome."""
        return router(FakeRequest(target, method, fields_with(upgrade=upgrade, **lines)))

    def refused(self, code: int, router: Any, target: bytes, *arguments: Any, **lines: bytes) -> str:
        """Check that a request is rejected with *code*; return the text."""
        with self.assertRaises(TowerError) as caught:
            self.ask(router, target, *arguments, **lines)
        self.assertEqual(refusal_of(caught.exception).code, code, target)
        return str(caught.exception)


class FrontDoorTests(RouterTestCase):
    """The front door."""

    def test_import_urls(self) -> None:
        """An import URL needs no credential; a path that only resembles one is not served by its page."""
        answer = self.ask(self.front, b"/import/s3cret")
        self.assertEqual(answer.body, b"imported /import/s3cret")
        self.assertEqual(self.asked, [])
        for path in (b"/import", b"/imports/x", b"/clusters/import/x"):
            with contextlib.suppress(TowerError):
                self.assertNotIsInstance(self.ask(self.front, path), Response)

    def test_clusters(self) -> None:
        """The path after the cluster's name is the cluster's, byte for byte."""
        for rest in (b"", b"/", b"/api/v1/pods", b"?a=b", b"/a%2fb/..%2f?x=/clusters/beta", b"//x\\y"):
            relay = self.ask(self.front, b"/clusters/alpha" + rest)
            self.assertEqual(relay, ALPHA)
        self.assertEqual(set(self.asked), {"alpha"})

    def test_same_object(self) -> None:
        """The route to a cluster is cached."""
        first = self.ask(self.front, b"/clusters/alpha/x")
        self.assertIs(self.ask(self.front, b"/clusters/alpha/y"), first)

    def test_no_name(self) -> None:
        """An invalid name is not found; escapes in the name are rejected."""
        for name in (b"", b"Alpha", b"-a", b"a-", b"a.b", b"a" * 64, b"a_b"):
            self.refused(404, self.front, b"/clusters/" + name + b"/api")
        for name in (b"%61lpha", b"alpha%2fapi", b"alpha%2Fx", b"al\\pha"):
            self.refused(400, self.front, b"/clusters/" + name + b"/api")
        self.assertEqual(self.asked, [])

    def test_escapes_in_our_own_paths(self) -> None:
        """On other paths, escapes, backslashes and empty segments are rejected first."""
        for path in (
            b"/%61pis",
            b"/apis/cluster.kubesphere.io%2fv1alpha1",
            b"/apis//x",
            b"//clusters/alpha",
            b"/clusters%2falpha",
            b"/apis\\x",
        ):
            self.refused(400, self.front, path)
        self.assertEqual(self.asked, [])

    def test_api(self) -> None:
        """Tower's own API is behind the chain, without a cluster."""
        for path in (b"/api", b"/apis", b"/apis/x?y=%20", b"/openapi/v3", b"/api/v1"):
            self.assertIs(self.ask(self.front, path), API)
        self.assertEqual(set(self.asked), {""})

    def at_root(self, cluster: str, target: bytes) -> Any:
        """Request *target* with a credential for *cluster*."""
        request = FakeRequest(target, fields=fields_with(b"secret"))
        request.identity = Identity("jane", ("dev",), issue(cluster=cluster, expires=0.0))
        router: Any = self.front
        return router(request)

    def test_at_home(self) -> None:
        """Kubernetes' paths, with a cluster's credential, are that cluster's, byte for byte."""
        for target in (b"/version", b"/api/v1/pods?x=%2e", b"/apis/apps//v1", b"/openapi/v3", b"/healthz"):
            self.assertEqual(self.at_root("alpha", target), Relay("alpha", scope=ALPHA.scope))
        self.assertEqual(self.asked, ["", "alpha"] * 5)

    def test_not_at_home(self) -> None:
        """Tower's own group and other paths stay Tower's, as do all paths of an administrator."""
        for target in (b"/apis/cluster.kubesphere.io", b"/apis/cluster.kubesphere.io/v1alpha1/clusters"):
            self.assertIs(self.at_root("alpha", target), API)
        self.assertEqual(self.asked, ["", ""])
        self.assertIs(self.at_root("", b"/api"), API)
        self.assertEqual(self.at_root("", b"/healthz").body, b"ok")
        for target in (b"/clusters", b"/logs", b"//api"):
            with self.assertRaises(TowerError):
                self.at_root("alpha", target)

    def test_nothing_else(self) -> None:
        """Other paths do not exist; only whole segments match."""
        for path in (b"/x", b"/apisx", b"/clusters", b"/metrics2", b"/metrics/x", b"/openapix", b"*"):
            self.refused(404, self.front, path)

    def test_metrics(self) -> None:
        """The metrics are for administrators: page and method are behind the chain, without a cluster."""
        page = self.successResultOf(self.ask(self.front, b"/metrics"))
        self.assertEqual((page.code, page.body), (200, b"tower_up 1.0\n"))
        self.assertIn((b"Content-Type", b"text/plain; version=0.0.4; charset=utf-8"), page.headers)
        self.assertEqual(self.asked, [""])
        self.refused(405, self.front, b"/metrics", b"POST")
        self.closed = True
        for method in (b"GET", b"POST"):
            self.refused(401, self.front, b"/metrics", method)

    def test_metrics_of_a_cluster(self) -> None:
        """With a cluster's credential, /metrics is its API server's; with an administrator's, Tower's."""
        self.assertEqual(self.at_root("alpha", b"/metrics"), Relay("alpha", scope=ALPHA.scope))
        self.assertEqual(self.successResultOf(self.at_root("", b"/metrics")).code, 200)
        for router in (self.plain, self.port):
            outcome = None
            with contextlib.suppress(TowerError):
                outcome = self.ask(router, b"/metrics")
            self.assertTrue(outcome is None or isinstance(outcome, Relay))

    def test_probes(self) -> None:
        """Health pages are public; readiness differs from liveness."""
        for router in (self.front, self.plain):
            for path in (b"/healthz", b"/livez", b"/readyz"):
                self.assertEqual(self.ask(router, path).body, b"ok")
        self.servers.announce_stop()
        for router in (self.front, self.plain):
            self.assertEqual(self.ask(router, b"/livez").code, 200)
            self.assertEqual(self.ask(router, b"/readyz").code, 500)
        self.refused(405, self.front, b"/healthz", b"POST")

    def test_ssh_tunnel_check(self) -> None:
        """Both ports have the check of nodes and keys, with upstream's texts."""
        path = b"/healthz/ssh-tunnel"
        for router in (self.front, self.plain):
            self.problem = ""
            self.assertEqual((self.ask(router, path).code, self.ask(router, path).body), (200, b"ok"))
            self.assertIn(b"[+]SSH Tunnel Check ok\n", self.ask(router, path + b"?verbose").body)
            for self.problem in (
                "tunnel sync is taking too long: 601",
                "SSHKey sync is taking too long: 901",
            ):
                answer = self.ask(router, path)
                self.assertEqual((answer.code, answer.body), (500, self.problem.encode() + b"\n"))
                self.assertIn((b"Content-Type", b"text/plain; charset=utf-8"), answer.headers)
            self.refused(405, router, path, b"POST")
            for other in (b"/healthz/", b"/healthz/ssh-tunnels", b"/healthz/etcd", path + b"/"):
                self.refused(404, router, other)
        self.assertEqual(self.asked, [])

    def test_version(self) -> None:
        """The version is public."""
        self.assertIn("gitVersion", json.loads(self.ask(self.front, b"/version").body))

    def test_agents(self) -> None:
        """Agents use /agent, or any path with the exact subprotocol."""
        for path, protocol in ((b"/agent", None), (b"/", b"tower-v2"), (b"/old/path", b"tower-v2")):
            lines = {} if protocol is None else {"sec_websocket_protocol": protocol}
            outcome = self.ask(self.front, path, b"GET", b"WebSocket", **lines)
            assert isinstance(outcome, HandOver)
            outcome.take(PIPE, path)
        self.assertEqual(self.taken, [b"/agent", b"/", b"/old/path"])

    def test_not_quite_agents(self) -> None:
        """Another subprotocol, a list of them, or no WebSocket is not an agent."""
        for protocol in (b"tower-v1", b"tower-v2, x", b"TOWER-V2", b""):
            self.refused(404, self.front, b"/x", b"GET", b"websocket", sec_websocket_protocol=protocol)
        self.refused(426, self.front, b"/agent")
        self.refused(426, self.front, b"/agent", b"GET", b"spdy/3.1")

    def test_agent_protocol_below_a_cluster(self) -> None:
        """Below /clusters every request is a user's, with any protocol."""
        outcome = self.ask(
            self.front, b"/clusters/alpha/x", b"GET", b"websocket", sec_websocket_protocol=b"tower-v2"
        )
        self.assertIsInstance(outcome, Relay)

    def test_raw_streams(self) -> None:
        """A raw stream to a target requires an upgrade to tower-stream, and passes the chain."""
        for upgrade in (b"tower-stream", b"Tower-Stream"):
            outcome = self.ask(self.front, b"/clusters/alpha/targets/pg-1.main", b"GET", upgrade)
            self.assertEqual(outcome, RawStream("alpha", "pg-1.main"))
        self.closed = True
        self.refused(401, self.front, b"/clusters/alpha/targets/pg", b"GET", b"tower-stream")

    def test_no_raw_way_to_the_api_server(self) -> None:
        """The target kubernetes trusts the identity in a stream, so it has no raw streams."""
        self.refused(403, self.front, b"/clusters/alpha/targets/kubernetes", b"GET", b"tower-stream")

    def test_bad_raw_streams(self) -> None:
        """An upgrade to tower-stream is only valid for targets with a valid name."""
        for rest in (
            b"",
            b"/",
            b"/targets/",
            b"/targets/a/b",
            b"/targets/%61",
            b"/targets/kubernetes/",
            b"/targets/Kubernetes",
            b"/targets/a?x=y",
            b"/targets/127.0.0.1:22",
            b"/targets/-a",
        ):
            self.refused(400, self.front, b"/clusters/alpha" + rest, b"GET", b"tower-stream")

    def test_targets_without_an_upgrade(self) -> None:
        """Requests without the upgrade are relayed unchanged; the path after the target's name is its own."""
        prefix = b"/clusters/alpha/targets/wiki-1.main"
        for rest in (b"", b"/", b"?a=b", b"/a%2fb//..%2f?x", b"/targets/kubernetes"):
            self.assertEqual(
                self.ask(self.front, prefix + rest),
                Relay("alpha", prefix, "wiki-1.main", plain=True, scope=prefix),
            )
        self.assertIs(self.ask(self.front, prefix), self.ask(self.front, prefix + b"/x"))
        upgraded = self.ask(self.front, prefix + b"/ws", b"GET", b"websocket")
        self.assertEqual(upgraded.target, "wiki-1.main")
        self.assertEqual(set(self.asked), {"alpha"})
        self.closed = True
        self.refused(401, self.front, prefix + b"/")

    def test_no_targets(self) -> None:
        """The API server and an invalid name are not plain targets."""
        for rest in (b"", b"/", b"/api", b"?x"):
            self.refused(403, self.front, b"/clusters/alpha/targets/kubernetes" + rest)
        for rest in (
            b"",
            b"/",
            b"Wiki",
            b"wiki%2f",
            b"-a",
            b"127.0.0.1:80/",
            b"a" * 64,
            b"wiki;x/",
            b"%77iki",
        ):
            self.refused(404, self.front, b"/clusters/alpha/targets/" + rest)
        for rest in (b"/targets", b"/targetsx/a", b"/%74argets/wiki/", b"//targets/wiki", b"/x/targets/wiki"):
            self.assertEqual(self.ask(self.front, b"/clusters/alpha" + rest), ALPHA)
        self.closed = True
        self.refused(401, self.front, b"/clusters/alpha/targets/kubernetes")
        self.refused(401, self.front, b"/clusters/alpha/targets/")

    def test_kubelets(self) -> None:
        """A kubelet is a target below a node's name; the cluster authorizes each request."""
        prefix = b"/clusters/beta/targets/kubelet/n1.example"
        for rest in (b"/stats/summary?x=/y", b"", b"/", b"?a"):
            relay = self.ask(self.front, prefix + rest)
            self.assertEqual(relay, Relay("beta", prefix, "kubelet/n1.example", plain=True, scope=prefix))
        self.assertEqual(
            self.kubelets.asked[0], ("jane", ("dev",), "n1.example", b"GET", b"/stats/summary", False)
        )
        self.assertEqual([asked[4] for asked in self.kubelets.asked[1:]], [b"", b"/", b""])
        self.ask(self.front, prefix + b"/exec/a/b/c", b"POST", b"SPDY/3.1")
        self.assertEqual(self.kubelets.asked[-1][3:], (b"POST", b"/exec/a/b/c", True))
        self.assertEqual(set(self.asked), {"beta"})

    def test_kubelets_at_ipv6(self) -> None:
        """A node's address is a valid name."""
        for node in (b"::1", b"2001:db8::", b"fd00::2"):
            relay: Any = self.ask(self.front, b"/clusters/beta/targets/kubelet/%b/pods" % node)
            self.assertEqual(relay.target, f"kubelet/{node.decode()}")

    def test_kubelets_are_asked_about_each_time(self) -> None:
        """An authorization for one request does not cover the next one of its connection."""
        fields, channel = fields_with(), FakeChannel()
        router: Any = self.front
        for path in (b"/a", b"/b"):
            router(FakeRequest(b"/clusters/beta/targets/kubelet/n1" + path, fields=fields, channel=channel))
        self.assertEqual([asked[4] for asked in self.kubelets.asked], [b"/a", b"/b"])
        self.assertIsNone(channel.admission)

    def test_kubelets_of_those_who_may(self) -> None:
        """A rejected request is not relayed; one that waits is relayed after the authorization."""
        target = b"/clusters/beta/targets/kubelet/n1/pods"
        self.kubelets.answer = StatusError(403, "no")
        self.refused(403, self.front, target)
        waiting: Deferred[None] = Deferred()
        self.kubelets.answer = waiting
        outcome = self.ask(self.front, target)
        self.assertNoResult(outcome)
        waiting.callback(None)
        self.assertEqual(self.successResultOf(outcome).target, "kubelet/n1")
        self.kubelets.answer = fail(StatusError(403, "no"))
        self.failureResultOf(self.ask(self.front, target), StatusError)

    def test_kubelets_behind_the_chain(self) -> None:
        """A user without access to the cluster learns nothing about its nodes."""
        self.closed = True
        for rest in (b"", b"/", b"/n1", b"/n1/pods"):
            self.refused(401, self.front, b"/clusters/beta/targets/kubelet" + rest)
        self.assertEqual(self.kubelets.asked, [])

    def test_no_kubelets(self) -> None:
        """An invalid node name has no kubelet, and a kubelet has no raw streams."""
        for rest in (b"", b"/", b"?x", b"//", b"/-a/", b"/a%2fb", b"/..", b"/" + b"a" * 300):
            self.refused(404, self.front, b"/clusters/beta/targets/kubelet" + rest)
        self.refused(400, self.front, b"/clusters/beta/targets/kubelet/n1", b"GET", b"tower-stream")
        self.assertEqual(self.kubelets.asked, [])

    def test_targets_of_that_name(self) -> None:
        """The target `kubelet` of a cluster with an agent is an ordinary one."""
        prefix = b"/clusters/alpha/targets/kubelet"
        for rest in (b"", b"/n1/pods"):
            relay = self.ask(self.front, prefix + rest)
            self.assertEqual(relay, Relay("alpha", prefix, "kubelet", plain=True, scope=prefix))
        self.assertEqual(self.kubelets.asked, [])

    def test_no_kubelets_on_ports_of_clusters(self) -> None:
        """On a cluster's own port every path is the cluster's."""
        self.assertEqual(self.ask(self.port, b"/targets/kubelet/n1/pods"), Relay("alpha"))

    def test_ways_are_bounded(self) -> None:
        """Names that do not exist do not fill the cache."""
        self.closed = True
        for number in range(20_010):
            for path in (b"/clusters/x%d/", b"/clusters/a/targets/x%d/"):
                with self.assertRaises(Unauthorized):
                    self.ask(self.front, path % number)


class PlainPortTests(RouterTestCase):
    """The port without TLS."""

    def test_health_and_version(self) -> None:
        """Health and version are as in KubeSphere Tower."""
        self.assertEqual(self.ask(self.plain, b"/health").body, b"OK\n")
        for path in (b"/healthz", b"/readyz", b"/livez"):
            self.assertEqual(self.ask(self.plain, path).body, b"ok")
        self.assertEqual(self.ask(self.plain, b"/version").body, f"{__version__}\n".encode())
        self.refused(405, self.plain, b"/health", b"DELETE")

    def test_agents(self) -> None:
        """Agents are accepted."""
        for path, lines in ((b"/agent", {}), (b"/", {"sec_websocket_protocol": b"tower-v2"})):
            self.assertIsInstance(self.ask(self.plain, path, b"GET", b"websocket", **lines), HandOver)

    def test_nothing_for_users(self) -> None:
        """Neither clusters nor the API are served, with any credential or path."""
        for path in (
            b"/clusters/alpha/api",
            b"/apis",
            b"/api",
            b"/openapi/v3",
            b"/",
            b"/clusters/alpha/targets/pg",
        ):
            self.assertIn("--secure-port", self.refused(404, self.plain, path))
        self.refused(404, self.plain, b"/clusters/alpha/targets/pg", b"GET", b"tower-stream")
        self.assertEqual(self.asked, [])


class ClusterPortTests(RouterTestCase):
    """A cluster's own port."""

    def test_everything_is_the_clusters(self) -> None:
        """Every path is relayed to the cluster."""
        for target in (b"/", b"/apis", b"/clusters/beta/api", b"/agent", b"/healthz", b"/version", b"/a%2f"):
            self.assertEqual(self.ask(self.port, target), Relay("alpha", b""))
        outcome = self.ask(self.port, b"/", b"GET", b"websocket", sec_websocket_protocol=b"tower-v2")
        self.assertIsInstance(outcome, Relay)
        self.assertEqual(set(self.asked), {"alpha"})

    def test_chain(self) -> None:
        """The chain is the front door's."""
        self.closed = True
        self.refused(401, self.port, b"/version")


class OpenClusterPortTests(RouterTestCase):
    """A cluster's own port without required authentication."""

    def ask_with(self, bearer: bytes | None, **more: Any) -> tuple[Any, Any]:
        """Return the outcome for a request with that token, and its identity."""
        request = FakeRequest(b"/clusters/beta/api", fields=fields_with(bearer, **more))
        return self.open(request), request.identity

    def setUp(self) -> None:
        """Make the router."""
        super().setUp()
        chain: Any = self.chain
        self.open = OpenClusterPort(chain, "alpha", self.generation)

    def test_anybody(self) -> None:
        """A request without a token of Tower is relayed unchanged, without authentication."""
        self.closed = True
        for bearer in (None, b"", b"eyJhbGciOi", b"tower-v1-x", b"Towerk-"):
            outcome, who = self.ask_with(bearer, upgrade=b"websocket")
            self.assertEqual((outcome, who), (Relay("alpha", plain=True), ANONYMOUS))
        outcome, who = self.ask_with(None, sec_websocket_protocol=EMPTY_TOKEN)
        self.assertEqual((outcome, who), (Relay("alpha", plain=True), ANONYMOUS))
        self.assertEqual(self.asked, [])

    def test_tokens_of_tower(self) -> None:
        """A token of Tower is authenticated, and rejected if it is not valid."""
        outcome, who = self.ask_with(b"towerk-secret")
        self.assertEqual((outcome, self.asked), (Relay("alpha", b""), ["alpha"]))
        self.assertIsNot(who, ANONYMOUS)
        self.closed = True
        with self.assertRaises(Unauthorized):
            self.ask_with(b"towerk-ended")

    def test_one_after_the_other(self) -> None:
        """On one connection each request depends only on its own header."""
        channel = FakeChannel()
        for bearer, plain in ((b"towerk-a", False), (None, True), (b"towerk-a", False), (b"x", True)):
            request: Any = FakeRequest(b"/api", fields=fields_with(bearer), channel=channel)
            request.identity = Identity("jane", ("dev",), issue(expires=2e9))
            outcome: Any = self.open(request)
            self.assertEqual((outcome.plain, request.identity is ANONYMOUS), (plain, plain))


class TokenClusterPortTests(RouterTestCase):
    """A cluster's own port that accepts tokens of the cluster's own service accounts."""

    def setUp(self) -> None:
        """Make the router."""
        super().setUp()
        chain: Any = self.chain
        self.accepting = TokenClusterPort(chain, "alpha", self.generation)

    def test_other_tokens(self) -> None:
        """All requests but those with such a token pass the chain."""
        for bearer in (None, b"towerk-secret", b"a.b.c", b"a.eyJzdWIiOiJqYW5lIn0.c"):
            request = FakeRequest(b"/api", fields=fields_with(bearer))
            self.assertEqual(self.accepting(request), Relay("alpha", b""))
            self.assertIsNot(request.identity, MEMBER_ACCOUNT)
        self.assertEqual(self.asked, ["alpha"] * 4)

    def test_tokens_for_the_door(self) -> None:
        """A token of an account that a trusted provider issued is Tower's: no cluster gets it."""
        bearer = b"a.eyJzdWIiOiJzeXN0ZW06c2VydmljZWFjY291bnQ6YTpiIn0.c"
        chain: Any = self.chain
        self.patch(tested, "check_claims", lambda *_: None)
        for is_for_door in (False, True):
            port = TokenClusterPort(
                chain, "alpha", self.generation, ([bearer] if is_for_door else []).__contains__
            )
            request = FakeRequest(b"/api", fields=fields_with(bearer))
            port(request)
            self.assertEqual(request.identity is MEMBER_ACCOUNT, not is_for_door)

    def test_nothing_without_token(self) -> None:
        """The identity is never used for a request without a token, which would act as the agent."""
        with self.assertRaises(Unauthorized):
            MEMBER_ACCOUNT.member_token(None)
        self.assertFalse(MEMBER_ACCOUNT.uses(b"towerk-secret"))

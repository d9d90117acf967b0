"""Tests of `tower.web.access.admission_cache` with the real routers, filters and records."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.credentials import authenticator
from tests.fakes.requests import EMPTY_TOKEN, FakeChannel, FakeRequest, fields_with
from tests.fakes.servers import routes_to
from tower.clusters import Clusters
from tower.clusters.credentials import Credentials
from tower.errors import Forbidden, TowerError, Unauthorized
from tower.kube.status import StatusError
from tower.store import MemoryStore
from tower.web.access.admission_cache import AdmissionGeneration
from tower.web.access.authentication.union import AuthenticatorUnion
from tower.web.access.filters import FilterChain, authentication_chain, user_chain
from tower.web.outcome import RawStream, Relay, Response
from tower.web.ports.cluster_ports import ClusterPort
from tower.web.ports.router import FrontDoor

NOW = 1_700_000_000.0


class StandingTests(SynchronousTestCase):
    """An admission is reused until something that it depends on changes."""

    def setUp(self) -> None:
        """Add two clusters and jane, a user of alpha, and count the chain's calls."""
        self.clock = Clock()
        self.clock.advance(NOW)
        clock: Any = self.clock
        self.store = MemoryStore()
        self.clusters = Clusters(self.store, None, clock)
        self.credentials = Credentials(self.store, clock, 86400.0)
        for name in ("alpha", "beta"):
            self.successResultOf(self.clusters.add(name))
        self.jane_credential, self.jane = self.issue("alpha", "jane")
        self.asked = 0

        def count(_request: Any, _cluster: str) -> None:
            self.asked += 1

        methods = authenticator(self.credentials, clock)
        self.generation = AdmissionGeneration(self.store, clock.seconds)
        chain = FilterChain(count, user_chain_filter(methods, self.clusters))
        self.front = FrontDoor(
            chain,
            authentication_chain(methods),
            routes_to(chain, lambda _: Response(200)),
            lambda *_: None,
            self.generation,
        )
        self.port = ClusterPort(chain, "alpha", self.generation)
        self.channel = FakeChannel()

    def issue(self, cluster: str, user: str, ttl: float = 3600) -> tuple[Any, bytes]:
        """Return a new credential and its token."""
        credential, token = self.successResultOf(self.credentials.issue_token(cluster, user, [], ttl))
        return credential, token.encode()

    def ask(
        self,
        target: bytes = b"/clusters/alpha/api",
        bearer: bytes | None = None,
        router: Any = None,
        **more: Any,
    ) -> Any:
        """Route a request; return the outcome."""
        fields = fields_with(self.jane if bearer is None else bearer, **more)
        request: Any = FakeRequest(target, fields=fields, channel=self.channel)
        outcome = (router or self.front)(request)
        if isinstance(outcome, Relay):
            self.assertEqual(request.identity.user, "jane")
        return outcome

    def refused(self, kind: type[TowerError], *arguments: Any, **more: Any) -> None:
        """Check that a request is rejected."""
        with self.assertRaises(kind):
            self.ask(*arguments, **more)

    def test_stands(self) -> None:
        """The filters run once for the requests of one connection to one cluster, whatever their paths."""
        first = self.ask()
        for rest in (b"/", b"/api/v1/pods?watch=1", b"/x/../y"):
            self.assertIs(self.ask(b"/clusters/alpha" + rest), first)
        self.assertEqual(self.asked, 1)
        self.channel = FakeChannel()
        self.ask()
        self.assertEqual(self.asked, 2)

    def test_port(self) -> None:
        """On a cluster's own port every path is covered."""
        for target in (b"/", b"/clusters/beta/x", b"/version"):
            self.assertEqual(self.ask(target, router=self.port), Relay("alpha", b""))
        self.assertEqual(self.asked, 1)

    def test_rules(self) -> None:
        """Rules decide on each request, also if the other filters do not run."""
        seen: list[tuple[bytes, Any]] = []
        waiting: Deferred[None] = Deferred()

        def rules(request: Any, _cluster: str) -> Deferred[None] | None:
            seen.append((request.target, request.destination))
            if request.target.endswith(b"/no"):
                raise StatusError(403, "no rule")
            return waiting if request.target.endswith(b"/wait") else None

        first = self.ask()
        self.generation.rules = rules
        for rest in (b"/a", b"/b"):
            self.assertIs(self.ask(b"/clusters/alpha" + rest), first)
        self.refused(StatusError, b"/clusters/alpha/no")
        later = self.ask(b"/clusters/alpha/wait")
        self.assertNoResult(later)
        waiting.callback(None)
        self.assertIs(self.successResultOf(later), first)
        self.assertEqual(self.asked, 1)
        expected = [b"/clusters/alpha" + rest for rest in (b"/a", b"/b", b"/no", b"/wait")]
        self.assertEqual(seen, [(target, first) for target in expected])

    def test_elsewhere(self) -> None:
        """The filters run for other clusters, and for names with the same prefix."""
        self.ask()
        for target in (b"/clusters/beta/api", b"/clusters/alphab/api", b"/clusters/alpha%2f"):
            self.refused(TowerError, target)
        prefix = b"/clusters/alpha"
        self.assertEqual(self.ask(prefix), Relay("alpha", prefix, scope=prefix))
        self.assertGreater(self.asked, 3)

    def test_paths_without_the_cluster(self) -> None:
        """A request without the cluster's prefix is not cached: Tower's own paths have the same form."""
        self.assertEqual(self.ask(b"/api/v1/pods"), Relay("alpha", b"", scope=b"/clusters/alpha"))
        self.refused(Forbidden, b"/apis/cluster.kubesphere.io/v1alpha1")
        self.refused(Forbidden, b"/clusters/beta/api")

    def test_other_credential(self) -> None:
        """The filters run if the same connection sends another token, a bad one or none."""
        self.ask()
        self.refused(Unauthorized, bearer=b"other")
        self.refused(Unauthorized, bearer=b"")
        self.refused(Unauthorized, bearer=b"", sec_websocket_protocol=EMPTY_TOKEN)
        _, joe = self.issue("beta", "joe")
        self.refused(Forbidden, bearer=joe)
        self.ask()

    def test_foreign_identity(self) -> None:
        """An impersonation header is rejected, also after an accepted request."""
        self.ask()
        self.refused(Forbidden, foreign=b"Impersonate-User")

    def test_targets(self) -> None:
        """Admissions to a cluster and to its targets are cached separately; none covers another."""
        prefix = b"/clusters/alpha/targets/wiki"
        target = Relay("alpha", prefix, "wiki", plain=True, scope=prefix)
        cluster = Relay("alpha", b"/clusters/alpha", scope=b"/clusters/alpha")
        for path, relay in (
            (b"/clusters/alpha/api", cluster),
            (b"/clusters/alpha/targets/wiki/", target),
            (b"/clusters/alpha/targets/wiki/targets/x", target),
            (b"/clusters/alpha/targets", cluster),
            (b"/clusters/alpha/targetsx", cluster),
            (b"/clusters/alpha/targets/wiki?x", target),
            (b"/clusters/alpha/api/targets/", cluster),
        ):
            self.assertEqual(self.ask(path), relay, path)
        self.assertEqual(self.asked, 5)
        self.refused(StatusError, b"/clusters/alpha/targets/kubernetes/api")
        self.ask(b"/clusters/alpha/targets/wiki/")
        self.refused(Forbidden, b"/clusters/alpha/targets/wiki/", foreign=b"Impersonate-User")
        self.assertEqual(self.ask(b"/targets/x", router=self.port), Relay("alpha", b""))

    def test_raw_stream(self) -> None:
        """The filters run for each upgrade."""
        self.ask(b"/clusters/alpha/targets/pg")
        outcome = self.ask(b"/clusters/alpha/targets/pg", upgrade=b"tower-stream")
        self.assertEqual(outcome, RawStream("alpha", "pg"))

    def test_revoked(self) -> None:
        """A revoked credential is rejected with the next request; revoking another runs the filters."""
        other, _ = self.issue("alpha", "joe")
        self.ask()
        self.successResultOf(self.credentials.revoke(other.id))
        self.ask()
        self.assertEqual(self.asked, 2)
        self.successResultOf(self.credentials.revoke(self.jane_credential.id))
        self.refused(Unauthorized)

    def test_expired(self) -> None:
        """An admission is valid until the credential expires; setting the clock back does not extend it."""
        self.ask()
        self.clock.advance(3599)
        self.ask()
        self.assertEqual(self.asked, 1)
        self.clock.advance(1)
        self.refused(Unauthorized)
        self.clock.rightNow = NOW - 400
        self.refused(Unauthorized)

    def test_cluster(self) -> None:
        """A cluster that was disabled, or replaced by one of the same name, is not reached any more."""
        self.ask()
        self.successResultOf(self.clusters.set_enabled("alpha", False))
        self.refused(StatusError)
        self.successResultOf(self.clusters.set_enabled("alpha", True))
        self.ask()
        self.successResultOf(self.clusters.remove("alpha"))
        self.successResultOf(self.clusters.add("alpha"))
        self.refused(Unauthorized)

    def test_changed_meanwhile(self) -> None:
        """The next request sees a change that happens while the filters run."""
        revoked: list[Any] = []

        def meddle(_request: Any, _cluster: str) -> None:
            if not revoked:
                revoked.append(self.credentials.revoke(self.jane_credential.id))

        clock: Any = self.clock
        methods = authenticator(self.credentials, clock)
        chain = FilterChain(user_chain_filter(methods, self.clusters), meddle)
        router = ClusterPort(chain, "alpha", self.generation)
        self.ask(router=router)
        self.refused(Unauthorized, router=router)

    def test_stopped(self) -> None:
        """No admission is valid after the records are no longer followed."""
        self.ask()
        self.generation.stop()
        self.ask()
        self.assertEqual(self.asked, 2)


def user_chain_filter(methods: AuthenticatorUnion, clusters: Clusters) -> Any:
    """Return the complete chain of the proxy as one filter."""
    chain = user_chain(methods, clusters.get)

    def admit(request: Any, cluster: str) -> None:
        chain(request, cluster, lambda: Response(200))

    return admit

"""Tests for `tower.web.access.filters`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import evolve
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.credentials import authenticator
from tests.fakes.requests import FakeChannel, FakeRequest, fields_with
from tower.clusters import Clusters
from tower.clusters.credentials import Credential, Credentials
from tower.clusters.member_credentials import MemberCredentials
from tower.clusters.ssh_spec import SSHSpec
from tower.errors import Forbidden, NotFound, Outdated, TowerError, Unauthorized
from tower.kube.kubeconfig import KubeAccess
from tower.kube.status import StatusError
from tower.store import MemoryStore
from tower.trust.vault import Vault
from tower.web.access.authentication.anonymous import AnonymousAuthenticator
from tower.web.access.authentication.identity import Identity
from tower.web.access.authentication.presented import Presented
from tower.web.access.authentication.union import AuthenticatorUnion
from tower.web.access.filters import FilterChain, user_chain
from tower.web.outcome import Relay

RELAY = Relay("alpha", b"/clusters/alpha")
NOW = 1_700_000_000.0


def request(bearer: str | None = None, **more: Any) -> Any:
    """Return a request with a token."""
    return FakeRequest(fields=fields_with(bearer.encode() if bearer else None), **more)


class UserChainTests(SynchronousTestCase):
    """The chain of the front door and of the clusters' ports."""

    def setUp(self) -> None:
        """Add two clusters and a user of each."""
        self.clock = Clock()
        self.clock.advance(NOW)
        clock: Any = self.clock
        self.store = MemoryStore()
        self.accesses = MemberCredentials(self.store, Vault(f"{self.mktemp()}.key"))
        self.clusters = Clusters(self.store, None, clock, self.accesses)
        self.credentials = Credentials(self.store, clock, 86400.0)
        for name in ("alpha", "beta"):
            self.successResultOf(self.clusters.add(name))
        self.chain = user_chain(authenticator(self.credentials, clock), self.clusters.get)
        self.jane_credential, self.jane = self.issue("alpha", "jane")
        _, self.admin = self.issue("", "root", "tower:admins")

    def issue(self, cluster: str, user: str, *groups: str) -> tuple[Credential, str]:
        """Return a new credential and its token."""
        return self.successResultOf(self.credentials.issue_token(cluster, user, groups, 3600))

    def passes(self, asked: Any, cluster: str = "alpha") -> None:
        """Check that *asked* passes."""
        self.assertIs(self.chain(asked, cluster, lambda: RELAY), RELAY)

    def refused(self, kind: type[TowerError], asked: Any, cluster: str = "alpha") -> str:
        """Check that *asked* is rejected before the end of the chain; return the text."""
        with self.assertRaises(kind) as caught:
            self.chain(asked, cluster, self.fail)
        return str(caught.exception)

    def test_passes(self) -> None:
        """Jane may use alpha, an administrator the API; the request has the identity."""
        asked = request(self.jane)
        self.passes(asked)
        self.assertEqual(asked.identity.user, "jane")
        self.passes(request(self.admin), "")

    def test_certificate(self) -> None:
        """A certificate is equivalent to a token."""
        made = self.credentials.register_certificate("alpha", "joe", [], 60, "3c" * 32)
        self.successResultOf(made)
        asked = request(channel=FakeChannel(certificates=(b"DER",)))
        self.refused(Unauthorized, asked)  # an unknown one

    def test_anonymous(self) -> None:
        """A request without a credential is rejected, and the text has the command to get one."""
        for cluster in ("alpha", "", "nope"):
            self.assertIn("tower kubeconfig", self.refused(Unauthorized, request(), cluster))

    def test_admitted_anonymous(self) -> None:
        """With an option, such a request has a user without any right at Tower itself."""
        methods = AuthenticatorUnion(anonymous=AnonymousAuthenticator())
        self.chain = user_chain(methods, self.clusters.get)
        path = b"/apis/authentication.k8s.io/v1/selfsubjectreviews"
        for asked, cluster in (
            (request(), ""),
            (request(target=path, method=b"POST"), ""),
        ):
            self.assertIn("system:anonymous", self.refused(Forbidden, asked, cluster))
        self.assertIn("tower kubeconfig", self.refused(Unauthorized, request("bad"), ""))

    def test_elsewhere(self) -> None:
        """Jane's credential is only valid for alpha, and an administrator's only for Tower's API."""
        self.refused(Forbidden, request(self.jane), "beta")
        self.refused(Forbidden, request(self.jane), "")
        self.refused(Forbidden, request(self.admin), "alpha")

    def test_no_admin(self) -> None:
        """The API requires the group tower:admins."""
        _, token = self.issue("", "joe", "dev")
        self.refused(Forbidden, request(token), "")

    def test_unknown_cluster(self) -> None:
        """Only an administrator learns that a cluster does not exist."""
        self.refused(Forbidden, request(self.jane), "nope")
        self.refused(NotFound, request(self.admin), "nope")

    def test_names_of_the_system(self) -> None:
        """A credential with a reserved name from an earlier version is rejected with name and cure."""
        for user, groups, name in (
            ("jane", ["dev", "kubeadm:cluster-admins"], "group 'kubeadm:cluster-admins'"),
            ("jane", ["system:masters"], "group 'system:masters'"),
            ("jane", ["tower:admins"], "group 'tower:admins'"),
            ("system:admin", [], "user 'system:admin'"),
            ("system:authenticated", [], "user 'system:authenticated'"),
            ("clusterAdmin", [], "user 'clusterAdmin'"),
        ):
            _, token = self.issue("alpha", user, *groups)
            asked = request(token)
            for _ in range(2):
                said = self.refused(Forbidden, asked)
                self.assertIn(name, said)
                self.assertIn("request a kubeconfig without it", said)
                self.assertNotIn("--allow-system-identity", said)
            self.assertEqual(asked.audited, ["alpha", "alpha"])
        _, token = self.issue("alpha", "jane", "system:authenticated")
        self.passes(request(token))

    def test_names_that_a_record_allows(self) -> None:
        """The record of a cluster of type ssh may allow some names; a change applies to the next request."""
        access = KubeAccess("https://10.0.0.1:6443", insecure=True, token="t")
        spec = SSHSpec("core", "/keys/id", nodes=("h1:22",))
        self.successResultOf(self.clusters.add("gamma", ssh=spec, access=access))
        _, token = self.issue("gamma", "jane", "kube:admin")
        asked = request(token)
        cure = "'tower cluster set gamma --allow-system-identity kube:admin'"
        self.assertIn(cure, self.refused(Forbidden, asked, "gamma"))
        for allowed in (evolve(spec, allowed_identities=("kube:admin",)), evolve(spec, allow_system=True)):
            self.change("gamma", allowed)
            self.passes(asked, "gamma")
        self.change("gamma", spec)
        self.refused(Forbidden, asked, "gamma")

    def change(self, name: str, spec: SSHSpec) -> None:
        """Change the cluster's SSH settings."""
        self.successResultOf(self.clusters.change(name, lambda cluster: evolve(cluster, ssh=spec)))

    def test_cluster_of_the_same_name(self) -> None:
        """A credential for a removed cluster is not valid for the next one of its name."""
        asked = request(self.jane)
        self.passes(asked)
        self.successResultOf(self.clusters.remove("alpha"))
        self.successResultOf(self.clusters.add("alpha"))
        self.refused(Unauthorized, asked)

    def test_disabled_cluster(self) -> None:
        """Users of a disabled cluster get a text with the reason."""
        self.successResultOf(self.clusters.set_enabled("alpha", False))
        self.assertIn("disabled", self.refused(StatusError, request(self.jane)))
        self.successResultOf(self.clusters.set_enabled("alpha", True))
        self.passes(request(self.jane))

    def test_foreign_identity(self) -> None:
        """Impersonation headers are rejected for clusters and for the API, also from an administrator."""
        for token, cluster in ((self.jane, "alpha"), (self.admin, "")):
            asked = FakeRequest(fields=fields_with(token.encode(), foreign=b"Impersonate-User"))
            self.assertIn("Impersonate-User", self.refused(Forbidden, asked, cluster))

    def test_proven(self) -> None:
        """Only a valid credential proves a connection, for any cluster."""
        channel = FakeChannel()
        self.refused(Unauthorized, request("towerk-wrong", channel=channel))
        self.assertEqual(channel.proofs, 0)
        self.refused(Forbidden, request(self.jane, channel=channel), "beta")
        self.assertEqual(channel.proofs, 1)

    def test_rules(self) -> None:
        """Rules decide after the user has entered; after a wait, the user must still be valid."""
        waits: list[Deferred[None]] = []
        asked_for: list[str] = []

        def rules(request: Any, cluster: str) -> Deferred[None] | None:
            asked_for.append(request.identity.user)
            if request.target == b"/no":
                raise StatusError(403, "no rule")
            if request.target == b"/wait":
                waits.append(Deferred())
                return waits[-1]
            return None

        clock: Any = self.clock
        methods = authenticator(self.credentials, clock)
        self.chain = user_chain(methods, self.clusters.get, rules=rules)
        self.passes(request(self.jane))
        self.refused(StatusError, request(self.jane, target=b"/no"))
        self.refused(Forbidden, request(self.jane), "beta")
        self.assertEqual(asked_for, ["jane", "jane"])
        one = self.chain(request(self.jane, target=b"/wait"), "alpha", lambda: RELAY)
        two = self.chain(request(self.jane, target=b"/wait"), "alpha", lambda: RELAY)
        assert isinstance(one, Deferred) and isinstance(two, Deferred)  # noqa: PT018
        waits[0].callback(None)
        self.assertIs(self.successResultOf(one), RELAY)
        self.successResultOf(self.credentials.revoke(self.jane_credential.id))
        waits[1].callback(None)
        self.failureResultOf(two, Unauthorized)

    def test_kept_alive(self) -> None:
        """Each request of a connection is checked: expired and revoked credentials are rejected."""
        channel = FakeChannel()
        self.passes(request(self.jane, channel=channel))
        kept = channel.authenticated
        self.assertEqual(channel.proofs, 1)
        self.passes(request(self.jane, channel=channel))
        self.assertIs(channel.authenticated, kept)
        self.successResultOf(self.credentials.revoke(self.jane_credential.id))
        self.assertIn("revoked", self.refused(Unauthorized, request(self.jane, channel=channel)))
        _, other = self.issue("alpha", "jane")
        self.passes(request(other, channel=channel))
        self.clock.advance(3600)
        self.assertIn("expired", self.refused(Unauthorized, request(other, channel=channel)))

    def test_another_token_on_the_same_connection(self) -> None:
        """The cached identity is used only with the same token, and not without one."""
        channel = FakeChannel()
        self.passes(request(self.jane, channel=channel))
        self.refused(Unauthorized, request("other", channel=channel))
        self.refused(Unauthorized, request(None, channel=channel))
        _, joe = self.issue("alpha", "joe")
        asked = request(joe, channel=channel)
        self.passes(asked)
        self.assertEqual(asked.identity.user, "joe")


class Later:
    """A method of authentication that answers when the test decides."""

    method = "tower"

    def __init__(self) -> None:
        self.waiting: list[Deferred[Identity | None]] = []

    def authenticate(self, presented: Presented) -> Deferred[Identity | None]:
        """Answer later."""
        self.waiting.append(Deferred())
        return self.waiting[-1]

    def check(self, identity: Identity) -> None:
        """Accept the identity."""


class Outdating:
    """A method whose users change now and then.

    :ivar outdated: whether the user of a connection is another one now.
    """

    method = "changing"

    def __init__(self) -> None:
        self.outdated = False
        self.begins_sessions = False
        self.count = 0

    def authenticate(self, presented: Presented) -> Identity:
        """Return the next user."""
        self.count += 1
        name = f"user-{self.count}"
        return Identity(name, method=self.method, key=name, begins_sessions=self.begins_sessions)

    def check(self, identity: Identity) -> None:
        """Reject the user if it is outdated."""
        if self.outdated:
            raise Outdated("changed")


class OutdatedTests(SynchronousTestCase):
    """Users that change while their connections stay."""

    def setUp(self) -> None:
        """Make the chain."""
        self.changing = Outdating()
        self.chain = user_chain(AuthenticatorUnion(self.changing), lambda _: None)
        self.request: Any = FakeRequest(fields=fields_with(b"t"))

    def ask(self) -> str:
        """Return the user of the next request of the connection, which no policy admits."""
        self.assertRaises(TowerError, self.chain, self.request, "alpha", object)
        return str(self.request.identity.user)

    def test_changed(self) -> None:
        """A user who has changed is authenticated again, without an error."""
        self.assertEqual([self.ask(), self.ask()], ["user-1", "user-1"])
        self.changing.outdated = True
        self.assertEqual(self.ask(), "user-2")
        self.changing.outdated = False
        self.assertEqual(self.ask(), "user-2")

    def test_only_for_sessions(self) -> None:
        """A token that can only begin a session enters nothing."""
        self.changing.begins_sessions = True
        for cluster in ("alpha", ""):
            error = self.assertRaises(Forbidden, self.chain, self.request, cluster, object)
            self.assertIn("log in with 'tower login'", str(error))


class LaterTests(SynchronousTestCase):
    """Filters that decide later."""

    def test_order(self) -> None:
        """Filters run in order, each after the one before has accepted the request."""
        seen: list[str] = []
        waiting: list[Deferred[None]] = []

        def slow(name: str) -> Callable[[Any, str], Deferred[None]]:
            def admit(_request: Any, _cluster: str) -> Deferred[None]:
                seen.append(name)
                waiting.append(Deferred())
                return waiting[-1]

            return admit

        def quick(_request: Any, cluster: str) -> None:
            seen.append(cluster)

        chain = FilterChain(slow("one"), quick, slow("two"))
        result: Any = chain(request(), "alpha", lambda: RELAY)
        self.assertEqual(seen, ["one"])
        waiting[0].callback(None)
        self.assertEqual(seen, ["one", "alpha", "two"])
        self.assertNoResult(result)
        waiting[1].callback(None)
        self.assertIs(self.successResultOf(result), RELAY)

    def test_refused_later(self) -> None:
        """After a late rejection the next filters do not run."""
        first: Deferred[None] = Deferred()
        chain = FilterChain(lambda *_: first, lambda *_: self.fail())
        result: Any = chain(request(), "alpha", self.fail)
        first.errback(Failure(Forbidden("no")))
        self.failureResultOf(result, Forbidden)

    def test_end_that_takes_time(self) -> None:
        """The end of the chain may take time too."""
        first: Deferred[None] = Deferred()
        end: Deferred[Any] = Deferred()
        result: Any = FilterChain(lambda *_: first)(request(), "alpha", lambda: end)
        first.callback(None)
        end.callback(RELAY)
        self.assertIs(self.successResultOf(result), RELAY)

    def test_authenticated_later(self) -> None:
        """An authenticator may take time."""
        later = Later()
        clock: Any = Clock()
        clusters = Clusters(MemoryStore(), None, clock)
        cluster = self.successResultOf(clusters.add("alpha"))
        credential = Credential("c-1", "alpha", cluster.uid, "jane", (), "token", "00", 0.0, 60.0)
        chain = user_chain(AuthenticatorUnion(later), clusters.get)
        asked = request("token")
        result: Any = chain(asked, "alpha", lambda: RELAY)
        later.waiting[0].callback(Identity("jane", (), credential))
        self.assertIs(self.successResultOf(result), RELAY)
        self.assertEqual(asked.identity.user, "jane")
        other = evolve(credential, cluster_uid="other")
        result = chain(request("token"), "alpha", self.fail)
        later.waiting[1].callback(Identity("jane", (), other))
        self.failureResultOf(result, Forbidden)

"""A front door in memory with every method of authentication, access policies and rules, and its members."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import define, field, frozen
from twisted.internet.defer import Deferred

from tests.fakes.certificates import DAY, NOW
from tests.fakes.client_certificates import Company, sent, subject
from tests.fakes.gateway import FakeTunnels, FakeUser, connection, ok, pool
from tests.fakes.id_tokens import ISSUER, ProviderAgent
from tests.fakes.pipes import FakePipe
from tests.fakes.policies import Policies
from tests.fakes.servers import routes_to
from tests.fakes.tunnels import FakeTunnel
from tests.holes.towerkit import done, status_of
from tower.clusters import Clusters
from tower.clusters.credentials import ADMINS, Credential, Credentials
from tower.kube.access.rbac import Binding, RbacRole, RbacSubject, RoleReference, Rule
from tower.net.budget import Budget
from tower.nodes.kubelets import Kubelets
from tower.store import MemoryStore
from tower.trust.client_authorities import ClientAuthorities
from tower.web.access.admission_cache import AdmissionGeneration
from tower.web.access.authentication.oidc.method import OIDCMethod
from tower.web.access.authentication.oidc.provider import ProviderDocuments
from tower.web.access.authentication.request_header import FrontProxyFields, RequestHeaderAuthenticator
from tower.web.access.authentication.token_file import StaticTokenAuthenticator, parse_tokens
from tower.web.access.authentication.tower_credentials import CredentialAuthenticator
from tower.web.access.authentication.union import AuthenticatorUnion
from tower.web.access.authentication.x509 import CertificateAuthenticator
from tower.web.access.authorization.decision_cache import DecisionCache
from tower.web.access.authorization.entry_sweep import EntrySweep
from tower.web.access.authorization.mode_filter import ModeAuthorization
from tower.web.access.authorization.rbac_index import RbacIndex
from tower.web.access.door_tokens import DoorTokens
from tower.web.access.filters import authentication_chain, user_chain
from tower.web.access.sessions import Sessions
from tower.web.gateway.gateway import UNPLACED, Gateway
from tower.web.outcome import Response
from tower.web.ports.router import FrontDoor

#: The fields that front proxies set, and all that claim an identity.
FIELDS = FrontProxyFields(
    (b"x-remote-user", b"x-webauth-user"), (b"x-remote-group",), (b"x-remote-uid",), (b"x-remote-extra-",)
)

_CLAIM = re.compile(rb"(?i)impersonate|x[-_]remote|x[-_]webauth|authorization|[^:]*bearer")

TOKENS = 'file-token,tess,1,"dev"\nother-token,omar,2,"ops"\n'


@frozen
class Reached:
    """A request that a member has received.

    :ivar claims: its lines that claim an identity, or carry a credential.
    """

    cluster: str
    claims: tuple[bytes, ...]
    pipe: FakePipe = field(eq=False, repr=False)


@define(eq=False)
class Members(FakeTunnels):
    """The tunnels of all clusters."""

    by_name: dict[str, FakeTunnel] = field(factory=dict)

    def pick(self, cluster: str) -> Any:
        """Return the tunnel of a cluster."""
        return self.by_name[cluster]

    def live(self, cluster: str) -> Any:
        """Return the same."""
        return [self.by_name[cluster]]

    def take(self) -> list[Reached]:
        """Return the requests that members have received since the last call."""
        found = []
        for name, tunnel in self.by_name.items():
            for pipe in tunnel.pipes:
                head = pipe.taken()
                if head:
                    lines = [each[0].rstrip(b"\r") for each in re.finditer(rb"[^\n]+", head)]
                    claims = [
                        each for each in lines if _CLAIM.match(each) or each[:14].lower() == b"authorization:"
                    ]
                    found.append(Reached(name, tuple(claims), pipe))
        return found


class DoorUser(FakeUser):
    """A user's connection, without TLS."""

    tls: Any = None


@define(eq=False)
class AuthorityFile:
    """A file of CAs."""

    value: ClientAuthorities

    @classmethod
    def of(cls, *companies: Company) -> AuthorityFile:
        """Return the file with these CAs."""
        pem = b"".join(each.pem for each in companies)
        return cls(ClientAuthorities.of_pem(pem, lambda _: False))


@define(eq=False)
class TokensFile:
    """A file of tokens."""

    value: Any = field(factory=lambda: parse_tokens(TOKENS.encode(), Path("tokens.csv")))

    def replace(self, text: str) -> None:
        """Write it."""
        self.value = parse_tokens(text.encode(), Path("tokens.csv"))


class Bastion:
    """The door, with the clusters alpha and beta; the group dev enters alpha, and ops both, to read.

    :param rules: whether requests also need a rule of RBAC; `index` has those of the groups dev and ops.
    :param kubelets: those of a cluster's nodes, by its name.
    """

    def __init__(self, *, rules: bool = False, kubelets: Mapping[str, Kubelets] | None = None) -> None:
        self.store = MemoryStore()
        self.policies = Policies(self.store, NOW)
        self.clock: Any = self.policies.clock
        clock: Any = self.clock
        self.clusters = Clusters(self.store, None, clock)
        self.credentials = Credentials(self.store, clock, 86400.0)
        for name in ("alpha", "beta"):
            done(self.clusters.add(name))
        dev, ops = ({"kind": "Group", "name": name} for name in ("dev", "ops"))
        self.policies.put("dev", {"subjects": [dev], "clusters": {"names": ["alpha"]}})
        both = {"names": ["alpha", "beta"]}
        self.policies.put("ops", {"subjects": [ops], "clusters": both, "access": "read-only"})
        self.users, self.front = Company.root("users"), Company.root("front")
        self.users_file, self.front_file = AuthorityFile.of(self.users), AuthorityFile.of(self.front)
        self.tokens = TokensFile()
        self.provider = ProviderAgent("first", "second")
        self.oidc = OIDCMethod((ISSUER,), clock, clock.seconds, ProviderDocuments(clock, self.provider))
        by_token = (StaticTokenAuthenticator(self.tokens), self.oidc)
        methods = AuthenticatorUnion(
            RequestHeaderAuthenticator(self.front_file, ("proxy",), FIELDS, clock.seconds),
            CertificateAuthenticator(self.users_file, clock.seconds),
            CredentialAuthenticator(self.credentials, clock),
            *by_token,
        )
        self.sessions = Sessions(methods)
        self.credentials.watch_ends(self._ended)
        self.index = RbacIndex()
        self.cache = DecisionCache(self.index)
        self.mode = ModeAuthorization(self.cache, "RBAC", clock) if rules else None
        chain = user_chain(
            methods,
            self.clusters.get,
            FIELDS,
            self.policies.entry,
            self.mode,
            door_tokens=DoorTokens(by_token),
        )
        self.generation = AdmissionGeneration(self.store, clock.seconds, chain.rules)
        self.sweeper = EntrySweep(
            self.store, self.sessions, self.policies.entry, self.clusters.get, clock, clock.seconds
        )
        self.members = Members(clock=clock)
        self.members.by_name = {name: FakeTunnel(name) for name in ("alpha", "beta")}
        self.oidc.on_change = self.changed
        door = FrontDoor(
            chain,
            authentication_chain(methods, FIELDS),
            routes_to(chain, lambda _: Response(200, b"API")),
            lambda *_: None,
            self.generation,
            kubelets=(kubelets or {}).get,
        )
        self.gateway = Gateway(
            clock, door, pool(self.members), self.sessions, budget=Budget(UNPLACED), claims=FIELDS.claims
        )
        self.oidc.startService()

    def _ended(self, credential: Credential) -> None:
        self.sessions.cut("it was revoked", credential=credential.id)

    def stop(self) -> None:
        """Let go of everything."""
        self.oidc.stopService()
        self.sweeper.stop()

    def changed(self) -> None:
        """Use changed files, as the proxy does."""
        self.generation.advance()
        self.sessions.sweep()

    def connect(self, certificate: bytes | None = None) -> DoorUser:
        """Connect a user."""
        user = DoorUser()
        user.certificate = certificate
        channel = self.gateway.accept(connection(user))
        assert channel is not None
        user.receiver = channel
        return user

    def ask(self, user: FakeUser, request: bytes) -> tuple[int, list[Reached]]:
        """Return the status, and the requests that members received; they answer 200."""
        user.deliver(request)
        self.clock.advance(0)
        reached = self.members.take()
        for each in reached:
            each.pipe.deliver(ok())
        if not (reached or user.sent):
            self.clock.advance(6)  # newer keys of the provider were awaited
        return status_of(user.taken()), reached

    def sweep(self, seconds: int) -> None:
        """Let time pass, with all that the proxy does periodically."""
        for second in range(seconds):
            self.clock.advance(1)
            self.gateway.sweep()
            Deferred.fromCoroutine(self.sweeper.check())
            if self.mode is not None:
                Deferred.fromCoroutine(self.mode.sweep())
            if second % 2:
                self.sessions.sweep()

    # Credentials

    def certificate(
        self, user: str, *groups: str, by: Company | None = None, end: float = NOW + DAY
    ) -> bytes:
        """Return a client certificate, DER."""
        return sent((by or self.users).issue(subject(user, groups), NOW - DAY, end))[0]

    def registered(self, cluster: str, user: str, groups: Sequence[str] = ("dev",)) -> bytes:
        """Return a certificate that Tower issued, DER."""
        der = b"DER of " + user.encode()
        digest = hashlib.sha256(der).hexdigest()
        done(self.credentials.register_certificate(cluster, user, groups, 3600.0, digest))
        return der

    def issued(self, cluster: str, user: str, groups: Sequence[str] = ("dev",)) -> tuple[str, bytes]:
        """Return the ID and the secret of a token that Tower issued."""
        credential, secret = done(self.credentials.issue_token(cluster, user, list(groups), 3600.0))
        return credential.id, secret.encode()

    def admin(self) -> bytes:
        """Return the token of an administrator."""
        return self.issued("", "root", [ADMINS])[1]

    # Rules

    def allow(self, name: str, group: str, *verbs: str) -> None:
        """Let a group use all resources of the core group with these verbs."""
        self.index.put_role(RbacRole(name, (Rule(verbs, ("",), ("*",)), Rule(verbs, urls=("*",)))))
        subjects = (RbacSubject("Group", group),)
        self.index.put_binding(Binding(name, RoleReference("ClusterRole", name), subjects))
        self.cache.clear()

    def forbid(self, name: str) -> None:
        """Remove the binding."""
        self.index.remove_binding("", name)
        self.cache.clear()


def bearer(token: bytes) -> bytes:
    """Return the header line with a token."""
    return b"Authorization: Bearer " + token


def claims_of(user: str, *groups: str) -> tuple[bytes, ...]:
    """Return the lines with which a member gets this user."""
    return (
        b"Impersonate-User: " + user.encode(),
        *(b"Impersonate-Group: " + group.encode() for group in groups),
    )

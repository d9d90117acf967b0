"""Tests of requests of front proxies with the real parser, router and filters."""

from __future__ import annotations

from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.certificates import DAY, NOW
from tests.fakes.client_certificates import Company, sent, subject
from tests.fakes.policies import Policies, cluster_of, spec_of
from tests.fakes.requests import FakeChannel, FakeRequest
from tests.fakes.servers import routes_to
from tower.clusters.credentials import Credentials
from tower.errors import Forbidden, Unauthorized
from tower.http.requests import HeadReader
from tower.kube.canonical_head import write_fields
from tower.store import MemoryStore
from tower.trust.client_authorities import ClientAuthorities
from tower.web.access.admission_cache import AdmissionGeneration
from tower.web.access.authentication.request_header import (
    FrontProxyFields,
    RequestHeaderAuthenticator,
)
from tower.web.access.authentication.tower_credentials import CredentialAuthenticator
from tower.web.access.authentication.union import AuthenticatorUnion
from tower.web.access.authentication.x509 import CertificateAuthenticator
from tower.web.access.authentication_filter import Authentication
from tower.web.access.filters import (
    FilterChain,
    authentication_chain,
    check_claims,
    user_chain,
)
from tower.web.outcome import Response
from tower.web.ports.router import FrontDoor

FIELDS = FrontProxyFields((b"x-remote-user", b"x-user"), (b"x-remote-group",))


class File:
    """The file of the CAs."""

    def __init__(self, *companies: Company) -> None:
        self.value = ClientAuthorities.of_pem(b"".join(each.pem for each in companies), lambda _: False)


class FrontProxyTests(SynchronousTestCase):
    """One connection of a front proxy to the front door."""

    def setUp(self) -> None:
        """Begin with a CA of front proxies, and a CA of users, both for a few users."""
        self.clock = Clock()
        self.clock.advance(NOW)
        clock: Any = self.clock
        front, users = Company.root("front"), Company.root("users")
        self.proxy = sent(front.issue(subject("proxy"), NOW - DAY, NOW + DAY))
        self.user = sent(users.issue(subject("mallory"), NOW - DAY, NOW + DAY))
        self.front = File(front)
        store = MemoryStore()
        self.methods = methods = AuthenticatorUnion(
            RequestHeaderAuthenticator(self.front, (), FIELDS, clock.seconds),
            CertificateAuthenticator(File(users), clock.seconds),
            CredentialAuthenticator(Credentials(store, clock, 86400.0), clock),
        )
        chain = FilterChain(Authentication(methods, FIELDS), check_claims)
        self.generation = AdmissionGeneration(store, clock.seconds)
        self.door = FrontDoor(
            chain,
            authentication_chain(methods, FIELDS),
            routes_to(chain, self.api),
            lambda *_: None,
            self.generation,
        )
        self.new_connection(self.proxy)
        self.seen: list[str] = []

    def new_connection(self, chain: tuple[bytes, ...]) -> None:
        """Begin a connection with a certificate."""
        self.channel, self.reader = FakeChannel(certificates=chain), HeadReader(FIELDS.claims)

    def api(self, request: Any) -> Any:
        """Record the user of a request to Tower's API."""
        self.seen.append(request.identity.user)
        return Response(200)

    def ask(self, *lines: str, target: str = "/clusters/alpha/api") -> Any:
        """Route a request of the connection."""
        fields = "".join(f"{line}\r\n" for line in ("Host: a", *lines))
        method, path, _, parsed = self.reader.read(f"GET {target} HTTP/1.1\r\n{fields}\r\n".encode())
        request = FakeRequest(path, method, parsed, self.channel)
        self.door(request)
        return request

    def refused(self, kind: type[Exception], *lines: str) -> str:
        """Return the text of a rejection."""
        with self.assertRaises(kind) as caught:
            self.ask(*lines)
        return str(caught.exception)

    def test_each_request(self) -> None:
        """The user is that of the request, never of an earlier one on the connection."""
        for name in ("jane", "joe", "jane", "jane"):
            self.assertEqual(self.ask(f"X-Remote-User: {name}").identity.user, name)
        self.assertEqual(self.ask("X-User: jim").identity.user, "jim")
        self.refused(Unauthorized)  # the proxy itself is not a user
        self.refused(Unauthorized, "Accept: */*")
        self.assertEqual(self.ask("X-Remote-User: joe").identity.user, "joe")
        self.assertIsNone(self.channel.admission)
        self.assertIsNone(self.channel.authenticated)

    def test_each_request_of_admitted_users(self) -> None:
        """So it is if access policies admit the users: no admission is kept for the connection."""
        policies = Policies(now=NOW)
        policies.put("p", {**spec_of(), "subjects": [{"kind": "User", "name": "jane"}]})
        chain = user_chain(self.methods, cluster_of, FIELDS, policies.entry)
        self.door = FrontDoor(
            chain,
            authentication_chain(self.methods, FIELDS),
            routes_to(chain, self.api),
            lambda *_: None,
            self.generation,
        )
        for _ in range(2):
            self.assertEqual(self.ask("X-Remote-User: jane").identity.in_member.name, "jane")
            self.refused(Unauthorized)
            self.assertIn("joe is not admitted", self.refused(Forbidden, "X-Remote-User: joe"))
            self.refused(Unauthorized, "Accept: */*")
        self.assertIsNone(self.channel.admission)

    def test_groups(self) -> None:
        """Fewer groups in the next request are fewer rights."""
        first = self.ask("X-Remote-User: jane", "X-Remote-Group: dev")
        second = self.ask("X-Remote-User: jane")
        self.assertEqual((first.identity.groups, second.identity.groups), (("dev",), ()))

    def test_same_fields(self) -> None:
        """Equal fields are read once; the checks are repeated."""
        first = self.ask("X-Remote-User: jane")
        self.assertIs(self.ask("X-Remote-User: jane", target="/clusters/alpha/apis").identity, first.identity)
        self.front.value = File(Company.root("other")).value
        self.assertIn("not accepted any more", self.refused(Unauthorized, "X-Remote-User: jane"))

    def test_not_sent_on(self) -> None:
        """A member gets the identity only from Tower."""
        request = self.ask("X-Remote-User: jane", "x-remote-group: dev", "A: b")
        lines = write_fields(request.fields, b"", b"")
        self.assertEqual(lines, b"Host: a\r\nA: b\r\n\r\n")

    def test_other_claims(self) -> None:
        """Fields that are not configured, and those of impersonation, are rejected as from everyone."""
        for more in (
            "Impersonate-User: admin",
            "X-Remote-Uid: 1",
            "X_Remote_User: admin",
            "X-Remote-Extra-a: b",
        ):
            text = self.refused(Forbidden, "X-Remote-User: jane", more)
            self.assertIn(f"the header {more.partition(':')[0]} is not accepted", text)

    def test_users(self) -> None:
        """A user with a certificate cannot name another one, with any of the fields."""
        self.new_connection(self.user)
        self.assertEqual(self.ask().identity.user, "mallory")
        for name in ("X-Remote-User", "X-User", "x_user", "X-Remote-Group"):
            self.assertIn(f"the header {name} is not accepted", self.refused(Forbidden, f"{name}: admin"))
        self.assertEqual(self.ask().identity.user, "mallory")
        self.assertIsNotNone(self.channel.admission)

    def test_api(self) -> None:
        """A path that is first authenticated, then filtered, has the same user in both."""
        self.ask("X-Remote-User: jane", target="/apis")
        self.ask("X-Remote-User: joe", target="/apis")
        self.assertEqual(self.seen, ["jane", "joe"])

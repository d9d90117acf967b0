"""Tests for `tower.doctor.identity_provider`."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred

from tests.doctor.kit import SERVING, DoctorTestCase
from tests.fakes.certificates import NOW
from tests.fakes.id_tokens import key_set
from tower.doctor.api import TowerServer
from tower.doctor.findings import Course, Finding, examine
from tower.doctor.identity_provider import LIMIT, provider_courses
from tower.doctor.network import Glimpse
from tower.kube.kubeconfig import KubeAccess
from tower.net.connecting import ConnectFailed

URL = "https://id.example/dex"
DOCUMENT = ("GET", "/dex/.well-known/openid-configuration")
KEYS = ("GET", "/dex/keys")
LOGIN = ("GET", "/.well-known/tower-login")
METRICS = ("GET", "/metrics")


class IdentityProviderTests(DoctorTestCase):
    """A running proxy and the provider of its users; one thing is broken."""

    def setUp(self) -> None:
        """Answer as the proxy and as the provider."""
        super().setUp()
        answers = self.network.answers
        self.document = {"issuer": URL, "jwks_uri": "https://id.example/dex/keys"}
        self.issuer = {"url": URL, "clientID": "cli", "certificateAuthority": SERVING.pem.decode()}
        answers[LOGIN] = (200, {"issuers": [self.issuer]})
        answers[METRICS] = (200, self.metrics(2, 0))
        answers[DOCUMENT] = (200, self.document)
        answers[KEYS] = (200, key_set("first"))

    def metrics(self, keys: int, failed: int) -> str:
        """Return the proxy's metrics."""
        return (
            f'# HELP tower_oidc_keys x\ntower_oidc_keys{{issuer="{URL}"}} {keys}.0\n'
            f'tower_oidc_fetch_failed{{issuer="{URL}"}} {failed}.0\ntower_up 1.0\n'
        )

    def look(self) -> dict[str, Finding]:
        """Return the findings."""

        async def run() -> Any:
            return await examine(await self.courses())

        return self.found(run())

    async def courses(self) -> list[Course]:
        """Return the checks."""
        access = KubeAccess("https://tower.example:8443", SERVING.pem, token="t")
        server = TowerServer(self.network, access, {}, lambda: NOW, "x")
        return await provider_courses(server, {}, lambda: NOW)

    def test_sound(self) -> None:
        """Nothing is wrong."""
        self.assertEqual(
            [each.line for each in self.look().values()],
            [
                f"ok    proxy's keys: keys of {URL} in use by the proxy: 2",
                f"ok    identity provider: {URL} has a discovery document for this issuer",
                "ok    provider's keys: usable keys at https://id.example/dex/keys: 1",
                "ok    provider's clock: this machine's and that of the provider agree",
            ],
        )

    def test_discovery_url(self) -> None:
        """The discovery document may be elsewhere."""
        self.issuer["discoveryURL"] = "https://mirror.example/x"
        self.network.answers["GET", "/x"] = self.network.answers.pop(DOCUMENT)
        self.assertEqual(self.look()["identity provider"].verdict.grade, "ok")

    def test_no_issuers(self) -> None:
        """A proxy without issuers, or one that does not answer, has no findings here."""
        self.network.answers[METRICS] = (200, "tower_up 1.0\n")
        self.network.answers[LOGIN] = (404, {})
        self.assertEqual(self.look(), {})
        del self.network.answers[LOGIN]
        self.assertEqual(self.look(), {})

    def test_many(self) -> None:
        """The number of providers that are checked has a limit."""
        many = [{**self.issuer, "url": f"{URL}{number}"} for number in range(LIMIT + 5)]
        self.network.answers[LOGIN] = (200, {"issuers": [*many, 3]})
        courses = self.successResultOf(Deferred.fromCoroutine(self.courses()))
        self.assertEqual(len(courses), 1 + LIMIT)

    def test_proxy(self) -> None:
        """A proxy without keys rejects all tokens; one that cannot renew them is a warning."""
        self.network.answers[METRICS] = (200, self.metrics(0, 1))
        line = self.failed(self.look())
        self.assertIn(f"proxy's keys: the proxy has no keys of {URL}, so it rejects all tokens", line)
        self.assertIn("-> search the log of tower-proxy for 'OIDC issuer'", line)
        self.network.answers[METRICS] = (200, self.metrics(0, 0))
        self.assertEqual(self.look()["proxy's keys"].verdict.grade, "warn")
        self.network.answers[METRICS] = (200, self.metrics(2, 1))
        verdict = self.look()["proxy's keys"].verdict
        self.assertEqual(verdict.grade, "warn")
        self.assertIn("last attempt to get them failed", verdict.seen)

    def test_unreachable(self) -> None:
        """A provider without an answer is a failure, and the checks that depend on it are skipped."""
        del self.network.answers[DOCUMENT]
        findings = self.look()
        self.assertIn(
            "id.example: GET /dex/.well-known/openid-configuration: no answer", self.failed(findings)
        )
        self.assertEqual(findings["provider's keys"].verdict.grade, "skip")
        self.network.answers[DOCUMENT] = (404, {})
        self.assertIn("answered HTTP status 404 -> correct --oidc-issuer-url", self.failed(self.look()))
        self.network.answers[DOCUMENT] = (200, "<html>")
        self.assertIn("is not JSON", self.failed(self.look()))
        self.network.answers[DOCUMENT] = (200, {"keys": []})
        self.assertIn("is not a discovery document", self.failed(self.look()))

    def test_issuer(self) -> None:
        """The document must name the same issuer; its text is only quoted."""
        self.document["issuer"] = f"{URL}/\x1b[1m"
        line = self.failed(self.look())
        self.assertIn(f'names the issuer "{URL}/\\u001b[1m" -> set --oidc-issuer-url', line)
        self.assertIn("to exactly that URL, including any trailing slash", line)

    def test_keys(self) -> None:
        """Keys must be usable, and got over TLS."""
        self.network.answers[KEYS] = (200, {"keys": []})
        self.assertIn("add a signing key at the provider", self.failed(self.look()))
        self.network.answers[KEYS] = (500, {})
        line = self.failed(self.look())
        self.assertIn("https://id.example/dex/keys answered HTTP status 500 -> correct jwks_uri", line)
        self.document["jwks_uri"] = "http://id.example/dex/keys"
        self.assertIn("no https jwks_uri", self.failed(self.look()))

    def test_hostile(self) -> None:
        """A document that breaks parsers is a failure of its check only."""
        for url in ("https://[x/keys", "https://id.example/k\xe9ys", "https://id.example:x/"):
            self.document["jwks_uri"] = url
            self.assertIn("-> correct jwks_uri", self.failed(self.look()))
        self.network.answers[DOCUMENT] = (200, "[" * 100_000)
        self.assertIn("is not JSON", self.failed(self.look()))

    def test_authority(self) -> None:
        """A CA that cannot be read is a failure of the settings."""
        self.issuer["certificateAuthority"] = "x"
        self.network.client = self._refuse
        self.assertIn("-> correct --oidc-issuer-url", self.failed(self.look()))

    def _refuse(self, access: KubeAccess, _proxy: object) -> object:
        if access.ca_data == b"x":
            raise ValueError("no certificate")
        return type(self.network).client(self.network, access, None)

    def test_clock(self) -> None:
        """A provider whose clock differs is a failure; an unknown clock is a warning."""
        self.network.http[True] = Glimpse(200, NOW + 600, b"HTTP/")
        line = self.failed(self.look())
        self.assertIn("this machine is 10m behind the provider -> set the clocks", line)
        self.network.http[True] = Glimpse(200, None, b"HTTP/")
        self.assertIn("has no Date", self.look()["provider's clock"].line)
        self.network.failures["tls"] = ConnectFailed("tls", "the provider was lost")
        self.assertEqual(self.look()["provider's clock"].verdict.grade, "warn")

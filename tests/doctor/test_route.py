"""Tests for `tower.doctor.route`."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any

from attrs import evolve

from tests.doctor.kit import SERVING, DoctorTestCase, chain_of
from tests.fakes.certificates import DAY, NOW, authority
from tower.doctor.findings import Course, Finding
from tower.doctor.network import Glimpse
from tower.doctor.route import ServerRoute, Trust
from tower.net.connecting import ConnectFailed
from tower.net.proxy_environment import parse_server_url
from tower.net.tls.unverified import unverified_context


class RouteTests(DoctorTestCase):
    """The route to a server, with one thing broken."""

    def look(
        self,
        url: str = "wss://tower.example:8443",
        trust: Trust | None = None,
        now: float = NOW,
        environ: Mapping[str, str] | None = None,
    ) -> dict[str, Finding]:
        """Return the findings."""
        trust = trust or Trust([SERVING.hash], cure="tower join alpha")
        self.route = ServerRoute(self.network, parse_server_url(url), environ or {}, trust, lambda: now)
        return self.found(Course(self.route.steps()).run())

    def test_sound(self) -> None:
        """Nothing is wrong, and the context of the verified server is known."""
        findings = self.look()
        self.assertEqual(self.grades(findings), {"ok"})
        self.assertEqual(
            list(findings),
            ["HTTP proxy", "name", "connection", "TLS", "clock", "CA", "names", "certificate"],
        )
        self.assertIsNotNone(self.route.context)

    def test_name(self) -> None:
        """A name without an address is named with the option."""
        line = self.failed(self.look("wss://tower.invalid:1"))
        self.assertIn("name: tower.invalid has no address -> correct the host in --proxy-server", line)
        self.assertEqual(self.look("wss://192.0.2.1:1")["name"].verdict.seen, "192.0.2.1 is an address")

    def test_connection(self) -> None:
        """A refused connection and a silent firewall have different cures."""
        for kind, cure in (
            ("refused", "start the server"),
            ("timeout", "firewalls"),
            ("unreachable", "routes"),
        ):
            self.network.failures = {"tower.example": ConnectFailed(kind, "tower.example:8443: no")}
            line = self.failed(self.look())
            self.assertIn("connection: tower.example:8443: no", line)
            self.assertIn(cure, line)

    def test_dead_proxy(self) -> None:
        """A dead HTTP proxy is named with its variable, as the user spelled it."""
        self.network.failures = {"proxy.example": ConnectFailed("refused", "proxy.example:3128: refused")}
        for name in ("HTTPS_PROXY", "https_proxy"):
            line = self.failed(self.look(environ={name: "http://proxy.example:3128"}))
            self.assertIn(f"HTTP proxy: proxy.example:3128 ({name}): ", line)
            self.assertIn("NO_PROXY", line)
        self.assertIn("HTTPS_PROXY", self.failed(self.look(environ={"HTTPS_PROXY": "socks5://x"})))
        findings = self.look(
            environ={"HTTPS_PROXY": "http://proxy.example:3128", "NO_PROXY": "tower.example"}
        )
        self.assertEqual(self.grades(findings), {"ok"})

    def test_through_a_proxy(self) -> None:
        """With an HTTP proxy, the name is not resolved here."""
        findings = self.look("wss://tower.invalid:8443", environ={"HTTPS_PROXY": "http://proxy.example:3128"})
        self.assertEqual(findings["name"].verdict.grade, "ok")
        self.assertEqual(findings["connection"].verdict.grade, "ok")

    def test_other_scheme(self) -> None:
        """TLS at a plain port, and the opposite, name the right URL."""
        self.network.certificates = []
        self.network.http[False] = Glimpse(400, NOW, b"HTTP/")
        line = self.failed(self.look())
        self.assertIn("TLS: tower.example:8443 has no TLS -> use the port in the proxy's --secure-port", line)
        self.assertTrue(line.endswith("ws://tower.example:8443 without --ca-hash and --ca-cert"), line)
        self.assertEqual(self.grades(self.look("ws://tower.example:8080")), {"ok"})
        self.network.http[False] = Glimpse(0, None, b"\x15\x03\x03")
        self.assertIn("TLS: the TLS handshake failed", self.failed(self.look()))
        self.assertIn("does not answer HTTP", self.failed(self.look("ws://tower.example:8080")))
        self.network.certificates = chain_of("tower.example")
        line = self.failed(self.look("ws://tower.example:8443"))
        self.assertIn("TLS: tower.example:8443 has TLS -> --proxy-server wss://tower.example:8443", line)

    def test_clock(self) -> None:
        """A clock that is an hour off is the only failure, though the certificate is not valid yet."""
        line = self.failed(self.look(now=NOW - 3600))
        self.assertIn("clock: this machine is 60m behind the server -> set the clocks", line)
        self.network.http[True] = Glimpse(401, None, b"HTTP/")
        self.assertEqual(self.look()["clock"].verdict.grade, "warn")
        self.assertIn("certificate: not valid before", self.failed(self.look(now=NOW - 3600)))

    def test_authority(self) -> None:
        """Another CA is named, with the cure of its kind of trust."""
        line = self.failed(self.look(trust=Trust([authority().hash], cure="tower join alpha")))
        self.assertIn("CA: no CA of the proxy has the hash in --ca-hash", line)
        self.assertTrue(line.endswith("-> tower join alpha"), line)
        text = "certificate verify failed: unable to get local issuer certificate"
        self.network.failures = {"tls": ConnectFailed("tls", text)}
        trust = Trust((), ssl.create_default_context, cure="set --ca-hash")
        self.assertIn(
            f"CA: the server's CA is not trusted: {text} -> set --ca-hash",
            self.failed(self.look(trust=trust)),
        )

    def test_names(self) -> None:
        """A certificate for other names lists them and names the option of the proxy."""
        self.network.certificates = chain_of("other.example", "192.0.2.7")
        line = self.failed(self.look())
        self.assertIn("names: the certificate is for other.example, 192.0.2.7, not for tower.example", line)
        self.assertIn("--publish-service-address tower.example", line)
        self.assertEqual(self.grades(self.look("wss://192.0.2.7:8443")), {"ok"})
        named = evolve(Trust([SERVING.hash]), server_name="other.example")
        self.assertEqual(self.grades(self.look(trust=named)), {"ok"})

    def test_certificate(self) -> None:
        """An expired certificate is a failure; one that is rejected for another reason too."""
        self.network.certificates = chain_of("tower.example", lifetime=DAY, now=NOW - 2 * DAY)
        self.assertIn("certificate: expired on 2023-11-13", self.failed(self.look()))
        self.network.certificates = chain_of("tower.example", lifetime=DAY)
        self.assertEqual(self.look()["certificate"].verdict.grade, "warn")
        self.network.failures = {"tls": ConnectFailed("tls", "certificate verify failed: bad signature")}
        self.assertIn("certificate: certificate verify failed: bad signature", self.failed(self.look()))

    def test_unverified(self) -> None:
        """A kubeconfig that verifies nothing passes with any certificate."""
        self.network.certificates = chain_of("other.example", lifetime=DAY, now=NOW - 2 * DAY)
        findings: dict[str, Any] = self.look(trust=Trust((), unverified_context))
        self.assertEqual(findings["names"].verdict.grade, "ok")

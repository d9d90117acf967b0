"""Tests of `tower.v1.registration`."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path
from typing import Any

import yaml
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.chains import family, pem
from tower import __version__
from tower.errors import ConfigurationError
from tower.kube.apiserver import APIServer
from tower.trust.pki import pem_of_key
from tower.tunnels.targets import KUBESPHERE_SERVICE, ServiceAddress
from tower.v1.config import AgentConfig
from tower.v1.registration import Registrar
from tower.v1.token_source import TokenSource

KUBESPHERE = ServiceAddress(*KUBESPHERE_SERVICE)


class AddressTests(SynchronousTestCase):
    def test_text(self) -> None:
        """IPv6 is in brackets."""
        self.assertEqual(str(ServiceAddress("10.0.0.1", 6443)), "10.0.0.1:6443")
        self.assertEqual(str(ServiceAddress("fd00::1", 80)), "[fd00::1]:80")


class RegistrarTests(SynchronousTestCase):
    def setUp(self) -> None:
        """Create a directory for files, and a certificate with its key."""
        self.directory = Path(self.mktemp()).absolute()
        self.directory.mkdir()
        leaf = family()[2]
        self.certificate, self.key = pem(leaf[0]), pem_of_key(leaf[1])
        self.authority = pem(family()[0][0])

    def write(self, name: str, content: bytes) -> str:
        """Write a file and return its path."""
        path = self.directory / name
        path.write_bytes(content)
        return str(path)

    def registrar(self, user: dict[str, Any] | None = None, service: str = "", **cluster: Any) -> Registrar:
        """Return what registers a member with that kubeconfig."""
        place = {"server": "https://10.0.0.1:6443", **{k.replace("_", "-"): v for k, v in cluster.items()}}
        content = {
            "current-context": "c",
            "clusters": [{"name": "c", "cluster": place}],
            "users": [{"name": "u", "user": user or {"token": "s3cret"}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        }
        path = self.write("kubeconfig", yaml.safe_dump(content).encode())
        return Registrar(APIServer.from_kubeconfig(path, service), "alpha", TokenSource("t0ken"), KUBESPHERE)

    def config(self, *arguments: Any, **options: Any) -> AgentConfig:
        """Return what is sent."""
        return self.registrar(*arguments, **options).registration().config

    def test_token(self) -> None:
        """Name, token, addresses, CA and bearer token are sent."""
        authority = self.write("ca.crt", self.authority)
        config = self.config(certificate_authority=authority)
        self.assertEqual(
            config,
            AgentConfig(
                version=__version__,
                name="alpha",
                token="t0ken",
                kubernetes="10.0.0.1:6443",
                kubesphere="ks-apiserver.kubesphere-system.svc:80",
                authority=self.authority,
                bearer=b"s3cret",
            ),
        )

    def test_credentials(self) -> None:
        """Credentials are the same by file, by token file and inline; with a certificate no token is sent."""
        inline = {
            "client-certificate-data": b64encode(self.certificate).decode(),
            "client-key-data": b64encode(self.key).decode(),
        }
        files = {
            "client-certificate": self.write("c.crt", self.certificate),
            "client-key": self.write("c.key", self.key),
        }
        for user in (inline, files, {**files, "token": "s3cret"}):
            config = self.config(user)
            self.assertEqual(
                (config.certificate, config.key, config.bearer), (self.certificate, self.key, b"")
            )
        config = self.config({"tokenFile": self.write("token", b"other\n")})
        self.assertEqual((config.certificate, config.key, config.bearer), (b"", b"", b"other"))

    def test_addresses(self) -> None:
        """The API server is called by its certificate's name, and dialed where it is."""
        registration = self.registrar(tls_server_name="Kubernetes").registration()
        self.assertEqual(registration.config.kubernetes, "Kubernetes:6443")
        self.assertEqual(
            registration.addresses,
            {"kubernetes:6443": ServiceAddress("10.0.0.1", 6443), str(KUBESPHERE): KUBESPHERE},
        )
        registration = self.registrar(service="[fd00::1]:443").registration()
        self.assertEqual(registration.config.kubernetes, "[fd00::1]:443")
        self.assertEqual(registration.addresses["[fd00::1]:443"], ServiceAddress("fd00::1", 443))

    def test_rotation(self) -> None:
        """The next registration has what is there then."""
        token = Path(self.write("token", b"first"))
        registrar = self.registrar({"tokenFile": str(token)})
        self.assertEqual(registrar.registration().config.bearer, b"first")
        token.write_bytes(b"second")
        self.assertTrue(registrar._member.refresh())
        self.assertEqual(registrar.registration().config.bearer, b"second")

    def test_impossible(self) -> None:
        """A member that no old proxy could reach is refused, with the reason."""
        for words, options in (
            ("TLS", {"server": "http://10.0.0.1:8080", "user": {"client-certificate": "", "namespace": ""}}),
            ("path", {"server": "https://rancher.example/k8s/c-1"}),
        ):
            error = self.assertRaises(ConfigurationError, self.registrar, **options)
            self.assertIn(words, str(error))
            self.assertIn("kubesphere-v1", str(error))
        big = self.write("ca.crt", self.authority * 400)
        error = self.assertRaises(ConfigurationError, self.registrar, certificate_authority=big)
        self.assertIn("certificate-authority", str(error))

    def test_warnings(self) -> None:
        """The warnings name the credential that is sent, and the limits of old proxies."""
        authority = self.write("ca.crt", self.authority)
        warnings = self.registrar(certificate_authority=authority).warnings
        self.assertEqual(len(warnings), 1)
        self.assertIn("a bearer token", warnings[0])
        self.assertIn("CAs of its own machine", self.registrar().warnings[1])
        self.assertIn("insecure-skip-tls-verify", self.registrar(insecure_skip_tls_verify=True).warnings[1])
        self.assertNotIn("s3cret", repr(warnings))

    def test_repr(self) -> None:
        """No secret shows."""
        registrar = self.registrar()
        text = repr((registrar.registration(), registrar._member.material, registrar))
        for secret in ("s3cret", "t0ken"):
            self.assertNotIn(secret, text)

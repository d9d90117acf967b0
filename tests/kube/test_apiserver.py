"""Tests of `tower.kube.apiserver`."""

from __future__ import annotations

import os
import ssl
from base64 import b64encode
from pathlib import Path
from typing import Any, cast

import yaml
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from twisted.logger import ILogObserver, LogEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.chains import family, issue, pem, server_context
from tower.errors import ConfigurationError
from tower.kube.apiserver import APIServer, client_context, in_cluster_access
from tower.kube.kubeconfig import KubeAccess
from tower.net.tls.session import TLSSession
from tower.trust.pki import pem_of_key


class MemberTests(SynchronousTestCase):
    def setUp(self) -> None:
        """Create a directory for files."""
        self.directory = Path(self.mktemp())
        self.directory.mkdir()
        self.clock = 1_000_000_000

    def write(self, name: str, content: str | bytes) -> Path:
        """Write a file whose time differs from that of all before it."""
        path = self.directory / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        self.clock += 1
        os.utime(path, (self.clock, self.clock))
        return path

    def kubeconfig(self, cluster: dict[str, Any] | None = None, user: dict[str, Any] | None = None) -> str:
        """Write a kubeconfig and return its path."""
        cluster = {"server": "https://10.0.0.1:6443", **(cluster or {})}
        content = {
            "current-context": "c",
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": user if user is not None else {"token": "s3cret"}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        }
        return str(self.write("kubeconfig", yaml.safe_dump(content)))

    def wrong(self, *arguments: Any, service: str = "") -> str:
        """Return the error for an invalid kubeconfig."""
        path = self.kubeconfig(*arguments)
        return str(self.assertRaises(ConfigurationError, APIServer.from_kubeconfig, path, service))

    def test_token(self) -> None:
        """Address, host field and token come from the kubeconfig."""
        member = APIServer.from_kubeconfig(self.kubeconfig())
        self.assertEqual((member.host, member.port, member.upstream().prefix), ("10.0.0.1", 6443, b""))
        self.assertEqual(member.upstream().host_line, b"Host: 10.0.0.1:6443\r\n")
        self.assertEqual(member.address, "10.0.0.1:6443")
        self.assertEqual(member.upstream().credential_line, b"Authorization: Bearer s3cret\r\n")
        self.assertEqual(member.server_name, "10.0.0.1")
        self.assertEqual(member.warnings, [])

    def test_material(self) -> None:
        """The credential is available as material, from files and inline, and is not in the repr."""
        leaf, key = family()[2]
        files = {
            "client-certificate": str(self.write("c.crt", pem(leaf)).absolute()),
            "client-key": str(self.write("c.key", pem_of_key(key)).absolute()),
            "tokenFile": str(self.write("token", b"s3cret\n").absolute()),
        }
        member = APIServer.from_kubeconfig(self.kubeconfig({"insecure-skip-tls-verify": True}, files))
        material = member.material
        self.assertEqual((material.certificate, material.key), (pem(leaf), pem_of_key(key)))
        self.assertEqual((material.authority, material.token, material.insecure), (None, b"s3cret", True))
        self.assertNotIn("s3cret", repr(material))
        self.assertNotIn("PRIVATE", repr(material))
        material = APIServer.from_kubeconfig(self.kubeconfig()).material
        self.assertEqual((material.certificate, material.key, material.token), (b"", b"", b"s3cret"))

    def test_address(self) -> None:
        """Default ports, IPv6 and a path in the URL."""
        member = APIServer.from_kubeconfig(self.kubeconfig({"server": "https://[fd00::1]/k8s/c-1/"}))
        self.assertEqual((member.host, member.port, member.upstream().prefix), ("fd00::1", 443, b"/k8s/c-1"))
        self.assertEqual(member.upstream().host_line, b"Host: [fd00::1]\r\n")
        self.assertEqual(member.address, "[fd00::1]/k8s/c-1")

    def test_server_name(self) -> None:
        """The name to verify may differ from the address."""
        member = APIServer.from_kubeconfig(self.kubeconfig({"tls-server-name": "kubernetes"}))
        self.assertEqual((member.host, member.server_name), ("10.0.0.1", "kubernetes"))

    def test_service(self) -> None:
        """--kubernetes-service takes precedence over the server's address; everything else is unchanged."""
        path = self.kubeconfig({"server": "https://10.0.0.1:6443/prefix"})
        member = APIServer.from_kubeconfig(path, "kubernetes.default.svc")
        self.assertEqual((member.host, member.port), ("kubernetes.default.svc", 443))
        self.assertEqual(
            (member.server_name, member.upstream().prefix), ("kubernetes.default.svc", b"/prefix")
        )
        self.assertEqual(
            APIServer.from_kubeconfig(path, "[fd00::1]:6443").upstream().host_line,
            b"Host: [fd00::1]:6443\r\n",
        )
        self.assertIn("'a b'", self.wrong(service="a b"))

    def test_plain_http(self) -> None:
        """A server without TLS is used as long as no token would show."""
        member = APIServer.from_kubeconfig(self.kubeconfig({"server": "http://127.0.0.1:8001"}, {}))
        self.assertIsNone(member.tls)
        self.assertEqual((member.upstream().credential_line, len(member.warnings)), (b"", 1))
        self.assertIn("https", self.wrong({"server": "http://127.0.0.1:8001"}))

    def test_proxy_url(self) -> None:
        """A proxy to the API server is refused, not ignored."""
        self.assertIn("proxy-url", self.wrong({"proxy-url": "http://squid:3128"}))

    def test_bad_server(self) -> None:
        """A URL that would not be one in a request is refused."""
        self.assertIn("URL", self.wrong({"server": "https://10.0.0.1/a b"}))
        self.assertIn("URL", self.wrong({"server": "https://10.0.0.1/\u00e4"}))

    def test_insecure(self) -> None:
        """An unverified server is warned about."""
        member = APIServer.from_kubeconfig(self.kubeconfig({"insecure-skip-tls-verify": True}))
        assert member.tls is not None
        self.assertEqual(member.tls.verify_mode, ssl.CERT_NONE)
        self.assertIn("insecure", member.warnings[0])

    def test_bad_material(self) -> None:
        """An invalid CA, certificate or key is named in the error."""
        junk = b64encode(b"junk").decode()
        self.assertIn("certificate authority", self.wrong({"certificate-authority-data": junk}))
        pair = {"client-certificate-data": junk, "client-key-data": junk}
        self.assertIn("client certificate", self.wrong({}, pair))
        self.assertIn("printable", self.wrong({}, {"token": "a b"}))
        self.assertIn("printable", self.wrong({}, {"token": "a\r\nX-Y: z"}))

    def test_repr(self) -> None:
        """No secret shows."""
        member = APIServer.from_kubeconfig(self.kubeconfig())
        self.assertNotIn("s3cret", repr(member) + repr(vars(member)))

    def test_token_file(self) -> None:
        """A rotated token file is followed; line ends around the token do not count."""
        path = self.write("token", "one\n")
        member = APIServer.from_kubeconfig(self.kubeconfig({}, {"tokenFile": "token", "token": "other"}))
        self.assertEqual(member.upstream().credential_line, b"Authorization: Bearer one\r\n")
        self.assertFalse(member.refresh())
        self.write("token", " two \n\n")
        before = member.upstream()
        self.assertTrue(member.refresh())
        self.assertEqual(member.upstream().credential_line, b"Authorization: Bearer two\r\n")
        self.assertIsNot(member.upstream(), before)
        path.unlink()
        self.assertFalse(member.refresh())

    def test_reload(self) -> None:
        """A forced reload reports a change only if there is one."""
        accesses = [KubeAccess("https://10.0.0.1", token=token) for token in ("one", "one", "two")]
        member = APIServer(lambda: accesses.pop(0))
        before = member.upstream()
        self.assertFalse(member.refresh(reload=True))
        self.assertIs(member.upstream(), before)
        self.assertTrue(member.refresh(reload=True))
        self.assertEqual(member.upstream().credential_line, b"Authorization: Bearer two\r\n")

    def test_bad_rotation(self) -> None:
        """An invalid change is logged once, and the last valid access stays in use."""
        self.write("token", "one")
        member = APIServer.from_kubeconfig(self.kubeconfig({}, {"tokenFile": "token"}))
        events: list[LogEvent] = []
        observer = cast(ILogObserver, events.append)
        globalLogPublisher.addObserver(observer)
        self.addCleanup(globalLogPublisher.removeObserver, observer)
        self.write("token", "")
        self.assertFalse(member.refresh())
        self.assertFalse(member.refresh())
        self.assertEqual(member.upstream().credential_line, b"Authorization: Bearer one\r\n")
        self.assertEqual(
            len([e for e in events if e.get("log_namespace") == "tower.kube.apiserver.APIServer"]), 1
        )
        self.write("token", "two")
        self.assertTrue(member.refresh())
        self.assertEqual(member.upstream().credential_line, b"Authorization: Bearer two\r\n")

    def test_no_token_file(self) -> None:
        """A token file that is missing or empty from the start is named."""
        self.assertIn("token: No such file", self.wrong({}, {"tokenFile": "token"}))
        self.write("token", "\n")
        self.assertIn("token is empty", self.wrong({}, {"tokenFile": "token"}))

    def test_edited_kubeconfig(self) -> None:
        """A changed kubeconfig is followed; the TLS context stays while its material does."""
        member = APIServer.from_kubeconfig(self.kubeconfig())
        context = member.tls
        self.kubeconfig({"server": "https://10.0.0.2:6443"})
        self.assertTrue(member.refresh())
        self.assertEqual(member.host, "10.0.0.2")
        self.assertIs(member.tls, context)
        self.write("ca.crt", pem(family()[0][0]))
        self.kubeconfig({"certificate-authority": "ca.crt"})
        self.assertTrue(member.refresh())
        self.assertIsNot(member.tls, context)

    def test_rotated_certificate(self) -> None:
        """A client certificate in a file is followed."""
        certificate, key = issue("agent")
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        self.write("client.crt", pem(certificate))
        self.write("client.key", private)
        user = {"client-certificate": "client.crt", "client-key": "client.key"}
        member = APIServer.from_kubeconfig(self.kubeconfig({}, user))
        context = member.tls
        self.assertEqual((member.upstream().credential_line, member.warnings), (b"", []))
        certificate, key = issue("agent")
        self.write("client.crt", pem(certificate))
        self.assertFalse(member.refresh())  # half a rotation: no pair yet
        self.assertIs(member.tls, context)
        self.write("client.key", key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        self.assertTrue(member.refresh())
        self.assertIsNot(member.tls, context)

    def test_in_cluster(self) -> None:
        """A pod's service account."""
        self.write("ca.crt", pem(family()[0][0]))
        self.write("token", "one")
        environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}
        member = APIServer(lambda: in_cluster_access(environ, self.directory))
        self.assertEqual((member.host, member.port), ("fd00::1", 6443))
        self.assertEqual(member.upstream().credential_line, b"Authorization: Bearer one\r\n")
        self.write("token", "two")
        self.assertTrue(member.refresh())

    def test_no_pod(self) -> None:
        """Outside of a pod the cure is --kubeconfig; without a service account it is that."""
        self.assertIn("--kubeconfig", str(self.assertRaises(ConfigurationError, in_cluster_access, {})))
        environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
        error = self.assertRaises(ConfigurationError, in_cluster_access, environ, self.directory)
        self.assertIn("automountServiceAccountToken", str(error))


class ClientContextTests(SynchronousTestCase):
    def shake(self, access: KubeAccess, name: str = "tower.example") -> TLSSession:
        """Shake hands with a server in memory; return its side."""
        _, middle, leaf = family()
        context = server_context(leaf, middle[0])
        context.verify_mode = ssl.CERT_OPTIONAL
        context.load_verify_locations(cadata=pem(family()[0][0]).decode())
        near = TLSSession(client_context(access), server_side=False, server_hostname=name)
        far = TLSSession(context, server_side=True)
        for _ in range(5):
            near.handshake()
            far.feed(memoryview(near.take()))
            far.handshake()
            near.feed(memoryview(far.take()))
        return far

    def test_authority(self) -> None:
        """The given CA is trusted, root or intermediate, and no other."""
        root, middle, _ = family()
        for authority in (root[0], middle[0]):
            self.shake(KubeAccess("https://h", ca_data=pem(authority)))
        for access in (KubeAccess("https://h"), KubeAccess("https://h", ca_data=pem(issue("root")[0]))):
            self.assertRaises(ssl.SSLCertVerificationError, self.shake, access)
        self.assertRaises(
            ssl.SSLCertVerificationError, self.shake, KubeAccess("https://h", ca_data=pem(root[0])), "other"
        )

    def test_client_certificate(self) -> None:
        """The server sees our client certificate."""
        root, _, _ = family()
        certificate, key = issue("agent", root)
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        access = KubeAccess(
            "https://h", ca_data=pem(root[0]), client_certificate=pem(certificate), client_key=private
        )
        shown = self.shake(access).object.getpeercert(binary_form=True)
        self.assertEqual(shown, certificate.public_bytes(Encoding.DER))

    def test_encrypted_key(self) -> None:
        """An encrypted key is rejected, without a prompt for a password."""
        certificate, key = issue("agent")
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"x"))
        access = KubeAccess("https://h", client_certificate=pem(certificate), client_key=private)
        error = self.assertRaises(ConfigurationError, client_context, access)
        self.assertIn("encrypted", str(error))

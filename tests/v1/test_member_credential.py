"""Tests of `tower.v1.member_credential`."""

from __future__ import annotations

import json
import os
import ssl
import tempfile
from base64 import urlsafe_b64encode
from typing import Any

from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.certificates import PUBLISHED
from tests.fakes.chains import Pair, family, issue, pem, server_context
from tower.errors import ConfigurationError
from tower.net.tls.session import TLSSession
from tower.v1.config import AgentConfig
from tower.v1.member_credential import MemberCredential, parse_server

SECRET = b"s3cret-t0ken"


def key_of(pair: Pair) -> bytes:
    """Return the private key, PEM."""
    return pair[1].private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def token(claims: object) -> bytes:
    """Return a JWT; only its middle part is valid."""
    return b"e30.%b.c2ln" % urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=")


def credential(server: str = "10.0.0.1:6443", **parts: Any) -> MemberCredential:
    """Return one."""
    return MemberCredential(AgentConfig(kubernetes=server, **parts))


class ServerTests(SynchronousTestCase):
    """Reads where the API server is."""

    def test_addresses(self) -> None:
        """Names, addresses, IPv6 with and without brackets, with and without a port."""
        for text, expected in {
            "10.0.0.1:6443": ("10.0.0.1", 6443),
            "kubernetes.default.svc": ("kubernetes.default.svc", 443),
            "kubernetes.default.svc:": ("kubernetes.default.svc", 443),
            "[fd00::1]:6443": ("fd00::1", 6443),
            "[fd00::1]": ("fd00::1", 443),
            "fd00::1:6443": ("fd00::1", 6443),
            "fd00::6443": ("fd00::6443", 443),
            "1:2:3:4:5:6:7:8": ("1:2:3:4:5:6:7:8", 443),
            "1:2:3:4:5:6:7:8:9": ("1:2:3:4:5:6:7:8", 9),
        }.items():
            self.assertEqual(parse_server(text), expected)

    def test_nonsense(self) -> None:
        """Anything else is refused, and named."""
        for text in (
            *("", ":443", "host:0", "host:65536", "host:x", "host:+1", "https://host", "ho st", "a\r\nb:1"),
            *("[fd00::1", "[fd00::1]x", "fe80::1%eth0:443", "h\xf6st:443", "host/path", "a:b:c", "x" * 300),
        ):
            error = self.assertRaises(ConfigurationError, parse_server, text)
            self.assertIn("is not host:port", str(error))
            self.assertLess(len(str(error)), 250)

    def test_host_line(self) -> None:
        """The Host field names the port unless it is that of https."""
        for server, line in {
            "10.0.0.1:443": b"Host: 10.0.0.1\r\n",
            "10.0.0.1:6443": b"Host: 10.0.0.1:6443\r\n",
            "fd00::1:443": b"Host: [fd00::1]\r\n",
            "[fd00::1]:6443": b"Host: [fd00::1]:6443\r\n",
        }.items():
            self.assertEqual(credential(server).upstream.host_line, line)
        self.assertEqual(credential("host.:1").server_name, "host")
        self.assertEqual(credential().upstream.prefix, b"")


class BearerTests(SynchronousTestCase):
    """Takes bearer tokens."""

    def test_trimmed(self) -> None:
        """White space around the token is dropped (hole 31)."""
        for text in (SECRET, SECRET + b"\n", b" \t" + SECRET + b"\r\n"):
            line = credential(bearer=text).upstream.credential_line
            self.assertEqual(line, b"Authorization: Bearer " + SECRET + b"\r\n")
            self.assertFalse(credential(bearer=text).is_missing)
        self.assertEqual(credential().upstream.credential_line, b"")
        self.assertTrue(credential().is_missing)

    def test_refused(self) -> None:
        """A token that is not one printable word is rejected, and not part of the error."""
        for text in (b" \n", b"two words", b"one\r\nX: y", b"\xc3\xb6", b"nul\0", b"x" * 65537):
            error = self.assertRaises(ConfigurationError, credential, bearer=text)
            self.assertEqual(str(error), "the bearer token is not one word of printable characters")

    def test_expires(self) -> None:
        """A JWT has an expiry; no other text has one, even if it is similar."""
        self.assertEqual(credential(bearer=token({"exp": 1_700_000_000})).facts.lifetime.end, 1_700_000_000.0)
        self.assertEqual(credential(bearer=token({"exp": 1.5})).facts.lifetime.end, 1.5)
        for claims in ({}, {"exp": "x"}, {"exp": True}, {"exp": 0}, {"exp": 1e300}, {"exp": None}, [1], 7):
            self.assertIsNone(credential(bearer=token(claims)).facts.lifetime.end)
        for text in (
            SECRET,
            b"a.b",
            b"a.!!!.c",
            b"a.b.c.d",
            b"a.%b.c" % (b"W1tb" * 10_000),
            b"..",
            b"a.e30.c",
        ):
            self.assertIsNone(credential(bearer=text).facts.lifetime.end)

    def test_never_shown(self) -> None:
        """Neither repr nor str shows anything of it."""
        one = credential(bearer=SECRET)
        for shown in (repr(one), str(one), repr(one.upstream), str(one.upstream)):
            self.assertNotIn("s3cret", shown)
        self.assertEqual(repr(one), "MemberCredential(10.0.0.1:6443)")


class CertificateTests(SynchronousTestCase):
    """Takes certificates."""

    def test_shown(self) -> None:
        """The API server gets the client certificate, which takes precedence over a bearer token."""
        root, _, _ = family()
        pair = issue("agent", root)
        one = credential(
            "tower.example", authority=pem(root[0]), certificate=pem(pair[0]), key=key_of(pair), bearer=SECRET
        )
        self.assertEqual((one.upstream.credential_line, one.is_missing), (b"", False))
        self.assertEqual(one.facts.lifetime.end, pair[0].not_valid_after_utc.timestamp())
        self.assertEqual(shake(one), pair[0].public_bytes(Encoding.DER))

    def test_no_file(self) -> None:
        """Nothing is written where others could find it, and no descriptor is left."""
        pair = issue("agent")
        before = os.listdir("/proc/self/fd")
        self.patch(tempfile, "tempdir", self.mktemp())  # which does not exist
        credential(certificate=pem(pair[0]), key=key_of(pair))
        self.assertEqual(len(os.listdir("/proc/self/fd")), len(before))

    def test_half(self) -> None:
        """A certificate without its key, or the other way round, is refused."""
        pair = issue("agent")
        error = self.assertRaises(ConfigurationError, credential, certificate=pem(pair[0]))
        self.assertEqual(str(error), "the config has CertData without KeyData")
        error = self.assertRaises(ConfigurationError, credential, key=key_of(pair))
        self.assertEqual(str(error), "the config has KeyData without CertData")

    def test_no_pair(self) -> None:
        """A pair that does not match, is encrypted or not PEM is rejected; there is no password prompt."""
        pair, other = issue("agent"), issue("agent")
        encrypted = pair[1].private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"x"))
        for certificate, key in (
            (pem(pair[0]), key_of(other)),
            (pem(pair[0]), encrypted),
            (pem(pair[0]), SECRET),
            (SECRET, key_of(pair)),
            (key_of(pair), pem(pair[0])),
        ):
            error = self.assertRaises(ConfigurationError, credential, certificate=certificate, key=key)
            self.assertIn("are not an unencrypted, matching pair in PEM", str(error))
            self.assertIsNone(error.__cause__)
            self.assertTrue(error.__suppress_context__)


class AuthorityTests(SynchronousTestCase):
    """Trusts the agent's authorities."""

    def test_trusted(self) -> None:
        """The agent's certificates are trusted, root or intermediate, only for the server's name."""
        root, middle, _ = family()
        for authority in (pem(root[0]), pem(middle[0]), pem(issue("x", authority=True)[0]) + pem(root[0])):
            shake(credential("tower.example:6443", authority=authority))
            shake(credential("127.0.0.1:6443", authority=authority))
        for server, authority in (
            ("other", pem(root[0])),
            ("10.0.0.1", pem(root[0])),
            ("tower.example", pem(issue("root")[0])),
            ("tower.example", b""),
        ):
            one = credential(server, authority=authority)
            self.assertRaises(ssl.SSLCertVerificationError, shake, one)

    def test_strict(self) -> None:
        """Nothing older than TLS 1.2 is spoken, and HTTP/1.1 alone."""
        context = credential().context
        self.assertEqual(context.minimum_version, ssl.TLSVersion.TLSv1_2)
        self.assertEqual((context.verify_mode, context.check_hostname), (ssl.CERT_REQUIRED, True))

    def test_no_authority(self) -> None:
        """An authority that is not a PEM certificate is rejected."""
        for authority in (SECRET, b"\xff\xfe", key_of(issue("x")), pem(issue("x")[0])[:200]):
            error = self.assertRaises(ConfigurationError, credential, authority=authority)
            self.assertEqual(str(error), "the agent's certificate authority is not a PEM certificate")

    def test_shared(self) -> None:
        """The system's authorities are loaded once, and never into a context with a client certificate."""
        self.assertIs(credential().context, credential(bearer=b"token").context)
        pair = issue("agent")
        shown: dict[str, Any] = {"certificate": pem(pair[0]), "key": key_of(pair)}
        self.assertIsNot(credential(**shown).context, credential(**shown).context)

    def test_published(self) -> None:
        """The authority whose private key is public is refused (hole 2), wherever it stands."""
        published = PUBLISHED.encode()
        for authority in (published, pem(family()[0][0]) + published):
            error = self.assertRaises(ConfigurationError, credential, authority=authority)
            self.assertIn("private key", str(error))


def shake(near: MemberCredential) -> bytes | None:
    """Shake hands with a server in memory that resumes sessions; return the certificate that it was shown."""
    root, middle, leaf = family()
    context = server_context(leaf, middle[0])
    context.verify_mode = ssl.CERT_OPTIONAL
    context.load_verify_locations(cadata=pem(root[0]).decode())
    client = TLSSession(near.context, server_side=False, server_hostname=near.server_name)
    server = TLSSession(context, server_side=True)
    for _ in range(5):
        client.handshake()
        server.feed(memoryview(client.take()))
        server.handshake()
        client.feed(memoryview(server.take()))
    return server.object.getpeercert(binary_form=True)

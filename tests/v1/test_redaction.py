"""Tests of `tower.v1.redaction`."""

from __future__ import annotations

from base64 import b64encode

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tower.v1.config import AgentConfig
from tower.v1.redaction import LONGEST_SHOWN, Redactor

BODY = b"MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg0123456789abcdef"
PEM = b"-----BEGIN PRIVATE KEY-----\n" + BODY[:40] + b"\n" + BODY[40:] + b"\n-----END PRIVATE KEY-----\n"
CONFIG = AgentConfig(name="alpha", token="t0ken-of-alpha", bearer=b"b3arer-of-alpha", key=PEM)


class RedactorTests(SynchronousTestCase):
    def setUp(self) -> None:
        """Create a redactor."""
        self.redact = Redactor(CONFIG).redact

    def test_harmless(self) -> None:
        """Texts of proxies are shown."""
        for text in (
            "Unauthorized agent",
            "tls: private key does not match public key",
            'clusters.cluster.kubesphere.io "alpha" not found',
            "BEGIN PRIVATE KEY",
        ):
            self.assertEqual(self.redact(text.encode()), text)

    def test_printable(self) -> None:
        """Control characters are removed; a text of nothing else is replaced."""
        self.assertEqual(self.redact(b"a\r\nb\x1b[0m\x00c\xff"), "ab[0mc\ufffd")
        self.assertEqual(self.redact(b"\x00\x01"), "[2 B, not text]")
        self.assertEqual(self.redact(b""), "[0 B, not text]")

    def test_secrets(self) -> None:
        """No secret is shown, whole or in part, as it is or as it is sent."""
        for secret in (
            b"t0ken-of-alpha",
            b"Token: t0ken-of",
            b"t0k\0en-of-al",
            b"b3arer-of-alpha",
            b64encode(b"b3arer-of-alpha"),
            BODY[20:40],
            BODY[36:44],
            b64encode(PEM)[60:80],
            CONFIG.encode(),
        ):
            self.assertIn("redacted", self.redact(b"why? " + secret), secret)

    def test_short_secret(self) -> None:
        """A short token is looked for as a whole."""
        redact = Redactor(AgentConfig(token="abc")).redact
        self.assertIn("redacted", redact(b"no abc here"))
        self.assertEqual(redact(b"no ab c here"), "no ab c here")

    def test_repr(self) -> None:
        """It does not show them itself."""
        self.assertNotIn("t0ken", repr(Redactor(CONFIG)))

    @given(st.binary(max_size=3 * LONGEST_SHOWN), st.integers(0, 3 * LONGEST_SHOWN))
    def test_anything(self, noise: bytes, place: int) -> None:
        """For any text the result is short, printable and without a token."""
        text = self.redact(noise[:place] + CONFIG.token.encode() + noise[place:])
        self.assertLessEqual(len(text), LONGEST_SHOWN)
        self.assertTrue(text.isprintable())
        self.assertNotIn("t0ken-of", text)
        self.assertTrue(text)

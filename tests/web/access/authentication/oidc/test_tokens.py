"""Tests of `tower.web.access.authentication.oidc.tokens`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.id_tokens import URL, id_token
from tower.web.access.authentication.oidc.tokens import (
    TOKEN_LIMIT,
    TokenRejected,
    is_same_issuer,
    parsed_json,
    received_token,
)


class ReceivedTokenTests(SynchronousTestCase):
    """Tokens before their signature is verified."""

    def test_form(self) -> None:
        """The issuer, the algorithm and the key's ID are read."""
        token = received_token(id_token())
        assert token is not None
        self.assertEqual((token.issuer, token.algorithm, token.key_id), (URL, "RS256", "first"))
        self.assertNotIn(token.text.decode(), repr(token))

    def test_other_forms(self) -> None:
        """Anything else is another method's."""
        header, payload, signature = id_token().split(b".")
        for bearer in (
            b"",
            b"abc",
            b"a.b.c",
            header + b"." + payload,
            b".".join((header, payload, signature, b"x")),
            b".".join((header, b"!" + payload, signature)),
            b".".join((header, payload + b"=", signature)),
            b".".join((header, b"W10", signature)),
            b".".join((header, b"W" * 9000, signature)),
            id_token(iss=7),
            id_token({}),
        ):
            self.assertIsNone(received_token(bearer), bearer)

    def test_bad_header(self) -> None:
        """A malformed header is the issuer's to reject."""
        _, payload, signature = id_token().split(b".")
        for header in (b"", b"!", b"W10", b"e30x"):
            token = received_token(b".".join((header, payload, signature)))
            assert token is not None
            self.assertFalse(token.well_formed)

    def test_too_long(self) -> None:
        """A token above the limit is rejected before it is read; other secrets are not looked at."""
        error = self.assertRaises(TokenRejected, received_token, id_token(x="a" * TOKEN_LIMIT))
        self.assertIn(f"{TOKEN_LIMIT} B are the limit", str(error))
        self.assertIsNone(received_token(b"x" * (TOKEN_LIMIT + 1)))

    def test_google(self) -> None:
        """Google's issuer has two spellings, and no other has."""
        token = received_token(id_token(iss="accounts.google.com"))
        assert token is not None
        self.assertEqual(token.issuer, "https://accounts.google.com")
        self.assertTrue(is_same_issuer("https://accounts.google.com", "accounts.google.com"))
        self.assertFalse(is_same_issuer("https://issuer.example", "issuer.example"))

    def test_json(self) -> None:
        """Values that JSON does not have, and deep nesting, are errors."""
        for text in (b"NaN", b"[Infinity]", b"[" * 100_000, b"{", b"\xff"):
            self.assertRaises(ValueError, parsed_json, text)

"""Tests of `tower.web.access.door_tokens`; `tests.attacks.test_front_door` has all methods together."""

from __future__ import annotations

from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.id_tokens import CLIENT, ISSUER, NOW, ProviderAgent, id_token, key_set
from tower.web.access.authentication.oidc.key_set import read_key_set
from tower.web.access.authentication.oidc.method import OIDCMethod
from tower.web.access.authentication.oidc.provider import ProviderDocuments
from tower.web.access.door_tokens import DoorTokens


class DoorTokensTests(SynchronousTestCase):
    """Tokens of an issuer that open the door, or may do so later."""

    def setUp(self) -> None:
        """Create the filter, with an issuer that has not answered yet."""
        clock: Any = Clock()
        self.method = OIDCMethod((ISSUER,), clock, lambda: NOW, ProviderDocuments(clock, ProviderAgent()))
        self.tokens = DoorTokens((self.method,))

    def test_no_keys(self) -> None:
        """Any token of the issuer may open the door, and no token of another one."""
        self.assertTrue(self.tokens.opens(id_token()))
        self.assertTrue(self.tokens.opens(id_token(aud="another")))
        self.assertFalse(self.tokens.opens(id_token(iss="https://another.example")))
        self.assertFalse(self.tokens.opens(b"opaque"))

    def test_keys(self) -> None:
        """A token that is valid soon, or whose key is unknown, may open the door; an expired one does not."""
        self.method.providers[0].keys = read_key_set(key_set("first"))
        for opens, token in (
            (True, id_token()),
            (True, id_token(aud=[CLIENT, "another"])),
            (True, id_token(nbf=int(NOW) + 300)),
            (True, id_token(name="second")),
            (False, id_token(aud="another")),
            (False, id_token(exp=int(NOW) - 1)),
        ):
            self.assertEqual(self.tokens.opens(token), opens)

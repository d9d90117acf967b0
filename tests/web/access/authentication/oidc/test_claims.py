"""Tests of `tower.web.access.authentication.oidc.claims`; an integration test compares the texts."""

from __future__ import annotations

from typing import Any

from attrs import evolve
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.id_tokens import CLIENT, GOOD, ISSUER, NOW
from tower.web.access.authentication.oidc.claims import LEEWAY, check_claims_of
from tower.web.access.authentication.oidc.issuer import IssuerSettings
from tower.web.access.authentication.oidc.tokens import TokenRejected


class ClaimsTests(SynchronousTestCase):
    """Issuer, audience and lifetime."""

    def rejected(self, issuer: IssuerSettings = ISSUER, **changes: Any) -> TokenRejected:
        """Return the error of good claims with changes; None: without."""
        claims = {name: value for name, value in {**GOOD, **changes}.items() if value is not None}
        error: TokenRejected = self.assertRaises(TokenRejected, check_claims_of, issuer, claims, NOW)
        return error

    def test_good(self) -> None:
        """The expiry is returned."""
        self.assertEqual(check_claims_of(ISSUER, GOOD, NOW), NOW + 600)
        self.assertEqual(check_claims_of(ISSUER, {**GOOD, "exp": str(int(NOW) + 60)}, NOW), NOW + 60)
        self.assertEqual(check_claims_of(ISSUER, {**GOOD, "exp": NOW + 1.9}, NOW), NOW + 1)

    def test_issuer(self) -> None:
        """The issuer is compared exactly."""
        for other in (ISSUER.url + "/", ISSUER.url.upper(), ISSUER.url[:-1], "", None, 7):
            self.assertIn("id token issued by a different provider", str(self.rejected(iss=other)))

    def test_audience(self) -> None:
        """One of the audiences is one of the token's; ``azp`` does not count."""
        check_claims_of(ISSUER, {**GOOD, "aud": ["x", CLIENT], "azp": "x"}, NOW)
        self.assertIn(f'expected audience "{CLIENT}" got ["x"]', str(self.rejected(aud="x", azp=CLIENT)))
        for other in (None, [], "", CLIENT + "x", [CLIENT.upper()]):
            self.rejected(aud=other)
        several = evolve(ISSUER, audiences=("b", "a"))
        check_claims_of(several, {**GOOD, "aud": "a"}, NOW)
        self.assertIn(
            'expected audience in ["a" "b"] got ["x" "y"]', str(self.rejected(several, aud=["x", "y"]))
        )
        malformed: Any
        for malformed in (7, {}, [7], [None], True):
            self.assertIn("failed to unmarshal claims", str(self.rejected(aud=malformed)))

    def test_expiry(self) -> None:
        """``exp`` is required, and has no tolerance."""
        for value in (None, int(NOW), NOW, NOW - 0.5, NOW - 300, 0, -1e30, str(int(NOW))):
            error = self.rejected(exp=value)
            self.assertIn("oidc: token is expired (Token Expiry: ", str(error))
            self.assertEqual(error.kind, "expired")
        malformed: Any
        for malformed in (True, "soon", "", "1" * 100, [NOW], {}, 10**400, float("inf")):
            self.assertIn("failed to unmarshal claims", str(self.rejected(exp=malformed)))
        self.assertEqual(check_claims_of(ISSUER, {**GOOD, "exp": 1e300}, NOW), 1e300)

    def test_begin(self) -> None:
        """``nbf`` has a tolerance of a minute."""
        check_claims_of(ISSUER, {**GOOD, "nbf": int(NOW + LEEWAY)}, NOW)
        error = self.rejected(nbf=int(NOW + LEEWAY) + 1)
        self.assertIn("before the nbf (not before) time: 2023-11-14 22:14:21 +0000 UTC", str(error))
        self.assertEqual(error.kind, "not-yet-valid")

    def test_cure(self) -> None:
        """The client's text has upstream's and a cure; the log's has no cure."""
        error = self.rejected(exp=int(NOW) - 1)
        self.assertEqual(str(error), f"Unauthorized: {error.reason}: log in again")

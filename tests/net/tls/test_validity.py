"""Tests of `tower.net.tls.validity`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.chains import family
from tower.net.tls.validity import is_about_dates, validity_problem


class ValidityTests(SynchronousTestCase):
    """Texts about the dates of certificates."""

    def test_texts(self) -> None:
        """The text has the dates, the clock, the difference and the cure."""
        chain = [each[0] for each in reversed(family())]
        begin, end = (
            moment.timestamp() for moment in (chain[0].not_valid_before_utc, chain[0].not_valid_after_utc)
        )
        self.assertIsNone(validity_problem(chain, begin + 300))
        early = validity_problem(chain, begin - 7200) or ""
        self.assertRegex(early, r"valid from \d{4}-.*, but this machine's clock shows .*, 120m earlier: set")
        late = validity_problem(chain, end + 3661) or ""
        self.assertRegex(late, r"valid until .* UTC, 61m later: renew the certificate, or set the clock")
        self.assertIsNone(validity_problem([], begin))

    def test_dates(self) -> None:
        """OpenSSL's errors about dates are distinguished from others."""
        for text in ("certificate has expired", "certificate is not yet valid"):
            self.assertTrue(is_about_dates(f"certificate verify failed: {text}"))
        self.assertFalse(is_about_dates("certificate verify failed: self-signed certificate"))

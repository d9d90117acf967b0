"""Tests of `tower.net.tls.validity`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.chains import family
from tower.net.tls.validity import is_about_dates, span, validity_problem


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
        self.assertRegex(early, r"valid from \d{4}-.*, but this machine's clock shows .*, 2h earlier: set")
        late = validity_problem(chain, end + 3661) or ""
        self.assertRegex(late, r"valid until .* UTC, 1h1m later: renew the certificate, or set the clock")
        self.assertIsNone(validity_problem([], begin))

    def test_spans(self) -> None:
        """A difference has two units at most, and no empty ones."""
        for seconds, expected in (
            (0.2, "1s"),
            (59, "59s"),
            (60, "1m"),
            (3599, "59m59s"),
            (3600, "1h"),
            (3605, "1h"),
            (86400 + 3600, "1d1h"),
            (400 * 86400, "400d"),
        ):
            self.assertEqual(span(seconds), expected)

    def test_dates(self) -> None:
        """OpenSSL's errors about dates are distinguished from others."""
        for text in ("certificate has expired", "certificate is not yet valid"):
            self.assertTrue(is_about_dates(f"certificate verify failed: {text}"))
        self.assertFalse(is_about_dates("certificate verify failed: self-signed certificate"))

"""Tests of `tower.trust.expiry`."""

from __future__ import annotations

import re
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tower.trust.expiry import AUTHORITY_SOON, CREDENTIAL_SOON, DAY, SERVING_SOON, credential_ends_soon

NOW = 1_800_000_000.0
ROOT = Path(__file__).parent.parent.parent


class ExpiryRuleTests(SynchronousTestCase):
    """The rule, and its use."""

    def test_credential(self) -> None:
        """A credential ends soon in the last tenth of its life, and in its last week."""
        for begin, end, soon in (
            (None, None, False),
            (None, NOW + 7 * DAY, False),
            (None, NOW + 6 * DAY, True),
            (NOW - 300 * DAY, NOW + 6 * DAY, True),
            (NOW - 300 * DAY, NOW + 8 * DAY, False),
            (NOW - 3200, NOW + 400, False),
            (NOW - 3300, NOW + 300, True),
        ):
            self.assertEqual(credential_ends_soon(begin, end, NOW), soon)

    def test_alerts(self) -> None:
        """The alert rules and the documents have the same thresholds."""
        rules = (ROOT / "deploy" / "prometheus" / "tower-alerts.yaml").read_text()
        for metric, soon in (
            ("tower_member_credential_expiry_timestamp_seconds", CREDENTIAL_SOON),
            ('tower_certificate_expiry_timestamp_seconds{name="serving"}', SERVING_SOON),
            ('tower_certificate_expiry_timestamp_seconds{name!="serving"}', AUTHORITY_SOON),
        ):
            (days,) = re.findall(re.escape(f"{metric} - time() < ") + r"(\d+) \* 86400\b", rules)
            self.assertEqual(int(days) * DAY, soon)
        text = " ".join((ROOT / "docs" / "monitoring.md").read_text().split())
        self.assertIn("7 days for a credential", text)
        self.assertIn("20 days for a serving certificate, 90 days for a CA", text)

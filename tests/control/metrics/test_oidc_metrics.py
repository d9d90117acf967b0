"""Tests for `tower.control.metrics.oidc_metrics`."""

from __future__ import annotations

from typing import Any

from attrs import evolve
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.id_tokens import ISSUER, NOW, URL, ProviderAgent
from tower.control.metrics.oidc_metrics import OIDCCollector
from tower.metrics.page import registry_of
from tower.web.access.authentication.oidc.method import OIDCMethod
from tower.web.access.authentication.oidc.provider import REFRESH, ProviderDocuments


class OIDCMetricsTests(SynchronousTestCase):
    """The metrics of one issuer with keys, and one without."""

    def test_values(self) -> None:
        """Keys are counted, and the last attempt to get them has failed or not."""
        clock: Any = Clock()
        clock.advance(NOW)
        agent = ProviderAgent()
        other = evolve(ISSUER, url="https://none.example")
        method = OIDCMethod((ISSUER, other), clock, clock.seconds, ProviderDocuments(clock, agent))
        registry = registry_of(OIDCCollector(method))

        def values(name: str) -> list[float | None]:
            return [registry.get_sample_value(name, {"issuer": url}) for url in (URL, other.url)]

        self.assertEqual(values("tower_oidc_keys"), [0, 0])
        self.assertEqual(values("tower_oidc_fetch_failed"), [0, 0])
        method.startService()
        self.addCleanup(method.stopService)
        self.assertEqual(values("tower_oidc_keys"), [1, 0])
        self.assertEqual(values("tower_oidc_fetch_failed"), [0, 1])
        agent.answers.clear()
        clock.advance(REFRESH + 10)
        self.assertEqual(values("tower_oidc_keys"), [1, 0])
        self.assertEqual(values("tower_oidc_fetch_failed"), [1, 1])

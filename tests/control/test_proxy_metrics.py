"""Tests of `tower.control.proxy_metrics`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tower.control.proxy_metrics import ProxyCollector, proxy_registry
from tower.metrics.histogram import DELAY_BOUNDS, Histogram
from tower.net.budget import Budget


class ProxyCollectorTests(SynchronousTestCase):
    """Metrics that belong to no cluster."""

    def test_values(self) -> None:
        """The values are those at the time of the scrape."""
        budget, writes = Budget(1000), Histogram(DELAY_BOUNDS)
        throttled = {"requests": 0.0}
        registry = proxy_registry(
            ProxyCollector(
                budget=budget,
                store_writes=writes,
                expiries=lambda: {"serving": 1.9e9},
                throttled=lambda: throttled,
                rejections=lambda: {"timeout": 3},
                free_space=lambda: 5e9,
            ),
            None,
        )
        budget.borrow(100)
        writes.observe(0.004)
        throttled["requests"] = 7
        for name, labels, value in (
            ("tower_buffer_bytes", {}, 100),
            ("tower_buffer_limit_bytes", {}, 1000),
            ("tower_store_write_seconds_count", {}, 1),
            ("tower_certificate_expiry_timestamp_seconds", {"name": "serving"}, 1.9e9),
            ("tower_state_directory_free_bytes", {}, 5e9),
            ("tower_throttled_total", {"scope": "requests"}, 7),
            ("tower_agent_rejections_total", {"reason": "timeout"}, 3),
        ):
            self.assertEqual(registry.get_sample_value(name, labels), value)
        self.assertIn("tower_build_info", {metric.name for metric in registry.collect()})

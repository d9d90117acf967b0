"""Tests of `tower.control.metrics.proxy_metrics`."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tower.control.metrics.proxy_metrics import ProxyCollector, ProxyMetrics, proxy_registry
from tower.metrics.histogram import DELAY_BOUNDS, Histogram
from tower.net.budget import Budget
from tower.web.limits.caps import ClusterCap
from tower.web.limits.door_limits import DoorLimits
from tower.web.limits.seat_pool import SeatPool


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


class ProxyMetricsTests(SynchronousTestCase):
    """The list of all metrics."""

    def test_page(self) -> None:
        """The page has the values of each part; those of the audit log only if there is one."""

        def part(**values: Any) -> Any:
            return SimpleNamespace(**values)

        reactor: Any = Clock()
        keys = part(
            state=part(path="."),
            authority=part(current=part(not_after=2.0)),
            users=part(current=part(not_after=3.0)),
        )
        rejections = Counter({"too-many-tunnels": 4})
        audit = part(
            events=8, rejected=0, levels={}, destinations=[part(name="log", lost=0, limit=0, backend=None)]
        )
        for audit_log, is_there in ((None, False), (part(lines=8, lost=0), True)):
            metrics = ProxyMetrics.of(
                reactor,
                keys,
                part(not_after=1.0),
                part(write_times=Histogram(DELAY_BOUNDS)),
                part(clusters=part(list=list), member_credentials=None),
                part(counters=part(rejections=rejections, clusters={})),
                part(readings=list),
                Budget(1000),
                part(ended=5, refused=6, proven=0, unproven=0),
                part(unproven=part(evicted=7)),
                audit if is_there else None,
                audit_log,
                DoorLimits(SeatPool(400), None, ClusterCap(1)),
            )
            metrics.requests.too_many = 9
            writing = metrics.page.pieces()
            while not writing.called:  # on a slow machine it takes several turns
                reactor.advance(0)
            pieces: list[bytes] = self.successResultOf(writing)
            text = b"".join(pieces).decode()
            for line in (
                'tower_certificate_expiry_timestamp_seconds{name="serving"} 1',
                'tower_certificate_expiry_timestamp_seconds{name="serving-ca"} 2',
                'tower_certificate_expiry_timestamp_seconds{name="users-ca"} 3',
                'tower_agent_rejections_total{reason="too-many-tunnels"} 4',
                'tower_throttled_total{scope="requests"} 9',
                'tower_throttled_total{scope="connections"} 11',
                'tower_throttled_total{scope="tunnels"} 4',
                'tower_throttled_total{scope="memory"} 7',
                "tower_event_loop_lag_seconds_count 0",
                'tower_request_seats{kind="read-only"} 0',
                'tower_request_seats_limit{kind="read-only"} 400',
                'tower_requests_waiting{kind="read-only"} 0',
                'tower_requests_limited_total{reason="cluster"} 0',
                'tower_requests_limited_total{reason="queue-full"} 0',
                'tower_requests_limited_total{reason="time-out"} 0',
            ):
                self.assertIn(f"{line}.0\n", text)
            self.assertEqual("apiserver_audit_event_total 8.0\n" in text, is_there)
            self.assertEqual("tower_access_log_lines_total 8.0\n" in text, is_there)

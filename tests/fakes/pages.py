"""Pages of metrics that are written at once."""

from __future__ import annotations

from prometheus_client import CollectorRegistry
from twisted.internet.task import Clock

from tower.metrics.page import MetricsPage


def page_of(registry: CollectorRegistry) -> bytes:
    """Return the page of *registry*, which is short."""
    found: list[list[bytes]] = []
    clock = Clock()
    MetricsPage(clock, registry, clock.seconds).pieces().addCallback(found.append)
    return b"".join(found[0])

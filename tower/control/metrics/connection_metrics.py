"""Metrics of the proxy's connections; see `tower.net.connection_slots`."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import Metric
from prometheus_client.registry import Collector

from tower.net.connection_slots import Slots

CONNECTIONS = "tower_connections"
CLOSED = "tower_connections_closed_for_others_total"
REFUSED = "tower_connections_refused_total"


class SlotsCollector(Collector):
    """Metrics of *slots*."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots

    def collect(self) -> Iterable[Metric]:
        """Return the numbers of open, closed and rejected connections."""
        slots = self._slots
        counts = Metric(CONNECTIONS, "Open connections, by whether the peer has authenticated.", "gauge")
        counts.add_sample(CONNECTIONS, {"authenticated": "true"}, slots.proven)
        counts.add_sample(CONNECTIONS, {"authenticated": "false"}, slots.unproven)
        closed = Metric(CLOSED, "Unauthenticated connections closed to make room for newer ones.", "counter")
        closed.add_sample(CLOSED, {}, slots.ended)
        refused = Metric(REFUSED, "New connections reset: authenticated ones had taken all slots.", "counter")
        refused.add_sample(REFUSED, {}, slots.refused)
        return counts, closed, refused

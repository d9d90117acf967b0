"""Metrics of the election."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import Metric
from prometheus_client.registry import Collector

from tower.controller.leader.leader_election import LeaderElection
from tower.metrics.families import counter, gauges

#: Name of client-go's metric.
STATUS = "leader_election_master_status"

CHANGES = "tower_leader_changes_total"


class ElectionCollector(Collector):
    """Metrics of one candidate."""

    def __init__(self, election: LeaderElection) -> None:
        self._election = election

    def collect(self) -> Iterable[Metric]:
        """Return whether it leads, and the number of leaders before."""
        election = self._election
        text = "Whether this proxy leads: 1, or 0 for a standby; by the name of the Lease."
        yield gauges(STATUS, text, "name", {election.lock.name: float(election.is_leader)})
        text = "Changes of the leader, as counted in the Lease."
        yield counter(CHANGES, text, election.lock.record.transitions)

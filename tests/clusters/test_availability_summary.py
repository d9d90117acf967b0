"""The number of available clusters."""

from __future__ import annotations

from typing import cast

from attrs import define
from twisted.trial.unittest import SynchronousTestCase

from tower.clusters.availability_summary import availability_summary
from tower.clusters.cluster import Cluster, Condition


@define
class CountedCluster:
    """A cluster with only its availability; empty: not known yet."""

    status: str
    enabled: bool = True

    def condition(self, kind: str) -> Condition | None:
        """Return the condition."""
        assert kind == "Available"
        return Condition(kind, self.status, "Test", "", 0.0) if self.status else None  # type: ignore[arg-type]


class SummaryTests(SynchronousTestCase):
    """One sentence."""

    def text(self, *clusters: CountedCluster) -> str:
        """Return the sentence."""
        return availability_summary(cast(list[Cluster], list(clusters)))

    def test_sentences(self) -> None:
        """Only True counts as available; disabled clusters are counted separately."""
        yes, no, unknown = CountedCluster("True"), CountedCluster("False"), CountedCluster("")
        disabled = CountedCluster("True", enabled=False)
        self.assertEqual(self.text(), "no clusters")
        self.assertEqual(self.text(yes), "1 of 1 cluster available")
        self.assertEqual(self.text(yes, no, unknown, yes), "2 of 4 clusters available")
        self.assertEqual(self.text(yes, no, disabled), "1 of 2 clusters available, 1 disabled")
        self.assertEqual(self.text(disabled), "0 of 0 clusters available, 1 disabled")

"""Tests of `tower.web.login.entered_clusters`."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from attrs import evolve
from twisted.trial.unittest import SynchronousTestCase

from tests.cloud.asking import finish
from tests.fakes.policies import ManyClusters, spec_of, user_of
from tower.clusters.policies.policy_index import PolicyIndex
from tower.web.access.authentication.identity import Identity
from tower.web.login import entered_clusters
from tower.web.login.entered_clusters import CLUSTERS, EnteredClusters

COUNT = 3 * CLUSTERS


class EnteredClustersTests(SynchronousTestCase):
    """Lists of a user's clusters, and the decisions that are kept."""

    def setUp(self) -> None:
        """Add clusters and a policy, and count the decisions."""
        self.kit = kit = ManyClusters(COUNT)
        kit.put("dev", spec_of("dev", "*", access="edit"))
        self.entered = EnteredClusters(kit.clusters, kit.index, kit.timers, kit.clock.seconds)
        self.decided = 0
        matching = PolicyIndex.matching

        def counted(*arguments: Any) -> Any:
            self.decided += 1
            return matching(*arguments)

        self.patch(PolicyIndex, "matching", counted)

    def of(self, user: Identity | None = None) -> dict[str, Any]:
        """Return the clusters of a user by name."""
        listed = finish(self.kit.timers, self.entered.of(user or user_of()))
        return {each["name"]: each for each in listed}

    def took(self) -> int:
        """Return the number of decisions since the last call."""
        decided, self.decided = self.decided, 0
        return decided

    def test_kept(self) -> None:
        """Decisions are made in pieces, and used again for all credentials of the user."""
        self.assertEqual(len(self.of()), COUNT)
        self.assertEqual((self.took(), self.kit.timers.turns), (COUNT, COUNT // CLUSTERS))
        self.assertEqual(self.of(evolve(user_of(), key="other", expires=9e9))["c000"]["access"], ["edit"])
        self.assertEqual(self.took(), 0)
        self.assertEqual(self.of(user_of("joe", "other")), {})
        self.assertEqual(self.took(), COUNT)
        self.assertEqual(list(self.of(evolve(user_of(), scope="c001"))), ["c001"])
        self.assertEqual(len(self.of()), COUNT)
        self.assertEqual(self.took(), 0)

    def test_changes(self) -> None:
        """Changes of policies and of clusters' labels, and new clusters, count at once."""
        self.of()
        self.kit.put("dev", spec_of("dev", "c001"))
        self.assertEqual(list(self.of()), ["c001"])
        labelled = {"selector": {"matchLabels": {"env": "test"}}}
        self.kit.put("dev", {**spec_of("dev"), "clusters": labelled})
        self.assertEqual(self.of(), {})
        self.took()
        self.successResultOf(
            self.kit.clusters.change("c002", lambda each: evolve(each, labels={"env": "test"}))
        )
        self.assertEqual((list(self.of()), self.took()), (["c002"], 1))
        self.successResultOf(self.kit.clusters.add("new", labels={"env": "test"}))
        self.assertEqual((list(self.of()), self.took()), (["c002", "new"], 1))
        self.successResultOf(self.kit.clusters.remove("new"))
        self.assertEqual(list(self.of()), ["c002"])

    def test_time_window(self) -> None:
        """The end of a time window counts at once."""
        window = {"days": ["Tue"], "timeZone": "UTC"}  # the kit's day
        self.kit.put("dev", spec_of("dev", "c001", timeWindow=window))
        self.assertTrue(self.of()["c001"]["open"])
        self.kit.clock.advance(86400)
        self.assertFalse(self.of()["c001"]["open"])

    def test_limit(self) -> None:
        """The decisions for the users that were asked about first are dropped first."""
        with patch.object(entered_clusters, "KEPT", 2 * COUNT):
            for name in ("a", "b", "c"):
                self.of(user_of(name))
            self.took()
            self.of(user_of("c"))
            self.of(user_of("b"))
            self.assertEqual(self.took(), 0)
            self.of(user_of("a"))
            self.assertEqual(self.took(), COUNT)

"""Tests of `tower.web.api.policies.policy_preview`; see also `test_policies_api`."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from tests.cloud.asking import finish
from tests.fakes.policies import ManyClusters, spec_of
from tower.web.api.policies.policy_preview import PAIRS, SUBJECT_LIMIT, PolicyPreview

COUNT = 8 * PAIRS


class PolicyPreviewTests(SynchronousTestCase):
    """Comparisons of many clusters."""

    def setUp(self) -> None:
        """Add the clusters."""
        self.kit = ManyClusters(COUNT)
        self.preview = PolicyPreview(self.kit.index, self.kit.clusters, self.kit.timers)

    def test_in_pieces(self) -> None:
        """The reactor runs between the comparisons of a few clusters."""
        new = self.kit.records.new("new", spec_of("dev", "*", access="edit"))
        self.kit.put("old", spec_of("dev", "c000"))
        lines = finish(self.kit.timers, self.preview(None, new))
        others = f"clusters c001, c002, c003, c004, c005 and {COUNT - 6} more"
        self.assertEqual(
            lines,
            [
                "would change: group dev in cluster c000: full access -> edit access and full access",
                f"would change: group dev in {others}: no entry -> edit access",
            ],
        )
        self.assertEqual(self.kit.timers.turns, COUNT // PAIRS)

    def test_given_up(self) -> None:
        """A comparison for a client that disconnected ends, and leaves nothing."""
        new = self.kit.records.new("new", spec_of("dev", "*"))
        doing = Deferred.fromCoroutine(self.preview(None, new))
        doing.cancel()
        self.failureResultOf(doing)
        self.assertEqual(self.kit.timers.getDelayedCalls(), [])

    def test_limits(self) -> None:
        """Subjects above the limit are not compared, and a line reports it."""
        spec = spec_of("dev", "c000")
        spec["subjects"] = [{"kind": "User", "name": f"u{number}"} for number in range(SUBJECT_LIMIT + 1)]
        lines = finish(self.kit.timers, self.preview(None, self.kit.records.new("new", spec)))
        self.assertEqual(len(lines), SUBJECT_LIMIT + 1)
        self.assertEqual(
            lines[-1], f"only the first {SUBJECT_LIMIT} of {SUBJECT_LIMIT + 1} subjects were compared"
        )

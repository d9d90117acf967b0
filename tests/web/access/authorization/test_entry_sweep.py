"""Tests of `tower.web.access.authorization.entry_sweep`."""

from __future__ import annotations

from typing import Any

from attrs import evolve
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.credentials import Issues
from tests.fakes.policies import Policies, spec_of, user_of
from tower.clusters import Clusters
from tower.clusters.policies.access_levels import FULL, READ_ONLY
from tower.web.access.authentication.identity import Identity, UserInfo
from tower.web.access.authorization.cluster_entry import Asked, ClusterEntry
from tower.web.access.authorization.entry_sweep import PERIOD, PIECE, EntrySweep
from tower.web.access.sessions import Sessions

NOON = 1_795_435_200.0  # 2026-11-23T12:00:00Z
HOUR = 3600.0


class EntrySweepTests(SynchronousTestCase):
    """Sessions end soon after they are no longer permitted, and no others do."""

    def setUp(self) -> None:
        """Add a cluster and a policy."""
        self.policies = Policies(now=NOON)
        clock: Any = self.policies.clock
        self.clusters = Clusters(self.policies.store, None, clock)
        self.successResultOf(self.clusters.add("alpha", labels={"env": "test"}))
        self.sessions = Sessions(Issues().authenticator(clock))
        self.sweep = EntrySweep(
            self.policies.store, self.sessions, self.policies.entry, self.clusters.get, clock, clock.seconds
        )
        self.addCleanup(self.sweep.stop)
        self.policies.put("p", spec_of())
        self.ended: list[tuple[str, str, int]] = []

    def enter(self, user: str | Identity = "jane", levels: int = FULL, target: str = "kubernetes") -> None:
        """Begin a session."""
        found = self.clusters.get("alpha")
        sender = user_of(user) if isinstance(user, str) else user
        identity = self.policies.entry.admit(sender, found, "alpha", Asked(levels, target))
        self.sessions.enter(
            identity, "alpha", lambda reason, code=401: self.ended.append((sender.user, reason, code))
        )

    def check(self, *expected: str, code: int = 403) -> str:
        """Sweep; check which users' sessions end, with this status; return the last reason."""
        self.policies.clock.advance(PERIOD)
        self.ended.clear()
        checked = Deferred.fromCoroutine(self.sweep.check())
        self.policies.clock.pump([0.0] * 20)
        self.successResultOf(checked)
        self.assertEqual([user for user, _, _ in self.ended], list(expected))
        self.assertEqual({each[2] for each in self.ended} - {code}, set())
        return self.ended[-1][1] if self.ended else ""

    def test_removed_policy(self) -> None:
        """The removal of a policy ends its sessions, once."""
        self.enter()
        self.check()
        self.policies.put("other", spec_of("qa"))
        self.check()
        self.policies.drop("p")
        self.assertIn("jane is not admitted to cluster alpha", self.check("jane"))
        self.check()
        self.assertEqual(len(self.sessions.admitted), 0)

    def test_acting(self) -> None:
        """A session of a user who acts as another one ends with the policy for the sender."""
        found = self.clusters.get("alpha")
        sender = self.policies.entry.admit(user_of("jane"), found, "alpha", Asked(FULL))
        acted = evolve(
            sender, user="bob", groups=("qa",), member=UserInfo("bob", ("qa",)), impersonator=sender
        )
        self.sessions.enter(
            acted, "alpha", lambda reason, code=401: self.ended.append(("jane", reason, code))
        )
        self.check()
        self.policies.put("other", spec_of("qa"))
        self.check()
        self.policies.drop("p")
        self.assertIn("jane is not admitted to cluster alpha", self.check("jane"))

    def test_changed_level(self) -> None:
        """A lower level ends what it does not permit; reads go on."""
        self.policies.put("q", spec_of(access="read-only"))
        self.enter("jane", FULL | READ_ONLY)
        self.enter("joe", FULL)
        self.policies.put("r", spec_of("qa"))
        self.check()
        self.policies.drop("p")
        self.assertIn("permits only read-only access", self.check("joe"))
        self.check()

    def test_changed_names(self) -> None:
        """Sessions end when their user gets other names, so that no rights are kept."""
        self.enter()
        self.policies.put("p", spec_of(names={"groups": ["viewers"]}))
        self.assertIn("the names of jane in cluster alpha have changed", self.check("jane"))
        self.enter()
        self.policies.put("p", spec_of(names={"groups": ["viewers"], "user": "co:{user}"}))
        self.assertIn("the names of jane in cluster alpha have changed", self.check("jane"))

    def test_more_groups(self) -> None:
        """More groups end no session: they are for new requests."""
        self.enter()
        self.policies.put("q", spec_of(names={"groups": ["viewers"]}))
        self.check()
        self.policies.drop("p")
        self.check("jane")

    def test_many(self) -> None:
        """Many sessions are checked in pieces; only those of the policy's subjects are decided again."""
        for number in range(3 * PIECE):
            self.enter(f"user-{number}")
        self.check()
        asked: list[str] = []
        admit = self.policies.entry.admit

        def recorded(identity: Any, *more: Any) -> Any:
            asked.append(identity.user)
            return admit(identity, *more)

        self.patch(ClusterEntry, "admit", lambda _, *more: recorded(*more))
        self.policies.put("q", spec_of("qa"))
        self.check()
        self.assertEqual(asked, [])
        self.policies.put("q", spec_of("dev"))
        checking = Deferred.fromCoroutine(self.sweep.check())
        self.assertEqual(len(asked), PIECE)
        self.assertNoResult(checking)
        self.policies.clock.pump([0.0] * 5)
        self.successResultOf(checking)
        self.assertEqual(len(asked), 3 * PIECE)

    def test_labels(self) -> None:
        """New labels of the cluster count; other changes of its record end nothing."""
        self.policies.put("p", {**spec_of(), "clusters": {"selector": {"matchLabels": {"env": "test"}}}})
        self.enter()
        self.successResultOf(self.clusters.set_condition("alpha", "Available", "True", "Ready", "x"))
        self.check()
        self.successResultOf(self.clusters.change("alpha", lambda old: evolve(old, labels={"env": "live"})))
        self.check("jane")

    def test_removed_cluster(self) -> None:
        """A cluster that is removed and added again has another uid, but the same admission."""
        self.enter()
        self.successResultOf(self.clusters.remove("alpha"))
        self.check("jane")

    def test_window(self) -> None:
        """Sessions end with the window; the opening of another policy's window ends none."""
        window = {"from": "11:00", "to": "13:00", "timeZone": "UTC"}
        self.policies.put("p", spec_of(timeWindow=window))
        later = {"from": "12:30", "to": "12:45", "timeZone": "UTC"}
        self.policies.put("q", spec_of(timeWindow=later))
        self.enter()
        for _ in range(3):
            self.check()
            self.policies.clock.advance(HOUR / 4)
        self.policies.clock.advance(HOUR / 4)
        self.assertIn("access policies p, q admit only daily 11:00-13:00 UTC and daily", self.check("jane"))

    def test_clock_set_back(self) -> None:
        """A clock that is set back to before the window ends the sessions, too."""
        self.policies.put("p", spec_of(timeWindow={"from": "11:00", "to": "13:00", "timeZone": "UTC"}))
        self.enter()
        self.policies.clock.rightNow -= 2 * HOUR
        self.check("jane")

    def test_ttl(self) -> None:
        """A session ends after the longest time of its policies."""
        self.policies.put("p", spec_of(ttl="3s"))
        self.enter()
        for _ in range(3):
            self.check()
        self.assertIn(
            "connections to cluster alpha end after 3s (access policy p)", self.check("jane", code=503)
        )
        self.policies.put("q", spec_of())
        self.enter()
        for _ in range(10):
            self.check()

    def test_changed_ttl(self) -> None:
        """A changed time counts for the sessions that there are."""
        self.policies.put("p", spec_of(ttl="1h"))
        self.enter()
        for _ in range(5):
            self.check()
        self.policies.put("p", spec_of(ttl="8s"))
        for _ in range(3):
            self.check()
        self.assertIn("end after 8s", self.check("jane", code=503))
        self.enter()
        self.check()
        self.policies.put("p", spec_of(ttl="1h"))
        for _ in range(10):
            self.check()

    def test_withdrawn_facts(self) -> None:
        """Sessions end when the cluster must no longer get the user's UID or a fact."""
        for names in ({"uid": True}, {"extra": ["a"]}):
            self.policies.put("p", spec_of(names=names))
            self.enter(evolve(user_of("jane"), uid="7", extra=(("a", ("1",)),)))
            self.check()
            self.policies.put("p", spec_of())
            self.assertIn("the names of jane in cluster alpha have changed", self.check("jane"))

    def test_late_session(self) -> None:
        """A session that begins after a change, by a decision from before, ends, too."""
        found = self.clusters.get("alpha")
        identity = self.policies.entry.admit(user_of(), found, "alpha", Asked(FULL))
        self.policies.drop("p")
        self.check()
        self.sessions.enter(
            identity, "alpha", lambda reason, code=401: self.ended.append(("jane", reason, code))
        )
        self.check("jane")

    def test_other_users(self) -> None:
        """Sessions that no policy admitted are not looked at."""
        self.sessions.enter(user_of(), "alpha", self.fail)
        self.policies.drop("p")
        self.check()

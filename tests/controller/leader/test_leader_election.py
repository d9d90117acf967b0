"""Tests of `tower.controller.leader.leader_election`, `lease_lock` and `lease_watch`."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from tests.kube.rest.fake_host import FakeHost
from tower.controller.leader.leader_election import RELEASE_TIMEOUT, ElectionTimes, LeaderElection
from tower.controller.leader.lease_lock import UNKNOWN
from tower.kube.rest.host_api import Object
from tower.kube.rest.well_known import LEASES

NAMESPACE = "kubesphere-system"
NOW = 1_790_000_000.0


class ElectionTestCase(SynchronousTestCase):
    """An API server, and candidates with one clock."""

    def setUp(self) -> None:
        """Make the API server."""
        self.clock = Clock()
        self.host = FakeHost()
        self.events: list[str] = []
        self.ever = False
        self.suspended = 0.0

    async def had_leader(self) -> bool:
        """Return what the test set."""
        return self.ever

    def candidate(self, name: str, *, is_only: bool = False) -> LeaderElection:
        """Start a candidate."""
        election = LeaderElection(
            self.host,
            self.clock,
            name,
            NAMESPACE,
            ElectionTimes(),
            is_only=is_only,
            had_leader=self.had_leader,
            seconds=lambda: self.clock.seconds() + self.suspended,
            epoch=lambda: NOW + self.clock.seconds(),
            chance=lambda: 0.5,
        )
        election.on_started = lambda: self.events.append(f"{name} leads")
        election.on_lost = lambda reason: self.events.append(f"{name} {reason}")
        election.startService()
        self.addCleanup(self.stop, election)
        return election

    def stop(self, election: LeaderElection) -> None:
        """Stop a candidate that runs."""
        if election.running:
            election.stopService()

    def advance(self, seconds: float) -> None:
        """Let time pass in small steps."""
        self.clock.pump([0.1] * round(seconds * 10))

    @property
    def lease(self) -> Object:
        """The Lease in the API server."""
        found = self.host.object(LEASES, "tower", NAMESPACE)
        assert found is not None
        return found

    def write(self, **spec: object) -> None:
        """Change the Lease as another program."""
        self.host.put(LEASES, {**self.lease, "spec": {**self.lease["spec"], **spec}})

    def release(self, election: LeaderElection) -> None:
        """Release the Lease."""
        done: list[object] = []
        Deferred.fromCoroutine(election.release()).addCallback(done.append)
        self.advance(RELEASE_TIMEOUT + 1)
        self.assertEqual(done, [None])


class CandidateTests(ElectionTestCase):
    """The begin of a leadership."""

    def test_first(self) -> None:
        """The first candidate creates the Lease and leads at once."""
        election = self.candidate("a")
        self.assertTrue(election.is_leader)
        self.assertEqual((self.events, election.problem), (["a leads"], ""))
        self.assertEqual(self.lease["spec"]["holderIdentity"], "a")

    def test_empty_lease(self) -> None:
        """A Lease without a holder, as a chart may create it, is taken at once."""
        self.host.put(LEASES, {"metadata": {"name": "tower", "namespace": NAMESPACE}})
        self.assertTrue(self.candidate("a").is_leader)

    def test_standby(self) -> None:
        """A candidate waits while the Lease is renewed, and knows its holder."""
        self.candidate("a")
        second = self.candidate("b")
        self.advance(120.0)
        self.assertEqual((self.events, second.is_leader, second.holder), (["a leads"], False, "a"))
        self.assertEqual(self.lease["spec"]["leaseTransitions"], 0)

    def test_killed(self) -> None:
        """A Lease that is not renewed is taken over after its duration, which the watch measures exactly."""
        first, second = self.candidate("a"), self.candidate("b")
        self.advance(12.0)  # the last renewal is 2 s old
        first.stopService()
        self.advance(27.9)
        self.assertFalse(second.is_leader)
        self.advance(0.5)
        self.assertTrue(second.is_leader)
        self.assertEqual(self.lease["spec"]["leaseTransitions"], 1)

    def test_settle(self) -> None:
        """A leader that took an expired Lease acts 2 s later; after a release it acts at once."""
        first, second = self.candidate("a"), self.candidate("b")
        first.stopService()
        while not second.is_leader:
            self.advance(0.1)
        self.advance(1.8)
        self.assertEqual(self.events, ["a leads"])
        self.advance(0.4)
        self.assertEqual(self.events, ["a leads", "b leads"])
        third = self.candidate("c")
        self.release(second)
        self.assertEqual((self.events[-1], third.is_leader), ("c leads", True))

    def test_killed_without_watch(self) -> None:
        """Without a watch, the candidate sees the last renewal a retry period late, and no more."""
        first = self.candidate("a")
        self.host.fail_next(403, verbs=["watch"], count=100)
        second = self.candidate("b")
        self.advance(10.0)
        first.stopService()
        self.advance(35.5)
        self.assertTrue(second.is_leader)

    def test_duration_of_record(self) -> None:
        """The duration is that of the record, and not the candidate's own."""
        self.candidate("a").stopService()
        self.write(leaseDurationSeconds=60)
        second = self.candidate("b")
        self.advance(59.5)
        self.assertFalse(second.is_leader)
        self.advance(1.0)
        self.assertTrue(second.is_leader)

    def test_foreign_clock(self) -> None:
        """A time of renewal in the past or in the future means nothing: only its change counts."""
        self.candidate("a").stopService()
        for moment in ("1999-01-01T00:00:00.000000Z", "2099-01-01T00:00:00.000000Z"):
            self.write(renewTime=moment)
            second = self.candidate("b")
            self.advance(29.0)
            self.assertFalse(second.is_leader, moment)
            second.stopService()

    def test_conflict(self) -> None:
        """Only one of several candidates that take the Lease at the same time leads."""
        self.candidate("a").stopService()
        candidates = [self.candidate(name) for name in "bcd"]
        self.advance(40.0)
        self.assertEqual([each.is_leader for each in candidates].count(True), 1)

    def test_removed_lease(self) -> None:
        """A candidate that saw a leader does not take a removed Lease before it would have expired."""
        first, second = self.candidate("a"), self.candidate("b")
        first.stopService()
        self.host.remove(LEASES, "tower", NAMESPACE)
        self.advance(29.0)
        self.assertFalse(second.is_leader)
        self.advance(2.0)
        self.assertTrue(second.is_leader)

    def test_removed_before_start(self) -> None:
        """A new candidate waits, too, if there ever was a leader."""
        self.ever = True
        candidate = self.candidate("a")
        self.assertEqual((candidate.is_leader, candidate.holder), (False, UNKNOWN))
        self.advance(29.0)
        self.assertFalse(candidate.is_leader)
        self.advance(6.0)
        self.assertTrue(candidate.is_leader)

    def test_missing_rights(self) -> None:
        """A rejected request is the candidate's problem, logged once, until it is allowed."""
        self.host.fail_next(403, "leases is forbidden", count=3)
        with capturedLogs() as events:
            candidate = self.candidate("a")
            self.advance(9.5)
        self.assertIn('"leases is forbidden": grant the rights', candidate.problem)
        self.assertEqual(len([each for each in events if "forbidden" in formatEvent(each)]), 1)
        self.advance(5.0)
        self.assertEqual((candidate.is_leader, candidate.problem), (True, ""))

    def test_missing_namespace(self) -> None:
        """A missing namespace is named, and used once it exists."""
        host = FakeHost(namespaces=())
        self.host = host
        candidate = self.candidate("a")
        self.assertIn(
            "not found\": create it with 'kubectl create namespace",
            candidate.problem,
        )

    def test_no_answer(self) -> None:
        """A frozen API server is a problem after the retry period, and does not end the candidate."""
        self.host.freeze()
        candidate = self.candidate("a")
        self.advance(5.1)
        self.assertIn("no answer within 5.0 s", candidate.problem)
        self.host.thaw()
        self.advance(5.1)
        self.assertTrue(candidate.is_leader)

    def test_late_success(self) -> None:
        """A candidate whose write succeeded without an answer leads from its next attempt on."""
        self.host.fail_next(0, verbs=["create"], applied=True)
        candidate = self.candidate("a")
        self.assertFalse(candidate.is_leader)
        self.advance(5.0)
        self.assertTrue(candidate.is_leader)

    def test_stop(self) -> None:
        """A stopped candidate makes no requests."""
        self.candidate("a")
        second = self.candidate("b")
        second.stopService()
        self.assertEqual(self.host.watches, [])
        requests = len(self.host.requests)
        self.clock.advance(4.9)
        self.assertEqual(len(self.host.requests), requests)


class LeaderTests(ElectionTestCase):
    """The end of the leadership."""

    def test_writes(self) -> None:
        """A renewal is one write, without a read."""
        self.candidate("a")
        self.host.requests.clear()
        self.advance(58.0)
        self.assertEqual(self.host.requests, [("update", "leases", "tower")] * 11)

    def test_frozen_server(self) -> None:
        """A frozen API server ends the leadership at the renew deadline after the last success."""
        leader = self.candidate("a")
        self.advance(6.0)
        self.host.freeze()
        self.advance(13.9)
        self.assertEqual((leader.is_leader, self.events), (True, ["a leads"]))
        self.advance(0.2)
        self.assertFalse(leader.is_leader)
        self.assertEqual(len(self.events), 2)
        self.assertIn(
            "a lost the Lease kubesphere-system/tower: it was not renewed within 15 s", self.events[1]
        )
        self.host.thaw()
        self.advance(60.0)
        self.assertEqual((leader.is_leader, len(self.events)), (False, 2))

    def test_failures(self) -> None:
        """Failed renewals are repeated quickly, and the leadership goes on after them."""
        leader = self.candidate("a")
        self.host.fail_next(500, count=8)
        self.advance(30.0)
        self.assertEqual((leader.is_leader, leader.problem), (True, ""))

    def test_unanswered_renewal(self) -> None:
        """A renewal that was written without an answer is not a conflict."""
        leader = self.candidate("a")
        self.host.fail_next(0, verbs=["update"], applied=True)
        self.advance(30.0)
        self.assertEqual((leader.is_leader, self.events), (True, ["a leads"]))

    def test_taken(self) -> None:
        """A Lease that another program took ends the leadership at the next renewal."""
        leader = self.candidate("a")
        self.write(holderIdentity="b")
        self.advance(5.1)
        self.assertFalse(leader.is_leader)
        self.assertEqual(self.events[1:], ["a lost the Lease kubesphere-system/tower: b has taken it"])

    def test_removed_lease(self) -> None:
        """A Lease that was removed is created again by its leader."""
        leader = self.candidate("a")
        self.host.remove(LEASES, "tower", NAMESPACE)
        self.advance(6.0)
        self.assertEqual((leader.is_leader, self.lease["spec"]["holderIdentity"]), (True, "a"))

    def test_suspended_machine(self) -> None:
        """A machine that was suspended does not lead when it wakes up, before any timer runs."""
        leader = self.candidate("a")
        self.suspended = 15.0
        self.assertFalse(leader.is_leader)

    def test_reason_after_suspension(self) -> None:
        """A leader that lost its Lease by a suspension does not blame the API server."""
        self.candidate("a")
        self.advance(1.0)
        self.host.freeze()
        self.suspended = 37.0
        self.advance(15.1)
        self.assertIn("did not run for 37 s or longer, as after a suspension", self.events[-1])

    def test_answer_after_suspension(self) -> None:
        """The answer to a renewal that was sent before a suspension does not count: the next one does."""
        leader = self.candidate("a")
        self.advance(4.9)
        self.host.freeze()
        self.advance(0.2)
        self.suspended = 40.0
        self.host.thaw()
        self.assertFalse(leader.is_leader)
        self.advance(1.1)
        self.assertEqual((leader.is_leader, self.events), (True, ["a leads"]))

    def test_clock_set_back(self) -> None:
        """Candidates notice renewals of a leader whose time of day stands still."""
        self.candidate("a").lock._epoch = lambda: NOW
        second = self.candidate("b")
        self.advance(120.0)
        self.assertEqual((self.events, second.is_leader), (["a leads"], False))

    def test_release(self) -> None:
        """After a release a candidate leads at once, and the released one never again."""
        first, second = self.candidate("a"), self.candidate("b")
        self.release(first)
        self.assertEqual((first.is_leader, second.is_leader), (False, True))
        self.assertEqual(self.events, ["a leads", "b leads"])
        self.advance(60.0)
        self.assertEqual((first.is_leader, second.is_leader), (False, True))

    def test_release_during_renewal(self) -> None:
        """A renewal in progress does not prevent the release."""
        first, second = self.candidate("a"), self.candidate("b")
        self.host.fail_next(0, verbs=["update"], applied=True)
        self.advance(5.1)
        self.release(first)
        self.assertTrue(second.is_leader)

    def test_release_by_standby(self) -> None:
        """A candidate that does not lead releases nothing."""
        self.candidate("a")
        self.release(self.candidate("b"))
        self.assertEqual(self.lease["spec"]["holderIdentity"], "a")

    def test_release_without_answer(self) -> None:
        """A release without an answer ends after a while, with a warning."""
        first = self.candidate("a")
        self.host.freeze()
        with capturedLogs() as events:
            self.release(first)
        self.assertIn("cannot release the Lease kubesphere-system/tower", formatEvent(events[-1]))

    def test_again(self) -> None:
        """A candidate that released the Lease can be started again."""
        first, second = self.candidate("a"), self.candidate("b")
        self.release(first)
        first.startService()
        self.advance(20.0)
        self.assertEqual((first.is_leader, first.holder), (False, "b"))
        self.release(second)
        self.advance(1.0)
        self.assertTrue(first.is_leader)
        self.advance(60.0)
        self.assertEqual((self.events[-1], first.is_leader), ("a leads", True))


class OnlyCandidateTests(ElectionTestCase):
    """A proxy that expects no other one."""

    def test_frozen_server(self) -> None:
        """It stays the leader while it cannot renew, but must not write, and names the reason."""
        only = self.candidate("a", is_only=True)
        self.assertIn("the only proxy (--leader-elect=false)", only.role)
        self.advance(6.0)
        self.host.freeze()
        with capturedLogs() as events:
            self.advance(100.0)
        self.assertEqual((only.is_leader, self.events, only.role[:7]), (False, ["a leads"], "leader:"))
        self.assertIn("the Lease kubesphere-system/tower is not renewed: cannot use the Lease", only.fence)
        logged = [formatEvent(event) for event in events]
        self.assertEqual(len([text for text in logged if "does not write until it can renew" in text]), 1)
        self.host.thaw()
        self.advance(6.0)
        self.assertEqual((only.is_leader, only.problem, self.events), (True, "", ["a leads"]))

    def test_second(self) -> None:
        """A second one waits and names the first, with or without an election, until that one stops."""
        for is_first, is_second in ((True, True), (False, True), (True, False)):
            first = self.candidate("a", is_only=is_first)
            with capturedLogs() as events:
                second = self.candidate("b", is_only=is_second)
                self.advance(60.0)
            self.assertEqual((first.is_leader, second.is_leader), (True, False))
            expected = "a holds the Lease kubesphere-system/tower, although this proxy should be"
            self.assertEqual(expected in second.problem, is_second)
            self.assertEqual(any(expected in str(formatEvent(event)) for event in events), is_second)
            self.release(first)
            self.assertEqual((second.is_leader, second.problem), (True, ""))
            self.release(second)

    def test_taken(self) -> None:
        """If another one took the Lease meanwhile, it stops, and names the cause."""
        only = self.candidate("a", is_only=True)
        self.host.freeze()
        self.advance(60.0)
        self.host.thaw()
        self.write(holderIdentity="b")
        self.advance(6.0)
        self.assertFalse(only.running)
        self.assertIn("b has taken it: only one proxy may have --leader-elect=false", self.events[-1])

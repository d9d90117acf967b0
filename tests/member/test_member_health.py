"""Tests of `tower.member.member_health`."""

from __future__ import annotations

from attrs import evolve
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import capturedLogs, eventAsText
from twisted.trial.unittest import SynchronousTestCase

from tower.kube.member_status import Check, MemberStatus
from tower.member.member_health import LIMIT, PAUSE, PERIOD, MemberHealth
from tower.net.connecting import ConnectFailed

GOOD = MemberStatus(
    Check("True", "Reachable", "API server api answers"),
    Check("True", "CredentialAccepted", "API server api accepts the token of the agent"),
    Check("True", "ImpersonationAllowed", "the agent is allowed to impersonate all users and groups"),
    "v1.36.2",
    1_900_000_000.0,
    -0.5,
)
STOPPED = MemberStatus(Check("False", "ConnectionRefused", "API server api refuses connections: start it"))
DENIED = evolve(GOOD, impersonation=Check("False", "ImpersonationDenied", "not allowed: run kubectl"))
REFUSED = ConnectFailed("refused", "no")


def skewed(offset: float, text: str) -> MemberStatus:
    """Return the status of a member with another clock."""
    return evolve(GOOD, api_server=Check("True", "ClockSkew", text), clock_offset=offset)


class MemberHealthTests(SynchronousTestCase):
    def setUp(self) -> None:
        """Create a service whose checks the test ends."""
        self.clock = Clock()
        self.checks: list[Deferred[MemberStatus]] = []
        self.cancelled: list[Deferred[MemberStatus]] = []
        self.health = MemberHealth(self.clock, self.check)
        self.reported: list[MemberStatus] = []
        self.health.follow(self.reported.append)
        self.lines: list[str] = []

    def check(self) -> Deferred[MemberStatus]:
        """Begin a check."""
        self.checks.append(Deferred(self.cancelled.append))
        return self.checks[-1]

    def start(self, status: MemberStatus = GOOD) -> None:
        """Start with a check."""
        self.health.startService()
        self.addCleanup(lambda: self.health.running and self.health.stopService())
        self.end(status)

    def end(self, status: MemberStatus) -> list[str]:
        """End the current check; return the new log lines."""
        with capturedLogs() as events:
            self.checks[-1].callback(status)
        return [f"{event['log_level'].name} {eventAsText(event, includeTimestamp=False, includeSystem=False)}"
                for event in events]  # fmt: skip

    def next(self, status: MemberStatus) -> list[str]:
        """Run the next check; return its log lines."""
        count = len(self.checks)
        self.clock.advance(PERIOD)
        self.assertEqual(len(self.checks), count + 1)
        return self.end(status)

    def test_period(self) -> None:
        """A check runs at the start and then every 15 s, one at a time."""
        self.start()
        self.clock.advance(PERIOD - 0.1)
        self.assertEqual(len(self.checks), 1)
        self.clock.advance(0.1)
        self.assertEqual(len(self.checks), 2)
        self.health.check_now()
        self.health.dialed(REFUSED)
        self.clock.advance(LIMIT - 1)
        self.assertEqual(len(self.checks), 2)

    def test_stop(self) -> None:
        """A stop cancels the check and leaves no timer."""
        self.health.startService()
        self.health.stopService()
        self.assertEqual(self.cancelled, [self.checks[0]])
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.assertIsNone(self.health.status)

    def test_state(self) -> None:
        """The first problem is shown; before the first check it is that."""
        self.health.startService()
        self.addCleanup(self.health.stopService)
        self.assertIn("not finished", self.health.problem)
        self.end(GOOD)
        self.assertEqual((self.health.problem, self.health.warnings), ("", []))
        self.next(evolve(DENIED, credential=Check("False", "CredentialRejected", "rejects")))
        self.assertEqual(self.health.problem, "rejects")
        self.next(skewed(-3600.0, "1 h behind"))
        self.assertEqual((self.health.problem, self.health.warnings), ("", ["1 h behind"]))
        names = [name for name, _ in self.health.checks]
        self.assertEqual(names, ["api-server", "credential", "impersonation"])

    def test_reports(self) -> None:
        """Followers get the current status and each change, until they leave."""
        self.start()
        self.next(GOOD)
        self.next(DENIED)
        self.assertEqual(self.reported, [GOOD, DENIED])
        late: list[MemberStatus] = []
        self.health.follow(late.append)
        self.assertEqual(late, [DENIED])
        self.health.unfollow(late.append)
        self.next(GOOD)
        self.assertEqual((len(late), len(self.reported)), (1, 3))

    def test_log(self) -> None:
        """Each change is one line, in both directions; an unknown result is not a change."""
        self.health.startService()
        self.addCleanup(self.health.stopService)
        first = self.end(GOOD)
        self.assertEqual([line.split(":")[0] for line in first], [
            "info api-server", "info credential", "info impersonation"])  # fmt: skip
        self.assertEqual(self.next(GOOD), [])
        self.assertEqual(
            self.next(STOPPED),
            ["warn api-server: API server api refuses connections: start it (ConnectionRefused)"],
        )
        self.assertEqual(self.next(STOPPED), [])
        self.assertEqual(self.next(GOOD), ["info api-server: API server api answers (Reachable)"])
        self.assertEqual(
            self.next(DENIED), ["warn impersonation: not allowed: run kubectl (ImpersonationDenied)"]
        )
        self.assertEqual(len(self.next(GOOD)), 1)
        self.assertEqual(len(self.next(skewed(-100.0, "100 s behind"))), 1)

    def test_version_stays(self) -> None:
        """An API server that does not answer keeps its last known version."""
        self.start()
        self.next(STOPPED)
        assert self.health.status is not None
        self.assertEqual(self.health.status.version, "v1.36.2")
        self.next(evolve(GOOD, version="v1.37.0"))
        self.assertEqual(self.health.status.version, "v1.37.0")

    def test_clock_jitter(self) -> None:
        """Small changes of the clock are not reported, large ones are."""
        self.start()
        for offset in (0.5, -1.5, 29.0):
            self.assertEqual(self.next(evolve(GOOD, clock_offset=offset)), [])
        self.assertEqual(self.reported, [GOOD])
        self.next(evolve(GOOD, clock_offset=31.0))
        self.assertEqual(len(self.reported), 2)
        self.assertEqual(self.next(skewed(60.2, "60 s")), [])
        self.assertEqual(len(self.next(skewed(100.0, "100 s"))), 1)
        self.assertEqual(self.next(skewed(101.0, "101 s")), [])
        self.assertEqual(len(self.next(skewed(3600.0, "1 h"))), 1)
        self.assertEqual(len(self.next(GOOD)), 1)
        self.assertEqual(self.health.warnings, [])

    def test_check_now(self) -> None:
        """Changed files are checked at once."""
        self.start()
        self.clock.advance(3)
        self.health.check_now()
        self.assertEqual(len(self.checks), 2)

    def test_dialed(self) -> None:
        """A connection that contradicts the status causes a check, at most every few seconds."""
        self.health.dialed(REFUSED)
        self.start()
        self.health.dialed(None)
        self.health.dialed(ConnectFailed("busy", "too many files"))
        self.assertEqual(len(self.checks), 1)
        self.health.dialed(REFUSED)
        self.assertEqual(len(self.checks), 2)
        self.end(GOOD)
        self.health.dialed(REFUSED)
        self.clock.advance(PAUSE - 0.1)
        self.assertEqual(len(self.checks), 2)
        self.clock.advance(0.2)
        self.end(STOPPED)
        self.health.dialed(REFUSED)
        self.clock.advance(PAUSE)
        self.assertEqual(len(self.checks), 3)
        self.health.dialed(None)
        self.assertEqual(len(self.checks), 4)

    def test_doubted(self) -> None:
        """A request of the proxy causes a check at once, and further ones at most every few seconds."""
        self.start()
        for _ in range(100):
            self.health.doubted()
        self.assertEqual(len(self.checks), 2)
        self.end(DENIED)
        for _ in range(52):
            self.health.doubted()
            self.clock.advance(0.1)
        self.assertEqual(len(self.checks), 3)

    def test_failure(self) -> None:
        """A mistake in a check is logged, and the next one runs."""
        self.start()
        self.clock.advance(PERIOD)
        self.checks[-1].errback(RuntimeError("mistake"))
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)
        self.next(STOPPED)
        self.assertEqual(self.health.status.api_server, STOPPED.api_server)  # type: ignore[union-attr]

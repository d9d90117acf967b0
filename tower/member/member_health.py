"""Follows the state of the agent's API server: checks it, logs changes, and passes them on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import NamedTuple

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger, LogLevel

from tower.kube.member_cures import is_warning
from tower.kube.member_failures import steady
from tower.kube.member_status import CHECK_KINDS, UNCHECKED, Check, MemberStatus
from tower.net.connecting import ConnectFailed
from tower.reactor.repeating import RepeatingTask

#: Time between two checks, s.
PERIOD = 15.0

#: Shortest time between checks because of streams or requests, s; a proxy accepts a report every 2 s.
PAUSE = 5.0

#: Time limit of one check, s: twice that of `tower.kube.member_check`, which may read the clock as well.
LIMIT = 20.0

#: Gets each changed status.
Follower = Callable[[MemberStatus], None]


class NamedCheck(NamedTuple):
    """A check with its name on the health page."""

    name: str
    check: Check


class MemberHealth(Service):
    """Runs the checks, one at a time, while the service runs.

    :param check: returns the current status.
    :ivar status: the last status; None before the first.
    """

    _log = Logger()

    def __init__(self, clock: IReactorTime, check: Callable[[], Awaitable[MemberStatus]]) -> None:
        self._check = check
        self._task = RepeatingTask(clock, PERIOD, self._update, LIMIT)
        self._followers: list[Follower] = []
        self._logged: dict[str, Check] = {}
        self.status: MemberStatus | None = None

    def startService(self) -> None:
        """Start with a check."""
        super().startService()  # type: ignore[no-untyped-call]
        self._task.startService()

    def stopService(self) -> Deferred[None]:
        """Stop, and cancel the current check."""
        super().stopService()  # type: ignore[no-untyped-call]
        return self._task.stopService()

    # Reasons for a check before its time

    def check_now(self) -> None:
        """Check now: the credential files have changed, or the administrator requests it."""
        self._task.run_soon()

    def dialed(self, error: ConnectFailed | None) -> None:
        """Check soon if the result of a stream's connection to the API server contradicts the status."""
        if self.status is None or (error is not None and error.kind == "busy"):
            return
        if (error is None) is not (self.status.api_server.status == "True"):
            self._task.run_soon_at_most_every(PAUSE)

    def doubted(self) -> None:
        """Check soon: an answer that the proxy relayed contradicts the status."""
        self._task.run_soon_at_most_every(PAUSE)

    # The state

    @property
    def checks(self) -> Iterator[NamedCheck]:
        """The results, in the order of their dependence."""
        status = self.status or MemberStatus()
        for kind, check in zip(CHECK_KINDS, status.checks, strict=True):
            yield NamedCheck(kind.page, check)

    @property
    def problem(self) -> str:
        """Why the member is not usable, with the cure; empty if it is usable."""
        if self.status is None:
            return "the first check of the API server is not finished"
        return next((check.text for _, check in self.checks if check.status == "False"), "")

    @property
    def warnings(self) -> list[str]:
        """Problems that do not affect users yet, and checks that were not possible."""
        return [check.text for _, check in self.checks if is_warning(check)]

    # Followers

    def follow(self, follower: Follower) -> None:
        """Call *follower* now, if there is a status, and at each change."""
        self._followers.append(follower)
        if self.status is not None:
            follower(self.status)

    def unfollow(self, follower: Follower) -> None:
        """Call *follower* no longer."""
        self._followers.remove(follower)

    # Checks

    async def _update(self) -> None:
        status = steady(self.status, await self._check())
        if status == self.status:
            return
        self.status = status
        for name, check in self.checks:
            self._report(name, check)
        for follower in list(self._followers):
            follower(status)

    def _report(self, name: str, check: Check) -> None:
        """Log a changed result, unless it is unknown because another check failed."""
        before = self._logged.get(name)
        if check in (before, UNCHECKED):
            return
        self._logged[name] = check
        is_bad = check.status == "False" or is_warning(check)
        self._log.emit(
            LogLevel.warn if is_bad else LogLevel.info,
            "{name}: {text} ({reason})",
            name=name,
            text=check.text,
            reason=check.reason,
        )

"""Checks of a member's API server, with the checks that agents make."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from attrs import define, evolve, field

from tower.doctor.expiry import compare_clocks, lasts
from tower.doctor.findings import Step, Verdict, fail, ok, warn
from tower.kube.member_cures import is_warning
from tower.kube.member_status import Check, MemberStatus


@define(eq=False)
class AgentMemberSteps:
    """Checks of one API server.

    :param check: returns the status; see `tower.kube.member_check.MemberChecker.check`.
    :param now: returns the time of day, s since the epoch.
    :param renewal: cure of a credential that ends.
    """

    _check: Callable[[], Awaitable[MemberStatus]]
    _now: Callable[[], float]
    _renewal: str
    _status: MemberStatus = field(factory=MemberStatus, init=False)

    def steps(self) -> list[Step]:
        """Return the checks, in order."""
        return [
            Step("API server", self._api_server),
            Step("API server's clock", self._clock),
            Step("credential", lambda: _verdict(self._status.credential)),
            Step("credential's expiry", self._end),
            Step("impersonation", lambda: _verdict(self._status.impersonation)),
        ]

    async def _api_server(self) -> Verdict:
        self._status = status = await self._check()
        verdict = _verdict(status.api_server)
        return evolve(verdict, seen=f"{verdict.seen} ({status.version})") if status.version else verdict

    def _clock(self) -> Verdict:
        offset = self._status.clock_offset
        if offset is None:
            return ok("unknown")
        return compare_clocks(offset, "the API server")

    def _end(self) -> Verdict:
        status = self._status
        soon = status.credential.reason == "CredentialExpiresSoon"
        return lasts("it", status.credential_expires, self._now(), self._renewal, soon=soon)


def _verdict(check: Check) -> Verdict:
    """Return the verdict about one check of this machine."""
    message, cure = check.message or "unknown", check.cure or "correct this setting or file"
    if check.status == "False":
        return fail(message, cure)
    return warn(message, cure) if check.status == "Unknown" or is_warning(check) else ok(message)

"""A replica that is the only one, and so leads without an election (``--leader-elect=false``)."""

from __future__ import annotations

from collections.abc import Callable

from twisted.application.service import Service


class SoleLeader(Service):
    """Leads from its start to its stop; see `tower.controller.leader.leader_election.LeaderElection`."""

    problem = ""

    def __init__(self) -> None:
        self.on_started: Callable[[], object] = lambda: None
        self.on_standby: Callable[[], object] = lambda: None
        self.on_lost: Callable[[str], object] = lambda _: None

    @property
    def is_leader(self) -> bool:
        """Whether it was started and not stopped."""
        return bool(self.running)

    @property
    def role(self) -> str:
        """See `LeaderElection.role`."""
        return "leader: the only proxy (--leader-elect=false)"

    def startService(self) -> None:
        """Lead."""
        super().startService()  # type: ignore[no-untyped-call]
        self.on_started()

    async def release(self) -> None:
        """Stop leading."""
        if self.running:
            self.stopService()  # type: ignore[no-untyped-call]

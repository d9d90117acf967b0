"""Checks of the API servers behind tunnels whose other end does not check them: old agents, and nodes."""

from __future__ import annotations

from functools import partial

from attrs import define, field
from twisted.application.service import Service
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater

from tower.kube.member_failures import steady
from tower.reactor.repeating import RepeatingTask
from tower.tunnels import Tunnel, Tunnels

#: Interval of the checks of one tunnel, s.
PERIOD = 15.0

#: Shortest time between checks that requests cause, s.
PAUSE = 5.0

#: Shortest time between two checks, s.  So the checks of 600 tunnels fit into `PERIOD`, and those of a
#: thousand agents that connect at once do not delay requests; with more tunnels, each waits longer.
STEP = 0.025

#: Time limit of one check, waiting included, s.
TIMEOUT = 300.0


@define(eq=False, slots=False)
class MemberChecks(Service):
    """Checks tunnels with `Tunnel.check_member` when they open, every `PERIOD` s, and in doubt."""

    _clock: IReactorTime
    _tunnels: Tunnels
    _tasks: dict[str, dict[Tunnel, RepeatingTask]] = field(factory=dict, init=False)
    _next: float = field(default=0.0, init=False)

    def __attrs_post_init__(self) -> None:
        """Follow the tunnels."""
        self._tunnels.watch(self._changed)
        self._tunnels.on_doubt = self.check_soon

    def startService(self) -> None:
        """Start to check the tunnels."""
        super().startService()  # type: ignore[no-untyped-call]
        for name in {tunnel.name for tunnel in self._tunnels}:
            self._changed(name)

    def stopService(self) -> None:
        """Stop all checks."""
        super().stopService()  # type: ignore[no-untyped-call]
        for tasks in self._tasks.values():
            for task in tasks.values():
                task.stopService()
        self._tasks.clear()

    def check_soon(self, cluster: str) -> None:
        """Check the tunnels of *cluster*, but at most every `PAUSE` s."""
        for task in self._tasks.get(cluster, {}).values():
            task.run_soon_at_most_every(PAUSE)

    def _changed(self, name: str) -> None:
        if not self.running:
            return
        tasks = self._tasks.setdefault(name, {})
        live = self._tunnels.live(name)
        wanted = {tunnel: None for tunnel in live if tunnel.check_member is not None}
        for tunnel in [tunnel for tunnel in tasks if tunnel not in wanted]:
            tasks.pop(tunnel).stopService()
        for tunnel in wanted:
            task = tasks.get(tunnel)
            if task is None:
                work = partial(self._check, tunnel)
                task = tasks[tunnel] = RepeatingTask(self._clock, PERIOD, work, TIMEOUT)
                task.startService()
            elif tunnel.member_status is None:  # forgotten, because the credential has changed
                task.run_soon_at_most_every(PAUSE)
        if not tasks:
            del self._tasks[name]

    async def _check(self, tunnel: Tunnel) -> None:
        now = self._clock.seconds()
        self._next = max(self._next + STEP, now)
        if self._next > now:
            await deferLater(self._clock, self._next - now)
        assert tunnel.check_member is not None
        status = steady(tunnel.member_status, await tunnel.check_member())
        if status != tunnel.member_status:
            tunnel.member_status = status
            tunnel.on_change()

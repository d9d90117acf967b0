"""The end of the proxy: readiness, ports, records and services, one after the other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeAlias

from attrs import define
from twisted.application.service import Service
from twisted.internet import defer
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import deferLater
from twisted.logger import Logger

from tower.control.planes.connection_limits import ConnectionLimits
from tower.control.planes.runtime import RecordFollower, Runtime
from tower.control.planes.serving_plane import ServingPlane
from tower.store import IStore
from tower.trust.statedir import StateDir
from tower.tunnels import Tunnels
from tower.web.access.request_logs import RequestLogs

#: Lets the next proxy have the records.
HandOver: TypeAlias = Callable[[], Awaitable[None]]

#: Time for requests to Tower's API to finish before a hand-over, and for writes in progress, s.
QUIET = 0.5
LAST_WRITES = 2.0


class StopTerms(Protocol):
    """How to stop; they may change meanwhile.

    :ivar grace: time for requests to finish, s.
    :ivar reason: see `tower.web.ports.served_ports.ServedPorts.drain`.
    :ivar hand_over: called once no record is written any more; None: there is no next proxy.
    """

    @property
    def grace(self) -> float: ...  # noqa: D102

    @property
    def reason(self) -> str: ...  # noqa: D102

    @property
    def hand_over(self) -> HandOver | None: ...  # noqa: D102


@define(eq=False)
class ProxyStop:
    """Stops the planes.

    :param writers: services that must stop before another proxy can have the records.
    """

    _log = Logger()

    _runtime: Runtime
    _state: StateDir
    _store: IStore
    _logs: RequestLogs
    _limits: ConnectionLimits
    _tunnels: Tunnels
    _serving: ServingPlane
    _writers: Sequence[Service]
    _followers: Sequence[RecordFollower]

    async def run(self, terms: StopTerms, stop_services: Callable[[], object], *, was_ready: bool) -> None:
        """Let requests finish, then close everything, audit log and store last.

        :param stop_services: stops those of all planes.
        """
        self._serving.servers.announce_stop()
        delay: float = self._runtime.options["shutdown-delay-duration"]
        if was_ready and delay and terms.grace:
            self._log.info("the proxy stops in {delay:g} s: /readyz fails from now on", delay=delay)
            await deferLater(self._runtime.reactor, delay)
        draining = Deferred.fromCoroutine(self._serving.ports.drain(terms.grace, terms.reason))
        if terms.hand_over is not None:
            await self._cede(terms.hand_over)
        await draining
        await self._serving.servers.stop()
        await maybeDeferred(stop_services)
        self._limits.shared.rejections.write()
        await self._logs.stop()
        for follower in self._followers:
            follower.stop()
        await self._store.stop()
        self._state.close()
        if was_ready:
            self._log.info("tower-proxy stopped")

    async def _cede(self, hand_over: HandOver) -> None:
        """Stop writing records, let the next proxy begin, and send the agents there."""
        await deferLater(self._runtime.reactor, QUIET)
        finishing = Deferred.fromCoroutine(self._finish_writes())
        try:
            await finishing.addTimeout(LAST_WRITES, self._runtime.reactor)
        except defer.TimeoutError:
            self._log.warn("records could not be written within {limit:g} s", limit=LAST_WRITES)
            return
        await hand_over()
        for tunnel in self._tunnels:
            tunnel.drain()

    async def _finish_writes(self) -> None:
        for writer in self._writers:
            if writer.parent is not None:  # None if the start failed before
                await maybeDeferred(writer.disownServiceParent)
        await self._store.stop()

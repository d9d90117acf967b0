"""Keeps a tunnel to the proxy up, for ever or for a number of tries, and hands over when it stops."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import CancelledError, Deferred, DeferredList
from twisted.internet.error import ConnectionLost
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from tower.conch.transport.limits import TooManyConnections
from tower.conch.tunnel.tunnel import SSHTunnel
from tower.errors import TowerError
from tower.escaping import reported

#: How often a stopping agent looks whether its streams are over, s.
_LOOK = 0.1

#: Tunnels at one time: the one in use, and those that a proxy drained while streams were in them.
_MOST_TUNNELS = 8

#: How long a tunnel that is to be replaced may keep its streams, s.
RENEWAL = 60.0

#: How long after a tunnel's end the one in its place is opened, s: its proxy has to forget the first one.
_BETWEEN = 1.0

#: How long a closed tunnel may take to go, s.
_CLOSING = 2.0


class Reconnecting(Service):
    """A service with one live tunnel whenever there can be one.

    :param connect: opens a tunnel.
    :param backoff: how long to wait between tries.
    :param max_retry: how many tries may fail in a row after the first; 0: any number.
    :param gave_up: called, once, when that many did.
    :param grace: how long a stop waits for the streams under way, s.
    """

    _log = Logger()

    def __init__(
        self,
        clock: Any,
        connect: Callable[[], Deferred[SSHTunnel]],
        backoff: Backoff,
        *,
        max_retry: int,
        gave_up: Callable[[], None],
        grace: float,
    ) -> None:
        self._clock = clock
        self._connect = connect
        self._backoff = backoff
        self._max_retry = max_retry
        self._gave_up = gave_up
        self._grace = grace
        self._failures = 0
        self._trying: Deferred[Any] | None = None
        self._timer: IDelayedCall | None = None
        self._tunnel: SSHTunnel | None = None
        self._live: dict[SSHTunnel, Deferred[None]] = {}
        self._renewing: IDelayedCall | None = None
        self._renew_next = False
        self._state = "not started"

    # What the health page shows

    @property
    def ready(self) -> bool:
        """Whether a tunnel is up that takes new streams."""
        return self._tunnel is not None and bool(self.running)

    @property
    def state(self) -> str:
        """What goes on, for people."""
        return self._state

    # Up and down

    def startService(self) -> None:
        """Begin to connect."""
        super().startService()  # type: ignore[no-untyped-call]
        self._try()

    def retry_now(self) -> None:
        """Wait no longer: whoever asks knows that it is worth a try (SIGHUP)."""
        if self._timer is not None:
            self._timer.cancel()
            self._backoff.reset()
            self._try()

    def renew(self) -> None:
        """Connect anew, because what the proxy was told is no longer so.

        The tunnel goes before the next one comes, since its proxy keeps what it heard first for as long as
        it is there.  It goes when its streams are over, after `RENEWAL` at the latest; until then it takes
        new ones.
        """
        if self._trying is not None:
            self._renew_next = True
        elif self._tunnel is not None and self._renewing is None:
            self._log.info(
                "connecting anew when the streams under way are over, within {patience:g} s", patience=RENEWAL
            )
            self._retire(self._tunnel, self._clock.seconds() + RENEWAL)

    def _retire(self, tunnel: SSHTunnel, until: float) -> None:
        """Close *tunnel* once it is idle or it is time; another one that came meanwhile knows better."""
        self._renewing = None
        if tunnel is not self._tunnel:
            return
        if tunnel.streams and self._clock.seconds() < until:
            self._renewing = self._clock.callLater(_LOOK, self._retire, tunnel, until)
            return
        self._tunnel = None
        self._state = "connecting anew"
        self._live[tunnel].addCallback(self._retired)
        tunnel.close("the agent connects anew")

    def _retired(self, result: None) -> None:
        if self.running:
            self._timer = self._clock.callLater(_BETWEEN, self._try)

    def _try(self) -> None:
        self._timer = None
        self._renew_next = False
        self._state = "connecting"
        self._trying = trying = self._connect()
        trying.addCallbacks(self._up, self._failed)

    def _up(self, tunnel: SSHTunnel) -> None:
        self._trying = None
        self._failures = 0
        self._backoff.reset()
        self._tunnel = tunnel
        gone: Deferred[None] = Deferred()
        self._live[tunnel] = gone
        tunnel.on_change = lambda: self._changed(tunnel)
        tunnel.lost.addCallback(self._down, tunnel)
        if tunnel in self._live:
            self._state = "connected"
            told = reported("the proxy", f"version {tunnel.version}")
            self._log.info("connected to {peer}; {told}", peer=tunnel.peer, told=told)
        for old in list(self._live)[:-_MOST_TUNNELS]:
            self._log.warn("{peer} drained more than {most} tunnels", peer=old.peer, most=_MOST_TUNNELS - 1)
            old.abort()
        if self._renew_next:
            self._renew_next = False
            self.renew()

    def _changed(self, tunnel: SSHTunnel) -> None:
        """The proxy will soon be gone: look for another, or for itself after its restart."""
        if tunnel.draining and tunnel is self._tunnel:
            self._tunnel = None
            if self.running:
                self._log.info("{peer} is stopping; connecting anew", peer=tunnel.peer)
                self._later()

    def _down(self, reason: Exception, tunnel: SSHTunnel) -> None:
        gone = self._live.pop(tunnel)
        if tunnel is self._tunnel:
            self._tunnel = None
            if self.running:
                self._log.warn("the tunnel to {peer} is lost: {reason}", peer=tunnel.peer, reason=str(reason))
                self._later(long=isinstance(reason, TooManyConnections))
        elif self.running:
            self._log.info(
                "the drained tunnel to {peer} is gone: {reason}", peer=tunnel.peer, reason=str(reason)
            )
        gone.callback(None)

    def _failed(self, failure: Failure) -> None:
        self._trying = None
        if not self.running or failure.check(CancelledError):
            return
        self._failures += 1
        if failure.check(TowerError, OSError, ConnectionLost):
            self._log.warn(
                "try {failures} failed: {reason}",
                failures=self._failures,
                reason=failure.getErrorMessage(),
            )
        else:
            self._log.failure("try {failures} failed", failure, failures=self._failures)
        self._state = failure.getErrorMessage()
        if 0 < self._max_retry < self._failures:
            self._log.critical("giving up after {retries} retries", retries=self._max_retry)
            self._gave_up()
        else:
            self._later(long=failure.check(TooManyConnections) is not None)

    def _later(self, *, long: bool = False) -> None:
        """Try again after a while, a long one where the proxy has no room for this agent."""
        wait = self._backoff.wait(long=long)
        self._log.info("trying again in {wait:.1f} s", wait=wait)
        self._timer = self._clock.callLater(wait, self._try)

    # Stopping

    def stopService(self) -> Deferred[None]:
        """Hand over: announce it, let the streams under way end within the grace period, then close."""
        super().stopService()  # type: ignore[no-untyped-call]
        self._state = "stopping"
        for timer in (self._timer, self._renewing):
            if timer is not None:
                timer.cancel()
        self._timer = self._renewing = None
        if self._trying is not None:
            self._trying.cancel()
        for tunnel in self._live:
            tunnel.drain()
        return Deferred.fromCoroutine(self._hand_over())

    async def _hand_over(self) -> None:
        until = self._clock.seconds() + self._grace
        while self._clock.seconds() < until and any(tunnel.streams for tunnel in self._live):
            await self._sleep(_LOOK)
        everybody = DeferredList(list(self._live.values()))
        for tunnel in list(self._live):
            tunnel.close("the agent is stopping")
        cut = self._clock.callLater(_CLOSING, self._cut)
        await everybody
        if cut.active():
            cut.cancel()

    def _cut(self) -> None:
        for tunnel in list(self._live):
            tunnel.abort()

    def _sleep(self, seconds: float) -> Deferred[None]:
        woken: Deferred[None] = Deferred()
        self._clock.callLater(seconds, woken.callback, None)
        return woken


class Backoff:
    """How long to wait before the next attempt.

    :param first: s, growing by *factor* each time up to *longest*.
    :param chance: returns a number from 0 to 1; half of each wait is left to it, so that a thousand agents
        do not come back in the same instant.
    """

    def __init__(
        self,
        first: float = 0.1,
        factor: float = 1.4,
        longest: float = 120.0,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._first = min(first, longest)
        self._factor = factor
        self._longest = longest
        self._chance = chance
        self._next = self._first

    def wait(self, *, long: bool = False) -> float:
        """Return how long to wait now, s.

        :param long: as long as ever, from now on: it is no use to try again soon.
        """
        if long:
            self._next = self._longest
        now, self._next = self._next, min(self._next * self._factor, self._longest)
        return now * (0.5 + self._chance() / 2)

    def reset(self) -> None:
        """Begin with the first wait again: a connection was good."""
        self._next = self._first

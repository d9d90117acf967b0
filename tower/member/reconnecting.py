"""The agent's service that keeps a tunnel to the proxy open, reconnects, and drains at a stop."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

from attrs import define, field
from twisted.application.service import Service
from twisted.internet.defer import CancelledError, Deferred, DeferredList
from twisted.internet.error import ConnectionLost
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from tower.conch.transport.limits import TooManyConnections
from tower.conch.tunnel.endings import ENDINGS, ending
from tower.conch.tunnel.tunnel import SSHTunnel
from tower.errors import TowerError
from tower.escaping import reported

#: Interval of checks whether a tunnel's streams have ended, s.
_CHECK_PERIOD = 0.1

#: Most tunnels at a time: the current one, and drained ones with open streams.
_TUNNEL_LIMIT = 8

#: How long a tunnel that is being replaced may keep its streams, s.
RENEWAL = 60.0

#: Delay between a tunnel's end and its replacement, s: the proxy must forget the first one.
_RENEWAL_DELAY = 1.0

#: Reasons of `Reconnecting.reconnects`: how the tunnel ended, or why it is replaced.
RECONNECTS = (*ENDINGS, "draining", "renewal", "attempt-failed")

#: Longest delay before a retry after a permanent error, s.
SLOW = 20.0

#: Interval of log lines about the same error, s, and most errors that are remembered for it.
LOG_PERIOD = 60.0
_REMEMBERED = 8

#: Numbers in errors, such as times, which do not make another error.
_NUMBER = re.compile(r"\d+")

#: Timeout for closing tunnels, s.
_CLOSE_TIMEOUT = 2.0


@define(eq=False, slots=False)
class Reconnecting(Service):
    """Keeps one live tunnel.

    :param max_retry: most failed attempts in a row after the first; 0: unlimited.
    :param gave_up: called once when the limit is exceeded.
    :param grace: how long a stop waits for open streams, s.
    :ivar error: of the last attempt; None: it succeeded, or none was made.
    :ivar reconnects: number of further attempts to connect, by reason.
    """

    _log = Logger()

    _clock: IReactorTime
    _connect: Callable[[], Deferred[SSHTunnel]]
    _backoff: Backoff
    _max_retry: int = field(kw_only=True)
    _gave_up: Callable[[], None] = field(kw_only=True)
    _grace: float = field(kw_only=True)
    _failures: int = field(default=0, init=False)
    _trying: Deferred[Any] | None = field(default=None, init=False)
    _timer: IDelayedCall | None = field(default=None, init=False)
    _tunnel: SSHTunnel | None = field(default=None, init=False)
    _live: dict[SSHTunnel, Deferred[None]] = field(factory=dict, init=False)
    _renewing: IDelayedCall | None = field(default=None, init=False)
    _renew_next: bool = field(default=False, init=False)
    _state: str = field(default="not started", init=False)
    _logged: dict[str, float] = field(factory=dict, init=False)
    error: BaseException | None = field(default=None, init=False)
    reconnects: dict[str, float] = field(factory=lambda: dict.fromkeys(RECONNECTS, 0), init=False)

    # State, for the health page

    @property
    def ready(self) -> bool:
        """Whether a tunnel accepts new streams."""
        return self._tunnel is not None and bool(self.running)

    @property
    def state(self) -> str:
        """State of the connection, human-readable."""
        return self._state

    @property
    def round_trip(self) -> float:
        """To the proxy, s; 0 without a tunnel."""
        return 0.0 if self._tunnel is None else self._tunnel.round_trip

    # Connecting

    def startService(self) -> None:
        """Start connecting."""
        super().startService()  # type: ignore[no-untyped-call]
        self._try()

    def retry_now(self) -> None:
        """Retry at once (SIGHUP)."""
        if self._timer is not None:
            self._timer.cancel()
            self._backoff.reset()
            self._try()

    def renew(self, limit: float = RENEWAL) -> None:
        """Reconnect, because the data that the agent sent to the proxy has changed.

        The tunnel is closed before the next one is opened, as the proxy uses the first one's data while it is
        open.  It is closed when its streams have ended, after at most *limit* s; until then it accepts new
        streams.
        """
        if self._trying is not None:
            self._renew_next = True
        elif self._tunnel is not None and self._renewing is None:
            self._log.info("reconnecting when all streams have ended, within {limit:.0f} s", limit=limit)
            self._retire(self._tunnel, self._clock.seconds() + limit)

    def _retire(self, tunnel: SSHTunnel, until: float) -> None:
        """Close *tunnel* when it is idle, or at the time *until*, unless it was replaced already."""
        self._renewing = None
        if tunnel is not self._tunnel:
            return
        if tunnel.streams and self._clock.seconds() < until:
            self._renewing = self._clock.callLater(_CHECK_PERIOD, self._retire, tunnel, until)
            return
        self._tunnel = None
        self.reconnects["renewal"] += 1
        self._state = "reconnecting"
        self._live[tunnel].addCallback(self._retired)
        tunnel.close("the agent is reconnecting")

    def _retired(self, result: None) -> None:
        if self.running:
            self._timer = self._clock.callLater(_RENEWAL_DELAY, self._try)

    def _try(self) -> None:
        self._timer = None
        self._renew_next = False
        self._state = "connecting"
        self._trying = trying = self._connect()
        trying.addCallbacks(self._up, self._failed)

    def _up(self, tunnel: SSHTunnel) -> None:
        self._trying = self.error = None
        self._failures = 0
        self._logged.clear()
        self._backoff.reset()
        self._tunnel = tunnel
        lost: Deferred[None] = Deferred()
        self._live[tunnel] = lost
        tunnel.on_change = lambda: self._changed(tunnel)
        tunnel.lost.addCallback(self._down, tunnel)
        if tunnel in self._live:
            self._state = "connected"
            text, version = "connected to {peer}; {_reported}", tunnel.version
            shown = reported("the proxy", f"version {version}")
            self._log.info(text, peer=tunnel.peer, version=version, _reported=shown)
        for old in list(self._live)[:-_TUNNEL_LIMIT]:
            self._log.warn(
                "{peer} drained more than {most} tunnels of this agent: closing the oldest",
                peer=old.peer,
                most=_TUNNEL_LIMIT - 1,
            )
            old.abort()
        if self._renew_next:
            self._renew_next = False
            self.renew()

    def _changed(self, tunnel: SSHTunnel) -> None:
        """Reconnect if the proxy is stopping: to another proxy, or to this one after its restart."""
        if tunnel.draining and tunnel is self._tunnel:
            self._tunnel = None
            if self.running:
                self.reconnects["draining"] += 1
                self._log.info("{peer} is stopping; reconnecting", peer=tunnel.peer)
                self._later()

    def _down(self, reason: Exception, tunnel: SSHTunnel) -> None:
        lost = self._live.pop(tunnel)
        if tunnel is self._tunnel:
            self._tunnel = None
            if self.running:
                self.reconnects[ending(reason)] += 1
                self._log.warn("lost the tunnel to {peer}: {reason}", peer=tunnel.peer, reason=str(reason))
                self._later(long=isinstance(reason, TooManyConnections))
        elif self.running:
            self._log.info("drained tunnel to {peer} closed: {reason}", peer=tunnel.peer, reason=str(reason))
        lost.callback(None)

    def _failed(self, failure: Failure) -> None:
        self._trying = None
        if not self.running or failure.check(CancelledError):
            return
        self._failures += 1
        self.error = failure.value
        self.reconnects["attempt-failed"] += 1
        permanent = isinstance(failure.value, TowerError) and failure.value.permanent
        is_new, is_due = self._is_new(failure.getErrorMessage())
        if failure.check(TowerError, OSError, ConnectionLost):
            if is_due:
                self._log.warn(
                    "attempt {failures} to connect failed: {reason}",
                    failures=self._failures,
                    reason=failure.getErrorMessage(),
                )
        else:
            self._log.failure("attempt {failures} to connect failed", failure, failures=self._failures)
        self._state = failure.getErrorMessage()
        if 0 < self._max_retry < self._failures:
            self._log.critical("giving up after {retries} retries (--max-retry)", retries=self._max_retry)
            self._gave_up()
        else:
            self._later(
                long=failure.check(TooManyConnections) is not None, permanent=permanent, logged=is_new
            )

    def _is_new(self, text: str) -> tuple[bool, bool]:
        """Return whether an error is new since the last tunnel, and whether to log it: the last line about
        it is a minute old.
        """
        now, key = self._clock.seconds(), _NUMBER.sub("0", text)
        last = self._logged.pop(key, None)
        is_due = last is None or now - last >= LOG_PERIOD
        self._logged[key] = now if is_due or last is None else last
        if len(self._logged) > _REMEMBERED:
            del self._logged[next(iter(self._logged))]
        return last is None, is_due

    def _later(self, *, long: bool = False, permanent: bool = False, logged: bool = False) -> None:
        """Schedule the next attempt.

        :param long: the proxy has no free slot for this agent.
        :param permanent: the same error is expected.
        :param logged: whether to log the delay.
        """
        wait = self._backoff.slow() if permanent else self._backoff.wait(long=long)
        if logged:
            self._log.info(
                "retrying in {wait:.1f} s, or at SIGHUP; the same error is logged every {period:g} s",
                wait=wait,
                period=LOG_PERIOD,
            )
        self._timer = self._clock.callLater(wait, self._try)

    # Stopping

    def stopService(self) -> Deferred[None]:
        """Drain all tunnels, wait for open streams within the grace period, then close."""
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
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        until = self._clock.seconds() + self._grace
        if streams := self._streams:
            self._log.info(
                "waiting up to {grace:g} s for open streams: {streams}", grace=self._grace, streams=streams
            )
        while self._clock.seconds() < until and self._streams:
            await self._sleep(_CHECK_PERIOD)
        if left := self._streams:
            self._log.warn(
                "streams that did not end within {grace:g} s and were cut: {left} of {streams}",
                grace=self._grace,
                left=left,
                streams=streams,
            )
        elif streams:
            self._log.info("all streams have ended")
        all_lost = DeferredList(list(self._live.values()))
        for tunnel in list(self._live):
            tunnel.close("the agent is stopping")
        cut = self._clock.callLater(_CLOSE_TIMEOUT, self._cut)
        await all_lost
        if cut.active():
            cut.cancel()

    @property
    def _streams(self) -> int:
        return sum(tunnel.streams for tunnel in self._live)

    def _cut(self) -> None:
        for tunnel in list(self._live):
            tunnel.abort()

    def _sleep(self, seconds: float) -> Deferred[None]:
        done: Deferred[None] = Deferred()
        self._clock.callLater(seconds, done.callback, None)
        return done


class Backoff:
    """Exponential backoff.

    :param first: first delay, s; multiplied by *factor* for each attempt, up to *longest*.
    :param chance: returns a random number from 0 to 1, which sets half of each delay, so that many agents
        do not reconnect at once.
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
        """Return the next delay, s.

        :param long: use the longest delay from now on, as an early retry is useless.
        """
        if long:
            self._next = self._longest
        now, self._next = self._next, min(self._next * self._factor, self._longest)
        return now * (0.5 + self._chance() / 2)

    def slow(self) -> float:
        """Return a delay for errors that only an operator can end, s; it does not grow."""
        return min(SLOW, self._longest) * (0.5 + self._chance() / 2)

    def reset(self) -> None:
        """Start again with the first delay, after a successful connection."""
        self._next = self._first

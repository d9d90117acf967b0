"""Detection of an API server that no longer answers while it is watched."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from tower.kube.client import APIError
from tower.kube.rest.watch_body import WatchBody

#: Interval of the checks, s; each begins only if nothing was received for so long.
PERIOD = 15.0


class Heartbeat:
    """Fails the current watches when the API server does not answer: a watch is silent for minutes.

    :param probe: sends a small request; raises `APIError` with code 0 if there is no answer.
    """

    def __init__(self, reactor: IReactorTime, probe: Callable[[], Awaitable[object]]) -> None:
        self._reactor = reactor
        self._probe = probe
        self._bodies: set[WatchBody] = set()
        self._timer: IDelayedCall | None = None
        self._probing: Deferred[None] | None = None
        self._heard = reactor.seconds()

    def heard(self) -> None:
        """Remember that the API server answered now."""
        self._heard = self._reactor.seconds()

    def add(self, body: WatchBody) -> None:
        """Check while *body* is open."""
        self._bodies.add(body)
        if self._timer is None and self._probing is None:
            self._timer = self._reactor.callLater(PERIOD, self._beat)

    def remove(self, body: WatchBody) -> None:
        """Forget a closed *body*."""
        self._bodies.discard(body)
        if self._bodies:
            return
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
        probing, self._probing = self._probing, None
        if probing is not None:
            probing.cancel()

    def _beat(self) -> None:
        self._timer = None
        due = self._heard + PERIOD - self._reactor.seconds()
        if due > 0:
            self._timer = self._reactor.callLater(due, self._beat)
            return
        self._probing = probing = Deferred.fromCoroutine(self._check())
        probing.addErrback(lambda _: None)  # cancelled by `remove`

    async def _check(self) -> None:
        error = None
        try:
            await self._probe()
        except APIError as e:
            error = e
        self._probing = None
        if error is None or error.code:
            self.heard()
        else:
            for body in list(self._bodies):
                body.fail(error)
        if self._bodies and self._timer is None:
            self._timer = self._reactor.callLater(PERIOD, self._beat)

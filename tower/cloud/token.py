"""A credential that is renewed before it expires."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from tower.cloud.errors import CloudAnswerError, CloudError

T = TypeVar("T")
R = TypeVar("R")

#: Pause after a failed renewal while the old credential is still valid, s.
PAUSE = 30.0


class RefreshedToken(Generic[T]):
    """One secret, or one set of them.

    Its lifetime is counted by *clock* from its arrival, so differences of the clocks of cloud and machine do
    not matter.

    :param fetch: returns a new secret and its remaining lifetime, s.
    :param margin: how long before expiry it is renewed, s; at most half its lifetime.
    """

    _log = Logger()

    def __init__(
        self, clock: IReactorTime, fetch: Callable[[], Awaitable[tuple[T, float]]], margin: float = 300.0
    ) -> None:
        self._clock = clock
        self._fetch = fetch
        self._margin = margin
        self._secret: T | None = None
        self._ends = self._refresh_at = -math.inf
        self._fetching = False
        self._waiting: list[Deferred[T]] = []

    async def get(self) -> T:
        """Return a valid secret; fetch it if necessary.

        Concurrent calls wait for one fetch.  Near its expiry the old secret is returned while a new one is
        fetched, also after the fetch fails, until it expires.

        :raise Exception: raised by *fetch*.
        """
        now = self._clock.seconds()
        if self._secret is not None and now < self._ends:
            if now >= self._refresh_at and not self._fetching:
                self._start()
            if self._secret is not None:  # a fetch may complete immediately
                return self._secret
        waiting: Deferred[T] = Deferred(self._leave)
        self._waiting.append(waiting)
        if not self._fetching:
            self._start()
        return await waiting

    def forget(self, secret: T | None = None) -> None:
        """Do not return *secret* again, unless it was renewed already; None: any secret."""
        if secret is None or secret == self._secret:
            self._secret = None
            self._ends = self._refresh_at = -math.inf

    async def used_for(self, request: Callable[[T], Awaitable[R]]) -> R:
        """Return the result of *request* with the secret; after 401, try once more with a new secret."""
        secret = await self.get()
        try:
            return await request(secret)
        except CloudAnswerError as e:
            if e.code != 401:
                raise
        self.forget(secret)
        return await request(await self.get())

    def _leave(self, waiting: Deferred[T]) -> None:
        if waiting in self._waiting:
            self._waiting.remove(waiting)

    def _start(self) -> None:
        self._fetching = True
        fetching = Deferred.fromCoroutine(self._renew())
        fetching.addErrback(self._failed)

    async def _renew(self) -> None:
        secret, lifetime = await self._fetch()
        if not lifetime > 0.0:
            raise CloudError("the cloud issued a credential that has already expired")
        now = self._clock.seconds()
        self._fetching = False
        self._secret = secret
        self._ends = now + lifetime
        self._refresh_at = self._ends - min(self._margin, lifetime / 2)
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if not each.called:
                each.callback(secret)

    def _failed(self, failure: Failure) -> None:
        self._fetching = False
        self._refresh_at = self._clock.seconds() + PAUSE
        waiting, self._waiting = self._waiting, []
        if not waiting:
            self._log.warn(
                "credential of a cloud not renewed: {error}; the old one is valid for {left:.0f} s more",
                error=str(failure.value),
                left=max(0.0, self._ends - self._clock.seconds()),
            )
        for each in waiting:
            if not each.called:
                each.errback(failure)

"""A credential that ends, and is fetched again before it does."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from tower.cloud.errors import CloudAnswerError, CloudError

T = TypeVar("T")
R = TypeVar("R")

#: How long to leave a cloud alone that did not give a new one while the old one still serves, s.
PAUSE = 30.0


class RefreshedToken(Generic[T]):
    """Keeps one secret, or one set of them.

    Its lifetime counts from the moment it came, by *clock*; so it does not matter what time of day the cloud
    or we believe it is.

    :param clock: has ``seconds``.
    :param fetch: asks for a new one: the secret, and how long it is good from now on, s.
    :param margin: so long before its end a new one is fetched, s; at most half of its life.
    """

    _log = Logger()

    def __init__(
        self, clock: Any, fetch: Callable[[], Awaitable[tuple[T, float]]], margin: float = 300.0
    ) -> None:
        self._clock = clock
        self._fetch = fetch
        self._margin = margin
        self._secret: T | None = None
        self._ends = self._refresh_at = -math.inf
        self._fetching = False
        self._waiting: list[Deferred[T]] = []

    async def get(self) -> T:
        """Return it; fetched first if there is none, or none that is good any more.

        Whoever asks while it is being fetched waits for the same fetch.  Near its end it is fetched while the
        old one still serves; if that fails, the old one serves up to its end.

        :raise Exception: whatever *fetch* raises.
        """
        now = self._clock.seconds()
        if self._secret is not None and now < self._ends:
            if now >= self._refresh_at and not self._fetching:
                self._start()
            if self._secret is not None:  # a fetch may end at once
                return self._secret
        waiting: Deferred[T] = Deferred(self._leave)
        self._waiting.append(waiting)
        if not self._fetching:
            self._start()
        return await waiting

    def forget(self, secret: T | None = None) -> None:
        """Do not use it again.

        :param secret: only if it is still this one: somebody else may have had it renewed by now.
        """
        if secret is None or secret == self._secret:
            self._secret = None
            self._ends = self._refresh_at = -math.inf

    async def used_for(self, ask: Callable[[T], Awaitable[R]]) -> R:
        """Return what *ask* does with it; after a 401 once more, with a new one."""
        secret = await self.get()
        try:
            return await ask(secret)
        except CloudAnswerError as e:
            if e.code != 401:
                raise
        self.forget(secret)
        return await ask(await self.get())

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
            raise CloudError("the cloud gave a credential that has ended already")
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
                "a credential of a cloud was not renewed: {error}; the old one serves for {left:.0f} s more",
                error=str(failure.value),
                left=max(0.0, self._ends - self._clock.seconds()),
            )
        for each in waiting:
            if not each.called:
                each.errback(failure)

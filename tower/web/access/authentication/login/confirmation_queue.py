"""The sessions that wait for their confirmation by one identity provider."""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime

from tower.web.access.authentication.login.turns import Turns

#: Most requests to a provider at a time.  If it answers within 0.5 s, these confirm all sessions of a full
#: store in time (`tower.clusters.login.login_sessions.SESSIONS_LIMIT`).
CONCURRENT = 32

#: First and longest pause after `CONCURRENT` failures in a row, s; it doubles with each further failure.  A
#: session whose provider is back after the longest one is still confirmed in time
#: (`tower.web.access.authentication.login.confirmer.LIMIT`).
PAUSE, LONGEST_PAUSE = 5.0, 30.0


class ConfirmationQueue:
    """Confirms sessions; the users take turns, so that a user with many sessions does not delay the others.

    After `CONCURRENT` failures in a row, the provider is considered down: all that wait are given up, nothing
    is added during a pause, and then one request at a time is sent until one succeeds.  There are no timers.

    :param confirm: confirms the session with an ID, and returns whether the provider could; never fails.
    :param clock: measures the pauses.
    """

    def __init__(
        self, confirm: Callable[[str], Coroutine[Deferred[Any], Any, bool]], clock: IReactorTime
    ) -> None:
        self._confirm = confirm
        self._clock = clock
        self._due = Turns[str]()
        self._wanted = Turns[str]()  # by requests that wait
        self._is_due_next = False
        self._running: dict[str, Deferred[bool]] = {}
        self._waiters: dict[str, set[Deferred[None]]] = {}
        self._failures = 0  # in a row
        self._pause = 0.0
        self._resume = -math.inf  # end of the pause, by the clock
        self._is_starting = False

    def __len__(self) -> int:
        return len(self._running) + len(self._due) + len(self._wanted)

    def add(self, user: str, session_id: str) -> None:
        """Confirm a session of *user* when it has its turn."""
        if self._is_open and not (session_id in self._running or self._wanted.has(user, session_id)):
            self._due.add(user, session_id)
            self._start()

    def result(self, user: str, session_id: str) -> Deferred[None]:
        """Confirm a session for a request; return when that has ended, or was given up.

        Requests and sessions that were only added share the slots equally.  The result may be cancelled.
        """
        if not self._is_open:
            return succeed(None)
        if session_id not in self._running:
            self._due.discard(user, session_id)
            self._wanted.add(user, session_id)

        def cancel(cancelled: Deferred[None]) -> None:
            self._waiters.get(session_id, set()).discard(cancelled)

        waiter: Deferred[None] = Deferred(cancel)
        self._waiters.setdefault(session_id, set()).add(waiter)
        self._start()
        return waiter

    def stop(self) -> None:
        """Give up all sessions, and cancel the requests in flight; later ones are given up at once."""
        self._resume = math.inf
        self._give_up()
        for each in list(self._running.values()):
            each.cancel()

    @property
    def _is_open(self) -> bool:
        return self._clock.seconds() >= self._resume

    def _start(self) -> None:
        """Fill the free slots; confirmations that end at once do not nest."""
        if self._is_starting:
            return
        self._is_starting = True
        while (self._due or self._wanted) and len(self._running) < self._slots:
            session_id = self._next()
            running = self._running[session_id] = Deferred.fromCoroutine(self._confirm(session_id))
            running.addBoth(self._ended, session_id)
        self._is_starting = False

    @property
    def _slots(self) -> int:
        return CONCURRENT if self._failures < CONCURRENT else 1

    def _next(self) -> str:
        is_due = bool(self._due) and (self._is_due_next or not self._wanted)
        self._is_due_next = not is_due
        return (self._due if is_due else self._wanted).pop()

    def _ended(self, result: object, session_id: str) -> None:
        del self._running[session_id]
        self._wake(session_id)
        if result is True:
            self._failures, self._pause = 0, 0.0
            if self._resume < math.inf:
                self._resume = -math.inf
        else:
            self._failures += 1
            if self._failures >= CONCURRENT and self._is_open:
                self._pause = min(max(PAUSE, 2 * self._pause), LONGEST_PAUSE)
                self._resume = self._clock.seconds() + self._pause
                self._give_up()
        self._start()

    def _give_up(self) -> None:
        self._due, self._wanted = Turns[str](), Turns[str]()
        for session_id in [each for each in self._waiters if each not in self._running]:
            self._wake(session_id)

    def _wake(self, session_id: str) -> None:
        for waiter in list(self._waiters.pop(session_id, ())):
            if not waiter.called:
                waiter.callback(None)

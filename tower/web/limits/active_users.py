"""The users that have sent requests lately, and the seats of each while there are several.

The proxy, and each agent, is one thread.  A user with hundreds of requests in progress makes all others wait
for these, even if there are seats for all.  So while several users are active, a user with up to `LIGHT`
requests has a seat for each.  With more requests, the seats are inversely proportional to their number, but
at least one.  If the requests take long, the user has more seats: requests that wait for a cluster cost
little.

A minimum of four seats instead of one doubles the latency of another user's requests: four requests arrive
together, and others wait for all four in the proxy and the agent, and again in both for the responses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

#: Requests of a user that do not delay those of others much.
LIGHT: Final = 32

#: Requests per second that a user with more seats may complete.
RATE: Final = 200.0

#: How long a user counts as active, s: at least this, and at most twice as long.
PERIOD: Final = 1.0

#: Weight of one request in the mean duration of a user's requests.
_WEIGHT: Final = 1 / 16


class ActiveUsers:
    """Knows which users are active.

    :param seconds: returns monotonic time, s.
    """

    def __init__(self, seconds: Callable[[], float]) -> None:
        self.seconds = seconds
        self._renewed = seconds()
        self._users: set[str] = set()
        self._before: set[str] = set()
        self._durations: dict[str, float] = {}

    def entered(self, user: str) -> None:
        """Record a request of *user*."""
        self._users.add(user)
        now = self.seconds()
        if now - self._renewed >= PERIOD:
            self._renewed = now
            self._before, self._users = self._users, {user}
            kept = self._before
            self._durations = {name: each for name, each in self._durations.items() if name in kept}

    def has_several(self) -> bool:
        """Return whether more than one user is active."""
        if len(self._users) > 1 or len(self._before) > 1:
            return True
        return self._users != self._before and bool(self._users and self._before)

    def took(self, user: str, duration: float) -> None:
        """Record how long a request had its seat, s; the user has more than `LIGHT` requests."""
        before = self._durations.get(user, duration)
        self._durations[user] = before + (duration - before) * _WEIGHT

    def seats_of(self, user: str, requests: int) -> int:
        """Return the seats of *user* with this number of *requests*, while several users are active."""
        return max(1, LIGHT * LIGHT // requests, int(RATE * self._durations.get(user, 0.0)))

"""Counters of authentications, with kube-apiserver's results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from tower.errors import Unauthorized
from tower.metrics.histogram import DELAY_BOUNDS, Histogram
from tower.web.access.authentication.identity import Identity
from tower.web.access.authentication.presented import Presented

#: A user was found; there is no credential; a credential is not valid, or could not be verified.
SUCCESS, FAILURE, ERROR = RESULTS = ("success", "failure", "error")


class Attempts:
    """Counts authentications; *seconds* returns a time that only grows, s.

    A connection is authenticated once, not for each request.

    :ivar counts: by result; `durations` likewise.
    """

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self.counts = dict.fromkeys(RESULTS, 0)
        self.durations = {result: Histogram(DELAY_BOUNDS) for result in RESULTS}

    def measured(
        self,
        authenticate: Callable[[Presented], Identity | Deferred[Identity]],
        presented: Presented,
    ) -> Identity | Deferred[Identity]:
        """Return the result of *authenticate*, and count it."""
        start = self._seconds()
        try:
            found = authenticate(presented)
        except Unauthorized as e:
            self._count(_result(e), start)
            raise
        if isinstance(found, Deferred):
            return found.addBoth(self._waited, start)
        self._count(SUCCESS, start)
        return found

    def _waited(self, found: Any, start: float) -> Any:
        if not isinstance(found, Failure):
            self._count(SUCCESS, start)
        elif isinstance(found.value, Unauthorized):
            self._count(_result(found.value), start)
        return found

    def _count(self, result: str, start: float) -> None:
        self.counts[result] += 1
        self.durations[result].observe(self._seconds() - start)


def _result(refusal: Unauthorized) -> str:
    return FAILURE if refusal.kind == "no-credential" else ERROR

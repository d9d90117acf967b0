"""The failures of a program that Tower asks, as the log has them: few lines, even if each failure differs."""

from __future__ import annotations

from collections.abc import Callable

from attrs import define, field

#: Interval, s, and the most failures that the log gets in one.
PERIOD = 60.0
FEW = 8

# Length of the beginning of a secret by which it is recognized, and of secrets that can be, characters.
_BEGINNING, _SHORTEST = 16, 6


@define(eq=False)
class ReportedFailure:
    """Whether a failure, or its end, is new.

    :param seconds: returns a time that only grows, s.
    """

    _seconds: Callable[[], float]
    _problem: str = field(default="", init=False)
    _since: float = field(default=0.0, init=False)
    _count: int = field(default=0, init=False)

    def is_new(self, problem: str) -> bool:
        """Return whether the log should have *problem*, not empty: the last one was another."""
        if problem == self._problem:
            return False
        now = self._seconds()
        if not self._count or now - self._since >= PERIOD:
            self._since, self._count = now, 0
        self._count += 1
        if self._count > FEW:
            return False
        self._problem = problem
        return True

    def ends(self) -> bool:
        """Record that the program answers; return whether the log has a failure before that."""
        had, self._problem = bool(self._problem), ""
        return had


def without_secret(text: str, secret: str) -> str:
    """Return *text* of a program that knows *secret*; if the text may quote it, another one."""
    quotes = len(secret) >= _SHORTEST and secret[:_BEGINNING] in text
    return "its answer quotes the token" if quotes else text

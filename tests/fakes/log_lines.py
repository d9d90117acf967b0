"""The lines that a test's code logs."""

from __future__ import annotations

from twisted.logger import ILogObserver, LogEvent, formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer


def logged_lines(case: SynchronousTestCase) -> list[str]:
    """Return a list that gets every line, until the end of *case*."""
    lines: list[str] = []

    @implementer(ILogObserver)
    def observe(event: LogEvent) -> None:
        lines.append(formatEvent(event))

    globalLogPublisher.addObserver(observe)
    case.addCleanup(globalLogPublisher.removeObserver, observe)
    return lines

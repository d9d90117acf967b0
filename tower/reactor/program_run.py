"""One run of a program that writes its result to its standard output."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.error import ProcessDone, ProcessExitedAlready, ProcessTerminated
from twisted.internet.protocol import ProcessProtocol
from twisted.python.failure import Failure


class ProgramFailed(Exception):
    """The program failed; the text has no secrets."""


class ProgramRun(ProcessProtocol):
    """One run without input; standard error may have secrets and is discarded.

    :param limit: most bytes of output; more is an error.
    :ivar ended: fires with the output, or fails with `ProgramFailed`; cancelling it kills the program.
    """

    transport: Any

    def __init__(self, limit: int) -> None:
        self.ended: Deferred[bytes] = Deferred(lambda _: self._kill())
        self._limit = limit
        self._written = b""

    def connectionMade(self) -> None:
        """Close the standard input."""
        self.transport.closeStdin()

    def outReceived(self, data: bytes) -> None:
        """Keep a piece of output within the limit."""
        self._written += data
        if len(self._written) > self._limit and not self.ended.called:
            self._kill()
            self.ended.errback(ProgramFailed(f"it wrote more than {self._limit} B"))

    def errReceived(self, data: bytes) -> None:
        """Discard it."""

    def processEnded(self, reason: Failure) -> None:
        """Fire with the output, or fail."""
        if self.ended.called:
            return
        if reason.check(ProcessDone):
            self.ended.callback(self._written)
            return
        error = reason.value
        status = error.exitCode if isinstance(error, ProcessTerminated) else None
        result = "it was killed" if status is None else f"it failed with status {status}"
        self.ended.errback(ProgramFailed(f"{result}; run it manually to see why"))

    def _kill(self) -> None:
        self._written = b""
        try:
            self.transport.signalProcess("KILL")
        except ProcessExitedAlready:
            pass
        self.transport.loseConnection()

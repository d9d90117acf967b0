"""Programs that are not really run, for users of ``spawnProcess``."""

from __future__ import annotations

from typing import Any

from twisted.internet.error import ProcessDone, ProcessExitedAlready, ProcessTerminated
from twisted.python.failure import Failure


class FakeProgram:
    """A program that is not really run."""

    def __init__(self, protocol: Any, program: str, words: list[str], environ: dict[str, str]) -> None:
        self.protocol = protocol
        self.program = program
        self.words = words
        self.environ = environ
        self.signals: list[str] = []
        self.stdin_closed = self.lost = False
        protocol.makeConnection(self)

    def closeStdin(self) -> None:
        """See ``IProcessTransport``."""
        self.stdin_closed = True

    def signalProcess(self, signal: str) -> None:
        """See ``IProcessTransport``."""
        if self.signals:
            raise ProcessExitedAlready
        self.signals.append(signal)

    def loseConnection(self) -> None:
        """See ``IProcessTransport``."""
        self.lost = True

    def end(self, status: int | None = 0) -> None:
        """End the program."""
        self.protocol.processEnded(
            Failure(ProcessDone(0) if status == 0 else ProcessTerminated(status, None if status else 9))
        )

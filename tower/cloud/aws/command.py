"""Credentials from a program, as ``credential_process`` of a profile names it.

It is run without a shell, reads nothing, and writes JSON of a form that AWS documents ("Sourcing credentials
with an external process").  What it writes to its standard error may be secret, so nobody sees that.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Mapping
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.defer import TimeoutError as TooLate
from twisted.internet.error import ProcessDone, ProcessExitedAlready, ProcessTerminated
from twisted.internet.protocol import ProcessProtocol
from twisted.python.failure import Failure

from tower.cloud.aws.credential_json import read_process_credentials
from tower.cloud.aws.credentials import NoCredentials
from tower.cloud.aws.signing import AWSCredentials

#: How long it may run, s.
PATIENCE = 20.0

#: Most that it may write, B.
OUTPUT_LIMIT = 1 << 16


class Command:
    """Runs such programs.

    :param reactor: has ``spawnProcess``.
    :param environ: for them, and with the ``PATH`` on which they are.
    """

    def __init__(self, reactor: Any, environ: Mapping[str, str]) -> None:
        self._reactor = reactor
        self._environ = environ

    async def credentials(self, line: str, what: str) -> AWSCredentials:
        """Return what the program of *line* writes.

        :param what: for errors.
        :raise NoCredentials: it fails, takes too long, or writes no credentials.
        """
        try:
            words = shlex.split(line)
        except ValueError as e:
            raise NoCredentials(f"{what}: {str(e).lower()}") from None
        program = shutil.which(words[0], path=self._environ.get("PATH")) if words else None
        if program is None:
            raise NoCredentials(f"{what}: there is no such program")
        run = _Run()
        try:
            self._reactor.spawnProcess(run, program, words, dict(self._environ))
        except (OSError, TypeError) as e:
            why = getattr(e, "strerror", None) or "there is a zero byte in it"
            raise NoCredentials(f"{what}: {why}") from None
        try:
            written = await run.ended.addTimeout(PATIENCE, self._reactor)
        except TooLate:
            raise NoCredentials(f"{what}: not done within {PATIENCE:g} s") from None
        except _Failed as e:
            raise NoCredentials(f"{what}: {e}") from None
        return read_process_credentials(written, what)


class _Failed(Exception):
    """It did not work; its text may be shown."""


class _Run(ProcessProtocol):
    """One run.

    :ivar ended: fires with what it wrote; cancelling it ends the program.
    """

    transport: Any

    def __init__(self) -> None:
        self.ended: Deferred[bytes] = Deferred(lambda _: self._kill())
        self._written = b""

    def connectionMade(self) -> None:
        self.transport.closeStdin()

    def outReceived(self, data: bytes) -> None:
        self._written += data
        if len(self._written) > OUTPUT_LIMIT and not self.ended.called:
            self._kill()
            self.ended.errback(_Failed(f"it writes more than {OUTPUT_LIMIT} B"))

    def errReceived(self, data: bytes) -> None:
        """Nobody sees that."""

    def processEnded(self, reason: Failure) -> None:
        if self.ended.called:
            return
        if reason.check(ProcessDone):
            self.ended.callback(self._written)
            return
        error = reason.value
        status = error.exitCode if isinstance(error, ProcessTerminated) else None
        said = "it was killed" if status is None else f"it failed with status {status}"
        self.ended.errback(_Failed(f"{said}; run it by hand to see why"))

    def _kill(self) -> None:
        self._written = b""
        try:
            self.transport.signalProcess("KILL")
        except ProcessExitedAlready:
            pass
        self.transport.loseConnection()

"""Credentials of a profile's ``credential_process``.

The program runs without a shell and without input, and writes JSON as AWS documents ("Sourcing credentials
with an external process").  Its standard error may have secrets and is discarded.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Mapping
from typing import Any

from twisted.internet import defer
from twisted.internet.defer import Deferred
from twisted.internet.error import ProcessDone, ProcessExitedAlready, ProcessTerminated
from twisted.internet.protocol import ProcessProtocol
from twisted.python.failure import Failure

from tower.cloud.aws.credentials import NoCredentials, read_process_credentials
from tower.cloud.aws.signing import AWSCredentials
from tower.reactor.interfaces import IReactor

#: Timeout of the program, s.
TIMEOUT = 20.0

#: Maximum size of its output, B.
OUTPUT_LIMIT = 1 << 16


class Command:
    """Runs such programs.

    :param reactor: has ``spawnProcess`` and ``callLater``.
    :param environ: of the programs; its ``PATH`` is searched for them.
    """

    def __init__(self, reactor: IReactor, environ: Mapping[str, str]) -> None:
        self._reactor = reactor
        self._environ = environ

    async def credentials(self, line: str, what: str) -> AWSCredentials:
        """Return the credentials that a program writes.

        :param line: the command line.
        :param what: name of the source, for errors.
        :raise NoCredentials: it fails, takes too long, or writes no valid credentials.
        """
        try:
            words = shlex.split(line)
        except ValueError as e:
            raise NoCredentials(f"{what}: {str(e).lower()}") from None
        program = shutil.which(words[0], path=self._environ.get("PATH")) if words else None
        if program is None:
            raise NoCredentials(f"{what}: the program was not found in PATH")
        run = _ProgramRun()
        try:
            self._reactor.spawnProcess(run, program, words, dict(self._environ))
        except (OSError, TypeError) as e:
            why = getattr(e, "strerror", None) or "the command has a zero byte"
            raise NoCredentials(f"{what}: {why}") from None
        try:
            written = await run.ended.addTimeout(TIMEOUT, self._reactor)
        except defer.TimeoutError:
            raise NoCredentials(f"{what}: the program did not end within {TIMEOUT:g} s") from None
        except _ProgramFailed as e:
            raise NoCredentials(f"{what}: {e}") from None
        return read_process_credentials(written, what)


class _ProgramFailed(Exception):
    """The program failed; the text has no secrets."""


class _ProgramRun(ProcessProtocol):
    """One run; *ended* fires with the output, and cancelling it kills the program."""

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
            self.ended.errback(_ProgramFailed(f"it wrote more than {OUTPUT_LIMIT} B"))

    def errReceived(self, data: bytes) -> None:
        """Discard it."""

    def processEnded(self, reason: Failure) -> None:
        if self.ended.called:
            return
        if reason.check(ProcessDone):
            self.ended.callback(self._written)
            return
        error = reason.value
        status = error.exitCode if isinstance(error, ProcessTerminated) else None
        result = "it was killed" if status is None else f"it failed with status {status}"
        self.ended.errback(_ProgramFailed(f"{result}; run it manually to see why"))

    def _kill(self) -> None:
        self._written = b""
        try:
            self.transport.signalProcess("KILL")
        except ProcessExitedAlready:
            pass
        self.transport.loseConnection()

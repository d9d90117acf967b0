"""Credentials of a profile's ``credential_process``.

The program runs without a shell and without input, and writes JSON as AWS documents ("Sourcing credentials
with an external process").  Its standard error may have secrets and is discarded.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Mapping

from twisted.internet import defer

from tower.cloud.aws.credentials import NoCredentials, read_process_credentials
from tower.cloud.aws.signing import AWSCredentials
from tower.reactor.interfaces import IReactor
from tower.reactor.program_run import ProgramFailed, ProgramRun

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
        run = ProgramRun(OUTPUT_LIMIT)
        try:
            self._reactor.spawnProcess(run, program, words, dict(self._environ))
        except (OSError, TypeError) as e:
            why = getattr(e, "strerror", None) or "the command has a zero byte"
            raise NoCredentials(f"{what}: {why}") from None
        try:
            written = await run.ended.addTimeout(TIMEOUT, self._reactor)
        except defer.TimeoutError:
            raise NoCredentials(f"{what}: the program did not end within {TIMEOUT:g} s") from None
        except ProgramFailed as e:
            raise NoCredentials(f"{what}: {e}") from None
        return read_process_credentials(written, what)

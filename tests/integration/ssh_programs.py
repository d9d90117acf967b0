"""Programs that run while the test's reactor does."""

from __future__ import annotations

import os
import pwd
from collections.abc import Sequence
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred
from twisted.internet.error import ProcessDone
from twisted.internet.protocol import ProcessProtocol
from twisted.python.failure import Failure

reactor: Any = _reactor


class Program(ProcessProtocol):
    """A program and its output.

    :ivar ended: fires with its exit code.
    """

    def __init__(self, argv: Sequence[str], data: bytes | None = None, uid: int | None = None) -> None:
        self.out, self.err = bytearray(), bytearray()
        self.ended: Deferred[int] = Deferred()
        self._data = data
        environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}
        gid = None if uid is None else pwd.getpwuid(uid).pw_gid
        reactor.spawnProcess(self, argv[0], argv, environment, uid=uid, gid=gid)

    def connectionMade(self) -> None:
        """Give it its input."""
        process: Any = self.transport
        self._process = process
        if self._data is not None:
            process.write(self._data)
            process.closeStdin()

    def outReceived(self, data: bytes) -> None:
        """Collect."""
        self.out += data

    def errReceived(self, data: bytes) -> None:
        """Collect."""
        self.err += data

    def processEnded(self, reason: Failure) -> None:
        """Report."""
        value = reason.value
        self.ended.callback(0 if isinstance(value, ProcessDone) else getattr(value, "exitCode", -1) or -1)

    async def stop(self) -> None:
        """End it, if it still runs."""
        if not self.ended.called:
            self._process.signalProcess("TERM")
        await self.ended

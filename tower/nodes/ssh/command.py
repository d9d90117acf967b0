# mypy: untyped-calls-exclude=twisted
"""Runs one command on one node, as upstream's helper does.

The product does not call `run_ssh_command`; it is for other programs, and for tests that need a command on a
node.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from twisted.conch.ssh.channel import SSHChannel
from twisted.conch.ssh.common import NS
from twisted.conch.ssh.connection import EXTENDED_DATA_STDERR, SSHConnection
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from tower.clusters.node import parse_node
from tower.conch.transport.fields import MessageReader
from tower.errors import TowerError
from tower.net.pipe_transport import PipeTransport
from tower.nodes.ssh.client import CONNECT, Dial, NodeTransport, authenticated, dial_node, tcp_dialer
from tower.nodes.ssh.client_key import ClientKey
from tower.nodes.ssh.failures import OpenFailed
from tower.nodes.ssh.host_keys import HostKeys
from tower.reactor.interfaces import ISocketReactor
from tower.reactor.timers import within

#: Retries of a failed dial: every 5 s, for 20 s.
RETRY_EVERY = 5.0
RETRY_FOR = 20.0

#: Time limit for a command, s, and for each of its two outputs, B.
RUN = 300.0
LARGEST_OUTPUT = 1 << 20

_NO_STATUS = "wait: remote command exited without exit status or exit signal"

_T = TypeVar("_T")

_log = Logger()


class SessionFailed(TowerError):
    """The login succeeded, but the node opened no session."""


class RunFailed(TowerError):
    """The command did not finish, or its output was too long.

    :ivar stdout: the output up to then.
    :ivar stderr: likewise.
    """

    def __init__(self, text: str, stdout: bytes, stderr: bytes) -> None:
        super().__init__(text)
        self.stdout, self.stderr = stdout, stderr


class _CommandTransport(NodeTransport):
    """Uses Conch's sessions (:ivar sessions:) instead of Tower's channels."""

    __slots__ = ("sessions",)

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.sessions = SSHConnection()

    def go_on(self) -> None:
        """See `NodeTransport.go_on`."""
        self.authenticated()
        self.setService(self.sessions)
        self.handshake_done()


class _Command(SSHChannel):
    """A session with one command.

    :ivar done: fires with the exit status, or fails with a `TowerError`.
    :ivar opened: whether the node opened the session.
    """

    name = b"session"

    def __init__(self, command: str) -> None:
        super().__init__()
        self._command = command.encode()
        self.stdout, self.stderr = bytearray(), bytearray()
        self.done: Deferred[int] = Deferred()
        self.opened = False
        self._code: int | None = None
        self._problem = ""

    def openFailed(self, reason: Any) -> None:
        """Record why there is no session."""
        self._end(str(getattr(reason, "value", reason)))

    def channelOpen(self, specificData: bytes) -> None:
        """Run the command."""
        self.opened = True
        connection: Any = self.conn
        sending = connection.sendRequest(self, b"exec", NS(self._command), wantReply=True)
        sending.addErrback(self._refused)
        connection.sendEOF(self)

    def _refused(self, failure: Failure) -> None:
        self._end(f"ssh: command {self._command.decode()} failed")

    def dataReceived(self, data: bytes) -> None:
        """Collect stdout."""
        self._collect(self.stdout, data)

    def extReceived(self, dataType: int, data: bytes) -> None:
        """Collect stderr."""
        if dataType == EXTENDED_DATA_STDERR:
            self._collect(self.stderr, data)

    def _collect(self, output: bytearray, data: bytes) -> None:
        room = LARGEST_OUTPUT - len(output)
        output += data[:room]
        if len(data) > room:
            self._end(f"more than {LARGEST_OUTPUT} bytes of output")

    def request_exit_status(self, data: bytes) -> None:
        """Record the exit status."""
        self._code = MessageReader(data).number()

    def request_exit_signal(self, data: bytes) -> None:
        """Record the signal that ended the command."""
        name = "".join(filter(str.isprintable, MessageReader(data).string()[:32].decode("ascii", "replace")))
        self._problem = f"process exited with signal {name}"

    def closed(self) -> None:
        """Finish when the session closes."""
        self._end(self._problem)

    def _end(self, problem: str) -> None:
        if self.done.called:
            return
        if problem or self._code is None:
            self.done.errback(TowerError(problem or _NO_STATUS))
        else:
            self.done.callback(self._code)


async def run_ssh_command(
    reactor: ISocketReactor,
    cmd: str,
    user: str,
    host: str,
    key: ClientKey,
    *,
    host_keys: HostKeys,
    retry: bool = True,
    clock: IReactorTime | None = None,
    timeout: float = RUN,
    dial: Dial | None = None,
    environ: Mapping[str, str] = os.environ,
) -> tuple[bytes, bytes, int]:
    """Run *cmd* on *host*; return its stdout, stderr and exit status.  A status other than 0 is not an error.

    Upstream's ``RunSSHCommand``; for other programs and tests, the product does not call it.

    :param reactor: for the connection; see `tower.net.connecting.connect`.
    :param user: empty: ``$USER``.
    :param host: ``host`` or ``host:port``.
    :param retry: whether a failed dial is retried, every 5 s for 20 s.
    :param clock: for timeouts; default: *reactor*.
    :param timeout: for the command, s.
    :param dial: connects instead of *reactor*.
    :raise OpenFailed: the connection or the login failed.
    :raise SessionFailed: no session was opened.
    :raise RunFailed: the command did not finish.
    """
    clock, dial = clock or reactor, dial or tcp_dialer(reactor, CONNECT)
    user, node = user or environ.get("USER", ""), parse_node(host)
    target = f"{user}@{node.address}"

    async def login() -> _CommandTransport:
        ssh = _CommandTransport(clock, node, user, key, host_keys, keepalive=0.0)
        try:
            pipe = await dial_node(clock, node, dial, CONNECT)
            opened = authenticated(ssh, pipe.abort)
            PipeTransport(pipe, ssh).start()
            await opened
        except CancelledError:
            raise
        except Exception as error:
            raise OpenFailed(user, node, error) from error
        return ssh

    ssh = await (_retry(clock, login, target) if retry else login())
    command = _Command(cmd)

    def late() -> TowerError:
        return TowerError(f"i/o timeout: no end within {timeout:g} s")

    try:
        ssh.sessions.openChannel(command)
        code = await within(clock, timeout, command.done, late)
    except TowerError as error:
        if not command.opened:
            raise SessionFailed(f"error creating session to {target}: '{error}'") from error
        raise RunFailed(
            f"failed running `{cmd}` on {target}: '{error}'",
            bytes(command.stdout),
            bytes(command.stderr),
        ) from error
    finally:
        ssh.close("done")
    return bytes(command.stdout), bytes(command.stderr), code


async def _retry(clock: IReactorTime, login: Callable[[], Awaitable[_T]], target: str) -> _T:
    """Call *login*, again after each failure for `RETRY_FOR` s; raise the last `OpenFailed` then."""
    until = None
    while True:
        try:
            return await login()
        except OpenFailed as error:
            if until is None:
                until = clock.seconds() + RETRY_FOR
            if clock.seconds() + RETRY_EVERY > until:
                raise
            _log.warn("error dialing {target}: '{reason}', retrying", target=target, reason=str(error.cause))
        await deferLater(clock, RETRY_EVERY)

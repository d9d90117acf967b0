# mypy: untyped-calls-exclude=twisted
"""One command on one node, as upstream's helper runs it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from attrs import frozen
from twisted.conch.ssh.channel import SSHChannel
from twisted.conch.ssh.common import NS
from twisted.conch.ssh.connection import EXTENDED_DATA_STDERR, SSHConnection
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from tower.clusters.node import Node, parse_node
from tower.conch.transport.fields import MessageReader
from tower.errors import TowerError
from tower.net.pipe_transport import PipeTransport
from tower.nodes.ssh.client import CONNECT, Dial, NodeTransport, authenticated, dial_node, tcp_dialer
from tower.nodes.ssh.client_key import ClientKey
from tower.nodes.ssh.failures import OpenFailed
from tower.nodes.ssh.host_keys import HostKeys
from tower.reactor.timers import within

#: A node that could not be dialled is dialled again each 5 s, for 20 s.
RETRY_EVERY = 5.0
RETRY_FOR = 20.0

#: How long a command may take, s, and how much it may say on each of its two outputs, B.
RUN = 300.0
LARGEST_OUTPUT = 1 << 20

_NO_STATUS = "wait: remote command exited without exit status or exit signal"

_log = Logger()


class SessionFailed(TowerError):
    """The node let us in and opened no session."""


class RunFailed(TowerError):
    """The command did not run to its end, or said too much.

    :ivar stdout: what it said until then.
    :ivar stderr: likewise.
    """

    def __init__(self, text: str, stdout: bytes, stderr: bytes) -> None:
        super().__init__(text)
        self.stdout, self.stderr = stdout, stderr


class _CommandTransport(NodeTransport):
    """Goes on with Conch's sessions instead of Tower's channels; :ivar sessions: those."""

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

    :ivar done: fires when it is over: with the exit status, or a `TowerError`.
    :ivar opened: whether there was a session at all.
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
        """Note that there is no session."""
        self._end(str(getattr(reason, "value", reason)))

    def channelOpen(self, specificData: bytes) -> None:
        """Run the command."""
        self.opened = True
        connection: Any = self.conn
        asked = connection.sendRequest(self, b"exec", NS(self._command), wantReply=True)
        asked.addErrback(self._refused)
        connection.sendEOF(self)

    def _refused(self, failure: Failure) -> None:
        self._end(f"ssh: command {self._command.decode()} failed")

    def dataReceived(self, data: bytes) -> None:
        """Collect."""
        self._collect(self.stdout, data)

    def extReceived(self, dataType: int, data: bytes) -> None:
        """Collect what is said on stderr."""
        if dataType == EXTENDED_DATA_STDERR:
            self._collect(self.stderr, data)

    def _collect(self, output: bytearray, data: bytes) -> None:
        room = LARGEST_OUTPUT - len(output)
        output += data[:room]
        if len(data) > room:
            self._end(f"more than {LARGEST_OUTPUT} bytes of output")

    def request_exit_status(self, data: bytes) -> None:
        """Note how the command ended."""
        self._code = MessageReader(data).number()

    def request_exit_signal(self, data: bytes) -> None:
        """Note by which signal it was ended."""
        name = "".join(filter(str.isprintable, MessageReader(data).string()[:32].decode("ascii", "replace")))
        self._problem = f"process exited with signal {name}"

    def closed(self) -> None:
        """The session is over."""
        self._end(self._problem)

    def _end(self, problem: str) -> None:
        if self.done.called:
            return
        if problem or self._code is None:
            self.done.errback(TowerError(problem or _NO_STATUS))
        else:
            self.done.callback(self._code)


async def run_ssh_command(
    reactor: Any,
    cmd: str,
    user: str,
    host: str,
    key: ClientKey,
    *,
    host_keys: HostKeys,
    retry: bool = True,
    clock: Any = None,
    timeout: float = RUN,
    dial: Dial | None = None,
    environ: Mapping[str, str] = os.environ,
) -> tuple[bytes, bytes, int]:
    """Run *cmd* on *host* and return what it said on its outputs and its exit status, which is no error.

    :param reactor: for the connection; see `tower.net.connecting.connect`.
    :param user: whom to log in; empty: whoever ``$USER`` is.
    :param host: ``host`` or ``host:port``.
    :param retry: whether a node that cannot be dialled is dialled again, each 5 s for 20 s.
    :param clock: for everything that waits; *reactor* without it.
    :param timeout: how long the command may take, s.
    :param dial: connects; a test gives its own.
    :raise OpenFailed: no connection came about, or we were not let in.
    :raise SessionFailed: no session was opened.
    :raise RunFailed: the command did not run to its end.
    """
    clock = clock or reactor
    login = _Login(clock, user or environ.get("USER", ""), parse_node(host), key, host_keys)
    connect = dial or tcp_dialer(reactor, CONNECT)
    ssh = await (_persistently(login, connect) if retry else login.get(connect))
    command = _Command(cmd)

    def late() -> TowerError:
        return TowerError(f"i/o timeout: no end within {timeout:g} s")

    try:
        ssh.sessions.openChannel(command)
        code = await within(clock, timeout, command.done, late)
    except TowerError as error:
        if not command.opened:
            raise SessionFailed(f"error creating session to {login.who}: '{error}'") from error
        raise RunFailed(
            f"failed running `{cmd}` on {login.who}: '{error}'", bytes(command.stdout), bytes(command.stderr)
        ) from error
    finally:
        ssh.close("done")
    return bytes(command.stdout), bytes(command.stderr), code


@frozen
class _Login:
    """Gets SSH connections to a node."""

    clock: Any
    user: str
    node: Node
    key: ClientKey
    host_keys: HostKeys

    @property
    def who(self) -> str:
        return f"{self.user}@{self.node.address}"

    async def get(self, dial: Dial) -> _CommandTransport:
        """Connect and be let in.

        :raise OpenFailed: or not.
        """
        ssh = _CommandTransport(self.clock, self.node, self.user, self.key, self.host_keys, keepalive=0.0)
        try:
            pipe = await dial_node(self.clock, self.node, dial, CONNECT)
            opened = authenticated(ssh, pipe.abort)
            PipeTransport(pipe, ssh).start()
            await opened
        except CancelledError:
            raise
        except Exception as error:
            raise OpenFailed(self.user, self.node, error) from error
        return ssh


async def _persistently(login: _Login, dial: Dial) -> _CommandTransport:
    """Get a connection; dial anew after each failure, for some time.

    :raise OpenFailed: the last time, too.
    """
    clock, until = login.clock, None
    while True:
        try:
            return await login.get(dial)
        except OpenFailed as error:
            if until is None:
                until = clock.seconds() + RETRY_FOR
            if clock.seconds() + RETRY_EVERY > until:
                raise
            _log.warn("error dialing {who}: '{reason}', retrying", who=login.who, reason=str(error.cause))
        await deferLater(clock, RETRY_EVERY)

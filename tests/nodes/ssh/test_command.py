"""Tests of `tower.nodes.ssh.command`, with a node in memory whose sessions are Conch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from twisted.conch.error import ConchError
from twisted.conch.ssh.channel import SSHChannel
from twisted.conch.ssh.common import NS
from twisted.conch.ssh.connection import SSHConnection
from twisted.internet.defer import CancelledError, Deferred, fail
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.ssh_keys import KEYS
from tests.fakes.ssh_node import FarNode, NodeServer, failure
from tower.conch.transport.fields import MessageReader
from tower.conch.transport.keys import ED25519
from tower.net.connecting import ConnectFailed
from tower.nodes.ssh.command import LARGEST_OUTPUT, RunFailed, SessionFailed, run_ssh_command
from tower.nodes.ssh.failures import OpenFailed
from tower.nodes.ssh.host_keys import AnyHostKey
from tower.reactor.interfaces import ISocketReactor

Result = tuple[bytes, bytes, int]
REFUSED = ConnectFailed("refused", "n1:22: connection refused")


class Session(SSHChannel):
    """A session whose command is the test's."""

    name = b"session"
    ended = False

    def request_exec(self, data: bytes) -> bool:
        """Run it."""
        connection: Any = self.conn
        far: CommandNode = connection.transport._far
        return far.run(self, MessageReader(data).string().decode())

    def eofReceived(self) -> None:
        """Record the end of its input."""
        self.ended = True

    def exits(self, code: int) -> bool:
        """End it."""
        connection: Any = self.conn
        connection.sendRequest(self, b"exit-status", code.to_bytes(4, "big"))
        connection.transport._far.clock.callLater(0, self.loseConnection)
        return True


class Sessions(SSHConnection):
    """Opens sessions, or none."""

    def channel_session(self, windowSize: int, maxPacket: int, data: bytes) -> Session:
        """Return a session."""
        transport: Any = self.transport
        far: CommandNode = transport._far
        far.sessions.append(Session(remoteWindow=windowSize, remoteMaxPacket=maxPacket))
        return far.sessions[-1]


class CommandNode(FarNode):
    """A node that runs commands.

    :ivar run: what it does: gets the session and the command.
    """

    def __init__(self) -> None:
        super().__init__()
        self.run: Callable[[Session, str], bool] = lambda session, command: session.exits(0)
        self.sessions: list[Session] = []
        self.service: Callable[[], Any] = Sessions

    def dial(self, host: str, port: int) -> Deferred[Any]:
        """See FarNode."""
        dialed = super().dial(host, port)
        server: Any = self.servers[-1]

        def admit(server: NodeServer = server) -> None:
            server.authenticated()
            server.setService(self.service())
            server.handshake_done()

        server.admit = admit
        return dialed


class CommandTestCase(SynchronousTestCase):
    """A node that runs commands."""

    def setUp(self) -> None:
        """Make the node."""
        self.far = CommandNode()

    def start(self, command: str = "true", user: str = "foo", host: str = "n1:22", **named: Any) -> Any:
        """Begin to run a command."""
        named = {"dial": self.far.dial, "retry": False, **named}
        reactor = cast(ISocketReactor, self.far.clock)
        running = run_ssh_command(
            reactor, command, user, host, KEYS[ED25519], host_keys=AnyHostKey(), **named
        )
        return Deferred.fromCoroutine(running)

    def result(self, command: str = "true", **named: Any) -> Result:
        """Run a command that works."""
        running = self.start(command, **named)
        self.far.pump()
        result: Result = self.successResultOf(running)
        self.nothing_left()
        return result

    def failed(self, kind: type[Exception], command: str = "true", **named: Any) -> Any:
        """Run one that does not."""
        running = self.start(command, **named)
        self.far.pump()
        error = self.failureResultOf(running, kind).value
        self.nothing_left()
        return error

    def nothing_left(self) -> None:
        """Check that nothing goes on."""
        self.far.wait(6)
        self.assertEqual(self.far.clock.getDelayedCalls(), [])
        self.assertTrue(all(pipe.gone for pipe in self.far.pipes))


class RunTests(CommandTestCase):
    """Commands that are run."""

    def test_outputs(self) -> None:
        """Both outputs and the exit status are returned; a status is not an error; there is no input."""
        commands = []

        def run(session: Session, command: str) -> bool:
            commands.append(command)
            session.write(b"to stdout")
            session.writeExtended(1, b"to stderr")
            session.writeExtended(7, b"to no output")
            return session.exits(3)

        self.far.run = run
        self.assertEqual(self.result("echo ü"), (b"to stdout", b"to stderr", 3))
        self.assertEqual(commands, ["echo ü"])
        self.assertTrue(self.far.sessions[0].ended)
        self.assertEqual(self.far.dialed, [("n1", 22)])

    def test_host(self) -> None:
        """The host may have a port or not, and be an IPv6 address."""
        for host, where in (
            ("n1", ("n1", 22)),
            ("n1:2222", ("n1", 2222)),
            ("[2001:db8::1]:1", ("2001:db8::1", 1)),
        ):
            self.result(host=host)
            self.assertEqual(self.far.dialed.pop(), where)

    def test_signal(self) -> None:
        """A command ended by a signal is a failure that keeps its output."""

        def run(session: Session, command: str) -> bool:
            session.write(b"half")
            connection: Any = session.conn
            connection.sendRequest(session, b"exit-signal", NS(b"KILL") + b"\0" + NS(b"") + NS(b""))
            self.far.clock.callLater(0, session.loseConnection)
            return True

        self.far.run = run
        error = self.failed(RunFailed, "sleep 9")
        self.assertEqual(
            str(error), "failed running `sleep 9` on foo@n1:22: 'process exited with signal KILL'"
        )
        self.assertEqual((error.stdout, error.stderr), (b"half", b""))

    def test_no_status(self) -> None:
        """So did one whose session ended without a word, or with the connection."""

        def run(session: Session, command: str) -> bool:
            self.far.clock.callLater(0, session.loseConnection)
            return True

        self.far.run = run
        self.assertIn("exited without exit status", str(self.failed(RunFailed)))

        def cut(session: Session, command: str) -> bool:
            self.far.clock.callLater(0, self.far.pipes[-1].abort)
            return True

        self.far.run = cut
        self.assertIn("failed running `true` on foo@n1:22", str(self.failed(RunFailed)))

    def test_refused(self) -> None:
        """A command that the node refuses to run."""
        self.far.run = lambda session, command: False
        self.assertEqual(
            str(self.failed(RunFailed)), "failed running `true` on foo@n1:22: 'ssh: command true failed'"
        )

    def test_too_much(self) -> None:
        """The output of a command is limited."""

        def run(session: Session, command: str) -> bool:
            session.write(b"x" * (LARGEST_OUTPUT + 1))
            return True

        self.far.run = run
        error = self.failed(RunFailed)
        self.assertIn(f"more than {LARGEST_OUTPUT} bytes of output", str(error))
        self.assertEqual(len(error.stdout), LARGEST_OUTPUT)

    def test_too_long(self) -> None:
        """A command may take so long and no longer."""
        self.far.run = lambda session, command: True
        running = self.start(timeout=60.0)
        self.far.pump()
        self.far.wait(59.5)
        self.assertNoResult(running)
        self.far.wait(0.5)
        self.assertIn("i/o timeout", str(self.failureResultOf(running, RunFailed).value))
        self.nothing_left()

    def test_cancel(self) -> None:
        """It may be cancelled at any point, and nothing is left."""
        self.far.run = lambda session, command: True
        for pumped in (False, True):
            running = self.start()
            if pumped:
                self.far.pump()
            running.cancel()
            self.failureResultOf(running, CancelledError)
            self.nothing_left()

    def test_no_session(self) -> None:
        """A node that accepts the login but does not open a session."""
        self.far.service = SSHConnection  # supports no channel type
        error = self.failed(SessionFailed)
        self.flushLoggedErrors(ConchError)
        self.assertTrue(str(error).startswith("error creating session to foo@n1:22: '"), str(error))


class TestSSHUser(CommandTestCase):
    """Upstream's TestSSHUser."""

    def test_ssh_user(self) -> None:
        """The given user, or ``$USER``, in the error of a dialer that fails (TestSSHUser)."""
        dialed = []

        def dial(host: str, port: int) -> Deferred[Any]:
            dialed.append((host, port))
            return fail(REFUSED)

        for user, expected in (("testuser", "testuser"), ("", "whoever")):
            error = self.failed(
                OpenFailed, user=user, host="testhost:22", dial=dial, environ={"USER": "whoever"}
            )
            start = f"error getting SSH client to {expected}@testhost:22:"
            self.assertTrue(str(error).startswith(start), str(error))
        self.assertEqual(dialed, [("testhost", 22)] * 2)

    def test_login(self) -> None:
        """That user logs in, by one method: the key, offered once."""
        for user, expected in (("testuser", "testuser"), ("", "whoever")):
            self.far.refuse_with = failure()
            self.failed(OpenFailed, user=user, environ={"USER": "whoever"})
            (asked,) = self.far.asked
            self.far.asked.clear()
            self.assertEqual((asked.user, asked.line), (expected, KEYS[ED25519].authorized_key))


class RetryTests(CommandTestCase):
    """A node that cannot be dialed."""

    def setUp(self) -> None:
        """Count."""
        super().setUp()
        self.times: list[float] = []
        self.until = 1e9

    def dial(self, host: str, port: int) -> Deferred[Any]:
        """Fail until it is time."""
        now = self.far.clock.seconds()
        self.times.append(now - 1000)
        return self.far.dial(host, port) if now >= self.until else fail(REFUSED)

    def test_each_five_seconds(self) -> None:
        """The node is dialed every 5 s for 20 s, logged in upstream's words; then the command fails."""
        with capturedLogs() as events:
            running = self.start(dial=self.dial, retry=True)
            self.far.wait(19.5)
            self.assertNoResult(running)
            self.far.wait(0.5)
        self.assertEqual(self.times, [0, 5, 10, 15, 20])
        error = self.failureResultOf(running, OpenFailed).value
        self.assertEqual(str(error), "error getting SSH client to foo@n1:22: 'n1:22: connection refused'")
        line = "error dialing foo@n1:22: 'n1:22: connection refused', retrying"
        self.assertEqual([formatEvent(event) for event in events], [line] * 4)
        self.nothing_left()

    def test_comes_back(self) -> None:
        """A node that is up at the third attempt runs the command."""
        self.until = 1010.0
        running = self.start(dial=self.dial, retry=True)
        self.far.wait(10)
        self.assertEqual(self.successResultOf(running), (b"", b"", 0))
        self.assertEqual(self.times, [0, 5, 10])
        self.nothing_left()

    def test_not_wanted(self) -> None:
        """Without retry once is all."""
        self.failed(OpenFailed, dial=self.dial)
        self.assertEqual(self.times, [0])

    def test_cancel_waiting(self) -> None:
        """It may be cancelled between two tries."""
        running = self.start(dial=self.dial, retry=True)
        self.far.wait(2)
        running.cancel()
        self.failureResultOf(running, CancelledError)
        self.nothing_left()

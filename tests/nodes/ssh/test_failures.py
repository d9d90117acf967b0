"""Tests of `tower.nodes.ssh.failures`: the error when a node closes the connection."""

from __future__ import annotations

from errno import ECONNRESET
from typing import Any

from twisted.internet.error import ConnectionDone
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.ssh_node import FarNode
from tower.conch.transport.limits import Disconnected
from tower.errors import PeerError
from tower.net.connection import ConnectionEnded
from tower.nodes.ssh.failures import HungUp, OpenFailed, connection_ended, login_failed

#: The end of a connection, as transports report it.
DONE = ConnectionEnded("both sides are done")
RESET = ConnectionResetError(ECONNRESET, "Connection reset by peer")


class WordsTests(SynchronousTestCase):
    """Without a connection."""

    def test_ended(self) -> None:
        """Bare ends are worded; more precise errors are unchanged."""
        for reason, text in (
            (DONE, "its sshd closed the connection"),
            (ConnectionDone(), "its sshd closed the connection"),
            (RESET, "the connection broke: connection reset by peer"),
            (ConnectionError("gone"), "the connection broke: gone"),
        ):
            self.assertEqual(str(connection_ended(reason)), text)
        said = Disconnected(2, "Too many authentication failures")
        self.assertIs(connection_ended(said), said)

    def test_no_ssh(self) -> None:
        """Text that is not SSH is shown: its first line, printable and shortened."""
        for reason, preface, text in (
            (DONE, b"", "it sends nothing and closes the connection: is this an SSH server?"),
            (
                DONE,
                b"Exceeded MaxStartups\r\n",
                'it reports: "Exceeded MaxStartups" and closes the connection: is this an SSH server?',
            ),
            (
                PeerError("no SSH version line"),
                b"\r\nHTTP/1.1 400 Bad Request\r\nServer: x\r\n",
                'no SSH version line: it reports: "HTTP/1.1 400 Bad Request": is this an SSH server?',
            ),
        ):
            self.assertEqual(str(login_failed(reason, preface, is_ssh=False)), text)
        odd = str(login_failed(RESET, b"\x1b[31m\xff" + b"x" * 200, is_ssh=False))
        self.assertNotIn("\x1b", odd)
        self.assertLess(len(odd), 200)
        silent = PeerError("i/o timeout")
        self.assertIs(login_failed(silent, b"", is_ssh=False), silent)

    def test_ssh(self) -> None:
        """An SSH server that disconnects before the login has the reason in its log."""
        self.assertIn("before the login: see its log", str(login_failed(DONE, b"x", is_ssh=True)))
        self.assertIn("connection reset by peer before", str(login_failed(RESET, b"x", is_ssh=True)))


class ConnectionTests(SynchronousTestCase):
    """With a node in memory."""

    def setUp(self) -> None:
        """Make the node."""
        self.far = FarNode()

    def hang_up(self, opening: Any) -> str:
        """Close the connection from the far end; return why there is no tunnel."""
        self.far.pipes[0].receiver.closed(DONE)
        error = self.failureResultOf(opening, OpenFailed).value
        self.assertIsInstance(error.cause, HungUp)
        return str(error)

    def test_no_version(self) -> None:
        """The first line is shown, in any segmentation."""
        self.far.version, self.far.preface = b"", b""
        opening = self.far.tunnel().open()
        near = self.far.pipes[0]
        near.receiver.received(memoryview(b"Exceeded Max"))
        near.receiver.received(memoryview(b"Startups\r\nand more"))
        self.assertIn('it reports: "Exceeded MaxStartups" and closes', self.hang_up(opening))

    def test_before_the_login(self) -> None:
        """A server that sends only its version."""
        opening = self.far.tunnel().open()
        self.far.pipes[0].receiver.received(memoryview(b"SSH-2.0-x\r\n"))
        self.assertIn("its sshd closed the connection before the login", self.hang_up(opening))

    def test_lost(self) -> None:
        """A tunnel whose node goes is lost for that reason."""
        tunnel = self.far.tunnel()
        opening = tunnel.open()
        self.far.pump()
        self.successResultOf(opening)
        lost: list[Exception] = []
        tunnel.lost.addCallback(lost.append)
        self.far.pipes[0].receiver.closed(DONE)
        self.assertEqual([str(reason) for reason in lost], ["its sshd closed the connection"])

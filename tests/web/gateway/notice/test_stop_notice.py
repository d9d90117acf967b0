"""Tests for `tower.web.gateway.notice.stop_notice`: the end of upgraded connections at a stop."""

from __future__ import annotations

import json
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.frames import Autobahn
from tests.fakes.gateway import FakeUser, Kit, get
from tests.fakes.observers import FakeObserver
from tests.fakes.pipes import FakePipe
from tower.web.gateway.gateway import NOTICE_TIME
from tower.websocket.frames import BINARY, CLOSE, FrameWriter

REASON = "tower-proxy is stopping; connect again"
MESSAGE = FrameWriter(to_server=False).wrap(b"\1some output")
EXEC = b"/clusters/alpha/api/v1/namespaces/a/pods/b/exec?command=c"
FORWARD = b"/clusters/alpha/api/v1/namespaces/a/pods/b/portforward"


def spdy_frame(stream: int, data: bytes, flags: int = 0) -> bytes:
    """Return a data frame of SPDY."""
    return stream.to_bytes(4, "big") + bytes((flags,)) + len(data).to_bytes(3, "big") + data


class StopNoticeTests(SynchronousTestCase):
    """Upgraded connections while the gateway stops."""

    def upgrade(
        self, target: bytes, protocol: bytes, field: bytes, subprotocol: bytes, first: bytes = b""
    ) -> tuple[FakeUser, FakePipe]:
        """Upgrade a connection; *first* comes with the response.  Return both of its ends."""
        upgrade = b"Connection: Upgrade\r\nUpgrade: %b\r\n" % protocol
        self.user.deliver(get(target, *upgrade.splitlines(), b"%b: %b" % (field, subprotocol)))
        pipe = self.kit.pipe
        head = b"HTTP/1.1 101 Switching Protocols\r\n%b: %b\r\n%b\r\n" % (field, subprotocol, upgrade)
        pipe.deliver(head + first)
        self.assertTrue(self.user.taken().endswith(b"\r\n\r\n" + first))
        return self.user, pipe

    def websocket(
        self, target: bytes, subprotocol: bytes = b"v5.channel.k8s.io", first: bytes = b""
    ) -> tuple[FakeUser, FakePipe]:
        """Do the same for a WebSocket."""
        return self.upgrade(target, b"websocket", b"Sec-WebSocket-Protocol", subprotocol, first)

    def spdy(self, target: bytes) -> tuple[FakeUser, FakePipe]:
        """Do the same for SPDY."""
        return self.upgrade(target, b"SPDY/3.1", b"X-Stream-Protocol-Version", b"v4.channel.k8s.io")

    def setUp(self) -> None:
        """Connect."""
        self.kit = Kit()
        self.user = self.kit.user
        self.kit.gateway.observer = self.observer = FakeObserver()

    def stop(self) -> None:
        """Stop, and let the time for requests pass."""
        self.stopped = self.kit.gateway.stop(10.0)
        self.kit.clock.advance(9.9)
        self.assertFalse(self.user.closing)
        self.assertEqual(self.user.taken(), b"")
        self.kit.clock.advance(0.1)

    def check_closed(self) -> None:
        """The member's side is ended by Tower, and the user's once the user has read the notice."""
        self.assertTrue(self.kit.pipe.aborted)
        self.assertFalse(self.user.closing or self.user.paused)
        self.user.deliver(b"more input")
        self.assertEqual(self.kit.pipe.taken()[-4:], b"\r\n\r\n")
        self.user.end()
        self.assertTrue(self.user.closing)
        self.user.lose()
        self.successResultOf(self.stopped)
        self.assertEqual(self.kit.gateway.cut, 1)
        self.assertEqual([each["aborted"] for each in self.observer.over], ["tower"])
        self.assertEqual(self.kit.clock.getDelayedCalls(), [])

    def read(self, wire: bytes) -> tuple[list[tuple[int, bytes]], int, str]:
        """Return the messages that a WebSocket client reads, and code and reason of the close."""
        peer = Autobahn(client=True)
        peer.feed(wire)
        return peer.got, peer.protocol.remoteCloseCode, peer.protocol.remoteCloseReason or ""

    def check_status(self, data: bytes) -> None:
        """*data* is a Status with the reason, with which a command fails."""
        status: dict[str, Any] = json.loads(data)
        self.assertEqual((status["kind"], status["status"], status["message"]), ("Status", "Failure", REASON))

    def test_command(self) -> None:
        """A command over WebSockets gets a Status on its error channel, and a normal close."""
        for subprotocol in (b"v5.channel.k8s.io", b"v4.channel.k8s.io"):
            self.setUp()
            self.websocket(EXEC, subprotocol, MESSAGE)
            self.stop()
            (message,), code, reason = self.read(self.user.taken())
            self.assertEqual((message[0], message[1][:1], code, reason), (BINARY, b"\3", 1000, ""))
            self.check_status(message[1][1:])
            self.check_closed()

    def test_other_websockets(self) -> None:
        """Other WebSockets get a close frame with the reason; so do commands without that channel."""
        for target, subprotocol in (
            (FORWARD, b"SPDY/3.1+portforward.k8s.io"),
            (FORWARD, b"v4.channel.k8s.io"),
            (EXEC, b"v4.base64.channel.k8s.io"),
            (b"/clusters/alpha/api/v1/pods?watch=1", b"binary.k8s.io"),
        ):
            self.setUp()
            self.websocket(target, subprotocol)
            self.stop()
            self.assertEqual(self.read(self.user.taken()), ([], 1001, REASON))
            self.check_closed()

    def test_long_reason(self) -> None:
        """A close frame has as much of the reason as it may have."""
        self.websocket(FORWARD)
        self.kit.gateway.farewell = "tower-proxy is stopping: " + "\N{EURO SIGN}" * 100
        self.stop()
        _, code, reason = self.read(self.user.taken())
        self.assertEqual((code, len(reason)), (1001, 25 + 32))

    def test_spdy_command(self) -> None:
        """A command over SPDY gets a Status on the stream that client-go opens first; all streams end."""
        _, pipe = self.spdy(EXEC)
        pipe.deliver(spdy_frame(5, b"output"))
        self.assertEqual(self.user.taken(), spdy_frame(5, b"output"))
        self.stop()
        wire = self.user.taken()
        size = int.from_bytes(wire[5:8], "big")
        self.assertEqual(wire[:5], b"\0\0\0\1\1")
        self.check_status(wire[8 : 8 + size])
        self.assertEqual(wire[8 + size :], b"".join(spdy_frame(number, b"", 1) for number in (3, 5, 7, 9)))
        self.check_closed()

    def test_inside_a_message(self) -> None:
        """In the middle of a message its end is waited for; nothing of the next one follows."""
        _, pipe = self.websocket(FORWARD, first=MESSAGE[:1])
        pipe.deliver(MESSAGE[1:5])
        self.assertEqual(self.user.taken(), MESSAGE[1:5])
        self.stop()
        self.assertEqual(self.user.taken(), b"")
        pipe.deliver(MESSAGE[5:7])
        self.assertEqual(self.user.taken(), MESSAGE[5:7])
        self.kit.clock.advance(NOTICE_TIME / 2)
        pipe.deliver(MESSAGE[7:] + MESSAGE)
        pipe.deliver(MESSAGE)
        got = self.read(MESSAGE[:7] + self.user.taken())
        self.assertEqual(got, ([(BINARY, b"\1some output")], 1001, REASON))
        self.check_closed()

    def test_no_end(self) -> None:
        """If a message does not end, or the user does not close, the connection is cut 2 s later."""
        for wire, full in ((MESSAGE[:5], False), (MESSAGE, True)):
            self.setUp()
            _, pipe = self.websocket(EXEC)
            self.user.full = full
            pipe.deliver(wire)
            self.user.taken()
            self.stop()
            self.kit.clock.advance(NOTICE_TIME)
            self.assertEqual(self.user.closing, full)  # a notice that was sent is not lost
            self.assertTrue(self.user.aborted)
            self.successResultOf(self.stopped)
            self.assertEqual(self.kit.gateway.cut, 1)

    def test_hostile_member(self) -> None:
        """After invalid frames, and after the member's close frame, no notice is sent."""
        for wire in (b"\xff" * 100, FrameWriter(to_server=False).wrap(b"\x03\xe8", CLOSE)):
            self.setUp()
            _, pipe = self.websocket(EXEC)
            pipe.deliver(wire)
            self.assertEqual(self.user.taken(), wire)
            self.stop()
            pipe.deliver(MESSAGE)
            self.assertEqual(self.user.taken(), MESSAGE)
            self.kit.clock.advance(NOTICE_TIME)
            self.assertEqual(self.user.taken(), b"")
            self.assertTrue(self.user.aborted)

    def test_no_notice(self) -> None:
        """Forwarded ports over SPDY and unknown protocols are cut at once."""
        for target, protocol in ((FORWARD, b"SPDY/3.1"), (EXEC, b"echo")):
            self.setUp()
            self.upgrade(target, protocol, b"X-Stream-Protocol-Version", b"portforward.k8s.io")
            self.stop()
            self.assertEqual(self.user.taken(), b"")
            self.assertTrue(self.user.aborted)
            self.successResultOf(self.stopped)

    def test_without_grace(self) -> None:
        """Without time to stop, connections between two frames get the notice, and all others are cut."""
        self.websocket(FORWARD)
        other = self.kit.connect()
        self.user, user = other, self.user
        _, pipe = self.websocket(FORWARD)
        pipe.deliver(MESSAGE[:5])
        other.taken()
        self.kit.gateway.stop(0.0)
        self.kit.clock.advance(0.0)
        self.kit.clock.advance(0.0)
        self.assertEqual(self.read(user.taken()), ([], 1001, REASON))
        self.assertEqual(other.taken(), b"")
        self.assertTrue(other.aborted)

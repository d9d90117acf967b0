"""Tests for `tower.web.gateway.notice.boundaries`: frames of a member are followed to their boundaries."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tower.web.gateway.notice.boundaries import Boundaries, SPDYBoundaries, WebSocketBoundaries
from tower.websocket.frames import BINARY, CLOSE, PING, FrameWriter

WRITER = FrameWriter(to_server=False)
SIZES = (0, 1, 125, 126, 127, 65535, 65536)


def data_frame(size: int, flags: int = 0) -> bytes:
    """Return a data frame of SPDY."""
    return b"\0\0\0\5" + bytes((flags,)) + size.to_bytes(3, "big") + b"\x80" * size


def control_frame(kind: int, size: int = 4, version: int = 3) -> bytes:
    """Return a control frame of SPDY."""
    return (0x8000 | version).to_bytes(2, "big") + kind.to_bytes(2, "big") + data_frame(size)[4:]


class BoundariesTestCase(SynchronousTestCase):
    """Checks at which bytes of a stream a frame of our own may follow."""

    kind: type[Boundaries]

    def check(self, *frames: bytes, inside: tuple[int, ...] = ()) -> None:
        """A boundary is after each of *frames*, except those with an index *inside*, however they are cut."""
        wire, ends = b"".join(frames), {0}
        for number in range(len(frames)):
            if number not in inside:
                ends.add(len(b"".join(frames[: number + 1])))
        for size in (1, 2, 3, 7, 11, 1000, len(wire)):
            boundaries = self.kind()
            for place in range(0, len(wire), size):
                self.assertEqual(boundaries.is_at_one, place in ends, (size, place))
                boundaries.follow(wire[place : place + size])
            self.assertTrue(boundaries.is_at_one)
        for start in {0, 1, 2, 5, len(wire) // 2, len(wire)}:
            boundaries = self.kind()
            boundaries.follow(wire[:start])
            wanted = min((end for end in ends if end >= start), default=start - 1)
            self.assertEqual(boundaries.find(wire[start:]), wanted - start)

    def check_lost(self, *frames: bytes) -> None:
        """After *frames*, no boundary follows."""
        for more in (b"", *frames, bytes(100_000)):
            boundaries = self.kind()
            boundaries.follow(b"".join(frames) + more)
            self.assertFalse(boundaries.is_at_one)
            self.assertEqual(boundaries.find(bytes(100)), -1)
            boundaries.follow(bytes(100))
            self.assertFalse(boundaries.is_at_one)


class TinyFramesTests(SynchronousTestCase):
    """Frames that would cost more time than they are worth."""

    def test_tiny(self) -> None:
        """After many tiny frames in one piece there is no boundary; in small pieces, or larger, there is."""
        for kind, frames in (
            (WebSocketBoundaries, (b"\x81\x00", b"\x82\x00", b"\x81\x01a\x82\x01b")),
            (SPDYBoundaries, (control_frame(6, 0), data_frame(0), data_frame(1) + control_frame(6))),
        ):
            for frame in frames:
                boundaries = kind()
                boundaries.follow(frame * 5000)
                self.assertFalse(boundaries.is_at_one)
                boundaries.follow(frame)
                self.assertEqual(boundaries.find(frame), -1)
                boundaries = kind()
                for _ in range(500):
                    boundaries.follow(frame * 10)
                self.assertTrue(boundaries.is_at_one)
        for kind, frame in ((WebSocketBoundaries, WRITER.wrap(bytes(40))), (SPDYBoundaries, data_frame(40))):
            boundaries = kind()
            boundaries.follow(frame * 5000)
            self.assertTrue(boundaries.is_at_one)


class WebSocketBoundariesTests(BoundariesTestCase):
    """Frames of a WebSocket server."""

    kind = WebSocketBoundaries

    def test_sizes(self) -> None:
        """Messages of all sizes, by all three lengths of the header."""
        for size in SIZES:
            self.check(WRITER.wrap(bytes(size)), WRITER.wrap(b"next"))

    def test_many(self) -> None:
        """Many small messages; compressed ones and text count the same."""
        self.check(*(WRITER.wrap(bytes(number)) for number in range(40)))
        self.check(b"\xc2\x03abc", b"\x81\x01a", b"\xc1\x7e\x00\x80" + bytes(128))

    def test_fragments(self) -> None:
        """No boundary is inside a message of several frames, nor after a ping between them."""
        self.check(b"\x02\x01a", b"\x89\x00", b"\x00\x00", b"\x80\x02bc", WRITER.wrap(b"d"), inside=(0, 1, 2))

    def test_control(self) -> None:
        """Pings count as frames; nothing follows a close."""
        self.check(WRITER.wrap(b"data"), WRITER.wrap(b"ping", PING), WRITER.wrap(b"data"))
        self.check_lost(WRITER.wrap(b"data"), WRITER.wrap(b"\x03\xe8", CLOSE))

    def test_bad(self) -> None:
        """After a frame that a server must not send, the boundaries are unknown."""
        for frame in (
            FrameWriter(to_server=True).wrap(b"masked"),
            b"\x82\xfe\x01\x00",
            b"\x80\x00",  # a continuation of nothing
            b"\x02\x00\x82\x00",  # a message inside another
            b"\x8b\x00",  # an unknown control frame
            b"\x09\x00",  # a control frame in fragments
            b"\x89\x7e\x00\x80" + bytes(128),  # a long one
            b"\x82\x7f" + b"\xff" * 8,
        ):
            self.check_lost(frame)
            self.check_lost(WRITER.wrap(b"before", BINARY), frame)


class SPDYBoundariesTests(BoundariesTestCase):
    """Frames of SPDY."""

    kind = SPDYBoundaries

    def test_frames(self) -> None:
        """Data and control frames of all sizes."""
        for size in SIZES:
            self.check(data_frame(size), control_frame(2), data_frame(size, 1), control_frame(6))
        self.check(*(data_frame(number) for number in range(40)))

    def test_bad(self) -> None:
        """After GOAWAY, another version or an unknown type, the boundaries are unknown."""
        for frame in (control_frame(7), control_frame(1, version=2), control_frame(0), control_frame(10)):
            self.check_lost(data_frame(3), frame)

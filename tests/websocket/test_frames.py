"""Tests of the WebSocket frame codec, also against Autobahn's own masking."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.frames import Autobahn, cut
from tower.websocket.frames import (
    BINARY,
    CLOSE,
    LONGEST_HEADER,
    PING,
    PONG,
    TEXT,
    BadFrame,
    Control,
    FrameReader,
    FrameWriter,
)


def read(reader: FrameReader, wire: bytes, step: int) -> tuple[bytes, list[Control]]:
    """Feed *wire* in pieces of *step* bytes; return the payload joined, and the control frames."""
    payload, controls = b"", []
    for start in range(0, len(wire), step):
        data = bytearray(wire[start : start + step])
        for piece in reader.feed(memoryview(data)):
            if isinstance(piece, Control):
                controls.append(piece)
            else:
                payload += data[piece[0] : piece[1]]
    return payload, controls


class FrameTests(SynchronousTestCase):
    """Frames made by the writer are read by the reader."""

    def test_any_split(self) -> None:
        """Payload and control frames do not depend on how the network cut the stream."""
        for masked in (True, False):
            writer = FrameWriter(to_server=masked)
            payloads = [b"a" * size for size in (0, 1, 125, 126, 600, 65535, 65536)]
            wire = b"".join(map(writer.wrap, payloads[:4])) + writer.wrap(b"hi", PING)
            wire += b"".join(map(writer.wrap, payloads[4:])) + writer.wrap(b"", CLOSE)
            for step in (1, 2, 3, 7, 13, 14, 15, 1024, len(wire)):
                got = read(FrameReader(from_client=masked), wire, step)
                controls = [Control(PING, b"hi"), Control(CLOSE, b"")]
                self.assertEqual(got, (b"".join(payloads), controls))

    def test_fragments_with_a_ping_between(self) -> None:
        """A message split into frames as by gorilla, with a control frame in the middle."""
        wire = b"\x02\x03abc" + b"\x89\x01p" + b"\x00\x02de" + b"\x80\x01f" + b"\x82\x01g"
        for step in range(1, len(wire) + 1):
            got = read(FrameReader(from_client=False), wire, step)
            self.assertEqual(got, (b"abcdefg", [Control(PING, b"p")]))

    def test_wrapped_in_place(self) -> None:
        """The header goes into the room before the payload."""
        for masked in (True, False):
            for size in (5, 500, 70000):
                buffer = bytearray(14) + bytearray(b"x" * size) + bytearray(b"tail")
                start = FrameWriter(to_server=masked).wrap_into(memoryview(buffer), 14, 14 + size)
                wire = bytes(buffer[start : 14 + size])
                self.assertEqual(read(FrameReader(from_client=masked), wire, 999)[0], b"x" * size)
                self.assertEqual(bytes(buffer[14 + size :]), b"tail")

    def test_refused(self) -> None:
        """Frames that RFC 6455 forbids, or no tunnel uses, are rejected."""
        for wire in (
            b"\x82\x7e\x00\x7d",  # 125 in three bytes
            b"\x82\x7f" + (65535).to_bytes(8, "big"),  # 65535 in nine
            b"\xc2\x01a",  # reserved bit
            b"\x82\x81abcda",  # masked
            bytes((128 | TEXT, 1)) + b"a",
            b"\x80\x01a",  # continuation of nothing
            b"\x02\x01a\x82\x01b",  # a new message inside one
            b"\x09\x01a",  # a cut ping
            b"\x89\x7e\x00\x80",  # a long ping
            b"\x8b\x00",  # an unknown control frame
            b"\x88\x01\x03",  # a close with half a code
            b"\x82\x7f\x80" + bytes(7),  # 2**63
        ):
            for step in (1, len(wire)):
                with self.assertRaises(BadFrame):
                    read(FrameReader(from_client=False), wire, step)
        with self.assertRaises(BadFrame):
            FrameReader(from_client=True).feed(memoryview(bytearray(b"\x82\x01a")))


class RunTests(SynchronousTestCase):
    """Messages cut into frames of 1,024 bytes, which are not read one by one."""

    @settings(max_examples=200, deadline=None)
    @given(
        st.lists(
            st.tuples(
                st.sampled_from((0, 1, 1023, 1024, 1025, 2048, 4096, 28_700, 40_000)),
                st.sampled_from((1024, 1024, 1024, 1023, 1025, 1279)),
                st.binary(min_size=4, max_size=4),
                st.booleans(),
            ),
            max_size=5,
        ),
        st.integers(1, 80_000),
        st.tuples(st.integers(0, 60), st.integers(0, 3), st.sampled_from((0, 0, 1, 2, 128, 64, 255))),
    )
    def test_any_cut(
        self, script: list[tuple[int, int, bytes, bool]], step: int, broken: tuple[int, int, int]
    ) -> None:
        """Runs are read, or rejected, like single frames."""
        wire = bytearray()
        for size, each, key, pinged in script:
            wire += cut((bytes(range(251)) * 160)[:size], key, size=each)
            if pinged:
                wire += b"\x89\x81" + key + b"p"
        frame, offset, change = broken
        if 1032 * frame + offset < len(wire):
            wire[1032 * frame + offset] ^= change
        results = []
        for pieces in (1000, step, len(wire) + 1):
            try:
                results.append(read(FrameReader(from_client=True), bytes(wire), pieces))
            except BadFrame:
                results.append((b"refused", []))
        self.assertEqual(results, results[:1] * 3)
        if not change:
            expected = b"".join((bytes(range(251)) * 160)[:size] for size, *_ in script)
            self.assertEqual(results[0][0], expected)

    def test_one_piece(self) -> None:
        """A packet of an old agent, which sends it as two messages in 33 frames, is one piece."""
        packet = bytes(range(256)) * 128 + b"the rest"
        wire = cut(packet[:4096], b"abcd") + cut(packet[4096:], b"efgh")
        data = memoryview(bytearray(wire + wire))
        [piece] = FrameReader(from_client=True).feed(data)
        assert not isinstance(piece, Control)
        self.assertEqual(bytes(data[slice(*piece)]), packet + packet)

    def test_order(self) -> None:
        """A run ends where the order of its frames is invalid; a control frame keeps its position."""
        wire = cut(b"a" * 3000, b"abcd") + cut(b"b", b"abcd") + b"\x89\x80abcd" + cut(b"c" * 3000, b"abcd")
        data = memoryview(bytearray(wire))
        one, ping, two = FrameReader(from_client=True).feed(data)
        self.assertEqual(ping, Control(PING, b""))
        self.assertEqual(
            [bytes(data[slice(*each)]) for each in (one, two)], [b"a" * 3000 + b"b", b"c" * 3000]
        )
        begun = cut(b"d" * 1025, b"abcd")[:1032]
        for wrong in (begun + cut(b"e" * 4096, b"abcd"), cut(b"e" * 4096, b"abcd")[1032:]):
            with self.assertRaises(BadFrame):
                FrameReader(from_client=True).feed(memoryview(bytearray(wrong)))


class TextTests(SynchronousTestCase):
    """Text messages, which deployed proxies take."""

    def test_taken(self) -> None:
        """With a callback, text messages are processed as binary; it is called once."""
        told: list[str] = []
        reader = FrameReader(from_client=True, on_text=lambda: told.append("text"))
        wire = b"".join(cut(b"x" * size, b"abcd", TEXT) for size in (3, 3000, 4096)) + cut(b"y", b"abcd")
        self.assertEqual(read(reader, wire, len(wire)), (b"x" * 7099 + b"y", []))
        self.assertEqual(told, ["text"])

    def test_not_inside(self) -> None:
        """A text frame inside a message is refused like any other beginning."""
        reader = FrameReader(from_client=True, on_text=lambda: None)
        with self.assertRaises(BadFrame):
            read(reader, b"\x02\x81abcda" + b"\x81\x81abcda", 20)


SIZES = st.sampled_from((0, 1, 4, 125, 126, 127, 600, 1024, 65535, 65536, 70001))


class AutobahnTests(SynchronousTestCase):
    """Agrees with Autobahn about every frame."""

    @settings(max_examples=60, deadline=None)
    @given(
        st.booleans(),
        st.lists(
            st.tuples(st.integers(0, 3), SIZES, st.sampled_from((None, 1, 7, 1024, 40_000))), max_size=5
        ),
        st.sampled_from((1, 2, 13, 1000, 1 << 20)),
    )
    def test_read(self, client: bool, script: list[tuple[int, int, int | None]], step: int) -> None:
        """We read what Autobahn sends: messages, fragments (gorilla's are of 1,024 B), control frames."""
        peer = Autobahn(client=client)
        payload, controls, wire = b"", [], bytearray()
        for kind, size, fragment in script:
            data = bytes(range(256)) * (size // 256) + bytes(range(size % 256))
            if kind == 0:
                peer.protocol.sendPing(data[:125])
                controls.append(Control(PING, data[:125]))
            elif kind == 1 and fragment != 1:
                peer.protocol.beginMessage(isBinary=True)
                for start in range(0, max(size, 1), fragment or 5000):
                    peer.protocol.sendMessageFrame(data[start : start + (fragment or 5000)])
                    peer.protocol.sendPong(b"between")
                    controls.append(Control(PONG, b"between"))
                peer.protocol.endMessage()
                payload += data
            else:
                whole = size >= 5000 and fragment in (1, 7)
                peer.protocol.sendMessage(data, isBinary=True, fragmentSize=None if whole else fragment)
                payload += data
            wire += peer.sent()
        got = read(FrameReader(from_client=client), bytes(wire), step if len(wire) < 20_000 else 1000)
        self.assertEqual(got, (payload, controls))

    @settings(max_examples=40, deadline=None)
    @given(st.booleans(), st.lists(st.tuples(SIZES, st.booleans()), max_size=5))
    def test_write(self, client: bool, script: list[tuple[int, bool]]) -> None:
        """Autobahn reads what we send, put together in place or not."""
        peer, writer = Autobahn(client=not client), FrameWriter(to_server=client)
        expected = []
        for size, in_place in script:
            data = bytes(range(256)) * (size // 256) + bytes(range(size % 256))
            if in_place:
                buffer = bytearray(LONGEST_HEADER) + data
                begin = writer.wrap_into(memoryview(buffer), LONGEST_HEADER, len(buffer))
                peer.feed(bytes(buffer[begin:]))
            else:
                peer.feed(writer.wrap(data))
            peer.feed(writer.wrap(data[:125], PING) + writer.wrap(b"", PONG))
            expected += [(BINARY, data), (PING, data[:125]), (PONG, b"")]
        self.assertEqual(peer.got, expected)

    @settings(max_examples=300, deadline=None)
    @given(st.integers(0, 255), st.integers(0, 255), st.binary(min_size=12, max_size=40))
    def test_any_header(self, first: int, second: int, rest: bytes) -> None:
        """Every invalid header raises BadFrame; all that Autobahn rejects is rejected."""
        wire = bytes((first, second)) + rest
        peer = Autobahn(client=True)
        peer.feed(wire[:14])
        refused = peer.protocol.state != peer.protocol.STATE_OPEN and first & 15 != CLOSE
        try:
            read(FrameReader(from_client=False), wire[:14], 14)
        except BadFrame:
            return
        self.assertFalse(refused)

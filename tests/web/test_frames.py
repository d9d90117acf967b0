"""Tests of the WebSocket frame codec, also against Autobahn's own masking."""

from __future__ import annotations

from autobahn.websocket.xormasker import create_xor_masker  # type: ignore[attr-defined]
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tower.web.frames import CLOSE, PING, TEXT, BadFrame, Control, FrameReader, FrameWriter, mask


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


class MaskTests(SynchronousTestCase):
    """Masks in place."""

    @given(st.binary(max_size=3000), st.integers(0, 2**32 - 1))
    def test_as_autobahn(self, data: bytes, key: int) -> None:
        """Small and large data are masked as Autobahn masks them."""
        covered = bytearray(data)
        mask(memoryview(covered), key)
        masker = create_xor_masker(key.to_bytes(4, "little"), len(data))
        self.assertEqual(bytes(covered), masker.process(data) if data else b"")


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
        """A message cut into frames, as gorilla does it, with a control frame in the middle."""
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
        """What RFC 6455 forbids, or no tunnel speaks, is refused."""
        for wire in (
            b"\xc2\x01a",  # reserved bit
            b"\x82\x81abcda",  # masked
            bytes((128 | TEXT, 1)) + b"a",
            b"\x80\x01a",  # continuation of nothing
            b"\x02\x01a\x82\x01b",  # a new message inside one
            b"\x09\x01a",  # a cut ping
            b"\x89\x7e\x00\x80",  # a long ping
            b"\x8b\x00",  # an unknown control frame
            b"\x82\x7f\x80" + bytes(7),  # 2**63
        ):
            for step in (1, len(wire)):
                with self.assertRaises(BadFrame):
                    read(FrameReader(from_client=False), wire, step)
        with self.assertRaises(BadFrame):
            FrameReader(from_client=True).feed(memoryview(bytearray(b"\x82\x01a")))

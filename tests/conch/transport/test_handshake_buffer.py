"""Tests of `tower.conch.transport.handshake_buffer`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tower.conch.transport.handshake_buffer import OURS, SSH_2, HandshakeBuffer, take_version
from tower.conch.transport.packets import ClearOpener, ClearSealer, PacketTooLong
from tower.errors import PeerError


class HandshakeBufferTests(SynchronousTestCase):
    """HandshakeBuffer."""

    def test_any_split(self) -> None:
        """The version line and the packets do not depend on how the network cut them."""
        sealer = ClearSealer(0)
        wire = b"SSH-2.0-x\r\n" + b"".join(sealer.seal(b"%d" % each) for each in range(3))
        for step in (1, 3, 4, 5, 17, 1000):
            buffer, opener = HandshakeBuffer(), ClearOpener()
            got: list[bytes] = []
            for begin in range(0, len(wire), step):
                buffer.add(wire[begin : begin + step])
                if not got and (line := buffer.version(SSH_2, from_server=False)) is not None:
                    got.append(line)
                while got and (payload := buffer.packet(opener)) is not None:
                    got.append(payload)
            self.assertEqual(got, [b"SSH-2.0-x", b"0", b"1", b"2"])
            self.assertEqual((buffer.total, buffer.remaining()), (len(wire), b""))

    def test_rest(self) -> None:
        """Remaining bytes are returned, once."""
        buffer, wire = HandshakeBuffer(), ClearSealer(0).seal(b"payload")
        buffer.add(wire + wire[:7])
        self.assertEqual(buffer.packet(ClearOpener()), b"payload")
        self.assertIsNone(buffer.packet(ClearOpener()))
        self.assertEqual((buffer.beginning(3), buffer.beginning(100)), (wire[:3], wire[:7]))
        self.assertEqual((buffer.remaining(), buffer.remaining(), buffer.beginning(9)), (wire[:7], b"", b""))
        buffer.add(wire)
        self.assertEqual(buffer.packet(ClearOpener()), b"payload")

    def test_too_long(self) -> None:
        """A packet is refused for its length, before it is there."""
        buffer = HandshakeBuffer()
        buffer.add(b"\0\1\0\0")
        self.assertRaises(PacketTooLong, buffer.packet, ClearOpener(limit=1000))


class TakeVersionTests(SynchronousTestCase):
    """take_version."""

    def test_any_split(self) -> None:
        """The line is taken when it is complete, and the rest is left."""
        whole = OURS + b"\r\nrest"
        for size in range(len(whole)):
            unparsed = bytearray(whole[:size])
            line = take_version(unparsed, size, from_server=False)
            if size < len(OURS) + 2:
                self.assertIsNone(line)
            else:
                self.assertEqual((line, bytes(unparsed)), (OURS, whole[len(OURS) + 2 : size]))

    def test_longest(self) -> None:
        """255 bytes with CRLF are allowed, one more is not."""
        for size, good in ((245, True), (246, False)):
            unparsed = bytearray(b"SSH-2.0-" + b"x" * size + b"\r\n")
            if good:
                self.assertIsNotNone(take_version(unparsed, len(unparsed), from_server=True))
            else:
                with self.assertRaises(PeerError):
                    take_version(unparsed, len(unparsed), from_server=True)

    def test_preface(self) -> None:
        """Lines of a server before its version are removed; a client must not send any."""
        text = b"hello\nSSH is next\r\nSSH-2.0-x\r\n"
        self.assertEqual(take_version(bytearray(text), len(text), from_server=True), b"SSH-2.0-x")
        with self.assertRaises(PeerError):
            take_version(bytearray(text), len(text), from_server=False)
        with self.assertRaises(PeerError):
            take_version(bytearray(b"hello\n"), 4097, from_server=True)

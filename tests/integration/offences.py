"""Single protocol errors of a peer, and the reason that the other side logs when it drops the tunnel."""

from __future__ import annotations

import os
from collections.abc import Callable

from twisted.conch.ssh.common import NS

from tests.integration.raw_peer import (
    ADJUST,
    CLOSE,
    CONFIRM,
    DATA,
    END,
    EXTENDED,
    OPEN,
    REFUSE,
    REQUEST,
    SUCCESS,
    RawPeer,
    number,
)
from tower.conch.transport.packets import LONGEST_PACKET
from tower.websocket.frames import CLOSE as CLOSE_FRAME
from tower.websocket.frames import TEXT

#: The largest 32-bit number, and the type of a stream.
MOST = 2**32 - 1
STREAM = NS(b"stream@tower.kubesphere.io")

#: Action of a peer, and the reason that the other side logs.
Offence = tuple[Callable[[RawPeer], object], str]


def message(*parts: bytes | int) -> Callable[[RawPeer], object]:
    """Return a function that sends one message; numbers up to 255 are bytes, for the type."""
    payload = b"".join(bytes((part,)) if isinstance(part, int) else part for part in parts)
    return lambda peer: peer.say(payload)


def wire(data: bytes) -> Callable[[RawPeer], object]:
    """Return a function that sends bytes in place of a packet."""
    return lambda peer: peer.frame(data)


def shaped(kind: int, size: int, rest: bytes = b"", *, wrong: bool = False) -> Callable[[RawPeer], object]:
    """Return a function that sends the head of a frame: its first byte, its size and the rest of the size.

    :param wrong: masked by the side that must not mask, or not masked by the side that must.
    """

    def send(peer: RawPeer) -> None:
        flag, mask = (128, bytes(4)) if peer.is_client != wrong else (0, b"")
        peer.raw(bytes((kind, size | flag)) + rest + mask + bytes(126))

    return send


def forged(peer: RawPeer) -> None:
    """Send a packet that was changed in transit."""
    packet = bytearray(peer.ssh.sealer.seal(b"\x02" + NS(bytes(100))))
    packet[40] ^= 1
    peer.frame(bytes(packet))


def repeated(peer: RawPeer) -> None:
    """Send a packet twice."""
    peer.frame(peer.ssh.sealer.seal(b"\x02" + NS(b"once")) * 2)


#: By a peer that is authenticated.
OFFENCES: dict[str, Offence] = {
    "a packet of 4 GiB": (wire(number(MOST) + bytes(64)), "packet of 4294967295 B exceeds"),
    "a packet over the limit": (wire(number(LONGEST_PACKET + 16) + bytes(64)), "exceeds the limit of 263168"),
    "a packet of nothing": (wire(number(0) + bytes(64)), "packet length 0"),
    "a packet of no whole blocks": (wire(number(33) + bytes(64)), "packet length 33"),
    "garbage": (wire(b"\0\0\0\x40" + os.urandom(4096)), "not authentic"),
    "a forged packet": (forged, "not authentic"),
    "a packet twice": (repeated, "not authentic"),
    "data for no channel": (message(DATA, number(99), NS(b"x")), "data for channel 99, which is not open"),
    "credit for no channel": (message(ADJUST, number(99, 1)), "message 93 for channel 99"),
    "an end of no channel": (message(END, number(99)), "message 96 for channel 99"),
    "a close of no channel": (message(CLOSE, number(99)), "message 97 for channel 99"),
    "a request on no channel": (message(REQUEST, number(99), NS(b"x"), 1), "message 98 for channel 99"),
    "an answer on no channel": (message(SUCCESS, number(99)), "message 99 for channel 99"),
    "a confirmation of nothing": (message(CONFIRM, number(0, 1, MOST, MOST)), "which is not being opened"),
    "a refusal of nothing": (message(REFUSE, number(0, 1), NS(b"no"), NS(b"")), "which is not being opened"),
    "extended data": (message(EXTENDED, number(0, 1), NS(b"x")), "message 95 for channel 0"),
    "a message of one byte": (message(DATA), "of 1 B|data without a length"),
    "data without a size": (message(DATA, number(1)), "data without a length"),
    "data shorter than declared": (message(DATA, number(1, MOST), b"x"), "length differs"),
    "an open of no type": (message(OPEN, number(MOST)), "ends within a string"),
    "an open without numbers": (message(OPEN, STREAM, number(1)), "without its numbers"),
    "an answer to no global request": (lambda peer: peer.say(b"\x51", b"\x51"), "a reply without a request"),
    "a global request without a name": (message(80, number(MOST)), "a message is shorter than its fields"),
    "unrequested keys": (message(21), "message 21 is not allowed now"),
    "half a key exchange": (message(30, NS(bytes(32))), "message 30 is not allowed now"),
    "an empty KEXINIT": (message(20), "a message is shorter than its fields"),
    "a text frame": (lambda peer: peer.frame(b"hello", TEXT), "frames with opcode 1"),
    "reserved bits": (shaped(0xC2, 1), "reserved bits"),
    "a mask where none may be, or none": (shaped(0x82, 2, wrong=True), "a frame is (not )?masked"),
    "a frame of 2**63 B": (shaped(0x82, 127, b"\xff" + bytes(7)), "highest bit"),
    "a size in more bytes than it needs": (shaped(0x82, 126, b"\0\1"), "more bytes than it needs"),
    "a continuation of nothing": (shaped(0x80, 1), "continuation frame outside of a message"),
    "a ping of 126 B": (shaped(0x89, 126, b"\0\x7e"), "control frame"),
    "a ping in parts": (shaped(0x09, 1), "control frame"),
    "an unknown control frame": (shaped(0x8F, 1), "control frame"),
}

#: In place of the first byte of SSH, from either side.
EARLY_OFFENCES: dict[str, Offence] = {
    "a version line without an end": (wire(b"SSH-2.0-" + b"x" * 8000), "no SSH version line"),
    "no version line": (wire(b"\r\n" * 3000), "no SSH version line"),
    "HTTP": (wire(b"GET / HTTP/1.1\r\n\r\n"), "no SSH version line"),
    "SSH 1": (wire(b"SSH-1.5-old\r\n"), "an unsupported SSH version"),
    "a packet of 4 GiB": (
        wire(b"SSH-2.0-x\r\n" + number(MOST) + bytes(64)),
        "packet of 4294967295 B exceeds",
    ),
    "a packet of nothing": (wire(b"SSH-2.0-x\r\n" + bytes(64)), "packet length 0"),
    "garbage": (wire(b"SSH-2.0-x\r\n" + bytes((0, 0, 0, 0x4C)) + b"\x7f" * 4096), "127 B of padding"),
    "something before KEXINIT": (wire(b"SSH-2.0-x\r\n\0\0\0\x0c\x0a\x32" + bytes(10)), "is not allowed now"),
    "an end": (lambda peer: peer.frame(b"\x03\xe8", CLOSE_FRAME), "closed"),
    "a text frame": (lambda peer: peer.frame(b"hello", TEXT), "frames with opcode 1"),
    "a mask where none may be, or none": (shaped(0x82, 2, wrong=True), "a frame is (not )?masked"),
}

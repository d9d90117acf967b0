"""Ends of the messages of an agent's handshake, in a recording of one direction."""

from __future__ import annotations

TAG = 16  # B, of AES-GCM, which does not encrypt the length of a packet
NEWKEYS = 21


def record_ends(raw: bytes) -> list[int]:
    """Return the offset of the end of each TLS record."""
    ends, at = [], 0
    while (after := at + 5 + int.from_bytes(raw[at + 3 : at + 5], "big")) <= len(raw) and raw[at:]:
        ends.append(after)
        at = after
    return ends


def message_ends(raw: bytes) -> list[int]:
    """Return the offset of the end of each message, without TLS.

    The first is the head of HTTP; then come SSH's version and packets, in any WebSocket frames.
    """
    head = raw.index(b"\r\n\r\n") + 4
    data, places = _payload(raw, head)
    at = data.index(b"\r\n") + 2
    ends = [head, places[at - 1]]
    sealed = False
    while at + 4 <= len(data):
        after = at + 4 + int.from_bytes(data[at : at + 4], "big") + (TAG if sealed else 0)
        if after > len(data):
            break
        ends.append(places[after - 1])
        sealed = sealed or data[at + 5] == NEWKEYS
        at = after
    return ends


def _payload(raw: bytes, at: int) -> tuple[bytes, list[int]]:
    """Return the payload of the frames from *at* on, and the end in *raw* of each of its bytes."""
    data, places = bytearray(), []
    while at + 2 <= len(raw):
        masked, size, at = raw[at + 1] >> 7, raw[at + 1] & 127, at + 2
        if size >= 126:
            width = 2 if size == 126 else 8
            size, at = int.from_bytes(raw[at : at + width], "big"), at + width
        mask = bytes(4)
        if masked:
            mask, at = raw[at : at + 4], at + 4
        for number, byte in enumerate(raw[at : at + size]):
            data.append(byte ^ mask[number % 4])
            places.append(at + number + 1)
        at += size
    return bytes(data), places

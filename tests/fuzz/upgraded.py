"""Target in upgraded connections: boundaries of a member's frames."""

from __future__ import annotations

import random

from tests.fakes.frames import Autobahn
from tests.fuzz.engine import Broken, Target
from tests.fuzz.mutation import cuts
from tower.web.gateway.notice.boundaries import Boundaries, SPDYBoundaries, WebSocketBoundaries
from tower.websocket.frames import CLOSE, PING, FrameWriter

# The first byte is the protocol: below 128, it is WebSocket.

_WRITER = FrameWriter(to_server=False)
_GOING_AWAY = 1001

# Size of pieces that cannot have so many frames that they are not followed, B.
_SHORT = 128


def _slices(wire: bytes, size: int) -> list[bytes]:
    return [wire[place : place + size] for place in range(0, len(wire), size)]


def _followed(kind: type[Boundaries], pieces: list[bytes]) -> list[int]:
    """Return the boundaries at the ends of *pieces*."""
    boundaries, place, found = kind(), 0, []
    for piece in pieces:
        boundaries.follow(piece)
        place += len(piece)
        if boundaries.is_at_one:
            found.append(place)
    return found


def check_boundaries(data: bytes, chance: random.Random) -> None:
    """Boundaries do not depend on the pieces; after one, Autobahn reads our frame as such."""
    kind, wire = (WebSocketBoundaries if data[:1] < b"\x80" else SPDYBoundaries), data[1:]
    single = [0, *_followed(kind, _slices(wire, 1))]
    if not set(_followed(kind, cuts(chance, wire))) <= set(single):
        raise Broken("boundaries depend on the pieces")
    if wire and (len(wire) in _followed(kind, _slices(wire, _SHORT))) != (len(wire) in single):
        raise Broken("its end is a boundary only for some pieces")
    start = chance.randrange(len(wire) + 1)
    boundaries = kind()
    for piece in _slices(wire[:start], _SHORT):
        boundaries.follow(piece)
    place = boundaries.find(wire[start:])
    wanted = min((boundary for boundary in single if boundary >= start), default=start - 1)
    if place != wanted - start:
        raise Broken(f"from {start}, {place} is found, not {wanted - start}")
    if kind is WebSocketBoundaries and place >= 0:
        _check_close(wire[: start + place])


def _check_close(wire: bytes) -> None:
    peer = Autobahn(client=True)
    peer.feed(wire)
    if peer.protocol.state != peer.protocol.STATE_OPEN:
        return
    peer.feed(_WRITER.wrap(_GOING_AWAY.to_bytes(2, "big") + b"the end", CLOSE))
    if peer.protocol.remoteCloseCode != _GOING_AWAY:
        raise Broken("Autobahn does not read the close frame")


def _spdy(first: bytes, size: int) -> bytes:
    return first + b"\0" + size.to_bytes(3, "big") + b"\x80" * size


_CORPUS = (
    b"\0" + b"".join(_WRITER.wrap(bytes(size)) for size in (0, 1, 125, 126, 300, 2000)),
    b"\0" + b"".join((_WRITER.wrap(b"a"), _WRITER.wrap(b"b", PING), _WRITER.wrap(b"c" * 200), b"\x81\x02ab")),
    b"\0\x02\x01a\x89\x00\x00\x7e\x00\x80" + bytes(128) + b"\x80\x02bc" + _WRITER.wrap(b"d"),
    b"\0" + _WRITER.wrap(bytes(70)) + _WRITER.wrap(b"\x03\xe8", CLOSE),
    b"\xff" + b"".join(_spdy(b"\0\0\0\5", size) for size in (0, 1, 255, 256, 2000)),
    b"\xff" + b"".join((_spdy(b"\x80\3\0\2", 60), _spdy(b"\0\0\0\1", 5), _spdy(b"\x80\3\0\6", 4))),
    b"\xff" + _spdy(b"\0\0\0\1", 5) + _spdy(b"\x80\3\0\7", 8) + _spdy(b"\0\0\0\1", 5),
)
_WORDS = (
    b"\x82\x7e\x00\x7e",
    b"\x82\x7f" + bytes(7),
    b"\x00\x01a",
    b"\x80\x00",
    b"\x80\3\0\6",
    b"\0\0\0\5\1\0\0\2",
)

TARGETS = (Target("boundaries", _CORPUS, _WORDS, check_boundaries),)

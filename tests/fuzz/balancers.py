"""The target in what load balancers write: headers of the PROXY protocol."""

from __future__ import annotations

import ipaddress
import random

from tests.fuzz.engine import Broken, Target
from tests.fuzz.mutation import cuts
from tower.net.proxy_protocol import HEADER_LIMIT, BadHeader, HeaderReader, Origin

_V2 = b"\r\n\r\n\0\r\nQUIT\n"
_V4 = bytes([192, 0, 2, 7, 10, 0, 0, 1, 18, 103, 32, 251])


def _read(pieces: list[bytes]) -> tuple[bool, Origin | None, int]:
    """Return whether there is a header, what it says, and how many bytes it has."""
    reader, size = HeaderReader(), 0
    try:
        for piece in pieces:
            taken = reader.feed(piece)
            size += taken
            if reader.done:
                return True, reader.origin, size
            if taken != len(piece):
                raise Broken(f"{taken} of {len(piece)} bytes of a header that goes on")
    except BadHeader as e:
        if len(str(e)) > 100 or not str(e).isprintable():
            raise Broken(f"a bad refusal: {e}") from None
        return False, None, -1
    return False, None, size


def check_header(data: bytes, chance: random.Random) -> None:
    """The result is bounded and the same for any cut; its origin is a valid address and port."""
    whole = _read([data])
    if (other := _read(list(cuts(chance, data)))) != whole:
        raise Broken(f"{whole} in one piece, {other} in several")
    _, origin, size = whole
    if size > HEADER_LIMIT:
        raise Broken(f"a header of {size} bytes")
    if origin is not None and not (
        str(ipaddress.ip_address(origin.host)) == origin.host and 0 <= origin.port <= 65535
    ):
        raise Broken(f"{origin} is not an address")


TARGETS = (
    Target(
        "proxy-header",
        (
            b"PROXY TCP4 192.0.2.7 10.0.0.1 4711 8443\r\nGET / HTTP/1.1\r\n\r\n",
            b"PROXY TCP6 2001:db8::7 ::1 4711 8443\r\n\x16\3\1",
            b"PROXY UNKNOWN and more\r\n",
            _V2 + b"\x21\x11\0\x0c" + _V4 + b"\x16\3\1",
            _V2 + b"\x21\x11\0\x14" + _V4 + b"\1\0\2h2" + b"\4\0\0",
            _V2 + b"\x21\x21\0\x24" + bytes(36),
            _V2 + b"\x20\0\0\0",
        ),
        (
            b"PROXY ",
            b"TCP4",
            b"TCP6",
            b"UNKNOWN",
            b"\r\n",
            _V2,
            b"::ffff:",
            b"\3\0\4",
            b"\x21",
            b"\x11",
            b"\x31",
        ),
        check_header,
    ),
)

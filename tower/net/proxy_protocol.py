"""The PROXY protocol, versions 1 and 2: a load balancer's header with the client's address.

No I/O.  Specification: HAProxy's ``doc/proxy-protocol.txt``, revision of 2020/03/05.
"""

from __future__ import annotations

import ipaddress
import re
import struct
from typing import Final

from attrs import define, field, frozen

from tower.errors import PeerError

#: Longest header, B.  Version 1 allows 107.  Version 2 has 52 before its TLVs: the client's TLS
#: certificate takes most.
HEADER_LIMIT = 4096

_V1, _V1_LIMIT = b"PROXY ", 107
_V2 = b"\r\n\r\n\0\r\nQUIT\n"
_V2_START = 16
_V1_LINE = re.compile(
    rb"PROXY (TCP[46]) ([0-9A-Fa-f.:]{2,45}) ([0-9A-Fa-f.:]{2,45}) ([0-9]{1,5}) ([0-9]{1,5})"
)
_V1_UNKNOWN = re.compile(rb"PROXY UNKNOWN(?: .*)?", re.DOTALL)

_LOCAL, _PROXY = range(2)
_UNSPEC, _INET, _INET6, _UNIX = range(4)
_STREAM, _DGRAM = 1, 2
#: Size of addresses and ports by family, B.
_ADDRESSES: Final = {_UNSPEC: 0, _INET: 12, _INET6: 36, _UNIX: 216}
_CRC32C = 0x03


class BadHeader(PeerError):
    """The bytes are not a valid header."""


@frozen
class Origin:
    """IP address and port of a client."""

    host: str
    port: int


@define(eq=False, repr=False)
class HeaderReader:
    """Reads one header, possibly in pieces.

    :ivar done: whether it is complete.
    :ivar origin: the client's address; None in headers without one, such as those of health checks.
    """

    _data: bytes = field(default=b"", init=False)
    done: bool = field(default=False, init=False)
    origin: Origin | None = field(default=None, init=False)

    def feed(self, data: bytes) -> int:
        """Read *data*; return how many of its bytes belong to the header: all, unless it is `done`.

        :raise BadHeader: the header is malformed or longer than `HEADER_LIMIT`.
        """
        before = len(self._data)
        seen = self._data + data
        if seen[: len(_V2)] == _V2[: len(seen)]:
            size = self._size_of_v2(seen)
        elif seen[: len(_V1)] == _V1[: len(seen)]:
            size = self._size_of_v1(seen)
        else:
            raise BadHeader("it does not begin with a PROXY protocol header")
        if size is None or size > len(seen):
            self._data = seen
            return len(data)
        self._data = b""
        self.done = True
        head = seen[:size]
        self.origin = _read_v2(head) if head[0] == _V2[0] else _read_v1(head[:-2])
        return size - before

    @staticmethod
    def _size_of_v1(seen: bytes) -> int | None:
        end = seen.find(b"\n", 0, _V1_LIMIT)
        if end < 0:
            if len(seen) >= _V1_LIMIT:
                raise BadHeader(f"its line is longer than {_V1_LIMIT} bytes")
            return None
        if seen[end - 1 : end] != b"\r":
            raise BadHeader("its line does not end with CR LF")
        return end + 1

    @staticmethod
    def _size_of_v2(seen: bytes) -> int | None:
        if len(seen) < _V2_START:
            return None
        size = _V2_START + int.from_bytes(seen[14:16], "big")
        if size > HEADER_LIMIT:
            raise BadHeader(f"it is {size} bytes long, and no more than {HEADER_LIMIT} are read")
        return size


def _read_v1(line: bytes) -> Origin | None:
    if _V1_UNKNOWN.fullmatch(line):
        return None
    match = _V1_LINE.fullmatch(line)
    if match is None:
        raise BadHeader("its line is malformed")
    family, source, destination, *ports = (group.decode("ascii") for group in match.groups())
    kind = ipaddress.IPv4Address if family == "TCP4" else ipaddress.IPv6Address
    try:
        host = kind(source)
        kind(destination)
    except ValueError:
        raise BadHeader(f"it has no {family} addresses") from None
    for port in ports:
        if int(port) > 65535 or str(int(port)) != port:
            raise BadHeader("it has no valid ports")
    return Origin(_plain(host), int(ports[0]))


def _read_v2(head: bytes) -> Origin | None:
    version, command = head[12] >> 4, head[12] & 15
    family, transport = head[13] >> 4, head[13] & 15
    if version != 2 or command > _PROXY:
        raise BadHeader(f"version {version} with command {command} is unknown")
    if command == _LOCAL:
        return None  # the rest must be ignored
    if family > _UNIX or transport > _DGRAM:
        raise BadHeader(f"address family {family} with transport {transport} is unknown")
    rest = head[_V2_START:]
    size = _ADDRESSES[family]
    if len(rest) < size:
        raise BadHeader("it is too short for its addresses")
    if family != _UNSPEC:
        _check_tlvs(head, _V2_START + size)
    if family not in (_INET, _INET6) or transport != _STREAM:
        return None
    if family == _INET:
        host, port = rest[:4], rest[8:10]
        return Origin(str(ipaddress.IPv4Address(host)), struct.unpack("!H", port)[0])
    host, port = rest[:16], rest[32:34]
    return Origin(_plain(ipaddress.IPv6Address(host)), struct.unpack("!H", port)[0])


def _check_tlvs(head: bytes, start: int) -> None:
    """Check the TLVs after the addresses, and the checksum if there is one."""
    while start < len(head):
        end = start + 3
        if end > len(head):
            raise BadHeader("a TLV is cut")
        kind, size = head[start], int.from_bytes(head[start + 1 : end], "big")
        if end + size > len(head):
            raise BadHeader("a TLV is longer than the header")
        if kind == _CRC32C:
            if size != 4:
                raise BadHeader("its checksum is malformed")
            wanted = int.from_bytes(head[end : end + 4], "big")
            if crc32c(head[:end] + bytes(4) + head[end + 4 :]) != wanted:
                raise BadHeader("its checksum is wrong")
        start = end + size


def _plain(host: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
    """Return an address as text; an IPv4-mapped one as IPv4."""
    return str(getattr(host, "ipv4_mapped", None) or host)


def _table() -> tuple[int, ...]:
    entries = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        entries.append(value)
    return tuple(entries)


_TABLE: Final = _table()


def crc32c(data: bytes) -> int:
    """Return the CRC-32C (Castagnoli) of *data*, RFC 4960 appendix B."""
    value = 0xFFFFFFFF
    for byte in data:
        value = value >> 8 ^ _TABLE[(value ^ byte) & 255]
    return value ^ 0xFFFFFFFF

"""Tests of `tower.net.proxy_protocol`, by the examples and rules of HAProxy's ``proxy-protocol.txt``."""

from __future__ import annotations

import ipaddress
import struct

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tower.net.proxy_protocol import HEADER_LIMIT, BadHeader, HeaderReader, Origin, crc32c

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
V4 = ipaddress.IPv4Address("192.0.2.7").packed + ipaddress.IPv4Address("10.0.0.1").packed
V6 = ipaddress.IPv6Address("2001:db8::7").packed + ipaddress.IPv6Address("2001:db8::1").packed
PORTS = struct.pack("!HH", 4711, 8443)
TLS = b"\x16\x03\x01\x00\x05hello"


def v2(kind: int, rest: bytes, command: int = 0x21) -> bytes:
    """Return a header of version 2."""
    return SIGNATURE + struct.pack("!BBH", command, kind, len(rest)) + rest


def tlv(kind: int, value: bytes) -> bytes:
    """Return a TLV."""
    return struct.pack("!BH", kind, len(value)) + value


def checked(rest: bytes, more: bytes = b"") -> bytes:
    """Return a header with a checksum."""
    blank = v2(0x11, rest + tlv(3, bytes(4)) + more)
    return v2(0x11, rest + tlv(3, struct.pack("!I", crc32c(blank))) + more)


JANE = Origin("192.0.2.7", 4711)
GOOD: dict[bytes, Origin | None] = {
    b"PROXY TCP4 192.0.2.7 10.0.0.1 4711 8443\r\n": JANE,
    b"PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n": Origin("255.255.255.255", 65535),
    b"PROXY TCP6 2001:db8::7 2001:DB8::1 4711 8443\r\n": Origin("2001:db8::7", 4711),
    b"PROXY TCP6 %b %b 65535 65535\r\n" % ((b":".join([b"ffff"] * 8),) * 2): Origin(
        ":".join(["ffff"] * 8), 65535
    ),
    b"PROXY TCP6 ::ffff:192.0.2.7 ::1 4711 0\r\n": JANE,
    b"PROXY UNKNOWN\r\n": None,
    b"PROXY UNKNOWN %b %b 65535 65535\r\n" % ((b":".join([b"ffff"] * 8),) * 2): None,
    v2(0x11, V4 + PORTS): JANE,
    v2(0x21, V6 + PORTS): Origin("2001:db8::7", 4711),
    v2(0x11, V4 + PORTS + tlv(1, b"h2") + tlv(4, b"") + tlv(0xEA, b"\1vpce-1")): JANE,
    v2(0x11, V4 + PORTS + tlv(0x20, b"\1" + bytes(4) + tlv(0x21, b"TLSv1.3"))): JANE,
    v2(0x11, V4 + PORTS + tlv(4, bytes(HEADER_LIMIT - 16 - 12 - 3))): JANE,
    checked(V4 + PORTS): JANE,
    checked(V4 + PORTS + tlv(2, b"tower.example"), tlv(4, b"...")): JANE,
    # a balancer's own, or of a kind that has no address for us
    v2(0x00, b"", 0x20): None,
    v2(0x11, V4 + PORTS, 0x20): None,
    v2(0xFF, b"whatever", 0x20): None,
    v2(0x00, b""): None,
    v2(0x00, V4): None,
    v2(0x31, bytes(216)): None,
    v2(0x12, V4 + PORTS): None,
    v2(0x10, V4 + PORTS): None,
}
BAD = (
    b"GET / HTTP/1.1\r\n",
    TLS,
    b"\0",
    b"PROXY\r\n",
    b"PROXY  TCP4 192.0.2.7 10.0.0.1 4711 8443\r\n",
    b"PROXY TCP4  192.0.2.7 10.0.0.1 4711 8443\r\n",
    b"PROXY TCP4 192.0.2.7 10.0.0.1 4711 8443 \r\n",
    b"PROXY TCP4 192.0.2.7 10.0.0.1 4711\r\n",
    b"PROXY TCP4 192.0.2.7 10.0.0.1 4711 8443\n",
    b"PROXY TCP4 192.0.2.7 10.0.0.1 4711 65536\r\n",
    b"PROXY TCP4 192.0.2.7 10.0.0.1 04711 8443\r\n",
    b"PROXY TCP4 192.0.2.07 10.0.0.1 4711 8443\r\n",
    b"PROXY TCP4 192.0.2.256 10.0.0.1 4711 8443\r\n",
    b"PROXY TCP4 2001:db8::7 2001:db8::1 4711 8443\r\n",
    b"PROXY TCP6 192.0.2.7 10.0.0.1 4711 8443\r\n",
    b"PROXY TCP6 fe80::1%eth0 ::1 4711 8443\r\n",
    b"PROXY UDP4 192.0.2.7 10.0.0.1 4711 8443\r\n",
    b"PROXY TCP4 tower.example 10.0.0.1 4711 8443\r\n",
    b"PROXY UNKNOWNS\r\n",
    b"proxy unknown\r\n",
    b"PROXY UNKNOWN " + b"x" * 92 + b"\r\n",
    b"PROXY UNKNOWN\nGET / HTTP/1.1\r\n\r\n",
    v2(0x11, V4 + PORTS, 0x11),
    v2(0x11, V4 + PORTS, 0x22),
    v2(0x41, V4 + PORTS),
    v2(0x13, V4 + PORTS),
    v2(0x11, V4),
    v2(0x21, V4 + PORTS),
    v2(0x31, V4 + PORTS),
    v2(0x11, V4 + PORTS + b"\4\0"),
    v2(0x11, V4 + PORTS + b"\4\0\5...."),
    v2(0x11, V4 + PORTS + tlv(3, b"no")),
    v2(0x11, V4 + PORTS + tlv(3, b"fail")),
    v2(0x11, bytes(HEADER_LIMIT - 15)),
)


def read(header: bytes, behind: bytes = TLS, piece: int = HEADER_LIMIT + 100) -> tuple[Origin | None, bytes]:
    """Return a header's address, and the bytes after it."""
    reader = HeaderReader()
    data = header + behind
    at = 0
    while not reader.done:
        part = data[at : at + piece]
        assert part, "it wants more than there is"
        at += reader.feed(part)
    return reader.origin, data[at:]


class HeaderTests(SynchronousTestCase):
    """Headers."""

    def test_good(self) -> None:
        """Each is understood, and not a byte more than it is taken."""
        for header, origin in GOOD.items():
            self.assertEqual(read(header), (origin, TLS), header)

    def test_pieces(self) -> None:
        """The same holds in any pieces."""
        for header, origin in GOOD.items():
            for piece in (1, 2, 5, 13):
                self.assertEqual(read(header, piece=piece), (origin, TLS), header)

    def test_bad(self) -> None:
        """Invalid headers are rejected, in one piece or byte by byte."""
        for header in BAD:
            for piece in (1, 5000):
                self.assertRaises(BadHeader, read, header, b"", piece)

    def test_early(self) -> None:
        """Bytes that cannot become a header are rejected as soon as that is certain."""
        for start in (
            b"G",
            b"\x16",
            b"PROXX",
            b"\r\n\r\n\1",
            b"PROXY " + b"x" * 101,
            SIGNATURE + b"\x21\x11\xff\xff",
        ):
            with self.assertRaises(BadHeader):
                HeaderReader().feed(start)
            self.assertEqual(HeaderReader().feed(b"PROXY "[: len(start)]), min(len(start), 6))

    def test_reasons(self) -> None:
        """Errors repeat nothing of the input."""
        for header in BAD:
            error = self.assertRaises(BadHeader, read, header, b"", 5000)
            self.assertTrue(str(error).isascii() and str(error).isprintable() and len(str(error)) < 80)

    def test_checksum(self) -> None:
        """The checksum is CRC-32C, by the example of RFC 3720 section B.4, and every bit counts."""
        self.assertEqual(crc32c(bytes(32)), 0x8A9136AA)
        self.assertEqual(crc32c(bytes(range(32))), 0x46DD794E)
        good = checked(V4 + PORTS, tlv(4, b"..."))
        for place in range(16, len(good)):
            bad = bytearray(good)
            bad[place] ^= 1
            if place in (28, 29, 30):  # its own type and length
                continue
            self.assertRaises(BadHeader, read, bytes(bad))


class AnyTests(SynchronousTestCase):
    """Any input."""

    @settings(max_examples=300, deadline=None)
    @given(
        st.sampled_from(list(GOOD)).flatmap(
            lambda header: st.tuples(st.just(header), st.integers(0, 60), st.binary(max_size=8))
        ),
        st.integers(1, 40),
    )
    def test_changed(self, changed: tuple[bytes, int, bytes], piece: int) -> None:
        """A changed header is read or refused, the same however it is cut."""
        header, place, put = changed
        data = header[:place] + put + header[place + len(put) :] + TLS * 3
        outcomes = []
        for size in (HEADER_LIMIT, piece):
            reader, at = HeaderReader(), 0
            try:
                while not reader.done and at < len(data):
                    part = data[at : at + size]
                    taken = reader.feed(part)
                    self.assertTrue(reader.done or taken == len(part))
                    at += taken
                outcomes.append((reader.done, reader.origin, at))
            except BadHeader:
                outcomes.append((False, None, -1))
        self.assertEqual(outcomes[0], outcomes[1])
        self.assertLessEqual(outcomes[0][2], max(HEADER_LIMIT, len(data)))

    @settings(max_examples=200, deadline=None)
    @given(st.ip_addresses(), st.ip_addresses(v=4), st.integers(0, 65535))
    def test_round_trip(
        self,
        source: ipaddress.IPv4Address | ipaddress.IPv6Address,
        four: ipaddress.IPv4Address,
        port: int,
    ) -> None:
        """Each address and port can be sent in both versions."""
        target = four if source.version == 4 else ipaddress.IPv6Address("::1")
        line = f"PROXY TCP{source.version} {source} {target} {port} 1\r\n".encode()
        both = v2(
            0x11 if source.version == 4 else 0x21, source.packed + target.packed + struct.pack("!HH", port, 1)
        )
        wanted = Origin(str(getattr(source, "ipv4_mapped", None) or source), port)
        self.assertEqual((read(line)[0], read(both)[0]), (wanted, wanted))

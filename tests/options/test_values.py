"""Readers of option values."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tower.net.addresses import is_wildcard
from tower.options import values
from tower.options.values import (
    LONGEST,
    SECRET_FILE_LIMIT,
    format_duration,
    parse_duration,
    read_address,
    read_count,
    read_duration,
    read_file,
    read_host,
    read_port,
    read_port_range,
    read_secret_file,
    read_size,
)


class QuantityTests(SynchronousTestCase):
    """Each reader, by valid and invalid values."""

    def check(self, read: Callable[[str], object], good: Mapping[str, object], bad: str) -> None:
        """Expect the values of *good*, and an error for each word of *bad* and for the empty text."""
        for text, value in good.items():
            self.assertEqual(read(text), value, text)
        for text in ["", *bad.split(" ")]:
            error = self.assertRaises(ValueError, read, text)
            self.assertNotIn("\n", str(error))

    def test_durations(self) -> None:
        """Durations are in Go's syntax, plus days."""
        self.check(
            parse_duration,
            {
                "0": 0.0,
                "0s": 0.0,
                "10s": 10.0,
                "1h30m": 5400.0,
                "1d": 86400.0,
                "1d2h3m4s": 93784.0,
                "1.5h": 5400.0,
                ".5s": 0.5,
                "1.s": 1.0,
                "500ms": 0.5,
                "100us": 1e-4,
                "100µs": 1e-4,
                "100μs": 1e-4,
                "5ns": 5e-9,
                "1m1m": 120.0,
            },
            "10 s 1x 1h30 -1s +1s 1e3s h1 1.2.3s 1S inf nan ١s 99999999d 1s\n",
        )
        self.assertRaises(ValueError, parse_duration, "1h 30m")
        self.assertRaises(ValueError, read_duration, "0s")
        self.assertEqual(read_duration("1ms"), 0.001)

    def test_long_durations(self) -> None:
        """A long text is rejected in linear time."""
        before = time.process_time()
        for text in ("9" * 1_000_000, "9" * 1_000_000 + "s", "1." * 500_000, "1s" * 500_000):
            self.assertIn("characters are too many", str(self.assertRaises(ValueError, parse_duration, text)))
            self.assertIsNone(values._DURATION_PART.match(text.rstrip("s").replace("1s", "1") + "!"))
        self.assertLess(time.process_time() - before, 10.0)
        self.assertEqual(parse_duration("1s" * 100), 100.0)

    def test_duration_text(self) -> None:
        """Durations are formatted in the shortest form that can be read."""
        for seconds, text in {
            0.0: "0s",
            0.0001: "0s",
            0.25: "250ms",
            90.0: "1m30s",
            3600.0: "1h",
            5400.0: "1h30m",
            86400.0: "1d",
            100000.5: "1d3h46m40s500ms",
            -60.0: "-1m",
        }.items():
            self.assertEqual(format_duration(seconds), text)

    @given(st.integers(0, int(LONGEST * 1000)))
    def test_duration_round_trip(self, milliseconds: int) -> None:
        """A formatted duration is read as the same."""
        self.assertEqual(parse_duration(format_duration(milliseconds / 1000)), milliseconds / 1000)

    def test_sizes(self) -> None:
        """Sizes have decimal and binary units."""
        good = {
            "1": 1,
            "32MiB": 32 << 20,
            "32Mi": 32 << 20,
            "1 KiB": 1024,
            "2k": 2000,
            "3GB": 3 * 10**9,
            "4b": 4,
        }
        self.check(read_size, {**good, "1gib": 1 << 30}, "0 -1 1.5MiB MiB 1TiB 1Mi1 0x10 ١")

    def test_counts(self) -> None:
        """Counts are whole and not negative."""
        self.check(read_count, {"0": 0, "17": 17}, "-1 1.0 x ١ 1_0 +1 99999999999999999999")

    def test_ports(self) -> None:
        """Ports are from 1 to 65535."""
        self.check(
            read_port, {"1": 1, "8080": 8080, "65535": 65535}, "0 65536 -1 xyz 80.0 tcp://10.0.0.1:80 8_0"
        )

    def test_port_ranges(self) -> None:
        """A range includes both ends; one port is a range; `none` is None."""
        good = {"6000-7000": range(6000, 7001), "6000-6000": range(6000, 6001), "6000": range(6000, 6001)}
        self.check(
            read_port_range, {**good, "none": None}, "7000-6000 6000- -6000 0-10 6000-65536 a-b 1-2-3 None"
        )

    def test_hosts(self) -> None:
        """Hosts are names or addresses, without port."""
        self.check(
            read_host,
            {
                "tower.example.com": "tower.example.com",
                "tower.example.com.": "tower.example.com.",
                "localhost": "localhost",
                "my_service": "my_service",
                "127.0.0.1": "127.0.0.1",
                "0.0.0.0": "0.0.0.0",
                "::1": "::1",
                "[::1]": "::1",
                "2001:DB8::0": "2001:db8::",
            },
            "https://x x:80 1.2.3.4:80 1.2.3 256.1.1.1 -x .x x..y a/b a@b [x] [127.0.0.1 " + "a" * 64,
        )
        self.assertRaises(ValueError, read_host, "a b")
        self.assertRaises(ValueError, read_host, "a\n")
        self.assertRaises(ValueError, read_host, "a." * 127 + "ab")

    def test_addresses(self) -> None:
        """Addresses are host and port; IPv6 needs brackets."""
        good = {"db:5432": ("db", 5432), "127.0.0.1:80": ("127.0.0.1", 80), "[::1]:443": ("::1", 443)}
        self.check(read_address, good, "db db: :80 ::1:80 db:x db:0 http://db:80 [::1] ::1")

    def test_wildcards(self) -> None:
        """All spellings of all addresses are recognized."""
        self.assertTrue(all(map(is_wildcard, ("", "*", "0.0.0.0", "::"))))
        self.assertFalse(any(map(is_wildcard, ("127.0.0.1", "::1", "example.com"))))

    def test_files(self) -> None:
        """A file must exist and be readable, and must not be a directory."""
        path = Path(self.mktemp())
        self.check(read_file, {}, str(path))
        path.touch()
        self.check(read_file, {str(path): path}, f"{path.parent} {path}/x")

    def test_secret_files(self) -> None:
        """A secret is read without the line end after it, and not shown in errors."""
        path = Path(self.mktemp())
        self.check(read_secret_file, {}, str(path))
        for content in (b"", b" \n", b"\xff\xfe", b"x" * (SECRET_FILE_LIMIT + 1)):
            path.write_bytes(content)
            self.check(read_secret_file, {}, str(path))
        path.write_bytes(b"  hush\r\n")
        self.check(read_secret_file, {str(path): "hush"}, f"{path.parent}")

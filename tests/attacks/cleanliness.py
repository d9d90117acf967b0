"""Searches logs and answers for characters that control a terminal or split lines."""

from __future__ import annotations

#: Control characters of terminals, line ends of some readers, and characters that change a text's direction.
HOSTILE = "\x9b31mred\x9d0;title\x9c\x85forged\u2028forged\u2029\u202etxt\u2066"

#: The same characters that also no header and no path can hold.
WORSE = f"one\r\n2026-01-01T00:00:00+0000 [tower.proxy#info] forged\x1b[2J{HOSTILE}\x7f"


def unfit(data: bytes | str) -> list[str]:
    """Return the lines of *data* that are not UTF-8, not printable, or more than one line to some readers."""
    text = data.decode(errors="surrogateescape") if isinstance(data, bytes) else data
    lines = text.split("\n")
    return [line for line in lines if not line.lstrip("\t").isprintable() or len(line.splitlines()) > 1]

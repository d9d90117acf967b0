"""Whether a log, an answer or an output holds anything that a terminal obeys or that splits its lines."""

from __future__ import annotations

#: Control characters of terminals, line ends of some readers, and characters that change a text's direction.
HOSTILE = "\x9b31mred\x9d0;title\x9c\x85forged\u2028forged\u2029\u202etxt\u2066"

#: The same with what no header and no path can hold.
WORSE = f"one\r\n2026-01-01T00:00:00+0000 [tower.proxy#info] forged\x1b[2J{HOSTILE}\x7f"


def unfit(data: bytes | str) -> list[str]:
    """Return the lines of *data* that are not fit to be shown: in UTF-8, printable, each one line to all."""
    text = data.decode(errors="surrogateescape") if isinstance(data, bytes) else data
    lines = text.split("\n")
    return [line for line in lines if not line.lstrip("\t").isprintable() or len(line.splitlines()) > 1]

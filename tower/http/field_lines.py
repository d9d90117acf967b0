"""The field lines of a message head, read in plain code (RFC 9112 section 5).  No I/O."""

from __future__ import annotations

from collections.abc import Sequence

#: What a token, as the name of a field is one, may consist of (RFC 9110 section 5.6.2).
TOKEN = b"!#$%&'*-+.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

_VALUE = b"\t" + bytes(range(0x20, 0x7F)) + bytes(range(0x80, 0x100))
_TOKEN_AND_LF = TOKEN + b"\n"


def field_lines(block: bytes) -> list[bytes] | None:
    """Return the lines of *block*, which has to end with an empty one; that is left out.

    :return: None if a line has another end than CR LF or a control character in it, or is empty.
    """
    lines = block.split(b"\r\n")
    if block.translate(None, _VALUE) != b"\r\n" * (len(lines) - 1) or lines[-2:] != [b"", b""]:
        return None
    del lines[-2:]
    return None if b"" in lines else lines


def field_pairs(lines: Sequence[bytes], separator: bytes = b":") -> list[list[bytes]] | None:
    """Return name and value of each of *lines*, which come from `field_lines`; None if one is no field."""
    pairs = [line.split(separator, 1) for line in lines]
    try:
        names = [name for name, _ in pairs]
    except ValueError:
        return None
    if b"" in names or b"\n".join(names).translate(None, _TOKEN_AND_LF):
        return None
    return pairs

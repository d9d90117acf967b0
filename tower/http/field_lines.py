"""Field lines of a message head (RFC 9112 section 5), read without regular expressions.  No I/O."""

from __future__ import annotations

from collections.abc import Sequence

#: Characters of a token, such as the name of a field (RFC 9110 section 5.6.2).
TOKEN = b"!#$%&'*-+.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

_VALUE = b"\t" + bytes(range(0x20, 0x7F)) + bytes(range(0x80, 0x100))
_TOKEN_AND_LF = TOKEN + b"\n"


def field_lines(block: bytes) -> list[bytes] | None:
    """Return the lines of *block* without the empty line that ends it.

    :return: None if the end is missing, or a line is empty, contains a control character or does not end with
        CR LF.
    """
    lines = block.split(b"\r\n")
    if block.translate(None, _VALUE) != b"\r\n" * (len(lines) - 1) or lines[-2:] != [b"", b""]:
        return None
    del lines[-2:]
    return None if b"" in lines else lines


def field_pairs(lines: Sequence[bytes], separator: bytes = b":") -> list[list[bytes]] | None:
    """Return name and value of each line of `field_lines`; None if one is not a field."""
    pairs = [line.split(separator, 1) for line in lines]
    try:
        names = [name for name, _ in pairs]
    except ValueError:
        return None
    if b"" in names or b"\n".join(names).translate(None, _TOKEN_AND_LF):
        return None
    return pairs

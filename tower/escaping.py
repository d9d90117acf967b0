r"""Texts of others made fit for logs, terminals and JSON: nothing in them acts on what shows or splits them.

Printable is what `str.isprintable` says: no control character (C0, DEL, C1), no other end of a line (U+2028,
U+2029), no other blank than a space, nothing that changes the direction of writing or has no width, no
surrogate.  Everything else is written as ``\n``, ``\x9b`` or ``\u2028``, in JSON as ``\u009b``.
"""

from __future__ import annotations

import json
import re
from typing import Any

#: Longest text of a peer that is repeated, as it is shown, in characters; and longest version or name.
LONGEST_SAID = 256
LONGEST_VERSION = 64

_ELLIPSIS = "…"

_encoded = json.JSONEncoder(ensure_ascii=False).encode
_NO_ASCII = re.compile(r"[^ -~]")


def escaped(text: str) -> str:
    """Return *text* in one line, with what is not printable written as Python does."""
    return text if text.isprintable() else "".join(map(_shown, text))


def quoted(text: str, limit: int | None = None) -> str:
    """Return *text* as a JSON string, quotation marks included.

    :param limit: how long it may be between the marks, characters; what is longer ends with an ellipsis.
    """
    whole = _encoded(text if limit is None else text[: limit + 1])
    if not whole.isprintable():
        whole = _NO_ASCII.sub(_in_json, whole)
    if limit is None or len(whole) - 2 <= limit:
        return whole
    kept, room = [], limit - len(_ELLIPSIS)
    for character in text:
        piece = quoted(character)[1:-1]
        room -= len(piece)
        if room < 0:
            break
        kept.append(piece)
    return f'"{"".join(kept)}{_ELLIPSIS}"'


def shortened(text: str, limit: int) -> str:
    """Return *text*, or its beginning and an ellipsis: at most *limit* characters."""
    return text if len(text) <= limit else text[: limit - len(_ELLIPSIS)] + _ELLIPSIS


def reported(who: str, said: str | bytes, limit: int = LONGEST_SAID) -> str:
    """Return ``the agent of alpha reports: "…"``: what a peer said, as its words and not as ours.

    :param who: the peer, as ``the agent of alpha``.
    :param said: in UTF-8, if it is bytes.
    """
    text = said[: 4 * limit + 4].decode("utf-8", "replace") if isinstance(said, bytes) else said
    return f"{who} reports: {quoted(text, limit)}"


def json_text(value: Any, *, separators: tuple[str, str] | None = None) -> str:
    """Return *value* as JSON in ASCII, without a control character."""
    return json.dumps(value, separators=separators).replace("\x7f", "\\u007f")


def readable_json(value: Any) -> str:
    """Return *value* as JSON for people: indented, and in every script, as far as it is printable."""
    lines = json.dumps(value, indent=4, ensure_ascii=False).split("\n")
    return "\n".join(line if line.isprintable() else _NO_ASCII.sub(_in_json, line) for line in lines)


def _shown(character: str) -> str:
    return character if character.isprintable() else repr(character)[1:-1]


def _in_json(match: re.Match[str]) -> str:
    character = match[0]
    if character.isprintable():
        return character
    return "\\u007f" if character == "\x7f" else json.dumps(character)[1:-1]

r"""Escaping of foreign text for logs, terminals and JSON.

Characters that are not printable (`str.isprintable`) are escaped as ``\n``, ``\x9b`` or ``\u2028``, in JSON
as ``\u009b``: control characters (C0, DEL, C1), line separators (U+2028, U+2029), spaces other than U+0020,
characters that change the direction of writing or have no width, surrogates.
"""

from __future__ import annotations

import json
import re
from typing import Any

#: Length limits of a peer's text, and of its version or name, as shown, in characters.
PEER_TEXT_LIMIT = 256
VERSION_LIMIT = 64

_ELLIPSIS = "…"

_encoded = json.JSONEncoder(ensure_ascii=False).encode
_NO_ASCII = re.compile(r"[^ -~]")


def escaped(text: str) -> str:
    """Return *text* in one line, with Python's escapes for characters that are not printable."""
    return text if text.isprintable() else "".join(map(_shown, text))


def quoted(text: str, limit: int | None = None) -> str:
    """Return *text* as a JSON string, quotation marks included.

    :param limit: characters between the quotation marks; a longer text ends with an ellipsis.
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


def reported(who: str, said: str | bytes, limit: int = PEER_TEXT_LIMIT) -> str:
    """Return ``the agent of alpha reports: "…"``: a peer's text, attributed to it.

    :param who: the peer, such as ``the agent of alpha``.
    :param said: UTF-8 if bytes.
    """
    text = said[: 4 * limit + 4].decode("utf-8", "replace") if isinstance(said, bytes) else said
    return f"{who} reports: {quoted(text, limit)}"


def json_text(value: Any, *, separators: tuple[str, str] | None = None, allow_nan: bool = True) -> str:
    """Return *value* as JSON in ASCII without control characters.

    :raise ValueError: it has a number that is not finite, and *allow_nan* is False.
    """
    return json.dumps(value, separators=separators, allow_nan=allow_nan).replace("\x7f", "\\u007f")


def readable_json(value: Any) -> str:
    """Return *value* as indented JSON with printable characters of all scripts."""
    lines = json.dumps(value, indent=4, ensure_ascii=False).split("\n")
    return "\n".join(line if line.isprintable() else _NO_ASCII.sub(_in_json, line) for line in lines)


def _shown(character: str) -> str:
    return character if character.isprintable() else repr(character)[1:-1]


def _in_json(match: re.Match[str]) -> str:
    character = match[0]
    if character.isprintable():
        return character
    return "\\u007f" if character == "\x7f" else json.dumps(character)[1:-1]

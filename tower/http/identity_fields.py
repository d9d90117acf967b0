"""Header fields that claim an identity, so that no request of a user may have them."""

from __future__ import annotations

import re
from collections.abc import Collection
from urllib.parse import unquote_to_bytes

# Some servers read "_" as "-".
_STANDARD = rb"(?:impersonate|x[-_]remote)[-_][^:\n]*"

# A text in each standard name, lower case.
_HINTS = (b"impersonate", b"remote")

_BAD_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")


class IdentityFields:
    """The standard fields ``Impersonate-*`` and ``X-Remote-*``, and further ones.

    :param names: of further fields, lower case.
    :param prefixes: of the names of further fields, lower case.
    """

    def __init__(self, names: Collection[bytes] = (), prefixes: Collection[bytes] = ()) -> None:
        further = [_either(name) for name in sorted(names)]
        further += [_either(prefix) + rb"[^:\n]*" for prefix in sorted(prefixes)]
        self._has_further = bool(further)
        name = b"|".join((_STANDARD, *further))
        self._pattern = re.compile(rb"(?:\A|\n)(%b):" % name, re.IGNORECASE)

    def first(self, block: bytes) -> bytes:
        """Return the name of the first such field in the lines *block*, or nothing."""
        if not self._has_further:
            lower = block.lower()
            if not any(hint in lower for hint in _HINTS):
                return b""
        match = self._pattern.search(block)
        return match[1] if match else b""

    def matches(self, line: bytes) -> bool:
        """Return whether *line* is such a field."""
        return self._pattern.match(line) is not None


def extra_key(name: bytes, errors: str = "backslashreplace") -> str:
    """Return the key of an extra field from the rest of its name after the prefix, as kube-apiserver does.

    Escaped letters keep their case, others become lower case.  If an escape is malformed, none is decoded.

    :param errors: handler of bytes that are not UTF-8; see `bytes.decode`.
    """
    lower = name.lower()
    return (lower if _BAD_ESCAPE.search(lower) else unquote_to_bytes(lower)).decode(errors=errors)


def _either(name: bytes) -> bytes:
    return b"".join(b"[-_]" if byte in b"-_" else re.escape(bytes((byte,))) for byte in name)


#: The standard fields.
STANDARD = IdentityFields()

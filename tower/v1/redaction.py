"""What an old proxy says, made fit for our log: bounded, printable, and never our own secrets sent back."""

from __future__ import annotations

from base64 import b64encode

from tower.v1.config import AgentConfig

#: What is shown of one text, characters.
LONGEST_SHOWN = 200

#: So many characters in a row that also stand in a secret are a quotation of it.
_QUOTED = 8


class Redactor:
    """Knows what must not be shown.

    :param config: what was sent to the proxy.
    """

    def __init__(self, config: AgentConfig) -> None:
        secrets = (config.token.encode(), config.bearer, _body(config.key))
        texts = {*filter(None, secrets), *map(b64encode, filter(None, (*secrets, config.key)))}
        self._secrets = [text.decode("utf-8", "replace") for text in texts]

    def __repr__(self) -> str:
        """Show none of it."""
        return f"<Discretion about {len(self._secrets)} texts>"

    def shown(self, said: bytes) -> str:
        """Return *said* as it may be shown; never empty.  What is in brackets is not its own words."""
        text = "".join(filter(str.isprintable, said[: 4 * LONGEST_SHOWN].decode("utf-8", "replace")))
        text = text[:LONGEST_SHOWN].strip()
        if not text:
            return f"[{len(said)} B that are no text]"
        if self._quotes(text):
            return "[a text with our own secrets in it, which is not shown]"
        return text

    def _quotes(self, text: str) -> bool:
        """Tell whether *text* has a piece of a secret in it, or the whole of a short one."""
        if any(secret in text for secret in self._secrets):
            return True
        pieces = {text[start : start + _QUOTED] for start in range(len(text) - _QUOTED + 1)}
        return any(piece in secret for secret in self._secrets for piece in pieces)


def _body(pem: bytes) -> bytes:
    """Return what is between the first and the last line, in one."""
    return b"".join(line.strip() for line in pem.splitlines() if not line.startswith(b"-----"))

"""Makes texts of an old proxy safe for our log: short, printable, without our own secrets."""

from __future__ import annotations

from base64 import b64encode

from tower.v1.config import AgentConfig

#: Longest text logged, characters.
LONGEST_SHOWN = 200

#: A text that shares so many consecutive characters with a secret quotes it.
_QUOTED = 8


class Redactor:
    """Redacts texts that quote our secrets."""

    def __init__(self, config: AgentConfig) -> None:
        secrets = (config.token.encode(), config.bearer, _body(config.key))
        texts = {*filter(None, secrets), *map(b64encode, filter(None, (*secrets, config.key)))}
        self._secrets = [text.decode("utf-8", "replace") for text in texts]

    def __repr__(self) -> str:
        """Return a text without the secrets."""
        return f"<Redactor of {len(self._secrets)} texts>"

    def redact(self, received: bytes) -> str:
        """Return *received* for the log; never empty.  A text in brackets replaces it."""
        text = "".join(filter(str.isprintable, received[: 4 * LONGEST_SHOWN].decode("utf-8", "replace")))
        text = text[:LONGEST_SHOWN].strip()
        if not text:
            return f"[{len(received)} B, not text]"
        if self._quotes(text):
            return "[redacted: it quotes a secret of this agent]"
        return text

    def _quotes(self, text: str) -> bool:
        """Return whether *text* contains a part of a secret, or the whole of a short one."""
        if any(secret in text for secret in self._secrets):
            return True
        pieces = {text[start : start + _QUOTED] for start in range(len(text) - _QUOTED + 1)}
        return any(piece in secret for secret in self._secrets for piece in pieces)


def _body(pem: bytes) -> bytes:
    """Return the lines between the first and the last, joined."""
    return b"".join(line.strip() for line in pem.splitlines() if not line.startswith(b"-----"))

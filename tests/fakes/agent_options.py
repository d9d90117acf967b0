"""Join lines, and a reactor that resolves no name."""

from __future__ import annotations

FINGERPRINT = "SHA256:" + "A" * 43


CA_HASH = "sha256:" + "0" * 64


JOIN = {
    "name": "alpha",
    "proxy-server": "wss://tower.example:8443",
    "host-key": FINGERPRINT,
    "ca-hash": CA_HASH,
}


def line(**changes: str | None) -> list[str]:
    """Return the arguments of the join line, with some changed or left out."""
    words = {**JOIN, **{name.replace("_", "-"): value for name, value in changes.items()}}
    return [f"--{name}={value}" for name, value in words.items() if value is not None]


class Unresolving:
    """A name resolver that never answers."""

    def resolveHostName(self, receiver: object, name: str, *_: object) -> None:
        """No-op."""

"""Streams that a proxy opens to an agent."""

from __future__ import annotations

from tests.fakes.pipes import FakePipe
from tower.conch.tunnel.tunnel import STREAM


class FakeIncoming:
    """A stream that the proxy wants."""

    def __init__(self, target: bytes, kind: bytes = STREAM, data: bytes | None = None) -> None:
        self.kind = kind
        self.data = len(target).to_bytes(4, "big") + target if data is None else data
        self.channel = FakePipe()
        self.accepted = False
        self.refusal: tuple[str, str] | None = None
        self.error: Exception | None = None

    def accept(self) -> FakePipe:
        """Open it."""
        if self.error is not None:
            raise self.error
        self.accepted = True
        return self.channel

    def refuse(self, code: str, text: str) -> None:
        """Record the rejection."""
        assert self.refusal is None
        self.refusal = (code, text)


class FakeStream:
    """A stream.

    :ivar late: number of timeouts.
    """

    def __init__(self) -> None:
        self.late = 0

    def too_slow(self) -> None:
        """Count it."""
        self.late += 1

"""The interface between a request and the part that makes its answer."""

from __future__ import annotations

from mypy_extensions import mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class Exchange:
    """Makes the answer to a request; base of relays, Tower's answers and the opening of streams."""

    __slots__ = ()

    def drained(self) -> None:
        """Called when the user accepts bytes again."""

    def abandon(self) -> None:
        """Release everything: the client disconnected, or the request has another answer."""

    def conclude(self) -> None:
        """End a watch early, as if its time were over, if the bytes that were sent allow that."""

    def complete(self) -> None:
        """Called when the whole body of the request was received."""

    def tick(self, age: int) -> None:
        """Enforce the deadlines; *age* is the time since the request or a part of its body arrived, s."""

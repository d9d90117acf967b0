"""The present turn of a reactor, for objects that gather output until its end."""

from __future__ import annotations


class Turn:
    """State of a turn.

    :ivar is_lone: whether only one socket was ready, and no tunnel has sent early, which unsets it.
    """

    __slots__ = ("is_lone",)

    def __init__(self) -> None:
        self.is_lone = False

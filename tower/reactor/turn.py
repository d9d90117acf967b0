"""The current turn of a reactor, for objects that gather output until its end."""

from __future__ import annotations


class Turn:
    """State of a turn.

    :ivar is_lone: whether only one socket was ready; a tunnel that sends early sets this to False.
    """

    __slots__ = ("is_lone",)

    def __init__(self) -> None:
        self.is_lone = False

"""A service that closes something at its end."""

from __future__ import annotations

from collections.abc import Callable

from twisted.application.service import Service


class Closing(Service):
    """Calls *close* when it stops."""

    def __init__(self, close: Callable[[], None]) -> None:
        self._close = close

    def stopService(self) -> None:
        """Close."""
        super().stopService()  # type: ignore[no-untyped-call]
        self._close()

"""What a command may end with: one line on standard error and exit code 1."""

from __future__ import annotations

from tower.errors import TowerError


class CommandFailed(TowerError):
    """What was asked for did not happen; the text names it and the cure."""


class CallFailed(CommandFailed):
    """The proxy refused a call.

    :ivar code: HTTP status.
    :ivar reason: the reason of the Kubernetes Status (`NotFound`, `AlreadyExists`, ...).
    :ivar kind: the resource that the Status is about (`clusters`, `agents`, ...), or empty.
    """

    def __init__(self, code: int, reason: str, message: str, kind: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.kind = kind

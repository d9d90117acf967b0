"""Errors of commands: one line on standard error and exit code 1."""

from __future__ import annotations

from tower.errors import TowerError


class CommandFailed(TowerError):
    """A command failed; the text names the cure."""


class CallFailed(CommandFailed):
    """The proxy rejected a call.

    :ivar code: HTTP status.
    :ivar reason: the reason of the Kubernetes Status (`NotFound`, `AlreadyExists`, ...).
    :ivar kind: resource in the Status (`clusters`, `agents`, ...), or empty.
    """

    def __init__(self, code: int, reason: str, message: str, kind: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.kind = kind

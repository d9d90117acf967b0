"""Why the connection to a node ended, in words for whoever keeps the node."""

from __future__ import annotations

from twisted.internet.error import ConnectionClosed

from tower.clusters.node import Node
from tower.errors import PeerError, TowerError
from tower.escaping import reported
from tower.net.connection import ConnectionEnded

#: How much of what a server says before its version is kept, B, and how much of that is shown, characters.
PREFACE = 256
_SHOWN = 80


class HungUp(PeerError):
    """A node ended the connection, or it broke."""


def connection_ended(reason: Exception, more: str = "") -> Exception:
    """Return *reason*, or where that is only that the connection ended, an error that says whose doing it is.

    :param more: what else is to be said then.
    """
    if isinstance(reason, OSError):
        return HungUp(f"the connection broke: {(reason.strerror or str(reason)).lower()}{more}")
    if isinstance(reason, ConnectionEnded | ConnectionClosed):
        return HungUp(f"its sshd closed the connection{more}")
    return reason


def login_failed(reason: Exception, preface: bytes, *, is_ssh: bool) -> Exception:
    """Return why a connection on which we were not let in ended.

    :param preface: what the server said first.
    :param is_ssh: whether it said its version.
    """
    if is_ssh:
        return connection_ended(reason, " before we were let in: its log says why")
    said = _said(preface)
    what = reported("it", said, _SHOWN) if said else "it says nothing"
    if isinstance(connection_ended(reason), HungUp):
        return HungUp(f"{what} and closes the connection: is there an SSH server?")
    return PeerError(f"{reason}: {what}: is there an SSH server?") if said else reason


def _said(preface: bytes) -> str:
    return preface.lstrip().partition(b"\n")[0].decode("utf-8", "replace").rstrip()


class OpenFailed(TowerError):
    """No tunnel to a node came about; its text is upstream's.

    :ivar cause: why.
    """

    def __init__(self, user: str, node: Node, cause: Exception) -> None:
        super().__init__(f"error getting SSH client to {user}@{node.address}: '{cause}'")
        self.cause = cause

"""Why the connection to a node ended, worded for the node's administrator."""

from __future__ import annotations

from twisted.internet.error import ConnectionClosed

from tower.clusters.node import Node
from tower.errors import PeerError, TowerError
from tower.escaping import reported
from tower.net.connection import ConnectionEnded

#: Bytes kept of the text that a server sends before its version, and characters of it shown in an error.
PREFACE = 256
_SHOWN = 80


class HungUp(PeerError):
    """A node closed the connection, or it broke."""


def connection_ended(reason: Exception, more: str = "") -> Exception:
    """Return *reason*, or a clearer error if it only states that the connection ended.

    :param more: text to append to the clearer error.
    """
    if isinstance(reason, OSError):
        return HungUp(f"the connection broke: {(reason.strerror or str(reason)).lower()}{more}")
    if isinstance(reason, ConnectionEnded | ConnectionClosed):
        return HungUp(f"its sshd closed the connection{more}")
    return reason


def login_failed(reason: Exception, preface: bytes, *, is_ssh: bool) -> Exception:
    """Return why a connection ended before the login.

    :param preface: what the server sent before its version.
    :param is_ssh: whether it sent a version.
    """
    if is_ssh:
        return connection_ended(reason, " before the login: see its log")
    text = preface.lstrip().partition(b"\n")[0].decode("utf-8", "replace").rstrip()
    if isinstance(connection_ended(reason), HungUp):
        what = reported("it", text, _SHOWN) if text else "it sends nothing"
        return HungUp(f"{what} and closes the connection: is this an SSH server?")
    return PeerError(f"{reason}: {reported('it', text, _SHOWN)}: is this an SSH server?") if text else reason


class OpenFailed(TowerError):
    """A tunnel to a node could not be opened, for the reason *cause*; the text is upstream's."""

    def __init__(self, user: str, node: Node, cause: Exception) -> None:
        super().__init__(f"error getting SSH client to {user}@{node.address}: '{cause}'")
        self.cause = cause

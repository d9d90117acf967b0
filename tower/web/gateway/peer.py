"""The other end of a user's connection."""

from __future__ import annotations

from functools import cached_property
from typing import Protocol

from tower.kube.canonical_head import forwarding_lines
from tower.net.pipes import Pipe


class Address(Protocol):
    """What is needed of a Twisted address."""

    @property
    def host(self) -> str:
        """The IP address."""


class UserConnection(Pipe, Protocol):
    """What is needed of `tower.net.connection.Connection`."""

    def peer_certificate(self) -> bytes | None:
        """Return the certificate that the peer showed and proved, DER, or None."""

    def getPeer(self) -> Address:
        """Return the address of the other side."""


class Peer:
    """What a connection tells about its user; each thing is found out once, when it is asked for."""

    def __init__(self, connection: UserConnection) -> None:
        self._connection = connection

    @cached_property
    def certificate(self) -> bytes | None:
        """The user's certificate, DER, or None."""
        return self._connection.peer_certificate()

    @cached_property
    def address(self) -> str:
        """The user's IP address."""
        return self._connection.getPeer().host

    @cached_property
    def forwarding(self) -> bytes:
        """The lines that tell a cluster for whom the proxy asks."""
        return forwarding_lines(self.address)

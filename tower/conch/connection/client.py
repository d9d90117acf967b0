# mypy: untyped-calls-exclude=twisted
"""The client's end of SSH: key exchanges with a server that has to prove who it is."""

from __future__ import annotations

from hashlib import sha256

from twisted.conch.ssh.common import NS
from twisted.conch.ssh.service import SSHService
from twisted.conch.ssh.transport import (
    DISCONNECT_HOST_KEY_NOT_VERIFIABLE,
    DISCONNECT_KEY_EXCHANGE_FAILED,
    MSG_KEXDH_INIT,
    MSG_SERVICE_REQUEST,
    SSHClientTransport,
    SSHTransportBase,
)

from tower.conch.connection.liveness import LivenessTransport
from tower.conch.connection.server import USERAUTH
from tower.conch.transport.fields import MessageReader
from tower.conch.transport.kex import ClientHalf, client_half
from tower.conch.transport.keys import verify
from tower.conch.transport.limits import TransportLimits
from tower.errors import PeerError
from tower.reactor.timers import Clock


class Client(LivenessTransport, SSHClientTransport):
    """What every client of ours does until it is let in.

    :param keepalive: how often to probe the peer, s.
    :ivar host_key: the server's, as it travels, once it has proved to hold it.
    :ivar auth: the service that has us let in.
    """

    __slots__ = ("_half", "auth", "host_key")

    def __init__(self, clock: Clock, keepalive: float, limits: TransportLimits) -> None:
        super().__init__(clock, keepalive, limits)
        self.auth: SSHService | None = None
        self.host_key: bytes | None = None
        self._half: ClientHalf | None = None

    def mistrust(self, host_key: bytes) -> PeerError | None:
        """Return why a server with this host key is not to be trusted, or None.  Override.

        Called at each key exchange, before the server has proved to hold it.
        """
        raise NotImplementedError

    def proves(self, host_key: bytes, signature: bytes, exchange_hash: bytes) -> bool:
        """Return whether *signature* shows that the server holds *host_key*.  Override for other kinds.

        :raise Malformed: it is no such key.
        """
        return verify(host_key, signature, exchange_hash)

    def ssh_KEXINIT(self, packet: bytes) -> None:
        """Negotiate as Conch does, and send our half: one that Conch lacks, or its own in the same shape."""
        self.check_kexinit(packet)
        if SSHTransportBase.ssh_KEXINIT(self, packet) is None:
            return
        self._half = client_half(self.kexAlg)
        self.sendPacket(MSG_KEXDH_INIT, NS(self._half.public))

    def ssh_KEX_DH_GEX_GROUP(self, packet: bytes) -> None:
        """Message 31, in our exchanges the server's half: host key, its public value, signature."""
        fields = MessageReader(packet)
        host_key, reply, signature = fields.string(), fields.string(), fields.string()
        fields.end()
        mistrust = self.mistrust(host_key)
        if mistrust is None and self.host_key not in {None, host_key}:
            mistrust = PeerError("the server's host key is another one than before")
        if mistrust is not None:
            self.fail(mistrust, DISCONNECT_HOST_KEY_NOT_VERIFIABLE)
            return
        half, self._half = self._half, None
        assert half is not None
        secret = half.agree(reply)
        parts = (
            self.ourVersionString,
            self.otherVersionString,
            self.ourKexInitPayload,
            self.otherKexInitPayload,
            host_key,
            half.public,
            reply,
        )
        exchange_hash = sha256(b"".join(map(NS, parts)) + secret).digest()
        if not self.proves(host_key, signature, exchange_hash):
            self.fail(PeerError("the server did not sign with its host key"), DISCONNECT_KEY_EXCHANGE_FAILED)
            return
        self.host_key = host_key
        self._keySetup(secret, exchange_hash)

    def secured(self) -> None:
        """The server is the right one, and nobody listens: ask to be let in."""
        self.sendPacket(MSG_SERVICE_REQUEST, NS(USERAUTH))

    def ssh_SERVICE_ACCEPT(self, packet: bytes) -> None:
        """Authenticate."""
        if self.service is not None or self.auth is None:
            raise PeerError("a service that was not asked for")
        self.setService(self.auth)

    def let_in(self) -> None:
        """Authentication has succeeded: go on with the connection itself."""
        self.authenticated()
        self.setService(self.connection)

    def ended(self, reason: Exception) -> None:
        """Let nobody in any more."""
        super().ended(reason)
        auth, self.auth = self.auth, None
        if auth is not None:
            auth.serviceStopped()

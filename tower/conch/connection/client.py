# mypy: untyped-calls-exclude=twisted
"""The client's end of SSH: key exchange with a server that proves its host key."""

from __future__ import annotations

from hashlib import sha256

from twisted.conch.ssh.common import NS
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
    """An SSH client up to the end of authentication.

    :param keepalive: interval of keepalives, s.
    :ivar host_key: the server's public key blob, once the server has proved to hold it.
    """

    __slots__ = ("_half", "host_key")

    def __init__(self, clock: Clock, keepalive: float, limits: TransportLimits) -> None:
        super().__init__(clock, keepalive, limits)
        self.host_key: bytes | None = None
        self._half: ClientHalf | None = None

    def host_key_error(self, host_key: bytes) -> PeerError | None:
        """Return why this host key is not trusted, or None.  Override.

        Called at each key exchange, before the server has proved to hold the key.
        """
        raise NotImplementedError

    def verify_signature(self, host_key: bytes, signature: bytes, exchange_hash: bytes) -> bool:
        """Return whether *signature* was made with *host_key*.  Override for other key types.

        :raise Malformed: *host_key* is not such a key.
        """
        return verify(host_key, signature, exchange_hash)

    def ssh_KEXINIT(self, packet: bytes) -> None:
        """Negotiate with Conch, then send our half of the exchange, which Conch has only in part."""
        self.check_kexinit(packet)
        if SSHTransportBase.ssh_KEXINIT(self, packet) is None:
            return
        self._half = client_half(self.kexAlg)
        self.sendPacket(MSG_KEXDH_INIT, NS(self._half.public))

    def ssh_KEX_DH_GEX_GROUP(self, packet: bytes) -> None:
        """Handle message 31, here the server's half: host key, public value, signature."""
        fields = MessageReader(packet)
        host_key, reply, signature = fields.string(), fields.string(), fields.string()
        fields.end()
        host_key_error = self.host_key_error(host_key)
        if host_key_error is None and self.host_key not in {None, host_key}:
            host_key_error = PeerError("the server's host key has changed since the first key exchange")
        if host_key_error is not None:
            self.fail(host_key_error, DISCONNECT_HOST_KEY_NOT_VERIFIABLE)
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
        if not self.verify_signature(host_key, signature, exchange_hash):
            self.fail(PeerError("the server did not sign with its host key"), DISCONNECT_KEY_EXCHANGE_FAILED)
            return
        self.host_key = host_key
        self._keySetup(secret, exchange_hash)

    def secured(self) -> None:
        """Request authentication: the server is verified and the connection encrypted."""
        self.sendPacket(MSG_SERVICE_REQUEST, NS(USERAUTH))

    def ssh_SERVICE_ACCEPT(self, packet: bytes) -> None:
        """Start authentication."""
        if self.service is not None or self.auth is None:
            raise PeerError("the server accepted a service that was not requested")
        self.setService(self.auth)

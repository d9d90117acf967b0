# mypy: untyped-calls-exclude=twisted
"""The server's end of SSH: host key, key exchange, and the request for authentication."""

from __future__ import annotations

from twisted.conch.ssh.common import NS
from twisted.conch.ssh.keys import Key
from twisted.conch.ssh.transport import (
    DISCONNECT_SERVICE_NOT_AVAILABLE,
    MSG_SERVICE_ACCEPT,
    SSHServerTransport,
)

from tower.conch.connection.liveness import LivenessTransport
from tower.conch.transport.fields import Malformed, MessageReader
from tower.conch.transport.keys import KeyPair
from tower.conch.transport.limits import TransportLimits
from tower.reactor.timers import Clock

#: The service that authenticates (RFC 4252).
USERAUTH = b"ssh-userauth"


class Server(LivenessTransport, SSHServerTransport):
    """An SSH server up to the end of authentication.

    :param keepalive: interval of keepalives, s.
    """

    __slots__ = ("_host_key",)

    def __init__(self, clock: Clock, host_key: KeyPair, keepalive: float, limits: TransportLimits) -> None:
        super().__init__(clock, keepalive, limits)
        self._host_key = host_key

    def _getHostKeys(self, keyAlg: bytes) -> tuple[Key, Key]:
        """Return the host key twice: Conch takes the public half of one and signs with the other."""
        return self._host_key.conch_key, self._host_key.conch_key

    def ssh_KEXINIT(self, packet: bytes) -> None:
        """Check the message, then negotiate with Conch."""
        self.check_kexinit(packet)
        SSHServerTransport.ssh_KEXINIT(self, packet)

    def ssh_KEX_DH_GEX_REQUEST_OLD(self, packet: bytes) -> None:
        """Handle message 30, here the client's half; Conch answers with ours.

        A message of a wrongly guessed exchange is ignored (RFC 4253 section 7).
        """
        if self.ignoreNextPacket:
            self.ignoreNextPacket = False
            return
        fields = MessageReader(packet)
        fields.string()
        fields.end()
        try:
            SSHServerTransport.ssh_KEX_DH_GEX_REQUEST_OLD(self, packet)
        except ValueError as error:
            raise Malformed("an invalid public key in the key exchange") from error

    def ssh_SERVICE_REQUEST(self, packet: bytes) -> None:
        """Start authentication, once; everything else comes later."""
        fields = MessageReader(packet)
        name = fields.string()
        fields.end()
        if name != USERAUTH or self.service is not None or self.auth is None:
            self.sendDisconnect(DISCONNECT_SERVICE_NOT_AVAILABLE, b"no such service now")
            return
        self.sendPacket(MSG_SERVICE_ACCEPT, NS(name))
        self.setService(self.auth)

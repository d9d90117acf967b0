# mypy: untyped-calls-exclude=twisted
"""The server's end of SSH: our host key, key exchanges, and the one service that comes before all others."""

from __future__ import annotations

from twisted.conch.ssh.common import NS
from twisted.conch.ssh.keys import Key
from twisted.conch.ssh.service import SSHService
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
    """What every server of ours does until somebody is authenticated.

    :param host_key: ours.
    :param keepalive: how often to probe the peer, s.
    :ivar auth: the service that authenticates; None when that is over.
    """

    __slots__ = ("_host_key", "auth")

    def __init__(self, clock: Clock, host_key: KeyPair, keepalive: float, limits: TransportLimits) -> None:
        super().__init__(clock, keepalive, limits)
        self._host_key = host_key
        self.auth: SSHService | None = None

    def _getHostKeys(self, keyAlg: bytes) -> tuple[Key, Key]:
        """Return the host key twice: Conch takes the public half of one and signs with the other."""
        return self._host_key.conch_key, self._host_key.conch_key

    def ssh_KEXINIT(self, packet: bytes) -> None:
        """See Conch; the order and the lists are checked before."""
        self.check_kexinit(packet)
        SSHServerTransport.ssh_KEXINIT(self, packet)

    def ssh_KEX_DH_GEX_REQUEST_OLD(self, packet: bytes) -> None:
        """Message 30, in our exchanges the client's half; Conch answers with ours.

        One that belongs to an exchange that was guessed wrong is passed over.
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
            raise Malformed("not a key to exchange with") from error

    def ssh_SERVICE_REQUEST(self, packet: bytes) -> None:
        """Start authentication, once; everything else comes after it."""
        fields = MessageReader(packet)
        name = fields.string()
        fields.end()
        if name != USERAUTH or self.service is not None or self.auth is None:
            self.sendDisconnect(DISCONNECT_SERVICE_NOT_AVAILABLE, b"no such service now")
            return
        self.sendPacket(MSG_SERVICE_ACCEPT, NS(name))
        self.setService(self.auth)

    def let_in(self) -> None:
        """Authentication has succeeded: go on with the connection itself."""
        self.authenticated()
        self.setService(self.connection)
        self.auth = None

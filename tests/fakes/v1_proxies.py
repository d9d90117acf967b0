"""The proxy's end of kubesphere-v1, like deployed proxies; the test sets its replies."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from twisted.conch.ssh.common import NS
from twisted.conch.ssh.keys import Key
from twisted.conch.ssh.service import SSHService

from tower.conch.connection.global_requests import MSG_REQUEST_FAILURE, MSG_REQUEST_SUCCESS
from tower.conch.connection.server import Server
from tower.conch.transport.keys import ED25519, KeyPair, fingerprint
from tower.conch.transport.limits import TransportLimits
from tower.conch.transport.signatures import ECDSA_P256
from tower.conch.transport.userauth_messages import (
    MSG_USERAUTH_BANNER,
    MSG_USERAUTH_FAILURE,
    MSG_USERAUTH_REQUEST,
    MSG_USERAUTH_SUCCESS,
)
from tower.v1.config import CONFIG, PING, SERVER_VERSION

ECDSA_KEY = Key(ec.generate_private_key(ec.SECP256R1()))
OLD_KEY = KeyPair.generate()

#: Reply to a config: kind of message and text; None: no reply.
Reply = tuple[int, bytes] | None

ACCEPTED: Reply = (MSG_REQUEST_SUCCESS, b"")
EMPTY_FAILURE: Reply = (MSG_REQUEST_FAILURE, b"")


def refusal(text: bytes) -> Reply:
    """Return an old proxy's refusal."""
    return (MSG_REQUEST_FAILURE, text)


class _Auth(SSHService):
    """Accepts every agent, or none."""

    name = b"ssh-userauth"

    def __init__(self, proxy: OldProxyEnd) -> None:
        self._proxy = proxy

    def packetReceived(self, messageNum: int, packet: bytes) -> None:
        """Answer."""
        assert messageNum == MSG_USERAUTH_REQUEST
        proxy = self._proxy
        proxy.shown.append(packet)
        proxy.sendPacket(MSG_USERAUTH_BANNER, NS(b"welcome") + NS(b""))
        if proxy.lets_in:
            proxy.sendPacket(MSG_USERAUTH_SUCCESS, b"")
            proxy.start_connection()
            proxy.handshake_done()
        else:
            proxy.sendPacket(MSG_USERAUTH_FAILURE, NS(b"publickey") + b"\0")


class OldProxyEnd(Server):
    """One end.

    :param reply: to a config.
    :param key: a P-256 key, as deployed proxies have, or an ed25519 one.
    :ivar requests: received global requests: name and data.
    :ivar shown: authentication requests that came.
    :ivar lets_in: whether authentication succeeds.
    :ivar before_reply: called before a config is answered.
    """

    ourVersionString = SERVER_VERSION
    wanted_version = re.compile(rb"SSH-kubesphere-v1-client")

    def __init__(self, clock: Any, reply: Reply = ACCEPTED, key: Key | KeyPair = ECDSA_KEY) -> None:
        super().__init__(clock, OLD_KEY, 0.0, TransportLimits())
        self._key: Any = key.conch_key if isinstance(key, KeyPair) else key
        self.supportedPublicKeys = [ED25519 if isinstance(key, KeyPair) else ECDSA_P256]
        self.auth = _Auth(self)
        self.reply = reply
        self.requests: list[tuple[bytes, bytes]] = []
        self.shown: list[bytes] = []
        self.lets_in = True
        self.answers_pings = True
        self.before_reply: Callable[[], None] = lambda: None
        self.connection.answers = {}
        self.reason: Exception | None = None
        self.lost.addCallback(self._note)

    def _note(self, reason: Exception) -> None:
        self.reason = reason

    @property
    def fingerprint(self) -> str:
        """Name of the host key."""
        return fingerprint(self._key.blob())

    def _getHostKeys(self, keyAlg: bytes) -> tuple[Key, Key]:
        return self._key, self._key

    def dispatch(self, payload: Any) -> None:
        """Take global requests ourselves."""
        message = bytes(payload)
        if message[0] != 80 or self.service is not self.connection:
            super().dispatch(payload)
            return
        size = int.from_bytes(message[1:5], "big")
        name, data = message[5 : 5 + size], message[6 + size :]
        self.requests.append((name, data))
        if name == CONFIG:
            self.before_reply()
            if self.reply is not None:
                self.sendPacket(*self.reply)
        elif name == PING and self.answers_pings:
            self.sendPacket(MSG_REQUEST_SUCCESS, b"")

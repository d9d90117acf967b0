"""The proxy's end for old agents, and an old agent, in memory; see `tests.fakes.ssh_pairs`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar

from twisted.conch.ssh.common import NS
from twisted.conch.ssh.service import SSHService
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from tests.fakes.ssh_pairs import HOST_KEY, Ends
from tower.clusters.agent_rejection import AgentRejected
from tower.conch.connection.client import Client
from tower.conch.connection.global_requests import Answer
from tower.conch.transport.limits import TransportLimits
from tower.conch.transport.userauth_messages import (
    CONNECTION,
    MSG_USERAUTH_FAILURE,
    MSG_USERAUTH_REQUEST,
    MSG_USERAUTH_SUCCESS,
)
from tower.errors import PeerError
from tower.v1.config import CLIENT_VERSION, CONFIG, AgentConfig
from tower.v1.server import V1ServerTransport

TOKEN = "the-token-of-alpha"
TOKEN_ID = "v1:0123456789ab"
GOOD = AgentConfig(
    version="v0.2.1",
    name="alpha",
    token=TOKEN,
    kubernetes="10.96.0.1:443",
    kubesphere="ks-apiserver.kubesphere-system.svc",
    bearer=b"bearer-of-alpha",
)


class OldAuth(SSHService):
    """Asks as x/crypto does: first with method none, then with an empty password.

    :ivar passwords: those to try.
    """

    name = b"ssh-userauth"

    def __init__(self, agent: OldAgent) -> None:
        self._agent = agent
        self.user = b""
        self.passwords = [b""]

    def serviceStarted(self) -> None:
        """Try none."""
        self._ask(b"none", b"")

    def serviceStopped(self) -> None:
        """Forget the transport."""
        self.transport = None

    def _ask(self, method: bytes, rest: bytes) -> None:
        assert self.transport is not None
        self.transport.sendPacket(MSG_USERAUTH_REQUEST, NS(self.user) + NS(CONNECTION) + NS(method) + rest)

    def packetReceived(self, messageNum: int, packet: bytes) -> None:
        """Go on."""
        if messageNum == MSG_USERAUTH_SUCCESS:
            self._agent.start_connection()
        elif messageNum == MSG_USERAUTH_FAILURE and self.passwords:
            self._ask(b"password", b"\0" + NS(self.passwords.pop(0)))


class OldAgent(Client):
    """An old agent's end up to authentication; the test sends the rest."""

    ourVersionString = CLIENT_VERSION
    wanted_version = re.compile(rb"SSH-.*")
    answers: ClassVar[Mapping[bytes, Answer]] = {}

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock, 0.0, TransportLimits(handshake=1e6))
        self.auth = self.asks = OldAuth(self)

    def host_key_error(self, seen: bytes) -> PeerError | None:
        """Trust every host key, as old agents do."""
        return None


class Gate:
    """Accepts the token of alpha.

    :ivar asked: for which clusters it was asked.
    """

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, config: AgentConfig) -> str:
        """See `V1ServerTransport`."""
        self.asked.append(config.name)
        if config.name != "alpha":
            raise AgentRejected("unknown-cluster", "unknown cluster")
        if config.token != TOKEN:
            raise AgentRejected("invalid-token", "wrong token")
        return TOKEN_ID


class OldPair(Ends):
    """A proxy's transport and an old agent's, not yet connected.

    :ivar refused: why the proxy rejected the agent.
    """

    def __init__(self, *, limits: TransportLimits | None = None, keepalive: float = 0.0) -> None:
        self.clock = Clock()
        self.gate = Gate()
        self.server = V1ServerTransport(self.clock, HOST_KEY, self.gate, keepalive=keepalive, limits=limits)
        self.client = OldAgent(self.clock)
        self.refused: Exception | None = None
        super().__init__(self.server, self.client)
        self.server.ready.addErrback(self._not_ready)

    def _not_ready(self, failure: object) -> None:
        self.refused = failure.value  # type: ignore[attr-defined]

    def send(self, data: bytes, name: bytes = CONFIG) -> Deferred[bytes]:
        """Send a global request that wants a reply, and carry the following messages."""
        answer = self.client.request(name, data)
        self.pump()
        return answer

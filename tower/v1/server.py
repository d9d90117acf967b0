# mypy: untyped-calls-exclude=twisted
"""The proxy's end of an old agent's SSH connection.

SSH authenticates no agent: user name and password are empty.  An agent sends its identity in its first global
request, ``config``.  It then reads only the text of the reply: an empty refusal counts as a success, so a
refusal always has a text, and the connection is closed after it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import ClassVar

from attrs import frozen
from twisted.conch.ssh.common import NS
from twisted.conch.ssh.service import SSHService
from twisted.conch.ssh.transport import DISCONNECT_NO_MORE_AUTH_METHODS_AVAILABLE
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from tower.clusters.agent_rejection import AUTHENTICATION, AgentRejected
from tower.conch.connection.global_requests import Answer, RequestRefused
from tower.conch.connection.server import USERAUTH, Server
from tower.conch.transport.fields import Malformed, MessageReader
from tower.conch.transport.keys import KeyPair
from tower.conch.transport.limits import DEFAULT_LIMITS, TooManyTunnels, TransportLimits
from tower.conch.transport.userauth_messages import (
    CONNECTION,
    LONGEST_NAME,
    MSG_USERAUTH_FAILURE,
    MSG_USERAUTH_REQUEST,
    MSG_USERAUTH_SUCCESS,
)
from tower.errors import ConfigurationError, PeerError
from tower.reactor.timers import Clock
from tower.v1.config import CONFIG, PING, SERVER_VERSION, AgentConfig
from tower.v1.member_credential import MemberCredential
from tower.v2.peers import AuthenticationFailed

#: Texts that old agents expect and log.
UNAUTHORIZED = "Unauthorized agent"
CONFIG_FIRST = "expecting config request"

_PASSWORD = b"password"


@frozen
class V1Agent:
    """The authenticated peer of a `V1ServerTransport`.

    :ivar fingerprint: identifies its token; see `tower.clusters.v1_tokens`.
    """

    name: str
    fingerprint: str
    config: AgentConfig
    credential: MemberCredential


class EmptyPassword(SSHService):
    """Accepts an empty name and password: the config authenticates the agent.

    :param tries: other requests after which the connection ends.
    :param accepted: called once, after the success was sent.
    """

    name = USERAUTH

    def __init__(self, tries: int, accepted: Callable[[], None]) -> None:
        self._tries = tries
        self._accepted: Callable[[], None] | None = accepted

    def serviceStopped(self) -> None:
        """Drop references."""
        self.transport = self._accepted = None

    def packetReceived(self, messageNum: int, packet: bytes) -> None:
        """Handle an authentication request (RFC 4252 section 8)."""
        assert self.transport is not None
        if messageNum != MSG_USERAUTH_REQUEST:
            raise PeerError(f"message {messageNum} before authentication")
        fields = MessageReader(packet)
        user, service, method = fields.string(), fields.string(), fields.string()
        if (user, service, method) == (b"", CONNECTION, _PASSWORD):
            fields.boolean()
            if not fields.string() and self._accepted is not None:
                self.transport.sendPacket(MSG_USERAUTH_SUCCESS, b"")
                self._accepted()
                return
        self._tries -= 1
        if self._tries < 0:
            self.transport.sendDisconnect(DISCONNECT_NO_MORE_AUTH_METHODS_AVAILABLE, b"not authorized")
        else:
            self.transport.sendPacket(MSG_USERAUTH_FAILURE, NS(_PASSWORD) + b"\0")


class V1ServerTransport(Server):
    """The proxy's end.

    :param check: returns the id of a config's token.  Raises `AgentRejected` and `TooManyTunnels`.
    :param keepalive: interval of keepalives, s; the agent refuses the unknown request, which is a reply.
    :ivar ready: fires with a `V1Agent`, or fails with the reason.
    """

    __slots__ = ("_accepted_at", "_agent", "_check", "_refusal", "ready")

    ourVersionString = SERVER_VERSION
    wanted_version = re.compile(rb"SSH-[!-~][ -~]*")

    def __init__(
        self,
        clock: Clock,
        host_key: KeyPair,
        check: Callable[[AgentConfig], str],
        *,
        keepalive: float = 10.0,
        limits: TransportLimits | None = None,
    ) -> None:
        super().__init__(clock, host_key, keepalive, limits or DEFAULT_LIMITS)
        self.ready: Deferred[V1Agent] = Deferred()
        self.auth = EmptyPassword(self.limits.tries, self._accepted)
        self.connection.unknown = CONFIG_FIRST.encode()
        self._check = check
        self._agent: V1Agent | None = None
        self._accepted_at = 0.0
        self._refusal: AuthenticationFailed | None = None

    @property
    def peer(self) -> str:
        """See `PacketTransport.peer`; an unauthenticated peer has no cluster."""
        return "the peer" if self._agent is None else f"the agent of {self._agent.name}"

    def _accepted(self) -> None:
        self._accepted_at = self.clock.seconds()
        self.start_connection()

    def _register(self, data: bytes) -> bytes:
        if self._agent is not None:
            raise RequestRefused("a second config", b"this agent is registered already")
        name = ""
        try:
            config = AgentConfig.decode(data)
            name = config.name[:LONGEST_NAME]
            self._agent = V1Agent(config.name, self._check(config), config, MemberCredential(config))
        except AgentRejected as e:
            raise self._refused(name, e, UNAUTHORIZED) from None
        except (Malformed, ConfigurationError, TooManyTunnels) as e:
            raise self._refused(name, AgentRejected(AUTHENTICATION, str(e)), str(e)) from None
        self.connection.unknown = b""
        return b""

    def _refused(self, name: str, rejection: AgentRejected, text: str) -> RequestRefused:
        """Return the refusal with *text*; *rejection* is for the log and metrics."""
        self._refusal = AuthenticationFailed(name, [rejection])
        return RequestRefused(rejection.reason, text.encode() or UNAUTHORIZED.encode())

    def _pinged(self, data: bytes) -> bytes:
        if self._agent is None:
            raise RequestRefused(CONFIG_FIRST, CONFIG_FIRST.encode())
        return b""

    answers: ClassVar[Mapping[bytes, Answer]] = {CONFIG: _register, PING: _pinged}

    def answered(self, name: bytes) -> None:
        """Finish the handshake: the config was accepted."""
        if name == CONFIG and self._agent is not None:
            self.start_keepalives(self._accepted_at)
            self.ready.callback(self._agent)

    def refused(self, name: bytes) -> None:
        """Close: an old agent sends nothing after a refusal."""
        if self._agent is None or name == CONFIG:
            self.fail(PeerError(UNAUTHORIZED if self._refusal else CONFIG_FIRST))

    def ended(self, reason: Exception) -> None:
        """Fail `ready`; the reason of a refusal is for the log, the agent gets a text of `_refused`."""
        super().ended(reason)
        if not self.ready.called:
            self.ready.errback(Failure(self._refusal or reason))

# mypy: untyped-calls-exclude=twisted
"""The agent's end of an SSH connection to an old proxy.

The handshake authenticates neither side: the proxy's host key is new at each start, and user name and
password are empty.  The agent sends its identity and its cluster's credentials in its first global request.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import ClassVar

from twisted.conch.ssh.common import NS
from twisted.conch.ssh.service import SSHService
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from tower.conch.connection.client import Client
from tower.conch.connection.global_requests import Answer, RequestRefused, Unanswered
from tower.conch.connection.server import USERAUTH
from tower.conch.transport.fields import MessageReader
from tower.conch.transport.keys import ED25519, fingerprint
from tower.conch.transport.limits import DEFAULT_LIMITS, Disconnected, TransportLimits
from tower.conch.transport.packet_transport import do_nothing
from tower.conch.transport.signatures import ECDSA_P256, verify
from tower.conch.transport.userauth_messages import (
    CONNECTION,
    MSG_USERAUTH_BANNER,
    MSG_USERAUTH_FAILURE,
    MSG_USERAUTH_REQUEST,
    MSG_USERAUTH_SUCCESS,
)
from tower.errors import PeerError
from tower.escaping import reported
from tower.reactor.timers import Clock
from tower.v1.config import CLIENT_VERSION, CONFIG, PING, AgentConfig
from tower.v1.redaction import Redactor
from tower.v2.peers import HostKeyMismatch

#: Time for the proxy's answer to the config, s.
CONFIG_TIMEOUT = 10.0

_PASSWORD = b"password"


class RegistrationRefused(PeerError):
    """The proxy rejected this agent."""

    for_peer = "not registered"


class RegistrationUnanswered(PeerError):
    """The proxy did not answer: old ones do not if they cannot parse a config or issue a certificate."""

    for_peer = "not registered"


class NoPassword(SSHService):
    """Authenticates with empty user name and password, once."""

    name = USERAUTH

    def __init__(self, succeeded: Callable[[], None]) -> None:
        self._succeeded: Callable[[], None] = succeeded

    def serviceStarted(self) -> None:
        """Send the request (RFC 4252 section 8)."""
        assert self.transport is not None
        body = NS(b"") + NS(CONNECTION) + NS(_PASSWORD) + b"\0" + NS(b"")
        self.transport.sendPacket(MSG_USERAUTH_REQUEST, body)

    def serviceStopped(self) -> None:
        """Drop references."""
        self._succeeded, self.transport = do_nothing, None

    def packetReceived(self, messageNum: int, packet: bytes) -> None:
        """Handle the proxy's answer."""
        if messageNum == MSG_USERAUTH_SUCCESS:
            self._succeeded()
        elif messageNum == MSG_USERAUTH_FAILURE:
            raise RegistrationRefused(
                "the server rejects an empty name and password: it is not a proxy of kubesphere-v1"
            )
        elif messageNum != MSG_USERAUTH_BANNER:
            raise PeerError(f"message {messageNum} before authentication")


class V1ClientTransport(Client):
    """The agent's end.

    :param pinned: fingerprints of host keys; the proxy must have one of them.  None accepts every key.
    :param keepalive: interval of keepalives, s.
    :ivar on_admitted: called before the config is sent: from then on the proxy may open channels, even before
        its answer.
    :ivar ready: fires with the fingerprint of the proxy's current host key, or fails with the reason.
    """

    __slots__ = ("_asked_at", "_config", "_pinned", "_redactor", "on_admitted", "ready")

    ourVersionString = CLIENT_VERSION
    wanted_version = re.compile(rb"SSH-[!-~][ -~]*")
    supportedPublicKeys = [ECDSA_P256, ED25519]
    answers: ClassVar[Mapping[bytes, Answer]] = {}
    probe = PING

    def __init__(
        self,
        clock: Clock,
        config: AgentConfig,
        pinned: Collection[str] | None,
        *,
        keepalive: float = 10.0,
        limits: TransportLimits | None = None,
    ) -> None:
        super().__init__(clock, keepalive, limits or DEFAULT_LIMITS)
        self.ready: Deferred[str] = Deferred()
        self.on_admitted: Callable[[], None] = do_nothing
        self._config: AgentConfig | None = config
        self._redactor = Redactor(config)
        self._pinned = None if pinned is None else frozenset(pinned)
        self._asked_at = 0.0
        self.auth = NoPassword(self._accepted)

    @property
    def peer(self) -> str:
        """See `PacketTransport.peer`."""
        return "the proxy"

    def host_key_error(self, host_key: bytes) -> PeerError | None:
        """See `Client.host_key_error`."""
        seen = fingerprint(host_key)
        if self._pinned is None or seen in self._pinned:
            return None
        return HostKeyMismatch(seen, self._pinned)

    def verify_signature(self, host_key: bytes, signature: bytes, exchange_hash: bytes) -> bool:
        """See `Client.verify_signature`; the key must be of the negotiated type."""
        return verify(self.keyAlg, host_key, signature, exchange_hash)

    def _accepted(self) -> None:
        config, self._config = self._config, None
        assert config is not None
        self.start_connection()
        self._timers.set("handshake", CONFIG_TIMEOUT, self._unanswered)
        self.on_admitted()
        self._asked_at = self.clock.seconds()
        self.request(CONFIG, config.encode()).addCallbacks(self._registered, self._refused)

    def _unanswered(self) -> None:
        self.fail(
            RegistrationUnanswered(
                f"the proxy did not answer the registration within {CONFIG_TIMEOUT:g} s: see its log; an old "
                "proxy does not answer if it cannot parse the registration or issue the cluster's certificate"
            )
        )

    def _refused(self, failure: Failure) -> None:
        """Handle a refusal as old agents do: without a text it counts as a success."""
        error = failure.value
        if isinstance(error, RequestRefused):
            self._registered(error.reply)
        else:
            failure.trap(Unanswered)

    def _registered(self, reply: bytes) -> None:
        """Register, unless the reply has a text: any text is a reason for rejection."""
        if reply:
            text = self._redactor.redact(reply)
            self.fail(
                RegistrationRefused(
                    f"the proxy rejected the registration ({reported('the proxy', text)}): "
                    "check --name and --token"
                )
            )
            return
        assert self.host_key is not None
        self.start_keepalives(self._asked_at)
        self.ready.callback(fingerprint(self.host_key))

    def ssh_DISCONNECT(self, packet: bytes) -> None:
        """Handle the peer's reason for closing; see `Redactor`."""
        fields = MessageReader(packet)
        code, text = fields.number(), fields.string()
        self._end(Disconnected(code, self._redactor.redact(text) if text else "", self.peer))

    def drain(self) -> None:
        """No-op: old proxies have no drain message."""

    def ended(self, reason: Exception) -> None:
        """Fail `ready`."""
        super().ended(reason)
        self._config = None
        self.on_admitted = do_nothing
        if not self.ready.called:
            self.ready.errback(Failure(reason))

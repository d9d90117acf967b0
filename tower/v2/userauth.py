# mypy: untyped-calls-exclude=twisted
"""SSH authentication (RFC 4252), both sides, as services of Conch's transport.

They replace Conch's `SSHUserAuthServer` and `SSHUserAuthClient`, which use a portal of `twisted.cred` and
passwords, wait up to ten hours, answer requests out of order when decisions take time, and distinguish a
known key from an unknown one before a signature.  Here requests are answered in order, three failures end the
connection, and all failures look the same to the peer, except to the owner of a key that is or was enrolled
(`NOTICES`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from attrs import define
from twisted.conch.ssh.common import NS
from twisted.conch.ssh.service import SSHService
from twisted.conch.ssh.transport import (
    DISCONNECT_BY_APPLICATION,
    DISCONNECT_NO_MORE_AUTH_METHODS_AVAILABLE,
    DISCONNECT_PROTOCOL_ERROR,
    DISCONNECT_TOO_MANY_CONNECTIONS,
)
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from tower.clusters.agent_rejection import (
    AUTHENTICATION,
    DISABLED,
    UNKNOWN_KEY,
    AgentRejected,
)
from tower.conch.transport.fields import MessageReader
from tower.conch.transport.keys import ED25519, KeyPair
from tower.conch.transport.limits import TooManyTunnels
from tower.conch.transport.packet_transport import do_nothing
from tower.conch.transport.userauth_messages import (
    MSG_USERAUTH_BANNER,
    MSG_USERAUTH_FAILURE,
    MSG_USERAUTH_PK_OK,
    MSG_USERAUTH_REQUEST,
    MSG_USERAUTH_SUCCESS,
    NONE,
    PUBLICKEY,
)
from tower.errors import PeerError, Unauthorized
from tower.tunnels.limits import TunnelSlot
from tower.v2.enrol import (
    ENROL,
    Claim,
    ClaimRejected,
    enrol_request,
    method_of,
    publickey_request,
    read_claim,
)
from tower.v2.peers import NOTICES

if TYPE_CHECKING:
    from tower.clusters.join_tokens import JoinTokens

#: Requests answered on one connection, signed or not; ssh sends one for each key that it has.
REQUESTS = 12
#: Requests that may wait for the answer of an earlier one.
WAITING = 4


@define(eq=False)
class Gatekeeper:
    """Decides about one connection: its key must be enrolled, and there must be a slot for its tunnel.

    Both methods may raise `TooManyTunnels`, which ends the connection with that reason.
    """

    _tokens: JoinTokens
    _slot: TunnelSlot

    def is_enrolled(self, cluster: str, fingerprint: str) -> bool | Awaitable[bool]:
        """Return whether that key may serve that cluster.

        :raise AgentRejected: it is rejected.
        """
        refusal = self._tokens.refusal(cluster, fingerprint)
        if refusal is not None:
            raise refusal
        waiting = self._slot.acquire(cluster, fingerprint)
        return True if waiting is None else waiting.addCallback(lambda _: True)

    async def enrol(self, cluster: str, token: str, fingerprint: str, blob: bytes) -> None:
        """Spend one use of *token* on that key.

        :raise AgentRejected: unknown cluster; unknown, expired or used up token: see its ``reason``.
        """
        await self._tokens.enrol(cluster, token, fingerprint, blob)
        waiting = self._slot.acquire(cluster, fingerprint)
        if waiting is not None:
            await waiting


def _ignore(claim: Claim) -> None:
    """No-op, after the end."""


def _ignore_notice(notice: str) -> None:
    """No-op, after the end."""


def _rejection(error: Exception) -> AgentRejected:
    if isinstance(error, AgentRejected):
        return error.with_traceback(None)  # else it refers to its own owner
    return AgentRejected(AUTHENTICATION, error.reason if isinstance(error, Unauthorized) else str(error))


class UserAuthServer(SSHService):
    """The proxy's side.

    :param tries: failures after which the connection ends.
    :param accepted: called once with the accepted claim, after the success was sent.
    :ivar cluster: the cluster claimed last.
    :ivar fingerprint: of the key of the last claim that was proven; empty: none.
    :ivar refusals: kinds and reasons of failures, for metrics and the log.
    """

    name = b"ssh-userauth"
    _log = Logger()

    def __init__(self, gate: Gatekeeper, tries: int, accepted: Callable[[Claim], None]) -> None:
        self._gate = gate
        self._tries = tries
        self._accepted = accepted
        self._requests = 0
        self._waiting: list[bytes] = []
        self._working = False
        self._over = False
        self.cluster = self.fingerprint = ""
        self.refusals: list[AgentRejected] = []

    def serviceStopped(self) -> None:
        """Drop waiting requests.  A decision in progress continues; its result is ignored."""
        self._over = True
        self._waiting.clear()
        self._accepted = _ignore
        self.transport = None

    def packetReceived(self, messageNum: int, packet: bytes) -> None:
        """Handle an authentication request; no other message is allowed before authentication."""
        if messageNum != MSG_USERAUTH_REQUEST:
            raise PeerError(f"message {messageNum} before authentication")
        self._requests += 1
        if self._requests > REQUESTS or len(self._waiting) >= WAITING:
            raise PeerError("too many authentication requests")
        self._waiting.append(packet)
        self._work()

    def _work(self) -> None:
        """Answer waiting requests in order, until one needs an asynchronous decision."""
        try:
            while self._waiting and not (self._over or self._working):
                self._answer(self._waiting.pop(0))
        except Exception:  # noqa: BLE001 - any failure rejects this agent; others continue
            self._failed(Failure())

    def _failed(self, failure: Failure) -> None:
        transport = self.transport
        code, text = DISCONNECT_PROTOCOL_ERROR, failure.getErrorMessage()
        if failure.check(TooManyTunnels):
            code = DISCONNECT_TOO_MANY_CONNECTIONS
        elif not failure.check(PeerError):
            self._log.failure("cannot authenticate an agent of {cluster!r}", failure, cluster=self.cluster)
            code, text = DISCONNECT_BY_APPLICATION, "try again later"
        if transport is not None:
            transport.sendDisconnect(code, text.encode())

    def _answer(self, body: bytes) -> None:
        assert self.transport is not None
        assert self.transport.sessionID is not None
        method = method_of(body)
        try:
            if method not in {PUBLICKEY, ENROL}:
                raise ClaimRejected(f"method {method[:64]!r}")
            claim = read_claim(self.transport.sessionID, body)
            self.cluster = claim.cluster
            if not claim.proven:
                self.transport.sendPacket(MSG_USERAUTH_PK_OK, NS(ED25519) + NS(claim.blob))
                return
            self.fingerprint = claim.fingerprint
            verdict = self._ask(claim)
            if isinstance(verdict, bool):
                self._judge(claim, verdict)
                return
        except (ClaimRejected, Unauthorized) as error:
            self._refuse(method, error)
            return
        self._working = True
        Deferred.fromCoroutine(self._wait(method, claim, verdict)).addErrback(self._failed)

    def _ask(self, claim: Claim) -> bool | Awaitable[bool | None]:
        gate = self._gate
        if claim.token is None:
            return gate.is_enrolled(claim.cluster, claim.fingerprint)
        return gate.enrol(claim.cluster, claim.token, claim.fingerprint, claim.blob)

    async def _wait(self, method: bytes, claim: Claim, verdict: Awaitable[bool | None]) -> None:
        """Answer when the decision is made, and go on."""
        try:
            enrolled = await verdict
            if not self._over:
                self._judge(claim, claim.token is not None or bool(enrolled))
        except (ClaimRejected, Unauthorized) as error:
            if not self._over:
                self._refuse(method, error)
        self._working = False
        self._work()

    def _judge(self, claim: Claim, verdict: bool) -> None:
        """Accept the claim if the verdict is good.

        :raise AgentRejected: it is not.
        """
        if not verdict:
            raise AgentRejected(UNKNOWN_KEY, f"the key {claim.fingerprint} is not enrolled")
        assert self.transport is not None
        self._over = True
        self.transport.sendPacket(MSG_USERAUTH_SUCCESS, b"")
        self._accepted(claim)

    def _refuse(self, method: bytes, error: Exception) -> None:
        """Answer a rejected request; the owner of a key that is or was enrolled gets a notice first."""
        assert self.transport is not None
        rejection = _rejection(error)
        if method != NONE:
            self.refusals.append(rejection)
        if method == PUBLICKEY and rejection.kind in NOTICES:
            self.transport.sendPacket(MSG_USERAUTH_BANNER, NS(NOTICES[rejection.kind]) + NS(b""))
        if len(self.refusals) >= self._tries:
            self.transport.sendDisconnect(DISCONNECT_NO_MORE_AUTH_METHODS_AVAILABLE, b"not authorized")
        else:
            self.transport.sendPacket(MSG_USERAUTH_FAILURE, NS(PUBLICKEY + b"," + ENROL) + b"\0")


class UserAuthClient(SSHService):
    """The agent's side: offer the key first, then, with a token, enrol it.

    So an agent that restarts long after its token was used up is authenticated, and so is one whose
    connection was lost between the proxy's commit and its answer.

    :param refused: called with the kind of the proxy's notice, one of `NOTICES`; empty: there was none.
    """

    name = b"ssh-userauth"

    def __init__(
        self,
        cluster: str,
        key: KeyPair,
        token: str | None,
        succeeded: Callable[[], None],
        refused: Callable[[str], None],
    ) -> None:
        self._cluster = cluster
        self._key = key
        self._token = token
        self._succeeded = succeeded
        self._refused = refused
        self._notice = ""

    def serviceStarted(self) -> None:
        """Offer the key, signed at once: one round trip less than asking first."""
        assert self.transport is not None
        assert self.transport.sessionID is not None
        body = publickey_request(self.transport.sessionID, self._cluster, self._key)
        self.transport.sendPacket(MSG_USERAUTH_REQUEST, body)

    def serviceStopped(self) -> None:
        """Drop the token and references."""
        self._token = self.transport = None
        self._succeeded, self._refused = do_nothing, _ignore_notice

    def packetReceived(self, messageNum: int, packet: bytes) -> None:
        """Handle the proxy's answers."""
        if messageNum == MSG_USERAUTH_SUCCESS:
            self._succeeded()
        elif messageNum == MSG_USERAUTH_FAILURE:
            self._next(MessageReader(packet).names())
        elif messageNum == MSG_USERAUTH_BANNER:
            kind = MessageReader(packet).string().partition(b": ")[0].decode("ascii", "replace")
            self._notice = kind if kind in NOTICES else self._notice
        else:
            raise PeerError(f"message {messageNum} before authentication")

    def _next(self, methods: list[bytes]) -> None:
        transport: Any = self.transport
        token, self._token = self._token, None
        if token is None or ENROL not in methods or self._notice == DISABLED:
            self._refused(self._notice)
            return
        body = enrol_request(transport.sessionID, self._cluster, self._key, token)
        transport.send_secret(MSG_USERAUTH_REQUEST, body)

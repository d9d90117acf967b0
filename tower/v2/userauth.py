# mypy: untyped-calls-exclude=twisted
"""Authentication (RFC 4252), both sides, as services of Conch's transport.

These are not subclasses of Conch's `SSHUserAuthServer` and `SSHUserAuthClient`: those know a portal of
`twisted.cred` and passwords, wait up to ten hours, answer requests out of order when verdicts take time,
and tell a known key from an unknown one before a signature.  Here a request is answered after the one
before it, three failures end the connection, and every failure looks the same from outside.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

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

from tower.conch.transport.fields import MessageReader
from tower.conch.transport.keys import ED25519, KeyPair
from tower.conch.transport.limits import TooManyTunnels
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
from tower.v2.enrol import ENROL, Claim, NotAccepted, enrol_request, method_of, publickey_request, read_claim

#: Requests answered on one connection, failed or only asked; ssh asks once for each key it has.
REQUESTS = 12
#: Requests that may wait for the one before them.
WAITING = 4


class Gatekeeper(Protocol):
    """Knows which keys belong to which cluster: `tower.clusters.join_tokens.JoinTokens`.

    Either may raise `TooManyTunnels`, which ends the connection with that reason.
    """

    def is_enrolled(self, cluster: str, fingerprint: str, /) -> bool | Awaitable[bool]:
        """Return whether that key may serve that cluster."""

    def enrol(self, cluster: str, token: str, fingerprint: str, blob: bytes, /) -> Awaitable[None]:
        """Spend a use of *token* on that key.

        :raise Unauthorized: unknown cluster, bad, expired or spent token; its ``reason`` says which.
        """


def _nothing() -> None:
    """Stand in for what is not to be called any more."""


def _nobody(claim: Claim) -> None:
    """Stand in for who was told of the accepted claim."""


class UserAuthServer(SSHService):
    """The proxy's side.

    :param gate: decides.
    :param tries: failures after which the connection ends.
    :param accepted: called, once, with the claim that was accepted, after its success was sent.
    :ivar cluster: the name last claimed.
    :ivar refusals: why requests failed, for the log; never sent.
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
        self.cluster = ""
        self.refusals: list[str] = []

    def serviceStopped(self) -> None:
        """Forget what waits.  A verdict under way is not disturbed, only not listened to any more."""
        self._over = True
        self._waiting.clear()
        self._accepted = _nobody
        self.transport = None

    def packetReceived(self, messageNum: int, packet: bytes) -> None:
        """Take an authentication request; nothing else may come before one has succeeded."""
        if messageNum != MSG_USERAUTH_REQUEST:
            raise PeerError(f"message {messageNum} before authentication")
        self._requests += 1
        if self._requests > REQUESTS or len(self._waiting) >= WAITING:
            raise PeerError("too many authentication requests")
        self._waiting.append(packet)
        self._work()

    def _work(self) -> None:
        """Answer what waits, in order, until there is a verdict to be waited for."""
        try:
            while self._waiting and not (self._over or self._working):
                self._answer(self._waiting.pop(0))
        except Exception:  # noqa: BLE001 - whatever it is, nobody is let in, and the others go on
            self._failed(Failure())

    def _failed(self, failure: Failure) -> None:
        transport = self.transport
        code, text = DISCONNECT_PROTOCOL_ERROR, failure.getErrorMessage()
        if failure.check(TooManyTunnels):
            code = DISCONNECT_TOO_MANY_CONNECTIONS
        elif not failure.check(PeerError):
            self._log.failure("cannot let anybody serve {cluster!r}", failure, cluster=self.cluster)
            code, text = DISCONNECT_BY_APPLICATION, "try again later"
        if transport is not None:
            transport.sendDisconnect(code, text.encode())

    def _answer(self, body: bytes) -> None:
        assert self.transport is not None
        assert self.transport.sessionID is not None
        method = method_of(body)
        try:
            if method not in {PUBLICKEY, ENROL}:
                raise NotAccepted(f"method {method[:64]!r}")
            claim = read_claim(self.transport.sessionID, body)
            self.cluster = claim.cluster
            if not claim.proven:
                self.transport.sendPacket(MSG_USERAUTH_PK_OK, NS(ED25519) + NS(claim.blob))
                return
            verdict = self._ask(claim)
            if isinstance(verdict, bool):
                self._judge(claim, verdict)
                return
        except (NotAccepted, Unauthorized) as error:
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
        """Answer when there is a verdict, and go on."""
        try:
            said = await verdict
            if not self._over:
                self._judge(claim, claim.token is not None or bool(said))
        except (NotAccepted, Unauthorized) as error:
            if not self._over:
                self._refuse(method, error)
        self._working = False
        self._work()

    def _judge(self, claim: Claim, verdict: bool) -> None:
        """Let in whose claim was found good.

        :raise NotAccepted: it was not.
        """
        if not verdict:
            raise NotAccepted(f"the key {claim.fingerprint} may not serve it")
        assert self.transport is not None
        self._over = True
        self.transport.sendPacket(MSG_USERAUTH_SUCCESS, b"")
        self._accepted(claim)

    def _refuse(self, method: bytes, error: Exception) -> None:
        assert self.transport is not None
        if method != NONE:
            self.refusals.append(error.reason if isinstance(error, Unauthorized) else str(error))
        if len(self.refusals) >= self._tries:
            self.transport.sendDisconnect(DISCONNECT_NO_MORE_AUTH_METHODS_AVAILABLE, b"not authorized")
        else:
            self.transport.sendPacket(MSG_USERAUTH_FAILURE, NS(PUBLICKEY + b"," + ENROL) + b"\0")


class UserAuthClient(SSHService):
    """The agent's side: first its key, then, with a token, the enrolment of that key.

    So an agent that restarts long after its token was spent gets in, and so does one that was cut off
    between the proxy's commit and the proxy's answer.

    :param succeeded: called when the proxy has let us in.
    :param refused: called when it will not.
    """

    name = b"ssh-userauth"

    def __init__(
        self,
        cluster: str,
        key: KeyPair,
        token: str | None,
        succeeded: Callable[[], None],
        refused: Callable[[], None],
    ) -> None:
        self._cluster = cluster
        self._key = key
        self._token = token
        self._succeeded = succeeded
        self._refused = refused

    def serviceStarted(self) -> None:
        """Offer the key, signed at once: one round trip less than asking first."""
        assert self.transport is not None
        assert self.transport.sessionID is not None
        body = publickey_request(self.transport.sessionID, self._cluster, self._key)
        self.transport.sendPacket(MSG_USERAUTH_REQUEST, body)

    def serviceStopped(self) -> None:
        """Forget the token and whom to tell."""
        self._token = self.transport = None
        self._succeeded = self._refused = _nothing

    def packetReceived(self, messageNum: int, packet: bytes) -> None:
        """Take the proxy's answers."""
        if messageNum == MSG_USERAUTH_SUCCESS:
            self._succeeded()
        elif messageNum == MSG_USERAUTH_FAILURE:
            self._next(MessageReader(packet).names())
        elif messageNum != MSG_USERAUTH_BANNER:
            raise PeerError(f"message {messageNum} before authentication")

    def _next(self, methods: list[bytes]) -> None:
        transport: Any = self.transport
        token, self._token = self._token, None
        if token is None or ENROL not in methods:
            self._refused()
            return
        body = enrol_request(transport.sessionID, self._cluster, self._key, token)
        transport.send_secret(MSG_USERAUTH_REQUEST, body)

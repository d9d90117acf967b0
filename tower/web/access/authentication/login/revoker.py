"""Revokes the refresh tokens of login sessions that have ended."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from twisted.internet import defer
from twisted.internet.defer import Deferred, DeferredSemaphore
from twisted.logger import Logger

from tower.clusters.login.login_session import LoginSession
from tower.clusters.login.login_sessions import LoginSessions
from tower.errors import TowerError, one_line
from tower.web.access.authentication.login.token_endpoint import TokenRequests
from tower.web.access.authentication.oidc.method import OIDCMethod

#: Most requests to a provider at a time.
CONCURRENT = 20


class Revoker:
    """Revokes tokens; a provider that does not answer delays only its own.

    :param oidc: knows the providers.
    :param clients: client IDs by issuer.
    """

    _log = Logger()

    def __init__(
        self,
        sessions: LoginSessions,
        oidc: OIDCMethod,
        clients: Callable[[str], str],
        requests: TokenRequests,
    ) -> None:
        self._sessions = sessions
        self._oidc = oidc
        self._clients = clients
        self._requests = requests
        self._slots: defaultdict[str, DeferredSemaphore] = defaultdict(self._new_slots)  # by issuer
        self._revoking: dict[Deferred[None], None] = {}
        self._problems: dict[str, str] = {}  # by issuer, logged

    def revoke(self, session: LoginSession, token: str = "") -> None:
        """Begin to revoke the refresh token of an ended session; each problem is logged once.

        :param token: a newer one than the session's own.
        """
        if not session.sealed or self._oidc.provider(session.issuer) is None:
            return
        slots = self._slots[session.issuer]
        revoking = slots.run(lambda: Deferred.fromCoroutine(self._revoke(session, token)))
        self._revoking[revoking] = None
        revoking.addErrback(lambda failure: failure.trap(defer.CancelledError) and None)
        revoking.addErrback(lambda failure: self._log.failure("a refresh token was not revoked", failure))
        revoking.addBoth(lambda _: self._revoking.pop(revoking, None))

    def stop(self) -> None:
        """Cancel all requests."""
        for each in reversed(list(self._revoking)):  # no slot is free for one that waits
            each.cancel()

    def _new_slots(self) -> DeferredSemaphore:
        return DeferredSemaphore(CONCURRENT)

    async def _revoke(self, session: LoginSession, token: str) -> None:
        issuer, provider = session.issuer, self._oidc.provider(session.issuer)
        if provider is None:
            return
        try:
            token = token or self._sessions.refresh_token(session)
            await self._requests.revoke(provider, self._clients(issuer), token)
        except TowerError as e:
            if self._problems.get(issuer) != str(e):
                self._log.warn(
                    "a refresh token of {issuer} was not revoked: {reason}", issuer=issuer, reason=one_line(e)
                )
            self._problems[issuer] = str(e)
        else:
            self._problems.pop(issuer, None)

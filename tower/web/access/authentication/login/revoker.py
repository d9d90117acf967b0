"""Revokes the refresh tokens of login sessions that have ended."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from twisted.internet import defer
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from tower.clusters.login.login_session import LoginSession
from tower.clusters.login.login_sessions import LoginSessions
from tower.errors import TowerError, one_line
from tower.web.access.authentication.login.token_endpoint import TokenRequests
from tower.web.access.authentication.login.turns import Turns
from tower.web.access.authentication.oidc.method import OIDCMethod

#: Maximum number of concurrent requests to a provider.
CONCURRENT = 20

#: Maximum number of a user's revocations that wait for a provider.  Only a client that begins and ends
#: sessions in a loop exceeds it: a user who logs in has at most
#: `tower.web.login.session_requests.PERSON_LIMIT` sessions.
WAITING = 100


class Revoker:
    """Revokes tokens; a provider that does not answer delays only its own tokens, and its users take turns.

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
        # By issuer:
        self._waiting: defaultdict[str, Turns[tuple[LoginSession, str]]] = defaultdict(Turns)
        self._workers: defaultdict[str, set[Deferred[None]]] = defaultdict(set)
        self._problems: dict[str, str] = {}  # logged
        self._full: set[tuple[str, str]] = set()  # issuers and users with `WAITING` revocations; logged

    def revoke(self, session: LoginSession, token: str = "") -> None:
        """Begin to revoke the refresh token of an ended session; each problem is logged once.

        If `WAITING` tokens of the user wait already, the token is not revoked, and expires at the provider.

        :param token: a newer one than the session's own.
        """
        issuer, user = session.issuer, session.user
        if not session.sealed or self._oidc.provider(issuer) is None:
            return
        if self._waiting[issuer].count(user) >= WAITING:
            self._log_full(issuer, user)
            return
        self._waiting[issuer].add(user, (session, token))
        workers = self._workers[issuer]
        if len(workers) < CONCURRENT:
            worker = Deferred.fromCoroutine(self._work(issuer))
            workers.add(worker)
            worker.addErrback(lambda failure: failure.trap(defer.CancelledError) and None)
            worker.addBoth(lambda _: workers.discard(worker))

    def stop(self) -> None:
        """Cancel all requests."""
        for turns in self._waiting.values():
            turns.clear()
        for worker in [each for workers in self._workers.values() for each in workers]:
            worker.cancel()

    async def _work(self, issuer: str) -> None:
        """Revoke tokens of a provider one after the other until none waits."""
        turns = self._waiting[issuer]
        while turns:
            session, token = turns.pop()
            if not turns.count(session.user):
                self._full.discard((issuer, session.user))
            await self._revoke(session, token)

    def _log_full(self, issuer: str, user: str) -> None:
        """Log that a token is not revoked, once until no token of the user waits."""
        if (issuer, user) not in self._full:
            self._full.add((issuer, user))
            self._log.warn(
                "further refresh tokens of {user} are not revoked: {limit} of them wait for {issuer}; revoke "
                "the user's tokens there",
                user=user,
                limit=WAITING,
                issuer=issuer,
            )

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
        except defer.CancelledError:
            raise
        except Exception:  # noqa: BLE001 - the others must still be revoked
            self._log.failure("a refresh token of {issuer} was not revoked", issuer=issuer)
        else:
            self._problems.pop(issuer, None)

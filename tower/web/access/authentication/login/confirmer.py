"""Lets identity providers confirm the users of login sessions that are in use.

A session is confirmed by its refresh token.  If the provider refuses that, the user was removed, and the
session ends.  If the provider does not answer for so long that the last confirmation is `LIMIT` s old, the
session's requests end or are rejected, and the session itself goes on once the provider answers.
"""

from __future__ import annotations

import contextlib
import zlib
from collections import defaultdict
from collections.abc import Callable, Collection

from attrs import evolve
from twisted.internet import defer
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from tower.clusters.login.login_session import LoginSession
from tower.clusters.login.login_sessions import LoginSessions
from tower.errors import NotFound, TowerError, Unauthorized, one_line
from tower.kube.connection_settings import claims_of_token
from tower.kube.status import StatusError
from tower.store.records import StoreFailed
from tower.trust.session_tokens import SessionTokenClaims
from tower.web.access.authentication.identity import Extra, Identity
from tower.web.access.authentication.login.confirmation_queue import ConfirmationQueue
from tower.web.access.authentication.login.token_endpoint import (
    ProviderRefused,
    ProviderUnavailable,
    TokenRequests,
)
from tower.web.access.authentication.login.userinfo import session_of_userinfo
from tower.web.access.authentication.oidc.claimed_user import CREDENTIAL_ID
from tower.web.access.authentication.oidc.method import OIDCMethod, settings_of
from tower.web.access.authentication.oidc.provider import OIDCProvider
from tower.web.access.authentication.oidc.tokens import SignatureUnknown
from tower.web.access.authentication.presented import Presented

#: Age of the last confirmation at which a session in use is confirmed again at the latest, s.
AGE = 450.0

#: Most that this is earlier, s; differs between sessions, which may have begun together.
JITTER = 150.0

#: Age at which requests of the session end, s.  With `PERIOD`, this is within ten minutes.
LIMIT = 580.0

#: Interval of `Confirmer.check`, s.
PERIOD = 10.0

#: Tolerance for a clock that was set back since a confirmation, s.
SKEW = 300.0

#: Longest wait of a user's request for the provider, s.
WAIT = 15.0

_LOG_IN = "log in again ('tower login')"


class Confirmer:
    """Confirms sessions.

    :param oidc: verifies the provider's new ID tokens.
    :param clients: client IDs by issuer.
    :param revoke: begins to revoke a refresh token of an ended session that the store does not have.
    :param in_use: returns the IDs of the sessions that have requests in progress.
    :param seconds: returns the time, s since the epoch.
    :param clock: of timers.
    :ivar results: number of requests to providers by result.
    """

    _log = Logger()

    def __init__(
        self,
        sessions: LoginSessions,
        oidc: OIDCMethod,
        clients: Callable[[str], str],
        requests: TokenRequests,
        revoke: Callable[[LoginSession, str], object],
        in_use: Callable[[], Collection[str]],
        seconds: Callable[[], float],
        clock: IReactorTime,
    ) -> None:
        self._sessions = sessions
        self._oidc = oidc
        self._clients = clients
        self._requests = requests
        self._revoke = revoke
        self._in_use = in_use
        self._seconds = seconds
        self._clock = clock
        self._queues: defaultdict[str, ConfirmationQueue] = defaultdict(self._new_queue)  # by issuer
        self.results = {"confirmed": 0, "refused": 0, "unavailable": 0}
        self._confirmed: dict[str, float] = {}
        self._since: dict[str, float] = {}  # last confirmation, or first use; monotonic, by `clock`
        self._unsaved: dict[str, str] = {}  # refresh tokens that the store could not take yet
        self._refused: set[str] = set()  # by the provider, and not ended yet
        self._used: set[str] = set()  # since the last confirmation
        self._tried: dict[str, float] = {}  # last request to the provider, by `clock`
        self._problems: dict[str, str] = {}  # by issuer, logged
        sessions.watch(self._changed)

    def use(self, session: LoginSession) -> None:
        """Remember that a session is in use."""
        if session.is_confirmed_again:
            self._used.add(session.id)
            self._since.setdefault(session.id, self._clock.seconds())

    def is_overdue(self, session: LoginSession) -> bool:
        """Return whether the last confirmation of a session is too old."""
        if not session.is_confirmed_again:
            return False
        return session.id in self._refused or not self._age(session) < LIMIT

    def last_confirmed(self, session: LoginSession) -> float:
        """Return when the provider last confirmed the user of a session, s since the epoch."""
        return max(session.confirmed, self._confirmed.get(session.id, 0.0))

    def check(self) -> None:
        """Begin to confirm the sessions in use whose time has come; call this every `PERIOD` s.

        Users whose last request to the provider is the oldest are first, so that sessions that cannot be
        confirmed do not delay others.
        """
        due: list[tuple[float, float, LoginSession]] = []
        asked: dict[tuple[str, str], float] = {}  # last time, by issuer and user
        for session_id in {*self._in_use(), *self._used}:
            session = self._sessions.find(session_id)
            if session is None or not session.is_confirmed_again:
                self._used.discard(session_id)
            elif (age := self._age(session)) >= _due_age(session_id):
                user, tried = (session.issuer, session.user), self._tried.get(session_id, 0.0)
                asked[user] = max(asked.get(user, 0.0), tried)
                due.append((tried, -age, session))
        for _, _, session in sorted(due, key=lambda each: (asked[each[2].issuer, each[2].user], *each[:2])):
            self._queues[session.issuer].add(session.user, session.id)

    async def confirmed(self, session: LoginSession) -> None:
        """Confirm a session now; all callers wait for the same request, for `WAIT` s at most.

        :raise Unauthorized: the session has ended.
        :raise StatusError: the provider cannot be asked.
        """
        with contextlib.suppress(defer.TimeoutError):
            result = self._queues[session.issuer].result(session.user, session.id)
            await result.addTimeout(WAIT, self._clock)
        kept = self._sessions.find(session.id)
        if kept is None or kept.id in self._refused:
            raise ended()
        if self.is_overdue(kept):
            raise _unavailable(session)

    def stop(self) -> None:
        """End the requests to providers and the waits for them."""
        for queue in self._queues.values():
            queue.stop()

    def _age(self, session: LoginSession) -> float:
        """Return the time since the last confirmation, s; `LIMIT` if the confirmation is in the future.

        Setting the clock back does not shorten it.
        """
        age = self._seconds() - self.last_confirmed(session)
        now = self._clock.seconds()
        return max(age, now - self._since.get(session.id, now)) if age > -SKEW else LIMIT

    def _new_queue(self) -> ConfirmationQueue:
        return ConfirmationQueue(self._confirm, self._clock)

    async def _confirm(self, session_id: str) -> bool:
        """Confirm a session, or end it if it was refused; return False if the provider could not."""
        session = self._sessions.find(session_id)
        self._used.discard(session_id)
        if session is None:
            return True
        if session_id in self._refused:
            await self._end(session)
            return True
        self._tried[session_id] = self._clock.seconds()
        try:
            await self._ask(session)
        except (ProviderRefused, Unauthorized) as e:
            self.results["refused"] += 1
            self._log.info(
                "login session {id} of {user} ends: {reason}",
                id=session.id,
                user=session.user,
                reason=one_line(e),
            )
            await self._end(session)
        except TowerError as e:
            self.results["unavailable"] += 1
            self._used.add(session.id)
            if self._problems.get(session.issuer) != str(e):
                self._log.warn("login sessions cannot be confirmed: {reason}", reason=one_line(e))
            self._problems[session.issuer] = str(e)
            return False
        except defer.CancelledError:
            return False
        except Exception:  # noqa: BLE001 - the others must still be confirmed
            self._log.failure("login session {id} cannot be confirmed", id=session.id)
            return False
        else:
            self.results["confirmed"] += 1
            if self._problems.pop(session.issuer, None):
                self._log.info("login sessions of {issuer} are confirmed again", issuer=session.issuer)
        return True

    async def _ask(self, session: LoginSession) -> None:
        provider = self._oidc.provider(session.issuer)
        if provider is None or provider.fingerprint != session.settings:
            return  # the method rejects the session
        token = self._unsaved.get(session.id) or self._sessions.refresh_token(session)
        asked, begin = self._seconds(), self._clock.seconds()
        tokens = await self._requests.refresh(provider, self._clients(session.issuer), token)
        rotated = tokens.refresh_token if tokens.refresh_token != token else ""
        if self._sessions.find(session.id) is None:
            if rotated:
                self._revoke(session, rotated)
            return
        if rotated:
            self._unsaved[session.id] = rotated
        user = session
        if tokens.id_token:
            user = await self._refreshed(session, provider, tokens.id_token.encode())
        else:
            claims = await self._requests.userinfo(provider, tokens.access_token)
            user = session_of_userinfo(session, provider.issuer, claims)
        if self._sessions.find(session.id) is not None:
            self._confirmed[session.id], self._since[session.id] = asked, begin
        unsaved = self._unsaved.get(session.id, "")
        if not unsaved and user == session:
            return
        try:
            await self._sessions.confirm(evolve(user, confirmed=asked), unsaved)
            self._unsaved.pop(session.id, None)
        except NotFound:
            return
        except StoreFailed as e:
            self._log.warn("login session {id} is not stored: {reason}", id=session.id, reason=one_line(e))

    async def _refreshed(
        self, session: LoginSession, provider: OIDCProvider, id_token: bytes
    ) -> LoginSession:
        """Return the session with the user of a new ID token.

        :raise ProviderRefused: it is another user's.
        :raise ProviderUnavailable: the provider's keys cannot be got now.
        :raise Unauthorized: the user is not accepted any more.
        """
        if provider.keys is None:
            raise ProviderUnavailable(f"{session.issuer}: its keys are not known yet")
        try:
            found = self._oidc.authenticate(Presented(None, id_token))
            identity = await found if isinstance(found, Deferred) else found
        except SignatureUnknown as e:
            raise ProviderUnavailable(f"{session.issuer}: {e.reason}") from None
        if identity is None or settings_of(identity) != session.settings:
            raise ProviderUnavailable(f"{session.issuer}: its new ID token is of another issuer")
        subject = claims_of_token(id_token).get("sub")
        if (subject, identity.user) != (session.subject, session.user):
            raise ProviderRefused(f"the provider {session.issuer} answered with another user")
        return evolve(session, groups=identity.groups, uid=identity.uid, extra=lasting(identity.extra))

    async def _end(self, session: LoginSession) -> None:
        """End a refused session; if the store fails, `check` and each request retry."""
        try:
            await self._sessions.end(session.id)
        except (NotFound, StoreFailed):
            if self._sessions.find(session.id) is not None:
                self._refused.add(session.id)
                self._used.add(session.id)

    def _changed(self, session: LoginSession, ended: bool) -> None:
        if ended:
            self._confirmed.pop(session.id, None)
            self._since.pop(session.id, None)
            self._tried.pop(session.id, None)
            if unsaved := self._unsaved.pop(session.id, ""):
                self._revoke(session, unsaved)
            self._used.discard(session.id)
            self._refused.discard(session.id)


def _due_age(session_id: str) -> float:
    """Return the age of the last confirmation at which a session is confirmed again, s."""
    return AGE - JITTER * zlib.crc32(session_id.encode()) / 2**32


def lasting(extra: Extra) -> Extra:
    """Return the facts about a user that do not change with each token."""
    return tuple((name, values) for name, values in extra if name != CREDENTIAL_ID)


def ended() -> Unauthorized:
    """Return the error for a session that is unknown."""
    text = (
        "this login session has ended: it expired, or an administrator, a logout or the identity provider "
        f"ended it: {_LOG_IN}"
    )
    return Unauthorized(text, "unknown login session", "removed")


def identity_of(session: LoginSession, method: str, claims: SessionTokenClaims) -> Identity:
    """Return the user of a session with a token that has these contents."""
    return Identity(
        session.user,
        session.groups,
        uid=session.uid,
        extra=session.extra,
        method=method,
        key=session.id,
        expires=session.expires,
        until=claims.expires,
        scope=claims.cluster,
    )


def _unavailable(session: LoginSession) -> StatusError:
    return StatusError(
        503,
        f"the identity provider {session.issuer} does not answer, and must confirm {session.user} every ten "
        "minutes: retry in some seconds",
        details={"retryAfterSeconds": int(PERIOD)},
    )

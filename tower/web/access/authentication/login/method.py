"""Authentication of users by tokens of their login sessions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from twisted.internet.defer import Deferred

from tower.clusters.login.login_session import LoginSession
from tower.clusters.login.login_sessions import LoginSessions
from tower.errors import Outdated, Unauthorized
from tower.trust.session_tokens import (
    LEEWAY,
    LONGEST,
    BadSessionToken,
    SessionTokenClaims,
    is_session_token,
    session_of,
    verified_claims,
)
from tower.web.access.authentication.identity import Identity
from tower.web.access.authentication.login.confirmer import Confirmer, ended, identity_of
from tower.web.access.authentication.presented import Presented

_LOG_IN = "log in again ('tower login')"
_CLOCK = "the clock of this machine or of the proxy is wrong: correct it, or log in again ('tower login')"


class KnownSettings(Protocol):
    """Knows the issuers that are configured."""

    def __call__(self, issuer: str) -> str:
        """Return the fingerprint of the settings of an issuer; empty: it is not configured."""


class LoginMethod:
    """The method ``login``.

    :param settings: the issuers; a session ends when those of its issuer change.
    :param seconds: returns the time, s since the epoch.
    """

    method = "login"

    def __init__(
        self,
        sessions: LoginSessions,
        confirmer: Confirmer,
        settings: KnownSettings,
        seconds: Callable[[], float],
    ) -> None:
        self._sessions = sessions
        self._confirmer = confirmer
        self._settings = settings
        self._seconds = seconds

    def authenticate(self, presented: Presented) -> Identity | Deferred[Identity | None] | None:
        """Return the user of a session's token; None: there is none.

        :raise Unauthorized: see `tower.web.access.authentication.presented.AuthenticationMethod`.
        """
        bearer = presented.bearer
        if bearer is None or not is_session_token(bearer):
            return None
        try:
            session = self._found(session_of(bearer))
            claims = self._valid(bearer, session)
        except BadSessionToken as e:
            raise Unauthorized(
                f"the token of the login session is not valid, {e}: {_LOG_IN}", str(e)
            ) from None
        self._confirmer.use(session)
        if self._confirmer.is_overdue(session):
            return Deferred.fromCoroutine(self._after_confirmation(session, claims))
        return identity_of(session, self.method, claims)

    def check(self, identity: Identity) -> None:
        """Check that *identity* of this method, cached on a connection, is still valid.

        :raise Unauthorized: its token has expired, or the session has ended.
        :raise Outdated: the user has changed, or must be confirmed.
        """
        self._confirmer.use(self._checked(identity))
        if self._seconds() >= identity.until:
            raise Unauthorized(f"the token of the login session has expired: {_LOG_IN}", "expired", "expired")

    def check_lasting(self, identity: Identity) -> None:
        """Check that requests of *identity* which are in progress may go on; like `check`."""
        self._checked(identity)

    def _checked(self, identity: Identity) -> LoginSession:
        session = self._found(identity.key)
        if (session.user, session.groups, session.uid, session.extra) != (
            identity.user,
            identity.groups,
            identity.uid,
            identity.extra,
        ):
            text = (
                f"the groups of {identity.user} have changed at the identity provider: run the command again"
            )
            raise Outdated(text, "the user has changed", "other")
        if self._confirmer.is_overdue(session):
            raise Outdated(
                f"the identity provider {session.issuer} has not confirmed {session.user} for ten minutes: "
                "run the command again, and check that the provider runs",
                "the user is not confirmed",
                "other",
            )
        return session

    def _found(self, session_id: str) -> LoginSession:
        session = self._sessions.find(session_id)
        if session is None:
            raise ended()
        if self._settings(session.issuer) != session.settings:
            raise Unauthorized(
                f"the issuer of {session.user} was changed or removed: {_LOG_IN}",
                "the OIDC issuer was changed or removed",
                "removed",
            )
        return session

    def _valid(self, bearer: bytes, session: LoginSession) -> SessionTokenClaims:
        """Return the contents of a token that is valid now.

        :raise BadSessionToken: another key has signed it.
        :raise Unauthorized: it is not valid now.
        """
        claims, now = verified_claims(bearer, session.key), self._seconds()
        if claims.issued > now + LEEWAY:
            text = f"the token of the login session is from the future: {_CLOCK}"
            raise Unauthorized(text, "a token from the future", "not-yet-valid")
        if claims.expires - claims.issued > LONGEST:
            raise BadSessionToken("it lasts longer than ten minutes")
        if now >= claims.expires:
            text = f"the token of the login session has expired: {_CLOCK}"
            raise Unauthorized(text, "an expired token", "expired")
        return claims

    async def _after_confirmation(self, session: LoginSession, claims: SessionTokenClaims) -> Identity:
        await self._confirmer.confirmed(session)
        return identity_of(self._found(session.id), self.method, claims)

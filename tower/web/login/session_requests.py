"""Begins and ends login sessions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from attrs import frozen
from twisted.logger import Logger

from tower.clusters.login.login_session import LoginSession
from tower.clusters.login.login_sessions import LoginSessions
from tower.errors import Forbidden, Invalid, NotFound, one_line
from tower.kube.connection_settings import claims_of_token
from tower.store.records import StoreFailed
from tower.trust.login_nonce import is_own_server, login_nonce
from tower.trust.session_tokens import check_public_text
from tower.web.access.authentication.identity import Identity
from tower.web.access.authentication.login.confirmer import Confirmer, lasting
from tower.web.access.authentication.login.revoker import Revoker
from tower.web.access.authentication.login.token_endpoint import REFRESH_TOKEN_LIMIT
from tower.web.access.authentication.oidc.claims import audiences_of
from tower.web.access.authentication.oidc.method import OIDCMethod, settings_of
from tower.web.access.authentication.oidc.provider import OIDCProvider
from tower.web.login.entered_clusters import EnteredClusters
from tower.web.login.login_settings import LoginSettings

#: Oldest ID token of a user that begins a session without a refresh token, s.
FRESH = 600.0

#: Most sessions of a user who logs in.
PERSON_LIMIT = 50

#: Longest description of a client, characters.
CLIENT_LIMIT = 200

#: Longest URL of a front door, characters.
_SERVER_LIMIT = 300

_FIELDS = ("publicKey", "server", "refreshToken", "client")


@frozen(eq=False)
class SessionRequests:
    """Begins and ends sessions.

    :param seconds: returns the time, s since the epoch.
    :param names: returns the names of the front door; see `tower.trust.login_nonce.is_own_server`.
    """

    _log = Logger()

    sessions: LoginSessions
    _confirmer: Confirmer
    _revoker: Revoker
    _oidc: OIDCMethod
    _clusters: EnteredClusters
    _settings: LoginSettings
    _seconds: Callable[[], float]
    _names: Callable[[], Collection[str]]

    async def begin(self, identity: Identity, bearer: bytes, body: Mapping[str, Any]) -> LoginSession:
        """Return a new session of the user of an ID token.

        :param body: the client's object.
        :raise TowerError: the token or the object is not right for a session.
        """
        if identity.method != self._oidc.method:
            raise Forbidden(
                f"a login session begins with an ID token of an identity provider, and {identity.user} was "
                "authenticated otherwise: use 'tower login'"
            )
        if unknown := sorted(set(body) - set(_FIELDS)):
            raise Invalid(f"{unknown[0]}: unknown; the fields are {', '.join(_FIELDS)}")
        try:
            key = check_public_text(body.get("publicKey"))
        except ValueError as e:
            raise Invalid(f"publicKey: {e}") from None
        refresh_token = _text(body, "refreshToken", REFRESH_TOKEN_LIMIT)
        claims, now = claims_of_token(bearer), self._seconds()
        issuer = str(claims.get("iss"))
        provider = self._oidc.provider(issuer)
        if provider is None or provider.fingerprint != settings_of(identity):
            raise Forbidden(f"the issuer {issuer[:200]} was changed meanwhile: log in again")
        client = self._settings.client_of(issuer)
        is_person = bool(client) and client in audiences_of(claims)
        given: Any = claims.get("iat")
        issued = min(now, float(given)) if type(given) in (int, float) else 0.0
        if is_person:
            self._check_nonce(
                provider, identity, claims.get("nonce"), key, _text(body, "server", _SERVER_LIMIT)
            )
            self._check_person(provider, refresh_token, now - issued)
        else:
            refresh_token = ""
            if not await self._clusters.of(identity):
                raise Forbidden(
                    f"no access policy admits {identity.user} to a cluster: ask an administrator of Tower "
                    "for one ('tower access explain USER CLUSTER' shows the decision)",
                    "access-policy",
                )
        ttl = self._settings.session_ttl if is_person else self._settings.workload_ttl
        expires = now + ttl
        if client and not is_person:  # perhaps of a user, and not confirmed
            expires = min(expires, identity.expires)
        session = LoginSession(
            "",
            identity.user,
            identity.groups,
            identity.uid,
            lasting(identity.extra),
            provider.issuer.url,
            provider.fingerprint,
            str(claims.get("sub")),
            key,
            now,
            expires,
            issued,
            client=_text(body, "client", CLIENT_LIMIT),
        )
        session = await self.sessions.add(session, refresh_token)
        if is_person:
            await self._end_surplus(session)
        return session

    async def end(self, session: LoginSession) -> None:
        """End a session, and begin to revoke its refresh token.

        :raise NotFound: it has ended already.
        """
        self._revoker.revoke(await self.sessions.end(session.id))

    async def _end_surplus(self, new: LoginSession) -> None:
        """End the sessions of a user that began or were confirmed, so used, least recently.

        `PERSON_LIMIT` remain.  This is after the store has the new session: so concurrent logins count each
        other, and a login that fails ends no session.

        :param new: the latest session; it remains.
        """
        others = [
            each
            for each in self.sessions.of_user(new.user)
            if each.issuer == new.issuer and each.id != new.id
        ]
        others.sort(key=lambda each: max(each.created, self._confirmer.last_confirmed(each)))
        for each in others[: max(0, len(others) + 1 - PERSON_LIMIT)]:
            self._log.info(
                "login session {id} of {user} ends: the user has {limit} newer ones",
                id=each.id,
                user=each.user,
                limit=PERSON_LIMIT,
            )
            try:
                await self.end(each)
            except NotFound:
                continue  # ended meanwhile
            except StoreFailed as e:
                self._log.warn(
                    "login session {id} goes on until the user's next login: {reason}",
                    id=each.id,
                    reason=one_line(e),
                )

    def needs_refresh_token(self, issuer: str) -> bool:
        """Return whether a user's login at *issuer* must have a refresh token."""
        provider = self._oidc.provider(issuer)
        return (
            provider is not None and self._settings.requires_refresh and has_refresh_tokens(provider.document)
        )

    def _check_nonce(
        self, provider: OIDCProvider, identity: Identity, nonce: object, key: str, server: str
    ) -> None:
        """Check that a user's ID token is for a session with *key* at this front door.

        :raise Forbidden: it is for another one, or perhaps; with the cure.
        """
        if nonce is None:
            if self._accepts_without_nonce(provider):
                return
            problem = (
                "the ID token has no nonce, and could be of a login at another Tower: run 'tower login' on a "
                "machine with a browser"
            )
        elif not server or nonce != login_nonce(server, key):
            problem = "the ID token is of another login: log in again ('tower login')"
        elif not is_own_server(server, self._names()):
            problem = (
                f"the login is for {server}, and this Tower has another name: log in at one of its names; if "
                "this should be one, let an administrator set --external-hostname"
            )
        else:
            return
        self._log.warn("login of {user} is rejected: {reason}", user=identity.user, reason=problem)
        raise Forbidden(problem)

    def _accepts_without_nonce(self, provider: OIDCProvider) -> bool:
        """Return whether an ID token may be of a device code, or is a credential of clusters anyway."""
        if not self._settings.accepts_device_codes:
            return False
        return not self._settings.is_exclusive or bool(provider.document.get("device_authorization_endpoint"))

    def _check_person(self, provider: OIDCProvider, refresh_token: str, age: float) -> None:
        """Check that the provider can confirm the user, or has just done so.

        :raise Forbidden: it cannot; with the cure.
        """
        if refresh_token:
            return
        url = provider.issuer.url
        if self.needs_refresh_token(url):
            raise Forbidden(
                f"the identity provider {url} has refresh tokens, and gave none, so it could not confirm the "
                f"user later: let it give the client {self._settings.client_of(url)} refresh tokens (scope "
                "offline_access), or set --login-without-refresh-token of the proxy"
            )
        if age > FRESH:
            raise Forbidden(f"the ID token is {age / 60:.0f} minutes old: log in again ('tower login')")


def has_refresh_tokens(document: Mapping[str, Any]) -> bool:
    """Return whether a provider gives refresh tokens, as its discovery document shows."""
    grants, scopes = document.get("grant_types_supported"), document.get("scopes_supported")
    return (isinstance(grants, list) and "refresh_token" in grants) or (
        isinstance(scopes, list) and "offline_access" in scopes
    )


def _text(body: Mapping[str, Any], name: str, limit: int) -> str:
    value = body.get(name, "")
    if not isinstance(value, str) or len(value) > limit or not value.isprintable() or not value.isascii():
        raise Invalid(f"{name}: must be a printable ASCII text of at most {limit} characters")
    return value

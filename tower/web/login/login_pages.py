"""The pages: discovery without authentication, and the user's own session and clusters."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from attrs import frozen
from twisted.internet.defer import Deferred

from tower.clusters.login.login_session import LoginSession
from tower.errors import Forbidden
from tower.kube.status import StatusError
from tower.kube.timestamps import timestamp
from tower.web.access.audit.changes import by_author
from tower.web.access.authentication.oidc.issuer import IssuerSettings
from tower.web.api.calls.call import call_of
from tower.web.gateway.request import Request
from tower.web.login.entered_clusters import EnteredClusters
from tower.web.login.issuer_authorities import IssuerAuthorities
from tower.web.login.login_settings import LoginSettings
from tower.web.login.session_requests import SessionRequests
from tower.web.outcome import JSON_TYPE, Outcome, Response
from tower.web.ports.plain_port import only_read

#: The discovery document, readable by everyone.
DISCOVERY = b"/.well-known/tower-login"

#: Beginning of the other pages, for authenticated users.
PREFIX = b"/login/"

#: `apiVersion` of the objects.
API_VERSION = "login.tower.kubesphere.io/v1"


@frozen(eq=False)
class LoginPages:
    """Answers requests to the pages; those of `PREFIX` are authenticated before.

    :param issuers: returns the settings of all issuers.
    :param authorities: returns the CAs that verify the front door for users, PEM; empty: those of their
        systems.
    :param provider_authorities: CAs of the providers.
    """

    _requests: SessionRequests
    _clusters: EnteredClusters
    _settings: LoginSettings
    _issuers: Callable[[], Iterable[IssuerSettings]]
    _authorities: Callable[[], bytes]
    _provider_authorities: IssuerAuthorities

    def discovery(self, request: Request) -> Response:
        """Return what a client needs to know to log in."""
        only_read(request)
        persons, tokens = [], []
        for issuer in self._issuers():
            client = self._settings.client_of(issuer.url)
            if client:
                authority = self._provider_authorities.of(issuer)
                shown: dict[str, Any] = {"url": issuer.url, "clientID": client}
                if issuer.url in self._settings.secrets:
                    shown["clientSecret"] = self._settings.secrets[issuer.url]
                if issuer.discovery_url:
                    shown["discoveryURL"] = issuer.discovery_url
                if self._requests.needs_refresh_token(issuer.url):
                    shown["refreshToken"] = True
                if not self._settings.accepts_device_codes:
                    shown["deviceCode"] = False
                persons.append({**shown, **({"certificateAuthority": authority} if authority else {})})
            else:
                tokens.append({"url": issuer.url, "audiences": list(issuer.audiences)})
        document = {
            "apiVersion": API_VERSION,
            "kind": "LoginConfiguration",
            "issuers": persons,
            "tokenIssuers": tokens,
            "certificateAuthority": self._authorities().decode("ascii"),
        }
        answer = Response.of_json(document)
        return Response(200, answer.body, (JSON_TYPE, (b"Cache-Control", b"no-cache")))

    def __call__(self, request: Request) -> Deferred[Outcome]:
        """Return the answer to an authenticated request, which the audit log has.

        :raise Forbidden: through the Deferred: the request has an identity field.
        :raise StatusError: through the Deferred: the page does not exist, or not for this method.
        """
        return by_author(request, self._audited(request))

    async def _audited(self, request: Request) -> Outcome:
        """Answer a request once the audit log has its first event, if it must."""
        waiting = request.audit("")
        if waiting is not None:
            await waiting
        if foreign := request.fields.foreign:
            raise Forbidden(
                f"the header {foreign.decode('latin-1')} is not accepted: the pages of logins are about the "
                "user who sends the request; omit it (kubectl: --as, --as-group and --as-uid)",
                "impersonation",
            )
        match request.method, request.path:
            case ((b"GET" | b"HEAD"), b"/login/clusters"):
                items = await self._items(request)
                return _private({"apiVersion": API_VERSION, "kind": "ClusterList", "items": items})
            case ((b"GET" | b"HEAD"), b"/login/session"):
                return _private(await self._shown(request, self._session(request)))
            case b"DELETE", b"/login/session":
                return await self._end(request)
            case b"POST", b"/login/sessions":
                return await self._begin(request)
            case _, (b"/login/clusters" | b"/login/session" | b"/login/sessions"):
                raise StatusError(405, f"{request.method.decode()} is not supported on this path")
        raise StatusError(404, "there is no such page of logins: use 'tower login'")

    async def _begin(self, request: Request) -> Outcome:
        identity: Any = request.identity
        body = await call_of(request).read()
        session = await self._requests.begin(identity, request.fields.bearer or b"", body)
        return _private(await self._shown(request, session), 201)

    async def _end(self, request: Request) -> Outcome:
        session = self._session(request)
        await self._requests.end(session)
        return _private({"apiVersion": "v1", "kind": "Status", "status": "Success"})

    def _session(self, request: Request) -> LoginSession:
        identity: Any = request.identity
        session = self._requests.sessions.find(identity.key) if identity.method == "login" else None
        if session is None:
            raise StatusError(
                404, f"{identity.user} has no login session with this credential: use 'tower login'"
            )
        return session

    async def _items(self, request: Request) -> list[dict[str, Any]]:
        identity: Any = request.identity
        return await self._clusters.of(identity)

    async def _shown(self, request: Request, session: LoginSession) -> dict[str, Any]:
        return {
            "apiVersion": API_VERSION,
            "kind": "LoginSession",
            "id": session.id,
            "user": session.user,
            "groups": list(session.groups),
            "issuer": session.issuer,
            "expirationTimestamp": timestamp(session.expires),
            "confirmed": session.is_confirmed_again,
            "clusters": await self._items(request),
        }


def _private(value: dict[str, Any], code: int = 200) -> Response:
    answer = Response.of_json(value, code)
    return Response(code, answer.body, (JSON_TYPE, (b"Cache-Control", b"no-store")))

"""Requests to a provider's endpoints of tokens (OAuth 2.0, RFC 6749), revocation (RFC 7009) and users."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol
from urllib.parse import urlencode

from attrs import field, frozen
from twisted.internet.task import deferLater
from twisted.web.iweb import IAgent

from tower.cloud.errors import CloudUnreachable
from tower.cloud.http.exchange import CloudRequest, send
from tower.errors import PeerError
from tower.http.verifying_agent import verifying_agent
from tower.reactor.interfaces import IReactor
from tower.web.access.authentication.oidc.provider import OIDCProvider
from tower.web.access.authentication.oidc.tokens import parsed_json

#: Longest time for one request, s.
TIMEOUT = 10.0

#: Pause before a token is revoked again that could not be revoked at first, s.
RETRY = 5.0

#: Longest answer, B, and longest refresh token.
ANSWER_LIMIT = 256 * 1024
REFRESH_TOKEN_LIMIT = 16 * 1024

#: Errors that end a session: the user was removed, or the provider ended its own session.
_FINAL = ("invalid_grant", "invalid_request", "unauthorized_client", "access_denied")


class ProviderUnavailable(PeerError):
    """The provider did not confirm the user, and did not refuse it either."""


class ProviderRefused(PeerError):
    """The provider does not confirm the user any more."""


@frozen
class RefreshedTokens:
    """The provider's answer.

    :ivar id_token: empty: the answer has none.
    :ivar refresh_token: the next one; empty: the former one stays.
    :ivar access_token: for `TokenRequests.userinfo`.
    """

    id_token: str = field(repr=False)
    refresh_token: str = field(repr=False)
    access_token: str = field(default="", repr=False)


class TokenRequests(Protocol):
    """Requests to providers."""

    async def refresh(self, provider: OIDCProvider, client_id: str, refresh_token: str) -> RefreshedTokens:
        """Return new tokens of the user with this refresh token.

        :raise ProviderRefused: the provider does not confirm the user.
        :raise ProviderUnavailable: it cannot be asked now.
        """

    async def userinfo(self, provider: OIDCProvider, access_token: str) -> Mapping[str, Any]:
        """Return the claims of the user with this access token, at least ``sub``.

        :raise ProviderUnavailable: the provider cannot be asked now.
        """

    async def revoke(self, provider: OIDCProvider, client_id: str, refresh_token: str) -> None:
        """Revoke a refresh token (RFC 7009), if the provider supports that.

        :raise ProviderUnavailable: it cannot be asked now, or does not confirm it.
        """


def _unavailable(
    provider: OIDCProvider, endpoint: str, code: int, value: Mapping[str, Any]
) -> ProviderUnavailable:
    error = value.get("error")
    shown = f" ({error[:100]})" if isinstance(error, str) and error.isprintable() else ""
    return ProviderUnavailable(f"{provider.issuer.url}: its {endpoint} endpoint answered {code}{shown}")


class TokenEndpoint:
    """Sends the requests over verified TLS.

    :param agent: None: Tower's verifying one with the issuer's CAs.
    :param secrets: of the client at each issuer that gave it one.
    """

    def __init__(
        self, reactor: IReactor, agent: IAgent | None = None, secrets: Mapping[str, str] | None = None
    ) -> None:
        self._reactor = reactor
        self._agent = agent
        self._secrets = secrets or {}

    async def refresh(self, provider: OIDCProvider, client_id: str, refresh_token: str) -> RefreshedTokens:
        """See `TokenRequests.refresh`."""
        form = {"grant_type": "refresh_token", "refresh_token": refresh_token, "client_id": client_id}
        try:
            code, value = await self._post(provider, "token_endpoint", form)
        except CloudUnreachable:
            # The answer may be lost; many providers accept the former token for some seconds more.
            code, value = await self._post(provider, "token_endpoint", form)
        if code == 200:
            tokens = [value.get(f"{kind}_token", "") for kind in ("id", "refresh", "access")]
            are_texts = all(isinstance(each, str) and len(each) <= REFRESH_TOKEN_LIMIT for each in tokens)
            if not (are_texts and tokens[-1] and tokens[-1].isascii() and tokens[-1].isprintable()):
                raise ProviderUnavailable(
                    f"{provider.issuer.url}: its token endpoint answered malformed tokens"
                )
            return RefreshedTokens(*tokens)
        error = value.get("error")
        if code in (400, 401, 403) and error in _FINAL:
            raise ProviderRefused(f"the provider {provider.issuer.url} answered {error}")
        raise _unavailable(provider, "token", code, value)

    async def userinfo(self, provider: OIDCProvider, access_token: str) -> Mapping[str, Any]:
        """See `TokenRequests.userinfo`."""
        headers = {"authorization": f"Bearer {access_token}"}
        code, value = await self._send("GET", provider, "userinfo_endpoint", headers)
        if code != 200 or not isinstance(value.get("sub"), str):
            raise ProviderUnavailable(
                f"{provider.issuer.url}: its userinfo endpoint answered {code}, no user"
            )
        return value

    async def revoke(self, provider: OIDCProvider, client_id: str, refresh_token: str) -> None:
        """See `TokenRequests.revoke`."""
        if provider.document.get("revocation_endpoint"):
            form = {"token": refresh_token, "token_type_hint": "refresh_token", "client_id": client_id}
            try:
                code, value = await self._post(provider, "revocation_endpoint", form)
            except CloudUnreachable:
                code, value = 503, {}
            if code == 503:
                await deferLater(self._reactor, RETRY)
                code, value = await self._post(provider, "revocation_endpoint", form)
            if code != 200:
                raise _unavailable(provider, "revocation", code, value)

    async def _post(
        self, provider: OIDCProvider, name: str, form: Mapping[str, str]
    ) -> tuple[int, dict[str, Any]]:
        headers = {"content-type": "application/x-www-form-urlencoded"}
        secret = self._secrets.get(provider.issuer.url)
        form = {**form, **({"client_secret": secret} if secret else {})}
        return await self._send("POST", provider, name, headers, urlencode(form).encode())

    async def _send(
        self, method: str, provider: OIDCProvider, name: str, headers: Mapping[str, str], body: bytes = b""
    ) -> tuple[int, dict[str, Any]]:
        issuer, url = provider.issuer, provider.document.get(name)
        if not isinstance(url, str) or not url.startswith("https://"):
            cause = provider.problem or f"its discovery document has no {name} with https"
            raise ProviderUnavailable(f"{issuer.url}: {cause}")
        agent = self._agent or verifying_agent(
            self._reactor, TIMEOUT, issuer.ca_file, authorities=issuer.authorities
        )
        request = CloudRequest(method, url, {"accept": "application/json", **headers}, body)
        answer = await send(self._reactor, agent, request, TIMEOUT)
        try:
            value = parsed_json(answer.body[:ANSWER_LIMIT])
        except ValueError:
            value = None
        return answer.code, value if isinstance(value, dict) else {}

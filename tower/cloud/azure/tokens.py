"""Tokens for Azure, with an application's login or the machine's managed identity."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from urllib.parse import quote, urlencode

from tower.cloud.azure.assertions import federated_token, signed_assertion
from tower.cloud.azure.config import AzureConfig
from tower.cloud.errors import CloudAnswerError, CloudError, CloudUnreachable
from tower.cloud.http.answer import Answer, error_detail
from tower.cloud.session import CloudSession

#: Version of the metadata service's API for tokens.
TOKEN_VERSION = "2018-02-01"  # noqa: S105 (a date)

#: Version of the metadata service's API for the machine.
INSTANCE_VERSION = "2021-02-01"

_METADATA_HEADERS = {"metadata": "true"}
_ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"


class NoToken(CloudError):
    """Azure does not issue a token."""


class Tokens:
    """Fetches tokens with the login of a configuration.

    :param now: returns s since the epoch.
    """

    def __init__(
        self, session: CloudSession, config: AzureConfig, now: Callable[[], float] = time.time
    ) -> None:
        self._session = session
        self._config = config
        self._now = now

    async def fetch(self) -> tuple[str, float]:
        """Return a token and its lifetime, s.

        :raise NoToken: with Azure's reason.
        :raise CloudError: there is no response.
        """
        answer = await (self._of_machine() if self._config.managed else self._of_application())
        try:
            fields = answer.json()
            # The metadata service sends numbers as strings.
            token, life = fields["access_token"], float(fields["expires_in"])
        except (TypeError, KeyError, ValueError):
            raise NoToken(f"{answer.url}: the response has no token") from None
        if not isinstance(token, str) or not token.isascii() or not token.isprintable() or " " in token:
            raise NoToken(f"{answer.url}: the response has no token")
        return token, life

    async def _of_application(self) -> Answer:
        url = f"{self._config.login}/{quote(self._config.tenant, safe='')}/oauth2/v2.0/token"
        proof = self._proof(url)
        form = {
            "grant_type": "client_credentials",
            "client_id": self._config.client,
            "scope": f"{self._config.audience.rstrip('/')}/.default",
            **proof,
        }
        headers = {"content-type": "application/x-www-form-urlencoded"}
        try:
            return await self._session.request("POST", url, headers=headers, body=urlencode(form).encode())
        except CloudAnswerError as e:
            raise NoToken(f"no token for client {self._config.client}: {_without(proof, e)}") from None

    def _proof(self, url: str) -> dict[str, str]:
        config = self._config
        if config.token_file:
            assertion = federated_token(config.token_file)
        elif config.certificate:
            assertion = signed_assertion(
                config.certificate, config.certificate_password, config.client, url, self._now()
            )
        else:
            return {"client_secret": config.secret}
        return {"client_assertion_type": _ASSERTION, "client_assertion": assertion}

    async def _of_machine(self) -> Answer:
        query = {"api-version": TOKEN_VERSION, "resource": self._config.audience}
        if self._config.identity:
            is_resource = self._config.identity.startswith("/")
            query["msi_res_id" if is_resource else "client_id"] = self._config.identity
        url = f"{self._config.metadata}/metadata/identity/oauth2/token?{urlencode(query)}"
        try:
            # A service that is being updated responds with 404 or 410.
            return await self._session.request(
                "GET",
                url,
                headers=_METADATA_HEADERS,
                timeout=5.0,
                again=lambda answer: answer.code in (404, 410),
            )
        except CloudUnreachable as e:
            raise NoToken(f"no token for the managed identity, no metadata service: {e}") from None
        except CloudAnswerError as e:
            raise NoToken(f"no token for the managed identity: {e.detail or e}") from None


def _without(proof: Mapping[str, str], error: CloudAnswerError) -> str:
    """Return Azure's message without secret and assertion, which it may repeat."""
    secrets = [proof[name] for name in ("client_secret", "client_assertion") if proof.get(name)]
    return error_detail(error.body, secrets) or f"HTTP status {error.code}"


async def read_compute(session: CloudSession, config: AzureConfig) -> dict[str, object]:
    """Return the metadata service's data about this machine.

    :raise CloudError: this machine is not in Azure.
    """
    url = f"{config.metadata}/metadata/instance/compute?api-version={INSTANCE_VERSION}&format=json"
    answer = await session.request("GET", url, headers=_METADATA_HEADERS, timeout=5.0, attempts=2)
    fields = answer.json()
    if not isinstance(fields, dict):
        raise answer.unexpected()
    return fields

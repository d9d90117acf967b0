"""Tokens for Azure: for a client that proves who it is, or for being a machine with an identity."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from urllib.parse import quote, urlencode

from tower.cloud.azure.assertions import federated_token, signed_assertion
from tower.cloud.azure.config import AzureConfig
from tower.cloud.errors import CloudAnswerError, CloudError, CloudUnreachable
from tower.cloud.http.answer import Answer, what_it_says
from tower.cloud.session import CloudSession

#: Version of the metadata service's tokens.
TOKEN_VERSION = "2018-02-01"  # noqa: S105 (a date)

#: Version of what the metadata service says of the machine.
INSTANCE_VERSION = "2021-02-01"

_HERE = {"metadata": "true"}
_ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"


class NoToken(CloudError):
    """Azure gives us no token."""


class Tokens:
    """Fetches tokens as a configuration says.

    :param now: tells the time, s since the epoch.
    """

    def __init__(
        self, session: CloudSession, config: AzureConfig, now: Callable[[], float] = time.time
    ) -> None:
        self._session = session
        self._config = config
        self._now = now

    async def fetch(self) -> tuple[str, float]:
        """Return a token, and how long it lives, s.

        :raise NoToken: with the reason that was given.
        :raise CloudError: nobody answers.
        """
        answer = await (self._of_the_machine() if self._config.managed else self._for_the_client())
        try:
            said = answer.json()
            # The metadata service writes numbers as texts.
            token, life = said["access_token"], float(said["expires_in"])
        except (TypeError, KeyError, ValueError):
            raise NoToken(f"{answer.url}: the answer has no token") from None
        if not isinstance(token, str) or not token.isascii() or not token.isprintable() or " " in token:
            raise NoToken(f"{answer.url}: the answer has no token")
        return token, life

    async def _for_the_client(self) -> Answer:
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
            said = federated_token(config.token_file)
        elif config.certificate:
            said = signed_assertion(
                config.certificate, config.certificate_password, config.client, url, self._now()
            )
        else:
            return {"client_secret": config.secret}
        return {"client_assertion_type": _ASSERTION, "client_assertion": said}

    async def _of_the_machine(self) -> Answer:
        query = {"api-version": TOKEN_VERSION, "resource": self._config.audience}
        if self._config.identity:
            is_resource = self._config.identity.startswith("/")
            query["msi_res_id" if is_resource else "client_id"] = self._config.identity
        url = f"{self._config.metadata}/metadata/identity/oauth2/token?{urlencode(query)}"
        try:
            # 404 and 410 are answers of a service that is being updated.
            return await self._session.request(
                "GET", url, headers=_HERE, timeout=5.0, again=lambda answer: answer.code in (404, 410)
            )
        except CloudUnreachable as e:
            raise NoToken(f"no metadata service, so no managed identity: {e}") from None
        except CloudAnswerError as e:
            raise NoToken(f"no token for the managed identity: {e.detail or e}") from None


def _without(proof: Mapping[str, str], error: CloudAnswerError) -> str:
    """Return what Azure says, which may repeat the secret or the assertion."""
    secrets = [proof[name] for name in ("client_secret", "client_assertion") if proof.get(name)]
    return what_it_says(error.body, secrets) or f"HTTP status {error.code}"


async def read_compute(session: CloudSession, config: AzureConfig) -> dict[str, object]:
    """Return what the metadata service says of the machine that we are on.

    :raise CloudError: this is no machine of Azure's.
    """
    url = f"{config.metadata}/metadata/instance/compute?api-version={INSTANCE_VERSION}&format=json"
    answer = await session.request("GET", url, headers=_HERE, timeout=5.0, attempts=2)
    said = answer.json()
    if not isinstance(said, dict):
        raise CloudError(f"{answer.url} answered with something else than what it says of a machine")
    return said

"""Workload identity federation: tokens for Google's APIs without a key.

Google's token service exchanges a token of another identity provider (RFC 8693), if required for one of a
service account.  ``gcloud iam workload-identity-pools create-cred-config`` writes the file, of type
``external_account``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlencode

from attrs import field, frozen

from tower.cloud.config.sections import is_safe
from tower.cloud.errors import CloudAnswerError, CloudError
from tower.cloud.gce.auth import (
    SCOPE,
    Fetched,
    ServiceAccount,
    read_credentials,
    read_dated_token,
    read_token,
)
from tower.cloud.http.answer import error_detail
from tower.cloud.session import CloudSession
from tower.errors import ConfigurationError

EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105 (the name of a type)

#: Scope of a token that is exchanged for one of a service account.
PLATFORM = "https://www.googleapis.com/auth/cloud-platform"

#: Default lifetime of a service account's token, s.
DEFAULT_LIFETIME = 3600

_FILE_LIMIT = 1 << 18  # B


@frozen
class ExternalAccount:
    """An identity of another identity provider, and its account at Google.

    :ivar audience: Google's name of the identity provider.
    :ivar kind: type of the provider's token.
    :ivar token_url: the service that exchanges it.
    :ivar file: file with the provider's token; empty: *url*.
    :ivar url: URL of the provider's token.
    :ivar headers: for *url*.
    :ivar key: JSON field with the token; empty: the whole text is the token.
    :ivar impersonation_url: issues tokens of the service account; empty: none.
    :ivar life: lifetime of these, s.
    :ivar project: always empty: unknown.
    """

    audience: str
    kind: str
    token_url: str
    file: str = ""
    url: str = ""
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    key: str = ""
    impersonation_url: str = ""
    life: int = DEFAULT_LIFETIME
    project: str = ""

    @classmethod
    def read(cls, path: str, fields: Mapping[str, Any]) -> ExternalAccount:
        """Return the account of a credentials file.

        :param path: of the file, for errors.
        :raise ConfigurationError: it is invalid, or has an unsupported source.
        """
        try:
            source = fields["credential_source"]
            form = source.get("format") or {}
            options = fields.get("service_account_impersonation") or {}
            found = cls(
                audience=str(fields["audience"]),
                kind=str(fields["subject_token_type"]),
                token_url=str(fields["token_url"]),
                file=str(source.get("file") or ""),
                url=str(source.get("url") or ""),
                headers=tuple((str(k), str(v)) for k, v in (source.get("headers") or {}).items()),
                key=str(form["subject_token_field_name"]) if form.get("type") == "json" else "",
                impersonation_url=str(fields.get("service_account_impersonation_url") or ""),
                life=int(options.get("token_lifetime_seconds") or DEFAULT_LIFETIME),
            )
        except (KeyError, ValueError, TypeError, AttributeError):
            raise ConfigurationError(f"{path}: a field is missing or invalid") from None
        if not found.file and not found.url:
            raise ConfigurationError(
                f"{path}: credential_source has neither file nor url; other sources are not supported"
            )
        for url in (found.token_url, found.impersonation_url):
            if url and not is_safe(url):
                raise ConfigurationError(f"{path}: a token URL is not https://")
        return found

    async def token(self, session: CloudSession, now: Callable[[], float]) -> Fetched:
        """Exchange the provider's token; return Google's token and its lifetime, s.

        :raise CloudError: there is no token, or Google rejects it.
        """
        own = await self._provider_token(session)
        form = {
            "grant_type": EXCHANGE,
            "audience": self.audience,
            "scope": PLATFORM if self.impersonation_url else SCOPE,
            "requested_token_type": ACCESS_TOKEN,
            "subject_token_type": self.kind,
            "subject_token": own,
        }
        headers = {"content-type": "application/x-www-form-urlencoded"}
        try:
            answer = await session.request(
                "POST", self.token_url, headers=headers, body=urlencode(form).encode()
            )
        except CloudAnswerError as e:
            text = f"POST {self.token_url} answered {e.code}: {error_detail(e.body, [own])}"
            raise CloudAnswerError(e.code, text, retry_after=e.retry_after) from None
        token, life = read_token(answer)
        if not self.impersonation_url:
            return token, life
        body = json.dumps({"delegates": [], "scope": [SCOPE], "lifetime": f"{self.life}s"}).encode()
        headers = {"content-type": "application/json", "authorization": f"Bearer {token}"}
        answer = await session.request("POST", self.impersonation_url, headers=headers, body=body)
        return read_dated_token(answer, now)

    async def _provider_token(self, session: CloudSession) -> str:
        where = f"token of the identity provider, {self.file or self.url}"
        if self.file:
            try:
                with Path(self.file).open("rb") as file:
                    data = file.read(_FILE_LIMIT)
            except OSError as e:
                raise CloudError(f"{where}: {e.strerror}") from None
        else:
            data = (await session.request("GET", self.url, headers=self.headers)).body
        try:
            token = json.loads(data)[self.key] if self.key else data.decode()
        except (ValueError, KeyError, TypeError, RecursionError):
            token = None
        if not isinstance(token, str) or not token.strip():
            raise CloudError(f"{where}: there is no token")
        return token.strip()


Account: TypeAlias = ServiceAccount | ExternalAccount


def load_account(path: str) -> Account:
    """Read a credentials file in Google's JSON format.

    :raise ConfigurationError: it is invalid or of an unsupported type; the error does not quote it.
    """
    fields = read_credentials(path)
    is_external = fields.get("type") == "external_account"
    return ExternalAccount.read(path, fields) if is_external else ServiceAccount.read(path, fields)


class AccountTokens:
    """Tokens of an account, whose file is reread for each token; *now* returns s since the epoch."""

    def __init__(self, session: CloudSession, path: str, now: Callable[[], float]) -> None:
        self._session = session
        self._path = path
        self._now = now

    async def fetch(self) -> Fetched:
        """Return a token and its lifetime, s."""
        return await load_account(self._path).token(self._session, self._now)

"""Tokens for Google's APIs for whom somebody else vouches: workload identity federation.

Outside of Google's cloud it does without a key: a token of one's own identity provider is traded at Google's
token service (RFC 8693), and what that gives for a token of a service account.  Files of type
``external_account`` say how; ``gcloud iam workload-identity-pools create-cred-config`` writes them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlencode

from attrs import field, frozen

from tower.cloud.config.urls import is_safe
from tower.cloud.errors import CloudAnswerError, CloudError
from tower.cloud.gce.auth import (
    SCOPE,
    Fetched,
    ServiceAccount,
    read_credentials,
    read_dated_token,
    read_token,
)
from tower.cloud.gce.user import KIND as USER
from tower.cloud.gce.user import AuthorizedUser
from tower.cloud.http.answer import what_it_says
from tower.cloud.session import CloudSession
from tower.errors import ConfigurationError

EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105 (the name of a type)

#: What a token has to be good for that is only traded for one of a service account.
PLATFORM = "https://www.googleapis.com/auth/cloud-platform"

#: How long a service account's token lives where the file does not say, s.
USUAL_LIFE = 3600

_FILE_LIMIT = 1 << 18  # B


@frozen
class ExternalAccount:
    """Who we are elsewhere, and whom that makes us at Google.

    :ivar audience: names the identity provider at Google.
    :ivar kind: of the token that we have.
    :ivar token_url: who trades it.
    :ivar file: where it is; empty: at *url*.
    :ivar url: who gives it.
    :ivar headers: for *url*.
    :ivar key: the token's name in what is JSON; empty: it is the token itself.
    :ivar impersonation_url: gives tokens of the service account; empty: we are none.
    :ivar life: of these, s.
    :ivar project: empty, the file does not say.
    """

    audience: str
    kind: str
    token_url: str
    file: str = ""
    url: str = ""
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    key: str = ""
    impersonation_url: str = ""
    life: int = USUAL_LIFE
    project: str = ""

    @classmethod
    def read(cls, path: str, said: Mapping[str, Any]) -> ExternalAccount:
        """Return the account that *said* describes.

        :param path: where it was read, for errors.
        :raise ConfigurationError: it describes none that we can be.
        """
        try:
            source = said["credential_source"]
            form = source.get("format") or {}
            options = said.get("service_account_impersonation") or {}
            found = cls(
                audience=str(said["audience"]),
                kind=str(said["subject_token_type"]),
                token_url=str(said["token_url"]),
                file=str(source.get("file") or ""),
                url=str(source.get("url") or ""),
                headers=tuple((str(k), str(v)) for k, v in (source.get("headers") or {}).items()),
                key=str(form["subject_token_field_name"]) if form.get("type") == "json" else "",
                impersonation_url=str(said.get("service_account_impersonation_url") or ""),
                life=int(options.get("token_lifetime_seconds") or USUAL_LIFE),
            )
        except (KeyError, ValueError, TypeError, AttributeError):
            raise ConfigurationError(f"{path}: something is missing in it, or of another form") from None
        if not found.file and not found.url:
            raise ConfigurationError(
                f"{path}: credential_source has neither file nor url: Tower knows no other"
            )
        for url in (found.token_url, found.impersonation_url):
            if url and not is_safe(url):
                raise ConfigurationError(f"{path}: a token would be sent to what is no https:// URL")
        return found

    async def token(self, session: CloudSession, now: Callable[[], float]) -> Fetched:
        """Trade our token for one of Google's; return it and how long it lasts, s.

        :raise CloudError: there is none of ours, or Google takes it for none.
        """
        own = await self._own(session)
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
            said = f"POST {self.token_url} answered {e.code}: {what_it_says(e.body, [own])}"
            raise CloudAnswerError(e.code, said, retry_after=e.retry_after) from None
        token, life = read_token(answer)
        if not self.impersonation_url:
            return token, life
        body = json.dumps({"delegates": [], "scope": [SCOPE], "lifetime": f"{self.life}s"}).encode()
        headers = {"content-type": "application/json", "authorization": f"Bearer {token}"}
        answer = await session.request("POST", self.impersonation_url, headers=headers, body=body)
        return read_dated_token(answer, now)

    async def _own(self, session: CloudSession) -> str:
        if self.file:
            try:
                with Path(self.file).open("rb") as file:
                    data = file.read(_FILE_LIMIT)
            except OSError as e:
                raise CloudError(f"our own token, {self.file}: {e.strerror}") from None
        else:
            data = (await session.request("GET", self.url, headers=self.headers)).body
        try:
            token = json.loads(data)[self.key] if self.key else data.decode()
        except (ValueError, KeyError, TypeError, RecursionError):
            token = None
        if not isinstance(token, str) or not token.strip():
            raise CloudError(f"our own token, {self.file or self.url}: there is none")
        return token.strip()


Account: TypeAlias = ServiceAccount | ExternalAccount | AuthorizedUser

_KINDS: Mapping[str, type[Account]] = {"external_account": ExternalAccount, USER: AuthorizedUser}


def load_account(path: str) -> Account:
    """Read credentials as Google hands them out, in JSON.

    :raise ConfigurationError: there are none that we can use; the text has nothing of them.
    """
    said = read_credentials(path)
    kind: type[Account] = _KINDS.get(str(said.get("type")), ServiceAccount)
    return kind.read(path, said)


class AccountTokens:
    """Gets tokens for an account, whose file is read anew each time.

    :param path: of the file.
    :param now: tells the time, s since the epoch.
    """

    def __init__(self, session: CloudSession, path: str, now: Callable[[], float]) -> None:
        self._session = session
        self._path = path
        self._now = now

    async def fetch(self) -> Fetched:
        """Return a token and how long it lasts, s."""
        return await load_account(self._path).token(self._session, self._now)

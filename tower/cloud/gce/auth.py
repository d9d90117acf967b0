"""Access tokens for Google's APIs: with a service account's key, or from the operator's token service."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from attrs import field, frozen
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from tower.cloud.errors import CloudError
from tower.cloud.http.answer import Answer
from tower.cloud.jwt import signed_jwt
from tower.cloud.session import CloudSession
from tower.cloud.token import RefreshedToken
from tower.errors import ConfigurationError

TOKEN_URI = "https://oauth2.googleapis.com/token"  # noqa: S105 (a URL)
SCOPE = "https://www.googleapis.com/auth/compute"
GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
ASSERTION_LIFE = 600  # s; at most 3600

#: A token and its lifetime, s.
Fetched = tuple[str, float]

_UNREADABLE = "the token service sent no valid token"
_REPLACEMENT = (
    "create a key with 'gcloud iam service-accounts keys create FILE --iam-account ACCOUNT' and set "
    "credentials-file to FILE"
)


@frozen
class ServiceAccount:
    """The key of a service account; its *project* is empty if unknown."""

    email: str
    key_id: str
    token_uri: str
    project: str
    key: RSAPrivateKey = field(repr=False)

    @classmethod
    def read(cls, path: str, fields: Mapping[str, Any]) -> ServiceAccount:
        """Return the account of a credentials file.

        :param path: of the file, for errors.
        :raise ConfigurationError: a field is invalid; the error does not quote it.
        """
        kind = str(fields.get("type"))[:40]
        if kind != "service_account":
            raise ConfigurationError(
                f"{path}: credentials of type {kind} are not supported, only service_account and "
                f"external_account: {_REPLACEMENT}"
            )
        try:
            key = load_pem_private_key(fields["private_key"].encode(), None)
            email = str(fields["client_email"])
        except (KeyError, ValueError, TypeError, AttributeError):
            raise ConfigurationError(f"{path}: client_email or private_key is missing or invalid") from None
        if not isinstance(key, RSAPrivateKey):
            raise ConfigurationError(f"{path}: private_key is not an RSA key")
        token_uri = str(fields.get("token_uri") or TOKEN_URI)
        key_id, project = str(fields.get("private_key_id", "")), str(fields.get("project_id", ""))
        return cls(email, key_id, token_uri, project, key)

    def assertion(self, now: float) -> str:
        """Return an assertion, signed *now* (s since the epoch) for `ASSERTION_LIFE` s (RFC 7523, RS256)."""
        header = {"alg": "RS256", "typ": "JWT", "kid": self.key_id}
        issued = int(now)
        claims = {
            "iss": self.email,
            "scope": SCOPE,
            "aud": self.token_uri,
            "iat": issued,
            "exp": issued + ASSERTION_LIFE,
        }
        return signed_jwt(header, claims, lambda data: self.key.sign(data, PKCS1v15(), SHA256()))

    async def token(self, session: CloudSession, now: Callable[[], float]) -> Fetched:
        """Exchange an assertion for a token; return the token and its lifetime, s."""
        form = urlencode({"grant_type": GRANT, "assertion": self.assertion(now())})
        headers = [("Content-Type", "application/x-www-form-urlencoded")]
        answer = await session.request("POST", self.token_uri, headers=headers, body=form.encode())
        return read_token(answer)


class AlternateTokens:
    """Tokens of the operator's own token service, which authenticates requests by other tokens.

    :param body: body of the POST requests.
    :param first: tokens for the service.
    :param now: returns s since the epoch, for responses without a date.
    """

    def __init__(
        self,
        session: CloudSession,
        url: str,
        body: str,
        first: RefreshedToken[str],
        now: Callable[[], float] = time.time,
    ) -> None:
        self._session = session
        self._url = url
        self._body = body.encode()
        self._first = first
        self._now = now

    async def fetch(self) -> Fetched:
        """Return a token and its lifetime, s."""
        headers = [("Authorization", f"Bearer {await self._first.get()}")]
        answer = await self._session.request("POST", self._url, headers=headers, body=self._body)
        return read_dated_token(answer, self._now)


def read_credentials(path: str) -> dict[str, Any]:
    """Return the JSON object of a credentials file.

    :raise ConfigurationError: the file cannot be read or parsed; the error does not quote it.
    """
    try:
        fields = json.loads(Path(path).read_bytes())
    except OSError as e:
        raise ConfigurationError(f"{path}: {e.strerror}") from None
    except ValueError:
        raise ConfigurationError(f"{path}: not JSON") from None
    if not isinstance(fields, dict):
        raise ConfigurationError(f"{path}: not a JSON object")
    return fields


def read_token(answer: Answer) -> Fetched:
    """Return token and lifetime, s, of an OAuth response; raise `CloudError` if it has none."""
    try:
        fields: Any = answer.json()
        return str(fields["access_token"]), float(fields["expires_in"])
    except (KeyError, ValueError, TypeError):
        raise CloudError(_UNREADABLE) from None


def read_dated_token(answer: Answer, now: Callable[[], float]) -> Fetched:
    """Return the token of a response with an expiry date, and its lifetime, s.

    :param now: returns s since the epoch, for responses without a date.
    :raise CloudError: the response has no token.
    """
    try:
        fields: Any = answer.json()
        until = datetime.fromisoformat(fields["expireTime"]).timestamp()
        return str(fields["accessToken"]), until - (now() if answer.date is None else answer.date)
    except (KeyError, ValueError, TypeError):
        raise CloudError(_UNREADABLE) from None

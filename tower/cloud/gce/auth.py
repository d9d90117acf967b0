"""Access tokens for Google's APIs: from a service account's key, or from a token service of one's own."""

from __future__ import annotations

import base64
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
from tower.cloud.session import CloudSession
from tower.cloud.token import RefreshedToken
from tower.errors import ConfigurationError

TOKEN_URI = "https://oauth2.googleapis.com/token"  # noqa: S105 (a URL)
SCOPE = "https://www.googleapis.com/auth/compute"
GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
ASSERTION_LIFE = 600  # s; at most 3600

#: Gives a token and how long it lasts, s.
Fetched = tuple[str, float]


@frozen
class ServiceAccount:
    """The key of a service account.

    :ivar project: that the account belongs to; empty if the file does not say.
    """

    email: str
    key_id: str
    token_uri: str
    project: str
    key: RSAPrivateKey = field(repr=False)

    @classmethod
    def load(cls, path: str) -> ServiceAccount:
        """Read a key as Google hands it out, in JSON.

        :raise ConfigurationError: it is none; the text has nothing of the key.
        """
        return cls.read(path, read_credentials(path))

    @classmethod
    def read(cls, path: str, said: Mapping[str, Any]) -> ServiceAccount:
        """Return the account that *said* describes.

        :param path: where it was read, for errors.
        :raise ConfigurationError: it describes none; the text has nothing of the key.
        """
        kind = said.get("type")
        if kind != "service_account":
            raise ConfigurationError(
                f"{path}: a service_account, external_account or authorized_user is wanted, "
                f"not {str(kind)[:40]}"
            )
        try:
            key = load_pem_private_key(said["private_key"].encode(), None)
            email = str(said["client_email"])
        except (KeyError, ValueError, TypeError, AttributeError):
            raise ConfigurationError(f"{path}: client_email or private_key is missing or broken") from None
        if not isinstance(key, RSAPrivateKey):
            raise ConfigurationError(f"{path}: private_key is no RSA key")
        token_uri = str(said.get("token_uri") or TOKEN_URI)
        return cls(
            email, str(said.get("private_key_id", "")), token_uri, str(said.get("project_id", "")), key
        )

    def assertion(self, now: float) -> str:
        """Return a signed assertion that is good for `ASSERTION_LIFE` s (RFC 7523, RS256).

        :param now: s since the epoch.
        """
        head = {"alg": "RS256", "typ": "JWT", "kid": self.key_id}
        issued = int(now)
        claims = {
            "iss": self.email,
            "scope": SCOPE,
            "aud": self.token_uri,
            "iat": issued,
            "exp": issued + ASSERTION_LIFE,
        }
        signed = f"{_part(head)}.{_part(claims)}"
        return f"{signed}.{_encode(self.key.sign(signed.encode(), PKCS1v15(), SHA256()))}"

    async def token(self, session: CloudSession, now: Callable[[], float]) -> Fetched:
        """Trade an assertion for a token; return it and how long it lasts, s."""
        form = urlencode({"grant_type": GRANT, "assertion": self.assertion(now())})
        headers = [("Content-Type", "application/x-www-form-urlencoded")]
        answer = await session.request("POST", self.token_uri, headers=headers, body=form.encode())
        return read_token(answer)


class AlternateTokens:
    """Has a token service of one's own give tokens, to whoever has one of the metadata service.

    :param body: what is posted there.
    :param first: the tokens that we show there.
    :param now: tells the time, s since the epoch, where the service does not.
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
        """Return a token and how long it lasts, s."""
        headers = [("Authorization", f"Bearer {await self._first.get()}")]
        answer = await self._session.request("POST", self._url, headers=headers, body=self._body)
        return read_dated_token(answer, self._now)


def read_credentials(path: str) -> dict[str, Any]:
    """Return what stands in a file with credentials.

    :raise ConfigurationError: nothing that can be read; the text has nothing of it.
    """
    try:
        said = json.loads(Path(path).read_bytes())
    except OSError as e:
        raise ConfigurationError(f"{path}: {e.strerror}") from None
    except ValueError:
        raise ConfigurationError(f"{path}: not JSON") from None
    if not isinstance(said, dict):
        raise ConfigurationError(f"{path}: not an object in JSON")
    return said


def read_token(answer: Answer) -> Fetched:
    """Return the token in an answer of OAuth's form, and how long it lasts, s.

    :raise CloudError: there is none.
    """
    try:
        said: Any = answer.json()
        return str(said["access_token"]), float(said["expires_in"])
    except (KeyError, ValueError, TypeError):
        raise CloudError("the token service gave no token that can be read") from None


def read_dated_token(answer: Answer, now: Callable[[], float]) -> Fetched:
    """Return the token in an answer that says its end as a date, and how long it lasts, s.

    :param now: tells the time, s since the epoch, where the answer does not.
    :raise CloudError: there is none.
    """
    try:
        said: Any = answer.json()
        until = datetime.fromisoformat(said["expireTime"]).timestamp()
        return str(said["accessToken"]), until - (now() if answer.date is None else answer.date)
    except (KeyError, ValueError, TypeError):
        raise CloudError("the token service gave no token that can be read") from None


def _part(said: dict[str, Any]) -> str:
    return _encode(json.dumps(said, separators=(",", ":")).encode())


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

"""Sources of credentials for AWS in AWS's order, renewed before they expire."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from twisted.internet.interfaces import IReactorTime

from tower.cloud.aws.signing import AWSCredentials
from tower.cloud.errors import CloudError
from tower.cloud.token import RefreshedToken

#: How long credentials without expiry are used before they are reread, s.
READ_AGAIN = 900.0

#: Credentials are renewed this long before they expire, s.
MARGIN = 300.0

# Maximum size of a file with credentials or a token, B.
_FILE_LIMIT = 1 << 16


class NoCredentials(CloudError):
    """There are no valid credentials for AWS."""


class ISource(Protocol):
    """A source of credentials."""

    async def fetch(self) -> AWSCredentials | None:
        """Return fresh credentials; None: this source is not configured.

        :raise CloudError: it is configured but failed; other sources are not tried.
        """


class CredentialChain:
    """Credentials of the first configured source; *time_of_day* counts ``seconds()`` from the epoch."""

    def __init__(self, clock: IReactorTime, time_of_day: IReactorTime, sources: Sequence[ISource]) -> None:
        self._time_of_day = time_of_day
        self._sources = sources
        self._kept: RefreshedToken[AWSCredentials] = RefreshedToken(clock, self._fetch, MARGIN)

    async def get(self) -> AWSCredentials:
        """See `tower.cloud.aws.api.ICredentials`."""
        return await self._kept.get()

    def forget(self, refused: AWSCredentials) -> None:
        """See `tower.cloud.aws.api.ICredentials`."""
        self._kept.forget(refused)

    async def _fetch(self) -> tuple[AWSCredentials, float]:
        for source in self._sources:
            found = await source.fetch()
            if found is not None:
                if found.expires is None:
                    return found, READ_AGAIN + MARGIN
                return found, found.expires - self._time_of_day.seconds()
        raise NoCredentials(
            "no credentials for AWS: set them in the environment or a profile, or give this instance a role"
        )


class FixedCredentials:
    """Credentials for one request."""

    def __init__(self, credentials: AWSCredentials) -> None:
        self._credentials = credentials

    async def get(self) -> AWSCredentials:
        """See `tower.cloud.aws.api.ICredentials`."""
        return self._credentials

    def forget(self, refused: AWSCredentials) -> None:
        """No-op: there are no others."""


class Environment:
    """``AWS_ACCESS_KEY_ID`` and related variables."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    async def fetch(self) -> AWSCredentials | None:
        """See `ISource`."""
        key, secret = (
            self._environ.get(f"AWS_{name}", "") for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY")
        )
        if not key and not secret:
            return None
        if not key or not secret:
            raise NoCredentials("only one of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY is set: set both")
        return AWSCredentials(key, secret, self._environ.get("AWS_SESSION_TOKEN", ""))


def read_small(path: Path) -> str:
    """Return the text of a file with a secret.

    :raise OSError: it cannot be read, or is too large.
    :raise UnicodeDecodeError: it is not UTF-8.
    """
    with path.open("rb") as file:
        data = file.read(_FILE_LIMIT + 1)
    if len(data) > _FILE_LIMIT:
        raise OSError(None, f"larger than {_FILE_LIMIT} B")
    return data.decode()


def read_json_credentials(body: bytes, what: str) -> AWSCredentials:
    """Return the credentials in a response of the metadata service or of a container's endpoint.

    :param what: name of the source, for errors.
    :raise NoCredentials: they are missing or invalid.
    """
    fields = _object(body, what)
    if fields.get("Code", "Success") != "Success":
        raise NoCredentials(f"{what}: {str(fields['Code'])[:60]}")
    names = ("AccessKeyId", "SecretAccessKey", "Token")
    return made_credentials([_text(fields, name) for name in names], _text(fields, "Expiration"), what)


def read_process_credentials(body: bytes, what: str) -> AWSCredentials:
    """Return the credentials in a program's output; token and expiry are optional.

    :param what: name of the source, for errors.
    :raise NoCredentials: they are missing or invalid.
    """
    fields = _object(body, what)
    if fields.get("Version") != 1:
        raise NoCredentials(f"{what}: the output does not have Version 1")
    key, secret, token = (_text(fields, name) for name in ("AccessKeyId", "SecretAccessKey", "SessionToken"))
    if fields.get("Expiration") is not None:
        return made_credentials([key, secret, token], _text(fields, "Expiration"), what)
    if not key or not secret:
        raise NoCredentials(f"{what}: the response has no credentials")
    return AWSCredentials(key, secret, token)


def made_credentials(values: list[str], expiration: str, what: str) -> AWSCredentials:
    """Return credentials with an expiry.

    :param values: key, secret and token.
    :param what: name of the source, for errors.
    :raise NoCredentials: a value is missing or invalid.
    """
    key, secret, token = values
    try:
        expires = read_moment(expiration)
    except ValueError:
        raise NoCredentials(f"{what}: the expiration is not a valid time") from None
    if not key or not secret:
        raise NoCredentials(f"{what}: the response has no credentials")
    return AWSCredentials(key, secret, token, expires)


def read_moment(text: str) -> float:
    """Return an ISO 8601 time, UTC by default, in s since the epoch; raise ValueError if it is invalid."""
    moment = datetime.fromisoformat(text.removesuffix("UTC")).replace(microsecond=0)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _object(body: bytes, what: str) -> dict[str, Any]:
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        raise NoCredentials(f"{what}: the response has no credentials")
    return fields


def _text(fields: dict[str, Any], name: str) -> str:
    value = fields.get(name)
    return value if isinstance(value, str) else ""

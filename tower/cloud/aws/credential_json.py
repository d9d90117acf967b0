"""Credentials in JSON, in the forms in which AWS's services and other programs give them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from tower.cloud.aws.credentials import NoCredentials
from tower.cloud.aws.signing import AWSCredentials


def read_json_credentials(body: bytes, what: str) -> AWSCredentials:
    """Return the credentials in an answer of the metadata service or of a container's endpoint.

    :param what: for errors.
    :raise NoCredentials: there are none in it.
    """
    said = _object(body, what)
    if said.get("Code", "Success") != "Success":
        raise NoCredentials(f"{what}: {str(said['Code'])[:60]}")
    names = ("AccessKeyId", "SecretAccessKey", "Token")
    return made_credentials([_text(said, name) for name in names], _text(said, "Expiration"), what)


def read_process_credentials(body: bytes, what: str) -> AWSCredentials:
    """Return the credentials that a program wrote; they need no token, and may have no end.

    :param what: for errors.
    :raise NoCredentials: there are none in it.
    """
    said = _object(body, what)
    if said.get("Version") != 1:
        raise NoCredentials(f"{what}: what it writes does not say Version 1")
    key, secret, token = (_text(said, name) for name in ("AccessKeyId", "SecretAccessKey", "SessionToken"))
    if said.get("Expiration") is not None:
        return made_credentials([key, secret, token], _text(said, "Expiration"), what)
    if not key or not secret:
        raise NoCredentials(f"{what}: the answer has none")
    return AWSCredentials(key, secret, token)


def made_credentials(values: list[str], expiration: str, what: str) -> AWSCredentials:
    """Return credentials that end.

    :param values: key, secret and token.
    :param what: for errors.
    :raise NoCredentials: something is missing, or the end is no time.
    """
    key, secret, token = values
    try:
        expires = read_moment(expiration)
    except ValueError:
        raise NoCredentials(f"{what}: an end that is no time") from None
    if not key or not secret:
        raise NoCredentials(f"{what}: the answer has none")
    return AWSCredentials(key, secret, token, expires)


def read_moment(text: str) -> float:
    """Return an ISO 8601 time, s since the epoch; in UTC if it does not say.

    :raise ValueError: it is none.
    """
    moment = datetime.fromisoformat(text.removesuffix("UTC")).replace(microsecond=0)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _object(body: bytes, what: str) -> dict[str, Any]:
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict):
        raise NoCredentials(f"{what}: the answer has none")
    return said


def _text(said: dict[str, Any], name: str) -> str:
    value = said.get(name)
    return value if isinstance(value, str) else ""

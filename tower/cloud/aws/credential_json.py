"""Credentials in AWS's JSON formats."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from tower.cloud.aws.credentials import NoCredentials
from tower.cloud.aws.signing import AWSCredentials


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
    """Return an ISO 8601 time, s since the epoch; UTC by default.

    :raise ValueError: it is invalid.
    """
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

"""Authentication of users by the tokens in the file of ``--token-auth-file``, as in kube-apiserver.

A record is ``token,user,uid,"group1,group2"``; the groups may be omitted.  A token may be replaced by its
hash, ``sha256:<hexadecimal>``, so that the file contains no secret.  Only hashes are kept in memory.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from attrs import frozen
from twisted.logger import Logger

from tower.clusters.credentials import PREFIX
from tower.errors import Unauthorized
from tower.web.access.authentication.csv_records import csv_records
from tower.web.access.authentication.identity import TOKEN_LIMIT, Identity
from tower.web.access.authentication.presented import Presented
from tower.web.access.authentication.reserved_names import check_foreign
from tower.web.access.authentication.token_key import token_key

#: Name of the method.
METHOD = "token-file"

_LEAST = 3

_log = Logger()

_HASH = re.compile(r"sha256:([0-9A-Fa-f]{64})")


@frozen
class StaticTokens:
    """The users in a file.

    :ivar users: by the `token_key` of their token.
    """

    users: Mapping[str, Identity]


def parse_tokens(content: bytes, path: Path, warn: Callable[..., None] = _log.warn) -> StaticTokens:
    """Return the users in *content*, and log warnings about records as kube-apiserver does.

    :param path: of the file, for the texts.
    :param warn: logs a warning.
    :raise ValueError: a record is not valid; the text contains no token.
    """
    users: dict[str, Identity] = {}
    plain = 0
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise ValueError("is not text in UTF-8: correct the file") from None
    for number, record in enumerate(csv_records(text), 1):
        if len(record) < _LEAST:
            raise ValueError(
                f"token file '{path}' must have at least 3 columns (token, user name, user uid), found "
                f"{len(record)}: correct record {number}"
            )
        token = record[0]
        if not token:
            _warn(warn, "empty", path, number)
            continue
        given = _HASH.fullmatch(token)
        if given is None and token.startswith("sha256:"):
            raise ValueError(f"record {number}: 'sha256:' is followed by other than 64 hexadecimal digits")
        if token.startswith(PREFIX):
            raise ValueError(
                f"record {number}: a token begins with {PREFIX!r}, as those of Tower: replace it"
            )
        plain += given is None
        digest = bytes.fromhex(given[1]) if given else hashlib.sha256(token.encode()).digest()
        key = token_key(METHOD, digest)
        if key in users:
            _warn(warn, "duplicate", path, number)
        users[key] = _user(record, number, key)
    if plain:
        warn(
            "token file '{path}' has {count} tokens in plain text: replace each by sha256:HASH "
            "(printf %s TOKEN | sha256sum)",
            path=str(path),
            count=plain,
        )
    return StaticTokens(users)


class TokenFile(Protocol):
    """The current tokens; a `tower.options.followed_file.FollowedFile`."""

    value: StaticTokens


class StaticTokenAuthenticator:
    """Authenticates users by the tokens in *file*."""

    method = METHOD

    def __init__(self, file: TokenFile) -> None:
        self._file = file

    def authenticate(self, presented: Presented) -> Identity | None:
        """Return the user of the bearer token; None: the file does not have it."""
        bearer = presented.bearer
        if bearer is None or len(bearer) > TOKEN_LIMIT:
            return None
        return self._file.value.users.get(token_key(METHOD, hashlib.sha256(bearer).digest()))

    def check(self, identity: Identity) -> None:
        """Check that the file still has the token, for the same user.

        :raise Unauthorized: it does not.
        """
        if self._file.value.users.get(identity.key) != identity.at_door:
            raise Unauthorized(
                f"the token of {identity.user} was removed or changed: request another token",
                f"the token of {identity.user} was removed from the token file",
                "removed",
            )


def _warn(warn: Callable[..., None], problem: str, path: Path, number: int) -> None:
    warn(
        "{problem} token has been found in token file '{path}', record number '{number}'",
        problem=problem,
        path=str(path),
        number=number,
    )


def _user(record: Sequence[str], number: int, key: str) -> Identity:
    _, user, uid, *columns = record
    groups = [each for each in columns[0].split(",") if each] if columns else []
    try:
        names = check_foreign(user, groups)
    except ValueError as e:
        raise ValueError(f"record {number}: {e}: choose another name") from None
    if not uid.isprintable():
        raise ValueError(f"record {number}: the UID has characters that cannot be printed: correct it")
    return Identity(user, names, uid=uid, method=METHOD, key=key)

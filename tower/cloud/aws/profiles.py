"""Profiles of the AWS CLI: a role and its source, keys, or a program.

A profile is a section of the *credentials file* (``[name]``) and of the *configuration file*
(``[profile name]``); the former takes precedence.  The files are reread each time.  No error quotes them.
"""

from __future__ import annotations

import configparser
import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from attrs import frozen

from tower.cloud.aws.credentials import ISource, NoCredentials, read_small
from tower.cloud.aws.signing import AWSCredentials

DEFAULT = "default"

#: Maximum length of a chain of roles.
DEPTH_LIMIT = 5

#: Settings that need a user's input, which Tower cannot give.
_INTERACTIVE = ("mfa_serial", "login_session")


@frozen
class Role:
    """A role to assume.

    :ivar external_id: required by the role's owner; empty: none.
    :ivar session: name of the session; empty: the default.
    """

    arn: str
    external_id: str = ""
    session: str = ""


@frozen
class ProfileFiles:
    """The credentials file and the configuration file."""

    credentials: Path
    config: Path

    def values(self, name: str) -> dict[str, str]:
        """Return the settings of a profile in both files; empty if neither has it.

        :raise NoCredentials: a file cannot be read.
        """
        found: dict[str, str] = {}
        other = name if name == DEFAULT else f"profile {name}"
        for path, section in ((self.config, other), (self.credentials, name)):
            parser = _read(path)
            if parser is not None and parser.has_section(section):
                found |= {key: value.strip() for key, value in parser.items(section) if value}
        return found

    def may_name_programs(self) -> bool:
        """Return whether only Tower's user and root can write these files."""
        for path in (self.config, self.credentials):
            try:
                found = path.stat()
            except OSError:
                continue
            if found.st_uid not in (0, os.geteuid()) or found.st_mode & 0o022:
                return False
        return True

    def wrong(self, name: str, text: str) -> NoCredentials:
        """Return an error about a profile."""
        return NoCredentials(f"credentials for AWS in {self.credentials}: profile {name} {text}")


@frozen
class ProfileMethods:
    """Sources and methods that a profile's settings refer to.

    :ivar sources: values of ``credential_source``.
    :ivar assume: assumes a role with credentials.
    :ivar assume_with_token: assumes a role with the token in a file.
    :ivar run: runs the command line of a program, with its name for errors.
    """

    sources: Mapping[str, ISource]
    assume: Callable[[AWSCredentials, Role], Awaitable[AWSCredentials]]
    assume_with_token: Callable[[str, Role], Awaitable[AWSCredentials]]
    run: Callable[[str, str], Awaitable[AWSCredentials]]


class Profile:
    """One profile, as a source of credentials.

    :param required: a missing profile, or one without credentials, is an error.
    """

    def __init__(self, files: ProfileFiles, name: str, *, required: bool, methods: ProfileMethods) -> None:
        self._files = files
        self._name = name
        self._required = required
        self._methods = methods

    async def fetch(self) -> AWSCredentials | None:
        """See `ISource`."""
        values = self._files.values(self._name)
        if not values:
            if self._required:
                raise self._files.wrong(self._name, "does not exist")
            return None
        found = await self._resolve(self._name, values, ())
        if found is None and self._required:
            raise self._files.wrong(
                self._name,
                "has no aws_access_key_id and aws_secret_access_key, no role_arn and no credential_process",
            )
        return found

    async def _resolve(
        self, name: str, values: Mapping[str, str], before: tuple[str, ...]
    ) -> AWSCredentials | None:
        key, secret = values.get("aws_access_key_id", ""), values.get("aws_secret_access_key", "")
        keys = AWSCredentials(key, secret, values.get("aws_session_token", "")) if key and secret else None
        if not values.get("role_arn") or name in before:
            # A role's profile may name itself as its source: then its own keys assume the role.
            return keys or await self._without_keys(name, values)
        if "mfa_serial" in values:
            raise self._files.wrong(name, "requires an MFA code (mfa_serial), which Tower does not support")
        if len(before) >= DEPTH_LIMIT:
            raise self._files.wrong(name, f"is at the end of a chain of more than {DEPTH_LIMIT} roles")
        role = Role(values["role_arn"], values.get("external_id", ""), values.get("role_session_name", ""))
        if token_file := values.get("web_identity_token_file"):
            return await self._methods.assume_with_token(token_file, role)
        return await self._methods.assume(await self._source(name, values, before), role)

    async def _source(self, name: str, values: Mapping[str, str], before: tuple[str, ...]) -> AWSCredentials:
        """Return the credentials that assume a profile's role."""
        if source := values.get("source_profile"):
            found = await self._resolve(source, self._files.values(source), (*before, name))
            if found is None:
                raise self._files.wrong(source, "has no credentials")
            return found
        source = values.get("credential_source", "")
        if not source:
            raise self._files.wrong(name, "has role_arn, but no source_profile or credential_source")
        sources = self._methods.sources
        if source not in sources:
            raise self._files.wrong(name, f"has an unknown credential_source: use {', '.join(sources)}")
        found = await sources[source].fetch()
        if found is None:
            raise self._files.wrong(name, f"has credential_source {source}, which has no credentials")
        return found

    async def _without_keys(self, name: str, values: Mapping[str, str]) -> AWSCredentials | None:
        if line := values.get("credential_process"):
            if not self._files.may_name_programs():
                raise self._files.wrong(
                    name,
                    "has credential_process, but other users can write this file or the configuration file: "
                    "make root or Tower's user the owner, and remove write permission for others",
                )
            return await self._methods.run(line, f"credential_process of profile {name}")
        # Profiles with neither account nor role are for tokens alone.
        has_role = "sso_account_id" in values or "sso_role_name" in values
        if has_role or (self._required and any(key.startswith("sso_") for key in values)):
            raise self._files.wrong(
                name,
                "has settings for IAM Identity Center (sso_*), which Tower does not support: set "
                f"credential_process = aws configure export-credentials --profile {name} --format process",
            )
        if self._required:
            for key in _INTERACTIVE:
                if key in values:
                    raise self._files.wrong(
                        name, f"has {key}, which Tower does not support: use keys or a role"
                    )
        return None


def _read(path: Path) -> configparser.RawConfigParser | None:
    """Return the contents of a file; None: it does not exist."""
    parser = configparser.RawConfigParser(strict=False, default_section="")
    try:
        parser.read_string(read_small(path))
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError, configparser.Error) as e:
        reason = getattr(e, "strerror", None) or type(e).__name__
        raise NoCredentials(f"credentials for AWS in {path}: {reason}") from None
    return parser

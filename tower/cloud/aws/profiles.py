"""Profiles, as AWS's own tools have them: keys, or a role and who may take it on.

A profile is a section of the *credentials file* (``[name]``) and of the *configuration file*
(``[profile name]``); what both say counts as in the former.  The files are read anew each time.  No error
shows what stands in them.
"""

from __future__ import annotations

import configparser
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from attrs import frozen

from tower.cloud.aws.credentials import ISource, NoCredentials, read_small
from tower.cloud.aws.signing import AWSCredentials

DEFAULT = "default"

#: Most roles that are taken on one for another.
DEPTH_LIMIT = 5

#: What a profile may have in place of keys, and Tower does not do: it runs no programs and asks nobody.
_NOT_DONE = ("credential_process", "sso_session", "sso_start_url", "mfa_serial", "login_session")


@frozen
class Role:
    """A role to take on.

    :ivar arn: names it.
    :ivar external_id: that the role's owner wants to hear; empty: none.
    :ivar session: how the session is called; empty: as usual.
    """

    arn: str
    external_id: str = ""
    session: str = ""


@frozen
class Files:
    """The two files that profiles are in.

    :ivar credentials: the credentials file.
    :ivar config: the configuration file.
    """

    credentials: Path
    config: Path

    def values(self, name: str) -> dict[str, str]:
        """Return what both files say of a profile; empty if neither has it.

        :raise NoCredentials: a file cannot be read.
        """
        found: dict[str, str] = {}
        other = name if name == DEFAULT else f"profile {name}"
        for path, section in ((self.config, other), (self.credentials, name)):
            parser = _read(path)
            if parser is not None and parser.has_section(section):
                found |= {key: value.strip() for key, value in parser.items(section) if value}
        return found

    def wrong(self, name: str, text: str) -> NoCredentials:
        """Return the error that says *text* about a profile."""
        return NoCredentials(f"credentials for AWS in {self.credentials}: profile {name} {text}")


class Profile:
    """One profile.

    :param name: of the profile.
    :param wanted: it is an error if there is none, or no credentials in it.
    :param places: where else credentials may be, as ``credential_source`` calls them.
    :param assume: takes on a role with credentials.
    :param identify: takes on a role for the token in a file.
    """

    def __init__(
        self,
        files: Files,
        name: str,
        *,
        wanted: bool,
        places: Mapping[str, ISource],
        assume: Callable[[AWSCredentials, Role], Awaitable[AWSCredentials]],
        identify: Callable[[str, Role], Awaitable[AWSCredentials]],
    ) -> None:
        self._files = files
        self._name = name
        self._wanted = wanted
        self._places = places
        self._assume = assume
        self._identify = identify

    async def fetch(self) -> AWSCredentials | None:
        """See `ISource`."""
        values = self._files.values(self._name)
        if not values:
            if self._wanted:
                raise self._files.wrong(self._name, "does not exist")
            return None
        found = await self._resolve(self._name, values, ())
        if found is None and self._wanted:
            raise self._files.wrong(
                self._name, "has no aws_access_key_id and aws_secret_access_key, and no role_arn"
            )
        return found

    async def _resolve(
        self, name: str, values: Mapping[str, str], before: tuple[str, ...]
    ) -> AWSCredentials | None:
        key, secret = values.get("aws_access_key_id", ""), values.get("aws_secret_access_key", "")
        keys = AWSCredentials(key, secret, values.get("aws_session_token", "")) if key and secret else None
        if not values.get("role_arn") or name in before:
            # A role's profile may name itself: then its own keys take it on.
            if keys is None:
                self._say_what_is_not_done(name, values)
            return keys
        if "mfa_serial" in values:
            raise self._files.wrong(name, "wants a code of a device (mfa_serial), which Tower does not have")
        if len(before) >= DEPTH_LIMIT:
            raise self._files.wrong(name, f"is behind more than {DEPTH_LIMIT} roles")
        role = Role(values["role_arn"], values.get("external_id", ""), values.get("role_session_name", ""))
        if token_file := values.get("web_identity_token_file"):
            return await self._identify(token_file, role)
        return await self._assume(await self._source(name, values, before), role)

    async def _source(self, name: str, values: Mapping[str, str], before: tuple[str, ...]) -> AWSCredentials:
        """Return the credentials that take on a profile's role."""
        if source := values.get("source_profile"):
            found = await self._resolve(source, self._files.values(source), (*before, name))
            if found is None:
                raise self._files.wrong(source, "has no credentials")
            return found
        place = values.get("credential_source", "")
        if not place:
            raise self._files.wrong(name, "has role_arn, but no source_profile or credential_source")
        if place not in self._places:
            raise self._files.wrong(
                name, f"has a credential_source that is none of {', '.join(self._places)}"
            )
        found = await self._places[place].fetch()
        if found is None:
            raise self._files.wrong(name, f"finds no credentials at {place}")
        return found

    def _say_what_is_not_done(self, name: str, values: Mapping[str, str]) -> None:
        if not self._wanted:
            return
        for each in _NOT_DONE:
            if each in values:
                raise self._files.wrong(name, f"has {each}, which Tower does not do: give it keys, or a role")


def _read(path: Path) -> configparser.RawConfigParser | None:
    """Return what stands in a file; None: there is none."""
    parser = configparser.RawConfigParser(strict=False, default_section="")
    try:
        parser.read_string(read_small(path))
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError, configparser.Error) as e:
        reason = getattr(e, "strerror", None) or type(e).__name__
        raise NoCredentials(f"credentials for AWS in {path}: {reason}") from None
    return parser

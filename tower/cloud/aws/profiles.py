"""Profiles, as AWS's own tools have them: a role and who may take it on, keys, a sign-in, or a program.

A profile is a section of the *credentials file* (``[name]``) and of the *configuration file*
(``[profile name]``); what both say counts as in the former.  The files are read anew each time.  No error
shows what stands in them.
"""

from __future__ import annotations

import configparser
import os
import re
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from attrs import frozen

from tower.cloud.aws.credentials import ISource, NoCredentials, read_small
from tower.cloud.aws.instances import REGION
from tower.cloud.aws.signing import AWSCredentials
from tower.cloud.aws.sso import SignedIn

DEFAULT = "default"

#: Most roles that are taken on one for another.
DEPTH_LIMIT = 5

#: What a profile may have in place of keys, and Tower does not do: it asks nobody.
_NOT_DONE = ("mfa_serial", "login_session")

_SIGN_IN = ("sso_start_url", "sso_region", "sso_account_id", "sso_role_name")


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
class ProfileFiles:
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

    def session(self, name: str) -> dict[str, str]:
        """Return what the configuration file says of an SSO session; empty if it does not have it.

        :raise NoCredentials: the file cannot be read.
        """
        parser, section = _read(self.config), f"sso-session {name}"
        if parser is None or not parser.has_section(section):
            return {}
        return {key: value.strip() for key, value in parser.items(section) if value}

    def may_name_programs(self) -> bool:
        """Tell whether nobody but ourselves, and root, can write these files."""
        for path in (self.config, self.credentials):
            try:
                found = path.stat()
            except OSError:
                continue
            if found.st_uid not in (0, os.geteuid()) or found.st_mode & 0o022:
                return False
        return True

    def wrong(self, name: str, text: str) -> NoCredentials:
        """Return the error that says *text* about a profile."""
        return NoCredentials(f"credentials for AWS in {self.credentials}: profile {name} {text}")


@frozen
class Means:
    """The ways in which a profile leads to credentials.

    :ivar places: where else credentials may be, as ``credential_source`` calls them.
    :ivar assume: takes on a role with credentials.
    :ivar identify: takes on a role for the token in a file.
    :ivar sign_in: has the credentials of a role given to whoever is signed in; gets the profile's name too.
    :ivar run: runs a program; gets its line, and what to call it in errors.
    """

    places: Mapping[str, ISource]
    assume: Callable[[AWSCredentials, Role], Awaitable[AWSCredentials]]
    identify: Callable[[str, Role], Awaitable[AWSCredentials]]
    sign_in: Callable[[SignedIn, str], Awaitable[AWSCredentials]]
    run: Callable[[str, str], Awaitable[AWSCredentials]]


class Profile:
    """One profile.

    :param name: of the profile.
    :param wanted: it is an error if there is none, or no credentials in it.
    """

    def __init__(
        self,
        files: ProfileFiles,
        name: str,
        *,
        wanted: bool,
        means: Means,
    ) -> None:
        self._files = files
        self._name = name
        self._wanted = wanted
        self._means = means

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
                self._name,
                "has no aws_access_key_id and aws_secret_access_key, no role_arn, no sso_account_id and no "
                "credential_process",
            )
        return found

    async def _resolve(
        self, name: str, values: Mapping[str, str], before: tuple[str, ...]
    ) -> AWSCredentials | None:
        key, secret = values.get("aws_access_key_id", ""), values.get("aws_secret_access_key", "")
        keys = AWSCredentials(key, secret, values.get("aws_session_token", "")) if key and secret else None
        if not values.get("role_arn") or name in before:
            # A role's profile may name itself: then its own keys take it on.
            return keys or await self._without_keys(name, values)
        if "mfa_serial" in values:
            raise self._files.wrong(name, "wants a code of a device (mfa_serial), which Tower does not have")
        if len(before) >= DEPTH_LIMIT:
            raise self._files.wrong(name, f"is behind more than {DEPTH_LIMIT} roles")
        role = Role(values["role_arn"], values.get("external_id", ""), values.get("role_session_name", ""))
        if token_file := values.get("web_identity_token_file"):
            return await self._means.identify(token_file, role)
        return await self._means.assume(await self._source(name, values, before), role)

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
        places = self._means.places
        if place not in places:
            raise self._files.wrong(name, f"has a credential_source that is none of {', '.join(places)}")
        found = await places[place].fetch()
        if found is None:
            raise self._files.wrong(name, f"finds no credentials at {place}")
        return found

    async def _without_keys(self, name: str, values: Mapping[str, str]) -> AWSCredentials | None:
        # Those with neither account nor role are for tokens alone.
        if "sso_account_id" in values or "sso_role_name" in values:
            return await self._means.sign_in(self._signed_in(name, values), name)
        if line := values.get("credential_process"):
            if not self._files.may_name_programs():
                raise self._files.wrong(
                    name,
                    "has credential_process, but others may write this file, or the configuration file, too: "
                    "it must be ours or root's, and writable for nobody else",
                )
            return await self._means.run(line, f"credential_process of profile {name}")
        if self._wanted:
            for each in _NOT_DONE:
                if each in values:
                    raise self._files.wrong(
                        name, f"has {each}, which Tower does not do: give it keys, or a role"
                    )
        return None

    def _signed_in(self, name: str, values: Mapping[str, str]) -> SignedIn:
        session = values.get("sso_session", "")
        said = dict(values)
        if session:
            shared = self._files.session(session)
            if not shared:
                raise self._files.wrong(name, f"has an sso_session that is not in {self._files.config}")
            for key in _SIGN_IN[:2]:
                if said.get(key, shared.get(key)) != shared.get(key):
                    raise self._files.wrong(name, f"has another {key} than its sso_session")
            said |= shared
        for key in _SIGN_IN:
            if not said.get(key):
                raise self._files.wrong(name, f"has no {key}")
        if not REGION.fullmatch(said["sso_region"]):
            raise self._files.wrong(name, "has an sso_region that is none")
        if not re.fullmatch(r"[0-9]{12}", said["sso_account_id"], re.ASCII):
            raise self._files.wrong(name, "has an sso_account_id that is none")
        start_url, region, account, role = (said[key] for key in _SIGN_IN)
        return SignedIn(start_url, region, account, role, session)


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

"""Credentials for who is signed in at IAM Identity Center, AWS's single sign-on.

Signing in takes a browser, and is done by AWS's own tool: ``aws sso login``.  That leaves a token in a file
that is called by the SHA-1 of the session's name, or of the start URL where a profile of the older kind has
no session.  For the token AWS gives the credentials of a role (GetRoleCredentials).  A session's token is
renewed (CreateToken) until AWS wants a person again, and left in the file for all others.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from attrs import frozen
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from tower.cloud.aws.api import read_error
from tower.cloud.aws.credential_json import read_moment, read_role_credentials
from tower.cloud.aws.credentials import NoCredentials, read_small
from tower.cloud.aws.signing import AWSCredentials
from tower.cloud.errors import CloudAnswerError, CloudError
from tower.cloud.http.answer import Answer
from tower.cloud.session import CloudSession

#: The services: the one with the roles, and the one with the tokens.
PORTAL, OIDC = "portal.sso", "oidc"

#: A token that lasts no longer than this is renewed, s.
MARGIN = 300.0

_TOKEN_HEADER = "x-amz-sso_bearer_token"  # noqa: S105 (the name of a field)
_RENEWING = ("refreshToken", "clientId", "clientSecret", "registrationExpiresAt")


@frozen
class SignedIn:
    """What a profile says of it.

    :ivar session: empty in a profile of the older kind.
    """

    start_url: str
    region: str
    account: str
    role: str
    session: str = ""

    @property
    def file_name(self) -> str:
        """Of the file that the token is in."""
        name = self.session or self.start_url
        return f"{hashlib.sha1(name.encode(), usedforsecurity=False).hexdigest()}.json"


class IdentityCenter:
    """Asks for credentials.

    :param time_of_day: its ``seconds()`` count from the epoch.
    :param folder: with the tokens.
    :param url: returns the address of a service in a region, with a slash at its end.
    """

    _log = Logger()

    def __init__(
        self,
        session: CloudSession,
        time_of_day: IReactorTime,
        folder: Path,
        url: Callable[[str, str], str],
    ) -> None:
        self._session = session
        self._time_of_day = time_of_day
        self._folder = folder
        self._url = url

    async def credentials(self, wanted: SignedIn, profile: str) -> AWSCredentials:
        """Return those of the role that a profile names.

        :param profile: its name, for errors.
        :raise NoCredentials: nobody is signed in any more, or may not take that role on.
        :raise CloudError: no answer, or none that makes sense.
        """
        what = f"profile {profile}, role {wanted.role} of account {wanted.account}"
        token = await self._token(wanted, profile)
        query = urlencode({"role_name": wanted.role, "account_id": wanted.account})
        url = f"{self._url(PORTAL, wanted.region)}federation/credentials?{query}"
        try:
            answer = await self._session.request("GET", url, headers={_TOKEN_HEADER: token})
        except CloudAnswerError as e:
            if e.code == 401:
                raise _sign_in(profile, "AWS does not take its token any more") from None
            said = ": ".join(filter(None, (f"HTTP status {e.code}", read_error(e.body)[0])))
            raise NoCredentials(f"{what}: {said}") from None
        return read_role_credentials(_json(answer), what)

    async def _token(self, wanted: SignedIn, profile: str) -> str:
        path = self._folder / wanted.file_name
        known = _read(path, profile)
        left = self._left(known.get("expiresAt"))
        if wanted.session and left <= MARGIN and self._can_be_renewed(known):
            known, left = await self._renewed(known, wanted, path, left)
        token = known.get("accessToken")
        if not isinstance(token, str) or not token:
            raise _sign_in(profile, f"there is no token in {path}")
        if left <= 0:
            raise _sign_in(profile, "its token has ended")
        return token

    def _left(self, moment: object) -> float:
        """Return how long it is till then, s; less than 0 if that is no time."""
        try:
            return read_moment(str(moment)) - self._time_of_day.seconds()
        except ValueError:
            return -1.0

    def _can_be_renewed(self, known: Mapping[str, Any]) -> bool:
        has_all = all(isinstance(known.get(name), str) and known[name] for name in _RENEWING)
        return has_all and self._left(known["registrationExpiresAt"]) > 0

    async def _renewed(
        self, known: dict[str, Any], wanted: SignedIn, path: Path, left: float
    ) -> tuple[dict[str, Any], float]:
        """Return another token and how long it is good, or the same if there is none."""
        form = {"grantType": "refresh_token", **{name: known[name] for name in _RENEWING[:3]}}
        try:
            answer = await self._session.request(
                "POST",
                f"{self._url(OIDC, wanted.region)}token",
                headers={"content-type": "application/json"},
                body=json.dumps(form).encode(),
            )
            said = _json(answer)
            token, life = str(said["accessToken"]), float(said["expiresIn"])
        except (CloudError, KeyError, TypeError, ValueError) as e:
            # What AWS says may have in it what it was sent.
            why = f"HTTP status {e.code}" if isinstance(e, CloudAnswerError) else type(e).__name__
            self._log.warn(
                "the token of the SSO session {session} is not renewed: {why}",
                session=wanted.session,
                why=why,
            )
            return known, left
        ends = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._time_of_day.seconds() + life))
        known = {**known, "accessToken": token, "expiresAt": ends}
        known["refreshToken"] = str(said.get("refreshToken") or known["refreshToken"])
        try:
            _write(path, known)
        except OSError as e:
            self._log.warn(
                "{path}: {why}: the renewed token of an SSO session is not kept",
                path=str(path),
                why=e.strerror,
            )
        return known, life


def _sign_in(profile: str, why: str) -> NoCredentials:
    return NoCredentials(
        f"profile {profile} is not signed in, {why}: "
        f"run aws sso login --profile {profile} as the user that Tower runs as"
    )


def _json(answer: Answer) -> Any:
    said = answer.json()
    return said if isinstance(said, dict) else {}


def _read(path: Path, profile: str) -> dict[str, Any]:
    try:
        said = json.loads(read_small(path))
    except FileNotFoundError:
        raise _sign_in(profile, f"there is no {path}") from None
    except (OSError, ValueError, RecursionError) as e:
        why = getattr(e, "strerror", None) or "not JSON"
        raise NoCredentials(f"profile {profile}: its token in {path}: {why}") from None
    return said if isinstance(said, dict) else {}


def _write(path: Path, said: Mapping[str, Any]) -> None:
    """Put something in a file's place that only its owner may read.

    :raise OSError: it cannot be done.
    """
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w") as file:
            json.dump(said, file)
        Path(draft).replace(path)
    except OSError:
        Path(draft).unlink(missing_ok=True)
        raise

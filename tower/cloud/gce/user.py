"""Tokens for Google's APIs for a person who logged in: ``gcloud auth application-default login``.

That leaves a file of type ``authorized_user`` with a refresh token, which is traded for access tokens
(RFC 6749, section 6) until the person, or who looks after his account, ends it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from attrs import field, frozen

from tower.cloud.config.urls import is_safe
from tower.cloud.errors import CloudAnswerError
from tower.cloud.gce.auth import TOKEN_URI, Fetched, read_token
from tower.cloud.http.answer import what_it_says
from tower.cloud.session import CloudSession
from tower.errors import ConfigurationError

KIND = "authorized_user"

_NEEDED = ("client_id", "client_secret", "refresh_token")


@frozen
class AuthorizedUser:
    """A person's login.

    :ivar path: of its file, for errors.
    :ivar token_uri: who gives tokens.
    :ivar quota_project: whose quota requests count against; empty: the client's.
    :ivar project: always empty, the file does not say.
    """

    path: str
    client_id: str
    client_secret: str = field(repr=False)
    refresh_token: str = field(repr=False)
    token_uri: str = TOKEN_URI
    quota_project: str = ""
    project: str = ""

    @classmethod
    def read(cls, path: str, said: Mapping[str, Any]) -> AuthorizedUser:
        """Return the login that *said* describes.

        :param path: where it was read, for errors.
        :raise ConfigurationError: it describes none; the text has nothing of it.
        """
        for name in _NEEDED:
            if not isinstance(said.get(name), str) or not said[name]:
                raise ConfigurationError(f"{path}: {name} is missing")
        found = cls(
            path,
            client_id=said["client_id"],
            client_secret=said["client_secret"],
            refresh_token=said["refresh_token"],
            token_uri=str(said.get("token_uri") or TOKEN_URI),
            quota_project=str(said.get("quota_project_id") or ""),
        )
        if not is_safe(found.token_uri):
            raise ConfigurationError(f"{path}: a token would be sent to what is no https:// URL")
        return found

    async def token(self, session: CloudSession, now: Callable[[], float]) -> Fetched:
        """Trade the refresh token for a token; return it and how long it lasts, s.

        :raise CloudError: Google does not take it, for one because he has to log in again.
        """
        form = {
            "grant_type": "refresh_token",
            "client_id": self.client_id,
            "client_secret": self.client_secret,
            "refresh_token": self.refresh_token,
        }
        headers = {"content-type": "application/x-www-form-urlencoded"}
        try:
            answer = await session.request(
                "POST", self.token_uri, headers=headers, body=urlencode(form).encode()
            )
        except CloudAnswerError as e:
            said = what_it_says(e.body, [self.refresh_token, self.client_secret])
            text = f"POST {self.token_uri} answered {e.code}: {said}"
            if said.startswith("invalid_grant"):
                text += f"; {self.path} is of a login that has ended: gcloud auth application-default login"
            raise CloudAnswerError(e.code, text, retry_after=e.retry_after) from None
        return read_token(answer)


def usual_file(environment: Mapping[str, str]) -> str:
    """Return where gcloud leaves the login; empty if there is none."""
    home = environment.get("HOME", "")
    folder = environment.get("CLOUDSDK_CONFIG", "") or (f"{home}/.config/gcloud" if home else "")
    path = Path(folder) / "application_default_credentials.json"
    return str(path) if folder and path.is_file() else ""

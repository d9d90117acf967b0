"""The files of a login on this machine: the session with its private key, and the tokens in use.

All are accessible to their owner only.  This module is imported at each start of kubectl.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tower.errors import TowerError

#: Largest file that is read, B.
FILE_LIMIT = 1 << 20

#: Most processes that are remembered with a token.
CALLERS = 64

#: Format of the session's file.
VERSION = 1


class NotLoggedIn(TowerError):
    """There is no session of this Tower; the text has the cure."""


def folder_of(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the directory of all logins."""
    base = environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return Path(base) / "tower" / "logins"


def name_of(server: str) -> str:
    """Return the name of the files of a Tower: host and port."""
    return _safe(urlsplit(server).netloc.lower())


def _safe(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9.-]", "_", text)


class LoginFile:
    """The files for one Tower.

    :param server: URL of its front door.
    """

    def __init__(self, server: str, folder: Path | None = None) -> None:
        self.server = server
        self.folder = folder or folder_of()
        self.path = self.folder / f"{name_of(server)}.json"
        self._consents = self.folder / f"{name_of(server)}.consents"

    def read(self) -> dict[str, Any]:
        """Return the session.

        :raise NotLoggedIn: there is none.
        """
        found = _read(self.path)
        if found is None or found.get("version") != VERSION or found.get("server") != self.server:
            raise NotLoggedIn(f"you are not logged in to {self.server}: run 'tower login {self.server}'")
        return found

    def write(self, session: Mapping[str, Any]) -> None:
        """Replace the session; the token of the former one is removed.

        :raise OSError: it cannot be written.
        """
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _replace(self.path, {"version": VERSION, "server": self.server, **session})
        self._forget_tokens()

    def token(self, session: str, now: float, spare: float, cluster: str) -> dict[str, Any] | None:
        """Return the token of *session* for a cluster that is valid for *spare* s more, if there is one."""
        found = _read(self._token_path(cluster))
        if found is None or found.get("session") != session:
            return None
        expires = found.get("expires")
        if not isinstance(expires, int | float) or not now + spare < expires < now + 3600:
            return None
        if not isinstance(found.get("callers"), list):
            return None
        return found

    def keep_token(
        self, session: str, token: str, expires: float, callers: Sequence[int], cluster: str
    ) -> None:
        """Keep a token until it expires, s since the epoch by this machine's clock, if that is possible.

        :param callers: processes that have it; the last ones are kept.
        """
        value = {"session": session, "token": token, "expires": expires, "callers": callers[-CALLERS:]}
        with contextlib.suppress(OSError):
            _replace(self._token_path(cluster), value)

    def consents(self) -> list[str]:
        """Return the identity providers that give refresh tokens only with the user's consent."""
        found = (_read(self._consents) or {}).get("issuers")
        return [each for each in found if isinstance(each, str)] if isinstance(found, list) else []

    def keep_consent(self, issuer: str) -> None:
        """Remember such a provider, also after a logout."""
        with contextlib.suppress(OSError):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _replace(self._consents, {"issuers": [*self.consents(), issuer]})

    def remove(self) -> None:
        """Remove the session and its tokens."""
        self.path.unlink(missing_ok=True)
        self._forget_tokens()

    def _token_path(self, cluster: str) -> Path:
        """Return the file of the token for a cluster; no name of a Tower has an @."""
        return self.folder / f"{name_of(self.server)}@{_safe(cluster)}.token"

    def _forget_tokens(self) -> None:
        for path in self.folder.glob(f"{name_of(self.server)}@*.token"):
            path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock of the files: two plugins must not begin two sessions."""
        import fcntl

        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(self.folder / ".lock", "a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def all_logins(folder: Path | None = None) -> list[LoginFile]:
    """Return the logins of this machine, by server."""
    folder = folder or folder_of()
    found = [_read(path) for path in sorted(folder.glob("*.json"))]
    servers = [each["server"] for each in found if each is not None and isinstance(each.get("server"), str)]
    return [LoginFile(server, folder) for server in servers]


def _read(path: Path) -> dict[str, Any] | None:
    try:
        with path.open("rb") as file:
            value = json.loads(file.read(FILE_LIMIT))
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def _replace(path: Path, value: Mapping[str, Any]) -> None:
    """Write a file of its own owner's, and put it in place of the former one."""
    descriptor, draft = tempfile.mkstemp(prefix=".", dir=path.parent)  # mode 0600
    try:
        with os.fdopen(descriptor, "w") as file:
            json.dump(value, file)
        os.replace(draft, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(draft)
        raise

"""The Towers of this machine's logins, and the client of the identity provider that each of them uses."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from tower.cli.login.login_file import NotLoggedIn, all_logins


def towers_with_client(issuer: str, client: str, folder: Path | None = None) -> list[str]:
    """Return the URLs of the Towers whose users log in with this client of an identity provider."""
    found = []
    for login in all_logins(folder):
        with contextlib.suppress(NotLoggedIn):
            session = login.read()
            if (session.get("issuer"), session.get("clientID")) == (issuer, client):
                found.append(login.server)
    return found


def shared_client(server: str, others: Sequence[str], issuer: str, client: str) -> str:
    """Return the warning for a first login at *server*, whose client *others* have, too."""
    return (
        f"warning: {server} uses the client {client} of {issuer}, as {', '.join(others)} does: continue only "
        "if the same organization runs them, because one that poses as a Tower could use your login at the "
        "others"
    )

"""Begins a login session at the front door, and keeps it on this machine."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tower.cli.client import CommandFailed
from tower.cli.login.door import Door
from tower.cli.login.exchange import Reply
from tower.cli.login.login_file import LoginFile
from tower.cli.login.signing import door_of, private_text
from tower.trust.session_tokens import public_text

_TOKEN_LIMIT = 16 * 1024


def begin(
    door: Door, login: LoginFile, key: Ed25519PrivateKey, id_token: str, refresh_token: str, **more: Any
) -> Reply:
    """Begin a session, and keep it; return the front door's answer.

    :param key: of the session.
    :param more: further fields of the file.
    :raise CommandFailed: the front door rejects the token, or the file cannot be written.
    """
    body = {"publicKey": public_text(key), "server": door.server, "client": _client()}
    if refresh_token:
        body["refreshToken"] = refresh_token
    reply = door.call("POST", "/login/sessions", body=body, token=id_token)
    value = reply.value
    content = {
        "session": value["id"],
        "key": private_text(key),
        "user": value["user"],
        "expires": datetime.fromisoformat(value["expirationTimestamp"]).timestamp(),
        "ca": door.ca_text,
        "ahead": reply.ahead,
        **more,
    }
    try:
        login.write(content)
    except OSError as e:
        raise CommandFailed(f"cannot write {login.path}: {(e.strerror or str(e)).lower()}") from e
    return reply


def exchange_again(login: LoginFile, session: Mapping[str, Any], token_file: str) -> dict[str, Any]:
    """Begin a new session of a workload with the token that *token_file* has now; return it.

    :raise CommandFailed: there is no token, or the front door rejects it.
    """
    kept = {"kubeconfig": session.get("kubeconfig", ""), "token_file": token_file}
    key = Ed25519PrivateKey.generate()
    begin(door_of(login, session), login, key, read_token(token_file), "", **kept)
    return login.read()


def read_token(path: str) -> str:
    """Return the token in a file.

    :raise CommandFailed: there is none.
    """
    try:
        with Path(path).open("rb") as file:
            text = file.read(_TOKEN_LIMIT + 1).decode("ascii").strip()
    except OSError as e:
        raise CommandFailed(f"--token-file {path}: {(e.strerror or str(e)).lower()}") from e
    except UnicodeDecodeError:
        text = ""
    if text.count(".") != 2 or len(text) > _TOKEN_LIMIT or not text.isprintable() or " " in text:
        raise CommandFailed(
            f"--token-file {path}: has no ID token: let the pipeline write its token for this Tower there"
        )
    return text


def _client() -> str:
    """Return a description of this machine."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "unknown"
    text = f"{user}@{socket.gethostname()}"
    return "".join(each for each in text if each.isascii() and each.isprintable())[:200]

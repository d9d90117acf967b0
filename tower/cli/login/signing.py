"""Signs tokens of a session of this machine."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from tower.cli.login.door import Door, reachable
from tower.cli.login.login_file import LoginFile
from tower.kube.kubeconfig import KubeAccess
from tower.trust.session_tokens import LIFETIME, new_token


class SessionEnded(Exception):
    """The front door does not know the session any more; the text is one line with the cure."""


def private_text(key: Ed25519PrivateKey) -> str:
    """Return a private key as in a session's file."""
    return b64encode(key.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption())).decode()


def door_of(login: LoginFile, session: Mapping[str, Any]) -> Door:
    """Return the front door of a session."""
    return Door(KubeAccess(login.server, str(session.get("ca", "")).encode() or None))


def token_of(session: Mapping[str, Any], now: float, cluster: str = "") -> str:
    """Return a new token; *now* is by the clock of the proxy, s since the epoch.

    :param cluster: the only one that it is for; empty: all.
    """
    key = Ed25519PrivateKey.from_private_bytes(b64decode(session["key"]))
    return new_token(session["session"], key, now, cluster=cluster)


def signed(
    login: LoginFile, session: Mapping[str, Any], now: Callable[[], float], cluster: str
) -> tuple[str, float]:
    """Return a new token, and its expiry by this machine's clock, s since the epoch.

    A wrong clock of this machine is compensated.

    :raise SessionEnded: the session has ended.
    """
    ahead = float(session.get("ahead", 0.0))
    door, begin = door_of(login, session), now()
    token = token_of(session, begin + ahead, cluster)
    reply = reachable(door, token)
    if reply is not None and abs(reply.ahead - ahead) > 5:  # a clock was changed since the login
        begin = now()
        token = token_of(session, begin + reply.ahead, cluster)
        reply = reachable(door, token)
    if reply is not None and reply.status == 401:
        raise SessionEnded(f"{reply.message} (tower login {login.server})")
    return token, begin + LIFETIME

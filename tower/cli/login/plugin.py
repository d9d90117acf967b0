"""``tower credential get``: the credential plugin of kubeconfigs (client-go's ExecCredential).

It prints the token in use if that is valid for a while.  Else it signs a new one with the session's key, and
asks the front door whether the session still exists, so that its end is reported in words.  It also does so
for a program that has the token in use already: client-go asks again after a 401, without a reason.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from tower.cli.login.login_file import LoginFile, NotLoggedIn
from tower.errors import TowerError

#: Versions of ExecCredential, the default first.
VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")

#: These versions, by the values of ``--exec-api-version``.
EXEC_VERSIONS: Mapping[str, str] = {version.rpartition("/")[2]: version for version in VERSIONS}

#: A token is used until so long before its expiry, s.
SPARE = 60.0


class PluginFailed(TowerError):
    """There is no credential; the text is one line with the cure."""


def main(
    argv: list[str],
    environ: Mapping[str, str] = os.environ,
    now: Callable[[], float] = time.time,
    caller: Callable[[], int] = os.getppid,
) -> int:
    """Print the credential; return the exit code."""
    try:
        server, token_file, cluster = _arguments(argv)
        version = _version(environ)
        token, expires = credential(LoginFile(server), token_file, now, caller(), cluster)
    except (PluginFailed, NotLoggedIn) as e:
        print(f"tower: {e}", file=sys.stderr)
        return 1
    end = datetime.fromtimestamp(expires - SPARE, UTC)
    status = {"expirationTimestamp": f"{end:%Y-%m-%dT%H:%M:%SZ}", "token": token}
    print(json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": status}))
    return 0


def credential(
    login: LoginFile, token_file: str, now: Callable[[], float], caller: int = 0, cluster: str = ""
) -> tuple[str, float]:
    """Return a token and its expiry, s since the epoch by this machine's clock.

    :param token_file: with a workload's token, for a new session if the last one has expired; or empty.
    :param caller: process that asks, which is not given the same token twice; 0: this one.
    :param cluster: the only one that the token is for; empty: all.
    :raise PluginFailed: there is none.
    :raise NotLoggedIn: there is no session.
    """
    session = _session(login, token_file, now)
    kept = login.token(session["session"], now(), SPARE, cluster)
    callers = kept.get("callers", []) if kept is not None else []
    if kept is not None and caller not in callers:
        token, expires = str(kept["token"]), float(kept["expires"])
        if caller:
            login.keep_token(session["session"], token, expires, [*callers, caller], cluster)
        return token, expires
    from tower.cli.login.signing import SessionEnded, signed

    try:
        token, expires = signed(login, session, now, cluster)
    except SessionEnded as e:
        if not token_file:
            raise PluginFailed(str(e)) from None
        session = _exchanged(login, session, token_file)
        token, expires = signed(login, session, now, cluster)
    login.keep_token(session["session"], token, expires, [caller] if caller else [], cluster)
    return token, expires


def _session(login: LoginFile, token_file: str, now: Callable[[], float]) -> dict[str, Any]:
    session = login.read()
    if session["expires"] > now() + session.get("ahead", 0.0) + SPARE * bool(token_file):
        return session
    if token_file:
        return _exchanged(login, session, token_file)
    raise PluginFailed(
        f"the login session of {session['user']} has expired: run 'tower login {login.server}'"
    )


def _exchanged(login: LoginFile, before: dict[str, Any], token_file: str) -> dict[str, Any]:
    """Return a new session of a workload, after the session *before*."""
    from tower.cli.client import CommandFailed
    from tower.cli.login.sessions import exchange_again

    with login.locked():
        session = login.read()
        if session["session"] != before["session"]:
            return session  # another plugin was first
        try:
            return exchange_again(login, session, token_file)
        except CommandFailed as e:
            raise PluginFailed(str(e)) from None


def _arguments(argv: list[str]) -> tuple[str, str, str]:
    from itertools import zip_longest

    given = dict(zip_longest(argv[::2], argv[1::2], fillvalue=""))
    server, token_file, cluster = (given.pop(each, "") for each in ("--server", "--token-file", "--cluster"))
    if given or not server:
        raise PluginFailed(
            "'tower credential get --server URL [--token-file FILE] [--cluster NAME]' is for kubeconfigs of "
            "'tower login'; kubectl runs it"
        )
    return server, token_file, cluster


def _version(environ: Mapping[str, str]) -> str:
    try:
        version = json.loads(environ.get("KUBERNETES_EXEC_INFO") or "{}").get("apiVersion", VERSIONS[0])
    except (ValueError, AttributeError):
        version = None
    if version not in VERSIONS:
        raise PluginFailed(
            f"KUBERNETES_EXEC_INFO has no apiVersion of {' or '.join(VERSIONS)}: upgrade kubectl"
        )
    return str(version)

"""Commands of logins."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import attrs
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tower.cli import output
from tower.cli.client import GROUP_PATH, CallFailed, CommandFailed, TowerClient, UsageFailed, quoted
from tower.cli.listing import listed_or_watched, selection
from tower.cli.login.browser import by_browser, has_browser
from tower.cli.login.contexts import WrittenContexts, current_of_others, write_contexts
from tower.cli.login.door import Door, find_door, server_of
from tower.cli.login.exchange import Unreachable
from tower.cli.login.identity_provider import IdentityProvider, ProviderTokens
from tower.cli.login.known_towers import shared_client, towers_with_client
from tower.cli.login.login_file import LoginFile, NotLoggedIn, all_logins
from tower.cli.login.plugin import EXEC_VERSIONS, PluginFailed, credential
from tower.cli.login.sessions import begin, read_token
from tower.cli.login.signing import door_of, token_of
from tower.cli.merging import default_file
from tower.errors import one_line
from tower.escaping import escaped
from tower.trust.login_nonce import login_nonce
from tower.trust.session_tokens import public_text


def login(options: argparse.Namespace) -> str:
    """Log in, and write the contexts."""
    server = server_of(options.server)
    files = LoginFile(server)
    try:
        before = files.read()
    except NotLoggedIn:
        before = {}
    door, configuration = find_door(
        server, options.certificate_authority, options.ca_hash, str(before.get("ca", ""))
    )
    token_file = "" if options.token_file is None else os.path.abspath(options.token_file)
    key, more = Ed25519PrivateKey.generate(), dict[str, str]()
    if token_file:
        tokens = ProviderTokens(read_token(token_file), "")
    else:
        issuer = _issuer(configuration.value.get("issuers"), options.issuer, server)
        provider = IdentityProvider(issuer, login_nonce(server, public_text(key)))
        more = {"issuer": provider.url, "clientID": provider.client}
        others = [] if before else towers_with_client(provider.url, provider.client)
        if others:
            _tell(shared_client(server, others, provider.url, provider.client))
        tokens = _tokens(files, provider, options)
    path = os.path.abspath(options.kubeconfig_file or before.get("kubeconfig") or default_file(os.environ))
    more |= {"kubeconfig": path, "token_file": token_file}
    reply = begin(door, files, key, tokens.id_token, tokens.refresh_token, **more)
    _replace(files, before)
    written = _write(files, door, reply.value, path, token_file, EXEC_VERSIONS[options.exec_api_version])
    value = reply.value
    until = value["expirationTimestamp"]
    lines = [f"logged in to {server} as {value['user']} until {until}, session {value['id']}"]
    return "\n".join(map(escaped, [*lines, *_described(written, path)]))


def _replace(files: LoginFile, before: Mapping[str, Any]) -> None:
    """End the former session of this machine."""
    if before and before["expires"] > time.time():
        with contextlib.suppress(CommandFailed):
            token = token_of(before, time.time() + before.get("ahead", 0.0))
            door_of(files, before).ask("DELETE", "/login/session", token=token)


def _tokens(files: LoginFile, provider: IdentityProvider, options: argparse.Namespace) -> ProviderTokens:
    """Return the tokens of a user; if the provider requires consent for a refresh token, request it."""
    consent = provider.url in files.consents()
    if options.device or (provider.has_devices and not options.browser and not has_browser()):
        tokens = _by_device(provider, consent=consent)
        if not (tokens.refresh_token or consent) and provider.needs_refresh_token:
            url = provider.url
            _tell(f"{url} gave no refresh token: log in again and consent; later logins need only one code")
            tokens = _by_device(provider, consent=True)
    else:
        tokens = by_browser(provider, options.callback_port, _tell, consent=consent)
    if tokens.refresh_token and tokens.has_consent and not consent:
        files.keep_consent(provider.url)
    return tokens


def _by_device(provider: IdentityProvider, *, consent: bool) -> ProviderTokens:
    device = provider.begin_device(consent=consent)
    where = device.whole or device.address
    _tell(f"open {where} on any machine, and enter or confirm the code {device.user_code}")
    _tell("enter a code only if you started the login yourself, never one that you received")
    return attrs.evolve(provider.by_device(device, time.sleep), has_consent=consent)


def _issuer(issuers: Any, wanted: str | None, server: str) -> Mapping[str, Any]:
    found: list[Mapping[str, Any]] = [each for each in issuers or () if isinstance(each, dict)]
    urls = [str(each.get("url")) for each in found]
    if wanted is not None:
        if wanted not in urls:
            listed = ", ".join(urls) or "none"
            raise UsageFailed(f"--issuer {wanted}: {server} has no such identity provider: it has {listed}")
        return found[urls.index(wanted)]
    if not found:
        raise CommandFailed(
            f"{server} has no identity provider for users: give --token-file, or let an administrator set "
            "--login-client-id"
        )
    if len(found) > 1:
        raise UsageFailed(
            f"{server} has several identity providers: give --issuer with one of {', '.join(urls)}"
        )
    return found[0]


def _tell(text: str) -> None:
    for line in text.split("\n"):
        print(escaped(line), file=sys.stderr, flush=True)


def _write(
    files: LoginFile, door: Door, session: Mapping[str, Any], path: str, token_file: str, version: str
) -> WrittenContexts:
    arguments = ["credential", "get", "--server", files.server]
    if token_file:
        arguments += ["--token-file", token_file]
    plugin: dict[str, Any] = {
        "apiVersion": version,
        "command": _own_command(),
        "args": arguments,
        "env": None,
        "installHint": "Install Tower (pip install kubesphere-tower), which has the command tower.",
        "interactiveMode": "Never",
        "provideClusterInfo": False,
    }
    names = [str(each["name"]) for each in session["clusters"]]
    user, current = str(session["user"]), current_of_others(path, os.environ)
    return write_contexts(path, files.server, door.ca_text, user, names, plugin, current=current)


def _own_command() -> str:
    """Return this program, by its name if the shell finds it, for kubeconfigs."""
    program = os.path.abspath(sys.argv[0])
    found = shutil.which("tower")
    if found is not None and os.path.realpath(found) == os.path.realpath(program):
        return "tower"
    return program


def _described(written: WrittenContexts, path: str) -> list[str]:
    if not written.names:
        lines = ["no access policy admits you to a cluster: ask an administrator of Tower"]
    else:
        lines = [f"contexts in {path}:", *(f"  {name}" for name in written.names)]
        if written.current in written.names:
            lines.append(f"the current context is {written.current}")
        elif written.current not in written.removed:
            lines.append(f"use one with 'kubectl --context {written.names[0]}'")
    if written.removed:
        lines.append(
            f"removed, because you cannot enter these clusters any more: {', '.join(written.removed)}"
        )
    if written.current in written.removed:
        lines.append(
            f"the current context was {written.current}: choose another one with 'kubectl config use-context "
            "NAME'"
        )
    return lines


def logout(options: argparse.Namespace) -> str:
    """End sessions of this machine, and remove their contexts; a failure does not affect the others."""
    chosen = _chosen(options.server, every=options.all)
    if len(chosen) == 1:
        return escaped(_logged_out(chosen[0]))
    lines, failed = [], []
    for files in chosen:
        try:
            lines.append(_logged_out(files))
        except (CommandFailed, NotLoggedIn) as e:
            failed.append(f"{files.server}: {one_line(e)}")
    text = "\n".join(map(escaped, lines))
    if failed:
        if text:
            print(text, flush=True)
        raise CommandFailed(f"{len(failed)} of {len(chosen)} logouts failed: {'; '.join(failed)}")
    return text


def _logged_out(files: LoginFile) -> str:
    """Log out of a Tower; return a line about it."""
    session = files.read()
    problem = _end(files, session)
    path = str(session.get("kubeconfig") or default_file(os.environ))
    removed: Sequence[str] = ()
    if os.path.exists(path):
        removed = write_contexts(path, files.server, "", "", (), {}).removed
    try:
        files.remove()
    except OSError as e:
        raise CommandFailed(f"cannot remove {files.path}: {(e.strerror or str(e)).lower()}") from e
    if problem:
        output.note(
            f"the session {session['session']} goes on until it expires, because {problem}: an "
            f"administrator can end it with 'tower session end {session['session']}'"
        )
    text = f"logged out of {files.server}"
    return f"{text}; removed {len(removed)} contexts from {path}" if removed else text


def _end(files: LoginFile, session: Mapping[str, Any]) -> str:
    """End a session at the front door; return why that failed, or empty."""
    try:
        token, _ = credential(files, "", time.time)
        door_of(files, session).call("DELETE", "/login/session", token=token)
    except (PluginFailed, NotLoggedIn):
        return ""  # it has ended
    except CallFailed as e:
        return "" if e.code in (401, 404) else str(e)
    except Unreachable as e:
        return str(e)
    return ""


def _chosen(server: str | None, *, every: bool = False) -> list[LoginFile]:
    if server is not None:
        return [LoginFile(server_of(server))]
    found = all_logins()
    if not found:
        raise CommandFailed("you are not logged in: run 'tower login https://HOST'")
    if len(found) > 1 and not every:
        listed = ", ".join(each.server for each in found)
        raise UsageFailed(f"you are logged in to several Towers: give one of {listed}, or --all")
    return found


def list_sessions(client: TowerClient, options: argparse.Namespace) -> str:
    """List the login sessions of all users."""
    query = selection(options)
    if options.user is not None:
        query["fieldSelector"] = f"spec.user={options.user}"
    fetch = partial(client.call, "GET", f"{GROUP_PATH}/loginsessions")
    return listed_or_watched(fetch, query, options, "no login sessions")


def end_sessions(client: TowerClient, options: argparse.Namespace) -> str:
    """End a session, or all of a user; their connections end at once."""
    if (options.id is None) == (options.user is None):
        raise UsageFailed("give the ID of a session, from 'tower session list', or --user NAME")
    if options.id is not None:
        try:
            client.call("DELETE", f"{GROUP_PATH}/loginsessions/{quoted(options.id)}")
        except CallFailed as e:
            if e.reason != "NotFound":
                raise
            raise CommandFailed(
                f"there is no login session {options.id}: 'tower session list' shows all"
            ) from e
        return f"login session {options.id} ended"
    items = client.call("GET", f"{GROUP_PATH}/loginsessions")["items"]
    names = [each["metadata"]["name"] for each in items if each["spec"]["user"] == options.user]
    if not names:
        raise CommandFailed(f"{options.user} has no login session: 'tower session list' shows all")
    for name in names:
        client.call("DELETE", f"{GROUP_PATH}/loginsessions/{quoted(name)}")
    return escaped(f"ended {len(names)} login sessions of {options.user}")


def plugin_usage(_options: argparse.Namespace) -> str:
    """Show what ``tower credential get`` is for; with its options, `tower.cli.main` runs the plugin."""
    raise UsageFailed(
        "'tower credential get --server URL' is the credential plugin in kubeconfigs of 'tower login'; "
        "kubectl runs it"
    )

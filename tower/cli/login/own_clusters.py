"""``tower cluster list`` of a user: the clusters of the logins of this machine."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from tower.cli import output
from tower.cli.client import CallFailed, CommandFailed, UsageFailed
from tower.cli.login.exchange import Reply
from tower.cli.login.login_file import LoginFile, NotLoggedIn, all_logins
from tower.cli.login.plugin import PluginFailed, credential
from tower.cli.login.signing import door_of
from tower.escaping import escaped

#: Stands for the context of a cluster that has none.
_NO_CONTEXT = "<none>"

#: Columns of a user's own clusters: title, key, and whether only ``-o wide`` shows it.
_COLUMNS = (
    ("Context", "context", False),
    ("Cluster", "name", False),
    ("Available", "available", False),
    ("Access", "access", False),
    ("Policies", "policies", True),
    ("Tower", "tower", True),
)


def own_clusters(options: argparse.Namespace) -> str:
    """List the clusters that the users of this machine's logins may enter."""
    if options.selector or options.watch:
        raise UsageFailed("--selector and --watch need an administrator's --kubeconfig, or --state-dir")
    items: list[dict[str, Any]] = []
    failed: list[str] = []
    logins = all_logins()
    if not logins:
        raise UsageFailed(
            "no proxy is given, and you are not logged in: run 'tower login https://HOST', or give "
            "--state-dir DIR on the proxy's machine, or --kubeconfig FILE with an administrator's kubeconfig"
        )
    for files in logins:
        try:
            items += _clusters_of(files)
        except (CommandFailed, PluginFailed, NotLoggedIn) as e:
            failed.append(str(e))
    if failed and not items:
        raise CommandFailed("; ".join(failed))
    for text in failed:
        output.note(text)
    if options.output in ("json", "yaml"):
        return output.structured({"items": items}, options.output)
    if options.output == "name":
        return "\n".join(escaped(each["context"]) for each in items)
    shown = [each for each in _COLUMNS if options.output == "wide" or not each[2]]
    if not items:
        return "no access policy admits you to a cluster: ask an administrator of Tower"
    _note_missing_contexts(items)
    rows = [[_cell(item[key]) for _, key, _ in shown] for item in items]
    return output.columns([title for title, _, _ in shown], rows)


def _note_missing_contexts(items: Sequence[Mapping[str, Any]]) -> None:
    for server in sorted({each["tower"] for each in items if each["context"] == _NO_CONTEXT}):
        output.note(f"'tower login {server}' writes the missing contexts")


def _clusters_of(files: LoginFile) -> list[dict[str, Any]]:
    session = files.read()
    reply = _asked(files, str(session.get("token_file", "")), "/login/clusters")
    contexts = _contexts(str(session.get("kubeconfig", "")), files.server)
    return [
        {
            "context": contexts.get(each["name"], _NO_CONTEXT),
            "name": each["name"],
            "available": each["available"],
            "access": each.get("access", []) if each.get("open", True) else ["closed now"],
            "policies": each.get("policies", []),
            "tower": files.server,
        }
        for each in reply.value["items"]
    ]


def _asked(files: LoginFile, token_file: str, path: str) -> Reply:
    """Return the answer about the own session; a token that is rejected is replaced once, as for kubectl."""
    token, _ = credential(files, token_file, time.time, os.getpid())
    try:
        return door_of(files, files.read()).call("GET", path, token=token)
    except CallFailed as e:
        if e.code != 401:
            raise
    token, _ = credential(files, token_file, time.time, os.getpid())
    return door_of(files, files.read()).call("GET", path, token=token)


def _contexts(path: str, server: str) -> dict[str, str]:
    """Return the contexts of a kubeconfig that lead to clusters of a Tower, by cluster."""
    import yaml

    try:
        with open(path, "rb") as file:
            content = yaml.safe_load(file)
        servers = {each["name"]: each["cluster"]["server"] for each in content["clusters"]}
        contexts = [(each["name"], servers.get(each["context"]["cluster"])) for each in content["contexts"]]
    except (OSError, yaml.YAMLError, LookupError, TypeError):
        return {}
    begin = f"{server}/clusters/"
    return {found.removeprefix(begin): name for name, found in contexts if found and found.startswith(begin)}


def _cell(value: object) -> str:
    return ",".join(map(str, value)) or "<none>" if isinstance(value, list) else str(value)

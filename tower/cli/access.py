"""Commands for kubeconfigs and issued credentials."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import stat
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from tower.cli.client import GROUP_PATH, CallFailed, CommandFailed, TowerClient, UsageFailed, quoted
from tower.cli.clusters import call_cluster, cluster_path
from tower.cli.listing import listed_or_watched, selection
from tower.cli.merging import CannotMerge, merge, read_config
from tower.cli.output import note
from tower.drafts import draft_of
from tower.escaping import escaped

#: Context of an issued kubeconfig, see `tower.kube.kubeconfig.kubeconfig`.
_ISSUED = re.compile(r".+@tower(-[a-z0-9-]+(:port)?)?", re.DOTALL)

_STILL_VALID = (
    "credential remains valid; to revoke it: tower credential list, then tower credential revoke ID"
)


def kubeconfig(client: TowerClient, options: argparse.Namespace) -> str:
    """Issue a kubeconfig for one user of one cluster; print it, or write it to a file."""
    return _delivered(
        options,
        f"tower/{options.name}",
        lambda: request_kubeconfig(
            client,
            options.name,
            user=options.user,
            groups=options.group,
            ttl=options.ttl,
            via=options.via,
            auth=options.auth,
        ),
    )


def trusted_caller(client: TowerClient, options: argparse.Namespace) -> str:
    """Issue a kubeconfig for a trusted caller of one cluster; print it, or write it to a file."""
    return _delivered(
        options,
        f"tower/{options.name}",
        lambda: request_kubeconfig(
            client,
            options.name,
            user=options.user,
            groups=options.group,
            ttl=options.ttl,
            via=options.via,
            auth=options.auth,
            resource="trustedcallers",
        ),
    )


def admin_kubeconfig(client: TowerClient, options: argparse.Namespace) -> str:
    """Issue a kubeconfig for an administrator of Tower; print it, or write it to a file."""
    spec = {"user": options.user, "auth": options.auth, **({"ttl": options.ttl} if options.ttl else {})}
    body = {"apiVersion": "cluster.kubesphere.io/v1alpha1", "kind": "Kubeconfig", "spec": spec}
    return _delivered(
        options, "tower", lambda: client.call("POST", f"{GROUP_PATH}/kubeconfigs", body)["status"]
    )


def request_kubeconfig(
    client: TowerClient,
    name: str,
    *,
    user: str,
    groups: list[str],
    ttl: str | None,
    via: str,
    auth: str,
    resource: str = "kubeconfigs",
) -> dict[str, Any]:
    """Issue a credential; return its status: `kubeconfig`, `credential` (its id), `expirationTimestamp`."""
    spec: dict[str, Any] = {"user": user, "groups": groups, "via": via, "auth": auth}
    if ttl is not None:
        spec["ttl"] = ttl
    body = {"apiVersion": "cluster.kubesphere.io/v1alpha1", "kind": "Kubeconfig", "spec": spec}
    status: dict[str, Any] = call_cluster(client, "POST", name, f"/{resource}", body=body)["status"]
    return status


def _delivered(options: argparse.Namespace, context: str, issue: Callable[[], dict[str, Any]]) -> str:
    """Return the issued kubeconfig, or write it to the file of --output or --merge and confirm that.

    The file is replaced as a whole.  With --output, it has mode 0600, and is not a link or a special file, or
    a kubeconfig with other contexts than that of an issued one.

    :param context: name of the context for --merge.
    :param issue: returns a status with `kubeconfig` and `credential`; called once the file can be written.
    :raise CommandFailed: the file cannot be written.
    """
    if options.merge is not None:
        return _merged(options, context, issue)
    path = options.output
    if path in (None, "-"):
        return str(issue()["kubeconfig"]).rstrip("\n")
    if not path:
        raise UsageFailed("--output: the value is empty: give a file name, or omit the option")
    credential = ""
    try:
        if os.path.lexists(path) and not stat.S_ISREG(os.lstat(path).st_mode):
            raise CommandFailed(f"--output {path}: exists and is not a regular file: choose another name")
        replaced = _issued_context(path)
        with draft_of(Path(path)) as draft:
            status = issue()
            credential = str(status["credential"])
            draft.write(str(status["kubeconfig"]).rstrip("\n").encode() + b"\n")
            draft.put()
    except OSError as e:
        cure = f"; revoke it: tower credential revoke {credential}" if credential else ""
        raise CommandFailed(f"--output {path}: {(e.strerror or str(e)).lower()}{cure}") from e
    if replaced not in ("", yaml.safe_load(status["kubeconfig"])["current-context"]):
        note(f"replaced the kubeconfig of {replaced} in {path}; its {_STILL_VALID}")
    return f"kubeconfig written to {path}"


def _merged(options: argparse.Namespace, context: str, issue: Callable[[], dict[str, Any]]) -> str:
    """Add the issued kubeconfig to the file of --merge and confirm that; see `_delivered`."""
    if not options.merge:
        raise UsageFailed("--merge: the value is empty: give a file name, or omit the option")
    replaced = merge(options.merge, context, options.user, issue)
    mode = stat.S_IMODE(os.stat(options.merge).st_mode)
    if mode & 0o077:
        command = f"chmod 600 {shlex.quote(options.merge)}"
        note(f"{options.merge} is accessible to other users (mode {mode:03o}): {command}")
    if replaced is None:
        done = f"context {context} written to {options.merge}"
    elif replaced in ("", options.user):
        done = f"updated context {context} of user {options.user} in {options.merge}"
    else:
        done = f"replaced context {context} of user {replaced} by that of {options.user} in {options.merge}"
        note(f"{replaced}'s {_STILL_VALID}")
    return escaped(f"{done}; use it with 'kubectl --context {context}'")


def _issued_context(path: str) -> str:
    """Return the context of the issued kubeconfig *path*; empty: there is no file, or no kubeconfig in it.

    :raise CommandFailed: the file is a kubeconfig with other contexts.
    """
    try:
        names = [str(each.get("name")) for each in read_config(path)[0]["contexts"]]
    except CannotMerge:
        return ""
    if len(names) > 1 or not all(map(_ISSUED.fullmatch, names)):
        raise CommandFailed(
            f"--output {path}: the file already has other contexts, such as {names[-1]}: use --merge "
            f"{shlex.quote(path)} to add this context, or choose another file"
        )
    return "".join(names)


def list_credentials(client: TowerClient, options: argparse.Namespace) -> str:
    """List the issued credentials that have not expired."""
    query = selection(options)
    if options.cluster is not None:
        cluster_path(options.cluster)
        query["fieldSelector"] = f"spec.cluster={options.cluster}"
    fetch = partial(client.call, "GET", f"{GROUP_PATH}/credentials")
    return listed_or_watched(fetch, query, options, "no credentials")


def revoke_credential(client: TowerClient, options: argparse.Namespace) -> str:
    """Revoke a credential; connections that use it end at once."""
    try:
        client.call("DELETE", f"{GROUP_PATH}/credentials/{quoted(options.id)}")
    except CallFailed as e:
        if e.reason != "NotFound":
            raise
        raise CommandFailed(
            f"there is no credential {options.id}: 'tower credential list' lists all credentials"
        ) from e
    return f"credential {options.id} revoked"

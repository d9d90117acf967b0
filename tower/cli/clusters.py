"""Commands for clusters and their agents."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from tower.cli import output
from tower.cli.client import GROUP_PATH, CallFailed, CommandFailed, TowerClient, UsageFailed, quoted
from tower.cli.listing import TABLE_ACCEPT, Fetch, listed, listed_or_watched, selection
from tower.cli.parser import suggestion
from tower.cli.ssh import flags as ssh_flags
from tower.cli.ssh.view import node_facts, node_tables
from tower.cli.watching import ClusterWatch
from tower.clusters.object_meta import ALLOW_LONE_TOKENS, ALLOW_TOKENS, DRAIN, MEMBER_TOKENS

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_MERGE = "application/merge-patch+json"

#: Removes the brackets of IPv6 addresses in a path.
_BRACKETS = str.maketrans("", "", "[]")

#: Values of the annotation, by the option's value, and how they are shown.
_TOKENS = {"allow": ALLOW_TOKENS, "allow-alone": ALLOW_LONE_TOKENS, "reject": None}
_TOKEN_TEXTS = {
    ALLOW_TOKENS: "allowed with old agents",
    ALLOW_LONE_TOKENS: "allowed without another credential",
}

#: Flags that a new cluster of type ssh requires.
_NEEDED = ("ssh-user", "ssh-keyfile", "member-kubeconfig")


def cluster_path(name: str, below: str = "") -> str:
    """Return the API path of a cluster, or of *below* in it; raise `UsageFailed` if *name* is invalid."""
    if _LABEL.fullmatch(name) is None:
        raise UsageFailed(
            f"there is no cluster {name!r}: a name has 1 to 63 lower case letters, digits and dashes"
        )
    return f"{GROUP_PATH}/clusters/{name}{below}"


def call_cluster(client: TowerClient, method: str, name: str, below: str = "", **more: Any) -> dict[str, Any]:
    """Call the API for one cluster, see `TowerClient.call`.

    :raise CommandFailed: there is no such cluster; the text names a similar one.
    """
    path = cluster_path(name, below)
    try:
        return client.call(method, path, **more)
    except CallFailed as e:
        if e.reason == "NotFound" and e.kind in ("clusters", ""):
            near = suggestion(name, _names(client)) or ": 'tower cluster list' lists all clusters"
            raise CommandFailed(f"there is no cluster {name}{near}") from e
        raise


def _names(client: TowerClient) -> list[str]:
    """Return the names of all clusters."""
    return [item["metadata"]["name"] for item in client.call("GET", f"{GROUP_PATH}/clusters")["items"]]


def add(client: TowerClient, options: argparse.Namespace) -> str:
    """Add a cluster to the proxy."""
    connection = _connection(options)
    body = {
        "apiVersion": "cluster.kubesphere.io/v1alpha1",
        "kind": "Cluster",
        "metadata": {"name": options.name},
        "spec": {"enable": True, "connection": connection},
    }
    try:
        with ssh_flags.errors_by_flag():
            client.call("POST", f"{GROUP_PATH}/clusters", body)
    except CallFailed as e:
        if e.reason == "AlreadyExists":
            cure = f"'tower join {options.name}' prints the line that starts another agent"
            if options.type == "ssh":
                cure = f"'tower cluster set {options.name}' changes its settings"
            raise CommandFailed(f"cluster {options.name} already exists: {cure}") from e
        raise
    if options.type == "ssh":
        return f"cluster {options.name} added; 'tower cluster show {options.name}' shows its nodes"
    return f"cluster {options.name} added; 'tower join {options.name}' prints the line that starts its agent"


def _connection(options: argparse.Namespace) -> dict[str, Any]:
    """Return ``spec.connection`` of a new cluster."""
    given = ssh_flags.given_flags(options)
    if options.type == "proxy" and given:
        raise UsageFailed(f"--{given[0]} is for clusters of type ssh: omit it, or add --type ssh")
    if options.type == "ssh":
        missing = [f"--{name}" for name in _NEEDED if name not in given]
        if missing:
            raise UsageFailed(
                f"--type ssh requires {' and '.join(', '.join(missing).rsplit(', ', 1))}: "
                "see 'tower cluster add --help'"
            )
    connection: dict[str, Any] = {"type": options.type, **ssh_flags.connection(options, is_new=True)}
    if options.port is not None:
        connection["kubernetesAPIServerPort"] = options.port
    return connection


def change(client: TowerClient, options: argparse.Namespace) -> str:
    """Change the node settings of a cluster of type ssh, or whether old agents accept members' tokens."""
    changes = ssh_flags.connection(options)
    if not changes and options.member_tokens is None:
        raise UsageFailed("no settings to change: see 'tower cluster set --help'")
    body: dict[str, Any] = {}
    if "ssh" in changes:
        changes["ssh"] = ssh_flags.with_one_source(changes["ssh"])
    if changes:
        body["spec"] = {"connection": changes}
    if options.member_tokens is not None:
        body["metadata"] = {"annotations": {MEMBER_TOKENS: _TOKENS[options.member_tokens]}}
    with ssh_flags.errors_by_flag():
        call_cluster(client, "PATCH", options.name, body=body, content=_MERGE)
    return f"cluster {options.name} changed"


def list_all(client: TowerClient, options: argparse.Namespace) -> str:
    """List the clusters that the selector matches."""
    return _listed(
        client,
        selection(options),
        options,
        empty="no cluster matches the selector"
        if options.selector
        else "there are no clusters yet: 'tower cluster add NAME' adds one",
    )


def _listed(client: TowerClient, query: dict[str, str], options: argparse.Namespace, empty: str = "") -> str:
    """Return the clusters that *query* selects in the output format; with ``--watch``, print changes."""
    if options.watch:
        ClusterWatch(client, query, options.output).run()
    return listed(partial(client.call, "GET", f"{GROUP_PATH}/clusters"), query, options.output, empty)


def show(client: TowerClient, options: argparse.Namespace) -> str:
    """Show one cluster."""
    cluster = call_cluster(client, "GET", options.name)
    if options.watch or options.output == "wide":
        return _listed(client, {"fieldSelector": f"metadata.name={options.name}"}, options)
    if options.output != "table":
        return output.structured(cluster, options.output)
    is_ssh = cluster["spec"].get("connection", {}).get("type") == "ssh"
    below = node_tables if is_ssh else _agents
    facts = [*_facts(cluster), *(node_facts(cluster) if is_ssh else ())]
    parts = [output.pairs(facts), _conditions(cluster)]
    if cluster["spec"].get("enable") or not is_ssh:
        parts.append(below(client, options.name))
    return "\n\n".join(part for part in parts if part)


def enable(client: TowerClient, options: argparse.Namespace) -> str:
    """Enable a disabled cluster."""
    return _switch(client, options.name, on=True)


def disable(client: TowerClient, options: argparse.Namespace) -> str:
    """Disable a cluster and keep its record."""
    return _switch(client, options.name, on=False, drain=options.drain)


def remove(client: TowerClient, options: argparse.Namespace) -> str:
    """Remove a cluster, its agents' keys and its users' credentials; ask first on a terminal."""
    if output.is_asked(yes=options.yes):
        call_cluster(client, "GET", options.name)
        output.confirm(
            f"This removes cluster {options.name} of {client.access.server}, its agents' keys and its users' "
            "credentials, and closes all connections to it.",
            f"cluster {options.name} not removed",
        )
    answer = call_cluster(client, "DELETE", options.name)
    finalizers = answer.get("metadata", {}).get("finalizers")
    if not finalizers:
        return f"cluster {options.name} removed"
    from tower.controller.objects.host_cluster import FINALIZER  # of host clusters only

    if others := [each for each in finalizers if each != FINALIZER]:
        names = ", ".join(others)
        return f"cluster {options.name} is removed once other programs remove their finalizers: {names}"
    return f"cluster {options.name} is being removed: the proxy finishes that within seconds"


def agents(client: TowerClient, options: argparse.Namespace) -> str:
    """List agent keys and tokens of one cluster or of all, and their live tunnels."""
    if options.name is None:
        empty = "no agent matches the selector" if options.selector else "no agent has joined a cluster yet"
        fetch: Fetch = partial(client.call, "GET", f"{GROUP_PATH}/agents")
    else:
        empty = "no agent matches the selector" if options.selector else _no_agents(options.name)
        fetch = partial(call_cluster, client, "GET", options.name, "/agents")
    return listed_or_watched(fetch, selection(options), options, empty)


def revoke(client: TowerClient, options: argparse.Namespace) -> str:
    """Revoke an agent's key or token; its tunnels end at once."""
    name, fingerprint = options.name, options.fingerprint
    try:
        call_cluster(client, "DELETE", name, f"/agents/{quoted(fingerprint_segment(fingerprint))}")
    except CallFailed as e:
        if e.reason != "NotFound":
            raise
        raise CommandFailed(
            f"cluster {name} has no agent {fingerprint}: 'tower cluster agents {name}' lists its agents"
        ) from e
    return f"agent {fingerprint} of cluster {name} revoked"


def fingerprint_segment(fingerprint: str) -> str:
    """Return an OpenSSH *fingerprint* as a path segment, in the alphabet of RFC 4648, section 5."""
    return fingerprint.replace("+", "-").replace("/", "_")


def forget_host_key(client: TowerClient, options: argparse.Namespace) -> str:
    """Forget the learned host key of a node."""
    name, node = options.name, options.node
    call_cluster(client, "DELETE", name, f"/hostkeys/{quoted(node.translate(_BRACKETS))}")
    return (
        f"host key of node {node} of cluster {name} forgotten; with --ssh-host-keys accept-new, its next key "
        "is learned"
    )


def _switch(client: TowerClient, name: str, *, on: bool, drain: str | None = None) -> str:
    body = {"metadata": {"annotations": {DRAIN: drain}}, "spec": {"enable": on}}
    call_cluster(client, "PATCH", name, body=body, content=_MERGE)
    if drain is not None:
        return f"cluster {name} disabled; requests in progress have up to {drain} to end"
    return f"cluster {name} {'enabled' if on else 'disabled'}"


def _facts(cluster: dict[str, Any]) -> list[tuple[str, object]]:
    metadata, spec, status = cluster["metadata"], cluster["spec"], cluster.get("status", {})
    annotations = metadata.get("annotations", {})
    return [
        ("Name", metadata["name"]),
        ("UID", metadata.get("uid")),
        ("Created", metadata.get("creationTimestamp")),
        ("Enabled", bool(spec.get("enable"))),
        ("Type", spec.get("connection", {}).get("type")),
        ("Port", spec.get("connection", {}).get("kubernetesAPIServerPort")),
        ("Kubernetes version", status.get("kubernetesVersion")),
        ("Last seen", status.get("lastSeen") or "never"),
        *_member_tokens(annotations),
    ]


def _member_tokens(annotations: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the line about tokens of the cluster's own accounts, if they are allowed."""
    text = _TOKEN_TEXTS.get(annotations.get(MEMBER_TOKENS, ""))
    return [] if text is None else [("Member tokens", text)]


def _conditions(cluster: dict[str, Any]) -> str:
    listed = cluster.get("status", {}).get("conditions") or []
    keys = ("type", "status", "lastTransitionTime", "reason", "message")
    rows = [[item.get(key) for key in keys] for item in listed]
    return output.columns(("Condition", "Status", "Since", "Reason", "Message"), rows) if rows else ""


def _agents(client: TowerClient, name: str) -> str:
    answer = call_cluster(client, "GET", name, "/agents", accept=TABLE_ACCEPT)
    return output.table(answer, empty=_no_agents(name))


def _no_agents(name: str) -> str:
    return f"no agent has joined cluster {name} yet: run the line that 'tower join {name}' prints"

"""The commands about clusters and their agents."""

from __future__ import annotations

import argparse
import re
from typing import Any

from tower.cli import output, ssh_flags
from tower.cli.client import GROUP_PATH, TowerClient, quoted
from tower.cli.errors import CallFailed, CommandFailed
from tower.cli.ssh_view import node_facts, node_tables
from tower.web.api.table import TABLES

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_MERGE = "application/merge-patch+json"

#: What is left out around IPv6 addresses in a path.
_BRACKETS = str.maketrans("", "", "[]")

#: The flags without which there is no cluster of type ssh.
_NEEDED = ("ssh-user", "ssh-keyfile", "member-kubeconfig")

TABLE_ACCEPT = ",".join((*TABLES, "application/json"))


def cluster_path(name: str, below: str = "") -> str:
    """Return the path of a cluster's object or of something *below* it.

    :raise CommandFailed: no cluster can have this name.
    """
    if _LABEL.fullmatch(name) is None:
        raise CommandFailed(
            f"there is no cluster {name!r}: names are 1 to 63 lower case letters, digits and dashes"
        )
    return f"{GROUP_PATH}/clusters/{name}{below}"


def call_cluster(client: TowerClient, method: str, name: str, below: str = "", **more: Any) -> dict[str, Any]:
    """Call the API about one cluster; see `TowerClient.call`.

    :raise CommandFailed: one that is not there is named, and how to find those that are.
    """
    path = cluster_path(name, below)
    try:
        return client.call(method, path, **more)
    except CallFailed as e:
        if e.reason == "NotFound" and e.kind in ("clusters", ""):
            raise CommandFailed(
                f"there is no cluster {name}: 'tower cluster list' shows those there are, "
                f"'tower cluster add {name}' adds it"
            ) from e
        raise


def add(client: TowerClient, options: argparse.Namespace) -> str:
    """Make a cluster known to the proxy."""
    connection = _connection(options)
    body = {
        "apiVersion": "cluster.kubesphere.io/v1alpha1",
        "kind": "Cluster",
        "metadata": {"name": options.name},
        "spec": {"enable": True, "connection": connection},
    }
    try:
        with ssh_flags.told_by_flag():
            client.call("POST", f"{GROUP_PATH}/clusters", body)
    except CallFailed as e:
        if e.reason == "AlreadyExists":
            raise CommandFailed(
                f"there is a cluster {options.name} already: choose another name, or remove that one first "
                f"with 'tower cluster remove {options.name}'"
            ) from e
        raise
    if options.type == "ssh":
        return f"cluster {options.name} added; 'tower cluster show {options.name}' shows its nodes"
    return f"cluster {options.name} added; 'tower join {options.name}' prints the line that starts its agent"


def _connection(options: argparse.Namespace) -> dict[str, Any]:
    """Return ``spec.connection`` of a new cluster."""
    given = ssh_flags.given_flags(options)
    if options.type == "proxy" and given:
        raise CommandFailed(f"--{given[0]} is for clusters of type ssh: leave it out, or add --type ssh")
    if options.type == "ssh":
        missing = [f"--{name}" for name in _NEEDED if name not in given]
        if missing:
            raise CommandFailed(
                f"--type ssh needs {' and '.join(', '.join(missing).rsplit(', ', 1))}: "
                "'tower cluster add --help' says what they are"
            )
    connection: dict[str, Any] = {"type": options.type, **ssh_flags.connection(options, is_new=True)}
    if options.port is not None:
        connection["kubernetesAPIServerPort"] = options.port
    return connection


def change(client: TowerClient, options: argparse.Namespace) -> str:
    """Change how the nodes of a cluster of type ssh are reached."""
    said = ssh_flags.connection(options)
    if not said:
        raise CommandFailed("nothing to change: 'tower cluster set --help' shows the flags")
    if "ssh" in said:
        said["ssh"] = ssh_flags.with_one_source(said["ssh"])
    with ssh_flags.told_by_flag():
        call_cluster(client, "PATCH", options.name, body={"spec": {"connection": said}}, content=_MERGE)
    return f"cluster {options.name} changed"


def list_all(client: TowerClient, options: argparse.Namespace) -> str:
    """Show all clusters."""
    path = f"{GROUP_PATH}/clusters"
    if options.output in ("table", "wide"):
        answer = client.call("GET", path, accept=TABLE_ACCEPT)
        return output.table(
            answer,
            wide=options.output == "wide",
            empty="there are no clusters yet: 'tower cluster add NAME' adds one",
        )
    answer = client.call("GET", path)
    if options.output == "name":
        return "\n".join(item["metadata"]["name"] for item in answer["items"])
    return _structured(answer, options.output)


def show(client: TowerClient, options: argparse.Namespace) -> str:
    """Show one cluster."""
    cluster = call_cluster(client, "GET", options.name)
    if options.output != "table":
        return _structured(cluster, options.output)
    is_ssh = cluster["spec"].get("connection", {}).get("type") == "ssh"
    below = node_tables if is_ssh else _agents
    facts = [*_facts(cluster), *(node_facts(cluster) if is_ssh else ())]
    parts = [output.pairs(facts), _conditions(cluster)]
    if cluster["spec"].get("enable") or not is_ssh:
        parts.append(below(client, options.name))
    return "\n\n".join(part for part in parts if part)


def enable(client: TowerClient, options: argparse.Namespace) -> str:
    """Let a cluster be used again."""
    return _switch(client, options.name, on=True)


def disable(client: TowerClient, options: argparse.Namespace) -> str:
    """Cut a cluster off, and keep its record."""
    return _switch(client, options.name, on=False)


def remove(client: TowerClient, options: argparse.Namespace) -> str:
    """Forget a cluster, its agents' keys and its users' credentials."""
    call_cluster(client, "DELETE", options.name)
    return f"cluster {options.name} removed"


def agents(client: TowerClient, options: argparse.Namespace) -> str:
    """Show what lets agents into a cluster, and its live tunnels."""
    if options.output == "table":
        return _agents(client, options.name)
    return _structured(call_cluster(client, "GET", options.name, "/agents"), options.output)


def revoke(client: TowerClient, options: argparse.Namespace) -> str:
    """Take an agent's key or a token back; its tunnels end at once."""
    name, fingerprint = options.name, options.fingerprint
    try:
        call_cluster(client, "DELETE", name, f"/agents/{quoted(fingerprint_segment(fingerprint))}")
    except CallFailed as e:
        if e.reason != "NotFound":
            raise
        raise CommandFailed(
            f"cluster {name} has no agent {fingerprint}: 'tower cluster agents {name}' shows those it has"
        ) from e
    return f"agent {fingerprint} of cluster {name} revoked"


def fingerprint_segment(fingerprint: str) -> str:
    """Return an OpenSSH *fingerprint* as an element of a path, where no slash may stand (RFC 4648, 5)."""
    return fingerprint.replace("+", "-").replace("/", "_")


def forget_host_key(client: TowerClient, options: argparse.Namespace) -> str:
    """Have a node's next host key learned anew."""
    name, node = options.name, options.node
    call_cluster(client, "DELETE", name, f"/hostkeys/{quoted(node.translate(_BRACKETS))}")
    return (
        f"host key of node {node} of cluster {name} forgotten; with --ssh-host-keys accept-new the one that "
        "it shows next is learned"
    )


def _switch(client: TowerClient, name: str, *, on: bool) -> str:
    call_cluster(client, "PATCH", name, body={"spec": {"enable": on}}, content=_MERGE)
    return f"cluster {name} {'enabled' if on else 'disabled'}"


def _structured(value: dict[str, Any], form: str) -> str:
    return output.as_json(value) if form == "json" else output.as_yaml(value)


def _facts(cluster: dict[str, Any]) -> list[tuple[str, object]]:
    metadata, spec, status = cluster["metadata"], cluster["spec"], cluster.get("status", {})
    return [
        ("Name", metadata["name"]),
        ("UID", metadata.get("uid")),
        ("Created", metadata.get("creationTimestamp")),
        ("Enabled", bool(spec.get("enable"))),
        ("Type", spec.get("connection", {}).get("type")),
        ("Port", spec.get("connection", {}).get("kubernetesAPIServerPort")),
        ("Last seen", status.get("lastSeen") or "not yet"),
    ]


def _conditions(cluster: dict[str, Any]) -> str:
    listed = cluster.get("status", {}).get("conditions") or []
    keys = ("type", "status", "lastTransitionTime", "reason", "message")
    rows = [[item.get(key) for key in keys] for item in listed]
    return output.columns(("Condition", "Status", "Since", "Reason", "Message"), rows) if rows else ""


def _agents(client: TowerClient, name: str) -> str:
    return output.table(
        call_cluster(client, "GET", name, "/agents", accept=TABLE_ACCEPT),
        empty=f"no agent has joined cluster {name} yet: 'tower join {name}' prints the line to run",
    )

"""What `tower cluster show` says of a cluster of type ssh: how it is reached, and its nodes."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tower.cli import output
from tower.cli.client import GROUP_PATH, TowerClient
from tower.web.api.table import TABLES

#: How many nodes of a list are named in the line about where they come from.
_NAMED = 5

#: How many nodes' errors are shown.
_ERRORS = 10


def node_facts(cluster: dict[str, Any]) -> list[tuple[str, object]]:
    """Return how the cluster is reached, and what was done last to keep it so."""
    ssh = cluster["spec"]["connection"].get("ssh", {})
    status = cluster.get("status", {})
    member, live = status.get("member", {}), status.get("ssh", {})
    credential = member.get("credential", "none: give it with --member-kubeconfig")
    if end := member.get("expirationTimestamp"):
        credential += f", until {end}"
    facts: list[tuple[str, object]] = [
        ("API server", member.get("server")),
        ("Credential", credential),
        ("SSH user", ssh.get("user")),
        ("SSH key", ssh.get("keyFile")),
        ("Host keys", _host_keys(ssh)),
        ("Nodes", _source(ssh)),
        ("Kubelets", _kubelets(ssh)),
    ]
    facts += [(f"Target {name}", address) for name, address in sorted(ssh.get("targets", {}).items())]
    if ssh.get("allowSystemIdentities"):
        facts.append(("Identities", "users may act as those of the system"))
    elif names := ssh.get("allowedSystemIdentities"):
        facts.append(("Identities", f"users may act as {', '.join(names)}"))
    if live.get("nodes"):
        counts = Counter(node["state"] for node in live["nodes"])
        facts.append(("Tunnels", ", ".join(f"{count} {state}" for state, count in counts.most_common())))
    facts.append(("Last sync", live.get("lastSync") or "not yet"))
    nobody = "not yet" if ssh.get("cloudProvider") else "not by Tower: there is no cloud provider"
    facts.append(("Key install", live.get("lastKeyInstall") or nobody))
    if live.get("lastError"):
        facts.append(("Last error", live["lastError"]))
    return facts


def node_tables(client: TowerClient, name: str) -> str:
    """Return the nodes of cluster *name*, and below them what went wrong with which."""
    answer = client.call("GET", f"{GROUP_PATH}/clusters/{name}/nodes", accept=TABLES[0])
    titles = [definition["name"] for definition in answer["columnDefinitions"]]
    rows = [row["cells"] for row in answer.get("rows") or []]
    if not rows:
        return "no nodes are known yet"
    names = [row[0] for row in rows]
    # by its address where its name, which is mostly its host, is another one's too
    calls = [row[titles.index("Address")] if names.count(row[0]) > 1 else row[0] for row in rows]
    errors = [
        (call, row[titles.index("Error")])
        for call, row in zip(calls, rows, strict=True)
        if row[titles.index("Error")]
    ]
    tables = [output.table(answer)]
    if errors:
        told = output.columns(("Node", "Error"), errors[:_ERRORS])
        if len(errors) > _ERRORS:
            told += f"\nand {len(errors) - _ERRORS} more: 'tower cluster show {name} -o yaml' has them all"
        tables.append(told)
    return "\n\n".join(tables)


def _host_keys(ssh: dict[str, Any]) -> str:
    mode = ssh.get("hostKeys", "")
    if mode == "insecure-ignore":
        return "not looked at (insecure-ignore)"
    place = ssh.get("knownHosts") or "~/.ssh/known_hosts, /etc/ssh/ssh_known_hosts"
    return f"{place}, else learned (accept-new)" if mode == "accept-new" else place


def _source(ssh: dict[str, Any]) -> str:
    provider = ssh.get("cloudProvider")
    if provider and not ssh.get("nodesFromAPI"):
        config = f" ({file})" if (file := ssh.get("cloudConfig")) else ""
        return f"as the cloud {provider}{config} lists them"
    if file := ssh.get("nodesFile"):
        return f"as in {file}"
    nodes = ssh.get("nodes", [])
    if not nodes:
        return "as its API server lists them"
    more = len(nodes) - _NAMED
    return ", ".join(nodes[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _kubelets(ssh: dict[str, Any]) -> str:
    port = ssh.get("kubeletPort")
    if not port:
        return "no target"
    if ssh.get("insecureSkipKubeletTLSVerify"):
        return f"port {port}, not verified"
    authority = ssh.get("kubeletCertificateAuthority")
    return f"port {port}, verified by {authority}" if authority else f"port {port}"

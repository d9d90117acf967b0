"""Part of `tower cluster show` for clusters of type ssh: settings and nodes."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tower.cli import output
from tower.cli.client import GROUP_PATH, TowerClient
from tower.web.api.table import TABLES

#: Maximum number of nodes in the line ``Nodes``.
_NAMED = 5

#: Maximum number of nodes whose errors are shown.
_ERRORS = 10


def node_facts(cluster: dict[str, Any]) -> list[tuple[str, object]]:
    """Return the settings of the cluster's nodes, and their latest status."""
    ssh = cluster["spec"]["connection"].get("ssh", {})
    status = cluster.get("status", {})
    member, live = status.get("member", {}), status.get("ssh", {})
    credential = member.get("credential", "none: set --member-kubeconfig")
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
        facts.append(("Identities", "users may act as any system identity"))
    elif names := ssh.get("allowedSystemIdentities"):
        facts.append(("Identities", f"users may act as {', '.join(names)}"))
    if live.get("nodes"):
        counts = Counter(node["state"] for node in live["nodes"])
        facts.append(("Tunnels", ", ".join(f"{count} {state}" for state, count in counts.most_common())))
    facts.append(("Last sync", live.get("lastSync") or "not yet"))
    none = "not yet" if ssh.get("cloudProvider") else "not by Tower: no cloud provider"
    facts.append(("Key install", live.get("lastKeyInstall") or none))
    if live.get("lastError"):
        facts.append(("Last error", live["lastError"]))
    return facts


def node_tables(client: TowerClient, name: str) -> str:
    """Return the table of the nodes of cluster *name*, followed by their errors."""
    answer = client.call("GET", f"{GROUP_PATH}/clusters/{name}/nodes", accept=TABLES[0])
    titles = [definition["name"] for definition in answer["columnDefinitions"]]
    rows = [row["cells"] for row in answer.get("rows") or []]
    if not rows:
        return "no nodes are known yet"
    names = [row[0] for row in rows]
    address, error = titles.index("Address"), titles.index("Error")
    # names that several nodes share are replaced by addresses
    errors = [(row[address] if names.count(row[0]) > 1 else row[0], row[error]) for row in rows if row[error]]
    tables = [output.table(answer)]
    if errors:
        text = output.columns(("Node", "Error"), errors[:_ERRORS])
        if len(errors) > _ERRORS:
            text += f"\nand {len(errors) - _ERRORS} more: 'tower cluster show {name} -o yaml' shows all"
        tables.append(text)
    return "\n\n".join(tables)


def _host_keys(ssh: dict[str, Any]) -> str:
    mode = ssh.get("hostKeys", "")
    if mode == "insecure-ignore":
        return "not verified (insecure-ignore)"
    files = ssh.get("knownHosts") or "~/.ssh/known_hosts, /etc/ssh/ssh_known_hosts"
    return f"{files}, otherwise learned (accept-new)" if mode == "accept-new" else files


def _source(ssh: dict[str, Any]) -> str:
    provider = ssh.get("cloudProvider")
    if provider and not ssh.get("nodesFromAPI"):
        config = f" ({file})" if (file := ssh.get("cloudConfig")) else ""
        return f"listed by the cloud {provider}{config}"
    if file := ssh.get("nodesFile"):
        return f"listed in {file}"
    nodes = ssh.get("nodes", [])
    if not nodes:
        return "listed by its API server"
    more = len(nodes) - _NAMED
    return ", ".join(nodes[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _kubelets(ssh: dict[str, Any]) -> str:
    port = ssh.get("kubeletPort")
    if not port:
        return "not accessible (--kubelet-port 0)"
    if ssh.get("insecureSkipKubeletTLSVerify"):
        return f"port {port}, not verified"
    authority = ssh.get("kubeletCertificateAuthority")
    return f"port {port}, verified by {authority}" if authority else f"port {port}"

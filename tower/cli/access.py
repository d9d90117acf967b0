"""The commands that hand out ways in for people: kubeconfigs, credentials."""

from __future__ import annotations

import argparse
from typing import Any

from tower.cli import output
from tower.cli.client import GROUP_PATH, TowerClient, quoted
from tower.cli.clusters import TABLE_ACCEPT, call_cluster
from tower.cli.errors import CallFailed, CommandFailed


def kubeconfig(client: TowerClient, options: argparse.Namespace) -> str:
    """Print a kubeconfig for one user of one cluster."""
    return str(
        request_kubeconfig(
            client,
            options.name,
            user=options.user,
            groups=options.group,
            ttl=options.ttl,
            via=options.via,
            auth=options.auth,
        )["kubeconfig"]
    ).rstrip("\n")


def admin_kubeconfig(client: TowerClient, options: argparse.Namespace) -> str:
    """Print a kubeconfig for an administrator of Tower, to be used on another machine."""
    spec = {"user": options.user, "auth": options.auth, **({"ttl": options.ttl} if options.ttl else {})}
    body = {"apiVersion": "cluster.kubesphere.io/v1alpha1", "kind": "Kubeconfig", "spec": spec}
    answer = client.call("POST", f"{GROUP_PATH}/kubeconfigs", body)
    return str(answer["status"]["kubeconfig"]).rstrip("\n")


def request_kubeconfig(
    client: TowerClient, name: str, *, user: str, groups: list[str], ttl: str | None, via: str, auth: str
) -> dict[str, Any]:
    """Have a credential issued; return the status: `kubeconfig`, `credential` (its id), when it ends."""
    spec: dict[str, Any] = {"user": user, "groups": groups, "via": via, "auth": auth}
    if ttl is not None:
        spec["ttl"] = ttl
    body = {"apiVersion": "cluster.kubesphere.io/v1alpha1", "kind": "Kubeconfig", "spec": spec}
    status: dict[str, Any] = call_cluster(client, "POST", name, "/kubeconfigs", body=body)["status"]
    return status


def list_credentials(client: TowerClient, options: argparse.Namespace) -> str:
    """Show the credentials that were issued and have not expired."""
    query = {"fieldSelector": f"spec.cluster={options.cluster}"} if options.cluster else None
    path = f"{GROUP_PATH}/credentials"
    if options.output == "table":
        return output.table(
            client.call("GET", path, query=query, accept=TABLE_ACCEPT), empty="no credentials"
        )
    answer = client.call("GET", path, query=query)
    return output.as_json(answer) if options.output == "json" else output.as_yaml(answer)


def revoke_credential(client: TowerClient, options: argparse.Namespace) -> str:
    """Take a credential back; what runs with it ends at once."""
    try:
        client.call("DELETE", f"{GROUP_PATH}/credentials/{quoted(options.id)}")
    except CallFailed as e:
        if e.reason != "NotFound":
            raise
        raise CommandFailed(
            f"there is no credential {options.id}: 'tower credential list' shows those there are"
        ) from e
    return f"credential {options.id} revoked"

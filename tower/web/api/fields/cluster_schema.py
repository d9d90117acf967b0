"""OpenAPI schema of clusters, with the merge rules of its lists."""

from __future__ import annotations

from typing import Any

from tower.web.api.fields.schema_parts import flag, kind_properties, number, object_schema, text, texts


def _ssh() -> dict[str, Any]:
    return object_schema(
        "SSH settings, for type ssh.  Files are on the proxy's machine, below its --node-files.",
        {
            "user": text("SSH user on the nodes."),
            "keyFile": text("Private key; generated if the file does not exist."),
            "keyType": text("Type of a generated key: ed25519 or, for old nodes, rsa (2048 bits)."),
            "hostKeys": text("Host key policy: known-hosts, accept-new or insecure-ignore."),
            "knownHosts": text("known_hosts file of OpenSSH; default: the files of ssh."),
            "nodes": texts("The nodes, HOST:PORT each."),
            "nodesFile": text("File with one node per line."),
            "nodesFromAPI": flag("List the nodes with the cluster's API; a cloud only installs the key."),
            "cloudProvider": text("Cloud provider that lists the nodes and installs the key."),
            "cloudConfig": text("Cloud provider configuration file."),
            "addressTypes": texts("Types of node addresses to use, in order of preference."),
            "sshPort": number("Default SSH port of nodes."),
            "kubeletPort": number("Port of the kubelets; 0: no kubelet target."),
            "kubeletCertificateAuthority": text("CAs of the kubelets; default: the API server's."),
            "insecureSkipKubeletTLSVerify": flag("Do not verify the kubelets' certificates; insecure."),
            "targets": {
                "type": "object",
                "additionalProperties": {"type": "string"},
                "description": "Targets of streams by name: HOST:PORT as the nodes see it.",
            },
            "allowSystemIdentities": flag("Allow all system identities; insecure."),
            "allowedSystemIdentities": texts("System users and groups that users may act as."),
        },
    )


def ssh_status() -> dict[str, Any]:
    """Return the schema of `status.ssh`."""
    node = object_schema(
        "One node.",
        {
            "name": text("Name of the node in the cluster."),
            "address": text("Address of its sshd, HOST:PORT."),
            "state": text("State of its tunnel: connecting, open, degraded, leaving or failed."),
            "since": text("Time of the last change of state.", format="date-time"),
            "streams": number("Number of open streams."),
            "hostKey": text("Fingerprint of its host key."),
            "roundTripMilliseconds": number("Round-trip time to its sshd, ms.", "number"),
            "lastCheck": text("Time of its last health check.", format="date-time"),
            "error": text("Its last error."),
        },
    )
    return object_schema(
        "Status of the nodes, for type ssh.",
        {
            "usableNodes": number("Number of nodes with a tunnel that carries streams."),
            "nodes": {"type": "array", "items": node, "description": "The nodes."},
            "lastSync": text("Time when the nodes were last listed.", format="date-time"),
            "lastKeyInstall": text("Time when the key was last installed.", format="date-time"),
            "lastError": text("Last error that does not belong to one node."),
        },
    )


def cluster() -> dict[str, Any]:
    """Return the schema of clusters."""
    condition = object_schema(
        "One condition.",
        {
            "type": text("Type of the condition, such as Available."),
            "status": text("True, False or Unknown."),
            "reason": text("Machine-readable reason of the last transition."),
            "message": text("Human-readable description."),
            "lastTransitionTime": text("Time of the last change of status.", format="date-time"),
            "observedGeneration": number("Generation of the object that the condition describes."),
        },
        required=["type", "status"],
    )
    connection = object_schema(
        "Connection to the cluster.",
        {
            "type": text(
                "proxy: an agent in the cluster connects to Tower; ssh: Tower connects to its nodes."
            ),
            "kubernetesAPIEndpoint": text("URL of the cluster for users; read only."),
            "kubernetesAPIServerPort": number(
                "The cluster's own port on the proxy; by default a free one is chosen."
            ),
            "ssh": _ssh(),
            "kubeconfig": text(
                "For type ssh, a kubeconfig with the API server's address as the nodes see it.  Never shown.",
                format="byte",
            ),
        },
    )
    spec = object_schema(
        "Desired state of the cluster.",
        {"enable": flag("Whether the cluster may be used; true by default."), "connection": connection},
    )
    member = object_schema(
        "The credential that the proxy uses, for type ssh.",
        {
            "server": text("URL of the API server, as the nodes see it."),
            "credential": text("certificate, token or none."),
            "expirationTimestamp": text("Time of expiry, if known.", format="date-time"),
        },
    )
    status = object_schema(
        "Current status of the cluster; read only, except conditions of other controllers.",
        {
            "conditions": {
                "type": "array",
                "items": condition,
                "description": "Conditions of Tower and, of other types, of other controllers.",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["type"],
            },
            "agents": number("Number of connected agents, for type proxy."),
            "kubernetesVersion": text("Kubernetes version of the cluster, last known."),
            "agentVersion": text("Version of a connected agent."),
            "lastSeen": text("Time of the last sign of life of an agent or a node.", format="date-time"),
            "roundTripMilliseconds": number("Round-trip time to an agent or a node, ms.", "number"),
            "member": member,
            "ssh": ssh_status(),
        },
    )
    return object_schema(
        "A Kubernetes cluster behind Tower.", {**kind_properties(), "spec": spec, "status": status}
    )

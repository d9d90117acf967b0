"""The OpenAPI documents of Tower's own API, in the versions that kubectl reads for validation and `explain`.

Sans-IO.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from tower.kube.accept import choose
from tower.web.api.discovery import GROUP, GROUP_VERSION, VERSION, git_version

#: What clients ask for, the old form with a character that no media type may have, and what they are given.
PROTOBUF_V2 = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_OLD_PROTOBUF_V2 = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
#: Where the group's document is, below `/openapi/v3/`.
GROUP_KEY = f"apis/{GROUP_VERSION}"

_TITLE = "Tower"
_PREFIX = "io.kubesphere.cluster.v1alpha1"


def _text(description: str, **more: Any) -> dict[str, Any]:
    return {"type": "string", "description": description, **more}


def _object(description: str, properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "object", "description": description, "properties": properties, **more}


def _metadata() -> dict[str, Any]:
    strings = {"type": "object", "additionalProperties": {"type": "string"}}
    return _object(
        "Standard object's metadata.",
        {
            "name": _text("Name; unique."),
            "uid": _text("Names this object among all that had its name."),
            "resourceVersion": _text("Changes with every change of the object."),
            "creationTimestamp": _text("When the object was created.", format="date-time"),
            "labels": {**strings, "description": "Labels to select by."},
            "annotations": {**strings, "description": "Notes of other programs."},
        },
    )


def _kind_properties() -> dict[str, Any]:
    return {
        "apiVersion": _text("Version of this representation."),
        "kind": _text("What this object represents."),
        "metadata": _metadata(),
    }


def _number(description: str, kind: str = "integer") -> dict[str, Any]:
    return {"type": kind, "description": description}


def _flag(description: str) -> dict[str, Any]:
    return {"type": "boolean", "description": description}


def _texts(description: str) -> dict[str, Any]:
    return {"type": "array", "items": {"type": "string"}, "description": description}


def _ssh() -> dict[str, Any]:
    return _object(
        "How the nodes are reached, for type ssh.  Files are on the proxy's machine, below its --node-files.",
        {
            "user": _text("Who logs in on the nodes."),
            "keyFile": _text("The private key; made if there is none."),
            "keyType": _text("Of the key that is made: ed25519 or, for old nodes, rsa (2048 bits)."),
            "hostKeys": _text("How nodes prove who they are: known-hosts, accept-new or insecure-ignore."),
            "knownHosts": _text("Their host keys, as OpenSSH keeps them; ssh's own files by default."),
            "nodes": _texts("The nodes, HOST:PORT each."),
            "nodesFile": _text("File with one node in a line."),
            "nodesFromAPI": _flag("List the nodes with the cluster's API; a cloud only installs the key."),
            "cloudProvider": _text("Cloud that lists the nodes and installs the key."),
            "cloudConfig": _text("File for the cloud provider."),
            "addressTypes": _texts("Which of a listed node's addresses is dialled, the preferred one first."),
            "sshPort": _number("Port of nodes that are given without one."),
            "kubeletPort": _number("Port of the kubelets; 0: they are no target."),
            "kubeletCertificateAuthority": _text(
                "CAs that verify the kubelets; the API server's by default."
            ),
            "insecureSkipKubeletTLSVerify": _flag("Do not verify the kubelets."),
            "targets": {
                "type": "object",
                "additionalProperties": {"type": "string"},
                "description": "Addresses as the nodes see them, HOST:PORT, for streams, by name.",
            },
            "allowSystemIdentities": _flag("Allow all system identities; insecure."),
            "allowedSystemIdentities": _texts("System users and groups that users may act as."),
        },
    )


def _ssh_status() -> dict[str, Any]:
    node = _object(
        "One node.",
        {
            "name": _text("What the cluster calls it."),
            "address": _text("HOST:PORT of its sshd."),
            "state": _text("Of its tunnel: connecting, open, degraded, leaving or failed."),
            "since": _text("When it came into this state.", format="date-time"),
            "streams": _number("How many are open."),
            "hostKey": _text("Fingerprint of its host key."),
            "roundTripMilliseconds": _number("To its sshd and back, ms.", "number"),
            "lastCheck": _text("When its health was last looked at.", format="date-time"),
            "error": _text("What last went wrong with it."),
        },
    )
    return _object(
        "What is known of the nodes, for type ssh.",
        {
            "usableNodes": _number("How many nodes have a tunnel that carries streams."),
            "nodes": {"type": "array", "items": node, "description": "The nodes."},
            "lastSync": _text("When the nodes were last listed.", format="date-time"),
            "lastKeyInstall": _text("When the key was last installed.", format="date-time"),
            "lastError": _text("What last went wrong, without a node of its own."),
        },
    )


def _cluster() -> dict[str, Any]:
    condition = _object(
        "One observation.",
        {
            "type": _text("Type of the condition, such as AgentAvailable."),
            "status": _text("True, False or Unknown."),
            "reason": _text("Machine-readable reason of the last transition."),
            "message": _text("What it means, for people."),
            "lastTransitionTime": _text("When the status last changed.", format="date-time"),
        },
    )
    connection = _object(
        "The way into the cluster.",
        {
            "type": _text("proxy: the cluster's agent dials out; ssh: its nodes are reached by SSH."),
            "kubernetesAPIEndpoint": _text("URL that users reach the cluster at; read only."),
            "kubernetesAPIServerPort": _number(
                "The cluster's own port on the proxy; given when it is added, or chosen."
            ),
            "ssh": _ssh(),
            "kubeconfig": _text(
                "For type ssh, a kubeconfig with the API server's address as the nodes see it.  Never shown.",
                format="byte",
            ),
        },
    )
    spec = _object(
        "What is wanted of the cluster.",
        {
            "enable": _flag("Whether the cluster may be used; true by default."),
            "connection": connection,
        },
    )
    member = _object(
        "The credential that the proxy keeps, for type ssh.",
        {
            "server": _text("URL of the API server, as the nodes see it."),
            "credential": _text("certificate, token or none."),
            "expirationTimestamp": _text("When it ends, if that is known.", format="date-time"),
        },
    )
    status = _object(
        "What is known of the cluster; read only.",
        {
            "conditions": {"type": "array", "items": condition, "description": "Observations."},
            "agents": _number("How many agents are connected, for type proxy."),
            "agentVersion": _text("Version of a connected agent."),
            "lastSeen": _text("When an agent or a node was last connected.", format="date-time"),
            "roundTripMilliseconds": _number("To an agent or a node and back, ms.", "number"),
            "member": member,
            "ssh": _ssh_status(),
        },
    )
    return _object(
        "A Kubernetes cluster that is reached through Tower.",
        {**_kind_properties(), "spec": spec, "status": status},
    )


def _credential() -> dict[str, Any]:
    spec = _object(
        "What was issued.",
        {
            "cluster": _text("The cluster it is for; empty for Tower's own API."),
            "user": _text("Whose it is."),
            "groups": _texts("Groups of the user."),
            "auth": _text("cert or token."),
            "expirationTimestamp": _text("When it ends.", format="date-time"),
        },
    )
    return _object("A credential of a user; deleting it revokes it.", {**_kind_properties(), "spec": spec})


def _identified(schema: dict[str, Any], kind: str) -> dict[str, Any]:
    return {**schema, "x-kubernetes-group-version-kind": [_group_version_kind(kind)]}


def _group_version_kind(kind: str) -> dict[str, str]:
    return {"group": GROUP, "version": VERSION, "kind": kind}


def _operation(action: str, kind: str, *parameters: str) -> dict[str, Any]:
    reference = {"$ref": f"#/components/schemas/{_PREFIX}.{kind}"}
    return {
        "tags": [f"{GROUP}_{VERSION}"],
        "operationId": f"{action}{kind}",
        "parameters": [
            {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
            for name in parameters
        ],
        "responses": {"200": {"description": "OK", "content": {"application/json": {"schema": reference}}}},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": _group_version_kind(kind),
    }


def group_document() -> dict[str, Any]:
    """Return the OpenAPI 3 document of the group."""
    base = f"/apis/{GROUP_VERSION}"
    checked = ("dryRun", "fieldValidation")
    name = {"name": "name", "in": "path", "required": True, "schema": {"type": "string", "uniqueItems": True}}
    return {
        "openapi": "3.0.0",
        "info": {"title": _TITLE, "version": git_version()},
        "paths": {
            f"{base}/clusters": {
                "get": _operation("list", "Cluster", "fieldSelector", "labelSelector", "watch"),
                "post": _operation("post", "Cluster", *checked),
            },
            f"{base}/clusters/{{name}}": {
                "get": _operation("get", "Cluster"),
                "patch": _operation("patch", "Cluster", *checked),
                "delete": _operation("delete", "Cluster", "dryRun"),
                "parameters": [name],
            },
            f"{base}/credentials": {"get": _operation("list", "Credential", "fieldSelector")},
            f"{base}/credentials/{{name}}": {
                "get": _operation("get", "Credential"),
                "delete": _operation("delete", "Credential"),
                "parameters": [name],
            },
        },
        "components": {
            "schemas": {
                f"{_PREFIX}.Cluster": _identified(_cluster(), "Cluster"),
                f"{_PREFIX}.Credential": _identified(_credential(), "Credential"),
            }
        },
    }


def index() -> dict[str, Any]:
    """Return the answer to `/openapi/v3`: where each group's document is."""
    digest = hashlib.sha256(json.dumps(group_document(), sort_keys=True).encode()).hexdigest()
    return {"paths": {GROUP_KEY: {"serverRelativeURL": f"/openapi/v3/{GROUP_KEY}?hash={digest[:32]}"}}}


def version_two(accept: str) -> tuple[str, bytes]:
    """Return media type and body of the answer to `/openapi/v2`: a document that describes nothing.

    Old clients insist on one, and do without validation of what is not in it.
    """
    media = choose(accept, ["application/json", PROTOBUF_V2, _OLD_PROTOBUF_V2]) or "application/json"
    version = git_version()
    if media != "application/json":  # the message gnostic.openapi.v2.Document
        info = _field(1, _TITLE.encode()) + _field(2, version.encode())
        return PROTOBUF_V2, _field(1, b"2.0") + _field(2, info) + _field(8, b"")
    document = {"swagger": "2.0", "info": {"title": _TITLE, "version": version}, "paths": {}}
    return media, json.dumps(document).encode()


def _field(number: int, value: bytes) -> bytes:
    """Return a length-delimited protobuf field of less than 128 B."""
    return bytes((number << 3 | 2, len(value))) + value

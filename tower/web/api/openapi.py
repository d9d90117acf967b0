"""The OpenAPI documents of Tower's own API, in the versions that kubectl reads for validation and `explain`.

Sans-IO.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from tower.kube.accept import choose
from tower.web.api.discovery import GROUP, GROUP_VERSION, VERSION, git_version

#: Media types of the protobuf form; the old one has a character that is not valid in media types.
PROTOBUF_V2 = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_OLD_PROTOBUF_V2 = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
#: Path of the group's document below `/openapi/v3/`.
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
            "uid": _text("Unique ID of this object."),
            "resourceVersion": _text("Version of the object; changes with each write."),
            "creationTimestamp": _text("Time of creation.", format="date-time"),
            "labels": {**strings, "description": "Labels for selectors."},
            "annotations": {**strings, "description": "Annotations of other programs."},
        },
    )


def _kind_properties() -> dict[str, Any]:
    return {
        "apiVersion": _text("Version of this representation."),
        "kind": _text("Kind of this object."),
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
        "SSH settings, for type ssh.  Files are on the proxy's machine, below its --node-files.",
        {
            "user": _text("SSH user on the nodes."),
            "keyFile": _text("Private key; generated if the file does not exist."),
            "keyType": _text("Type of a generated key: ed25519 or, for old nodes, rsa (2048 bits)."),
            "hostKeys": _text("Host key policy: known-hosts, accept-new or insecure-ignore."),
            "knownHosts": _text("known_hosts file of OpenSSH; default: the files of ssh."),
            "nodes": _texts("The nodes, HOST:PORT each."),
            "nodesFile": _text("File with one node per line."),
            "nodesFromAPI": _flag("List the nodes with the cluster's API; a cloud only installs the key."),
            "cloudProvider": _text("Cloud provider that lists the nodes and installs the key."),
            "cloudConfig": _text("Cloud provider configuration file."),
            "addressTypes": _texts("Types of node addresses to use, in order of preference."),
            "sshPort": _number("Default SSH port of nodes."),
            "kubeletPort": _number("Port of the kubelets; 0: no kubelet target."),
            "kubeletCertificateAuthority": _text("CAs of the kubelets; default: the API server's."),
            "insecureSkipKubeletTLSVerify": _flag("Do not verify the kubelets' certificates; insecure."),
            "targets": {
                "type": "object",
                "additionalProperties": {"type": "string"},
                "description": "Targets of streams by name: HOST:PORT as the nodes see it.",
            },
            "allowSystemIdentities": _flag("Allow all system identities; insecure."),
            "allowedSystemIdentities": _texts("System users and groups that users may act as."),
        },
    )


def _ssh_status() -> dict[str, Any]:
    node = _object(
        "One node.",
        {
            "name": _text("Name of the node in the cluster."),
            "address": _text("Address of its sshd, HOST:PORT."),
            "state": _text("State of its tunnel: connecting, open, degraded, leaving or failed."),
            "since": _text("Time of the last change of state.", format="date-time"),
            "streams": _number("Number of open streams."),
            "hostKey": _text("Fingerprint of its host key."),
            "roundTripMilliseconds": _number("Round-trip time to its sshd, ms.", "number"),
            "lastCheck": _text("Time of its last health check.", format="date-time"),
            "error": _text("Its last error."),
        },
    )
    return _object(
        "Status of the nodes, for type ssh.",
        {
            "usableNodes": _number("Number of nodes with a tunnel that carries streams."),
            "nodes": {"type": "array", "items": node, "description": "The nodes."},
            "lastSync": _text("Time when the nodes were last listed.", format="date-time"),
            "lastKeyInstall": _text("Time when the key was last installed.", format="date-time"),
            "lastError": _text("Last error that does not belong to one node."),
        },
    )


def _cluster() -> dict[str, Any]:
    condition = _object(
        "One condition.",
        {
            "type": _text("Type of the condition, such as AgentAvailable."),
            "status": _text("True, False or Unknown."),
            "reason": _text("Machine-readable reason of the last transition."),
            "message": _text("Human-readable description."),
            "lastTransitionTime": _text("Time of the last change of status.", format="date-time"),
        },
    )
    connection = _object(
        "Connection to the cluster.",
        {
            "type": _text(
                "proxy: an agent in the cluster connects to Tower; ssh: Tower connects to its nodes."
            ),
            "kubernetesAPIEndpoint": _text("URL of the cluster for users; read only."),
            "kubernetesAPIServerPort": _number(
                "The cluster's own port on the proxy; by default a free one is chosen."
            ),
            "ssh": _ssh(),
            "kubeconfig": _text(
                "For type ssh, a kubeconfig with the API server's address as the nodes see it.  Never shown.",
                format="byte",
            ),
        },
    )
    spec = _object(
        "Desired state of the cluster.",
        {"enable": _flag("Whether the cluster may be used; true by default."), "connection": connection},
    )
    member = _object(
        "The credential that the proxy uses, for type ssh.",
        {
            "server": _text("URL of the API server, as the nodes see it."),
            "credential": _text("certificate, token or none."),
            "expirationTimestamp": _text("Time of expiry, if known.", format="date-time"),
        },
    )
    status = _object(
        "Current status of the cluster; read only.",
        {
            "conditions": {"type": "array", "items": condition, "description": "Conditions."},
            "agents": _number("Number of connected agents, for type proxy."),
            "agentVersion": _text("Version of a connected agent."),
            "lastSeen": _text("Time when an agent or a node was last connected.", format="date-time"),
            "roundTripMilliseconds": _number("Round-trip time to an agent or a node, ms.", "number"),
            "member": member,
            "ssh": _ssh_status(),
        },
    )
    return _object(
        "A Kubernetes cluster behind Tower.", {**_kind_properties(), "spec": spec, "status": status}
    )


def _credential() -> dict[str, Any]:
    spec = _object(
        "The issued credential.",
        {
            "cluster": _text("Its cluster; empty for Tower's own API."),
            "user": _text("Its user."),
            "groups": _texts("Groups of the user."),
            "auth": _text("cert or token."),
            "expirationTimestamp": _text("Time of expiry.", format="date-time"),
        },
    )
    return _object("A credential of a user; deleting it revokes it.", {**_kind_properties(), "spec": spec})


def _rotation() -> dict[str, Any]:
    agent = _object(
        "An agent that has not confirmed the new key.",
        {
            "cluster": _text("Its cluster."),
            "agent": _text("Fingerprint of its key, or ID of its token."),
            "reason": _text("Human-readable reason."),
        },
    )
    remaining = _object(
        "Agents, tokens, credentials and records that a rotation in progress waits for.",
        {
            "readyAgents": _number("Number of agents that have confirmed the new key."),
            "lackingAgents": _number("Number of agents that have not."),
            "joinTokens": _number("Number of valid join tokens that were issued with the old key."),
            "credentials": _number("Number of valid credentials of users that depend on the old key."),
            "secrets": _number("Number of records that are sealed with the old key."),
            "agents": {"type": "array", "items": agent, "description": "The first 100 such agents."},
        },
    )
    spec = _object(
        "The requested rotation.",
        {
            "target": _text("host-key, serving-ca, users-ca or secrets-key."),
            "after": _text("Latest end after the request, such as 30d; 0s: now."),
            "untilTimestamp": _text("Latest end; read only.", format="date-time"),
        },
    )
    status = _object(
        "Current status of the rotation; read only.",
        {
            "phase": _text("InProgress or Finished."),
            "old": _text("Fingerprint, hash or ID of the old key."),
            "new": _text("Fingerprint, hash or ID of the new key."),
            "remaining": remaining,
            "finishedTimestamp": _text("Time of the end.", format="date-time"),
        },
    )
    return _object(
        "A rotation of a key or CA of the proxy; deleting it cancels it.",
        {**_kind_properties(), "spec": spec, "status": status},
    )


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
            f"{base}/rotations": {
                "get": _operation("list", "Rotation"),
                "post": _operation("post", "Rotation"),
            },
            f"{base}/rotations/{{name}}": {
                "get": _operation("get", "Rotation"),
                "delete": _operation("delete", "Rotation"),
                "parameters": [name],
            },
        },
        "components": {
            "schemas": {
                f"{_PREFIX}.Cluster": _identified(_cluster(), "Cluster"),
                f"{_PREFIX}.Credential": _identified(_credential(), "Credential"),
                f"{_PREFIX}.Rotation": _identified(_rotation(), "Rotation"),
            }
        },
    }


def index() -> dict[str, Any]:
    """Return the answer to `/openapi/v3`: the path of each group's document."""
    digest = hashlib.sha256(json.dumps(group_document(), sort_keys=True).encode()).hexdigest()
    return {"paths": {GROUP_KEY: {"serverRelativeURL": f"/openapi/v3/{GROUP_KEY}?hash={digest[:32]}"}}}


def version_two(accept: str) -> tuple[str, bytes]:
    """Return media type and body of the answer to `/openapi/v2`: an empty document.

    Old clients require the document, and do not validate objects that it does not describe.
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

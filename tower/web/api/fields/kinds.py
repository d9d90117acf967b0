"""OpenAPI schemas of the kinds of Tower's own API."""

from __future__ import annotations

from typing import Any

from tower.web.api.fields.cluster_schema import cluster, ssh_status
from tower.web.api.fields.policy_schema import access_policy, access_review
from tower.web.api.fields.schema_parts import flag, kind_properties, number, object_schema, text, texts


def _agent() -> dict[str, Any]:
    tunnel = object_schema(
        "One tunnel.",
        {
            "host": text("Name of the agent's host or pod."),
            "address": text("Address of the agent."),
            "since": text("Time when the tunnel was opened.", format="date-time"),
            "version": text("Version of the agent."),
            "protocol": text("Protocol of the tunnel: tower-v2 or kubesphere-v1."),
            "streams": number("Number of open streams."),
            "draining": flag("Whether the agent is stopping."),
            "roundTripMilliseconds": number("Round-trip time to the agent, ms.", "number"),
        },
    )
    spec = object_schema(
        "The enrolled credential.",
        {"cluster": text("Its cluster."), "protocol": text("Protocol: tower-v2 or kubesphere-v1.")},
    )
    tunnels = {"type": "array", "items": tunnel, "description": "Open tunnels of this agent."}
    status = object_schema(
        "Current status.",
        {
            "tunnels": tunnels,
            "lastSeen": text("Time of the agent's last sign of life.", format="date-time"),
            "host": text("Name of the host or pod of the last agent."),
            "address": text("Address of the last agent."),
            "version": text("Version of the last agent."),
            "removalTimestamp": text(
                "Time when the key is removed if its agent does not connect.", format="date-time"
            ),
        },
    )
    return object_schema(
        "An agent of a cluster, named by the fingerprint of its key or the ID of its token.  Deleting it "
        "below its cluster revokes it.",
        {**kind_properties(), "spec": spec, "status": status},
    )


def _join_token() -> dict[str, Any]:
    spec = object_schema(
        "The requested token.",
        {
            "cluster": text("Its cluster; required unless the path names it."),
            "ttl": text("Lifetime, such as 1h; default 1h."),
            "uses": number("Number of agents that may join with it; default 1."),
            "protocol": text("Protocol of the agents: v2 (default) or v1."),
            "token": text("For v1, a token that the agents have already."),
            "manifest": object_schema(
                "Settings of the agent's manifest; the answer has the URL of that manifest, and no token.",
                {
                    "image": text("Image with tower-agent."),
                    "impersonateUsers": texts("Users that the agent may impersonate; default all."),
                    "impersonateGroups": texts("Groups that the agent may impersonate; default all."),
                    "impersonateUid": flag("Allow the agent to impersonate UIDs."),
                    "impersonateExtra": texts(
                        "Extra keys that the agent may impersonate; *: all keys, and UIDs; default none."
                    ),
                    "targets": texts("Additional targets of streams, NAME=HOST:PORT."),
                    "kubesphereService": text("HOST:PORT of the KubeSphere API server."),
                    "namespace": text("Namespace of the agent, which exists; default tower-system."),
                    "replicas": number("Number of pods of the agent; default 2."),
                    "imagePullSecrets": texts("Secrets with credentials of the image's registry."),
                },
            ),
        },
    )
    status = object_schema(
        "The token and its parameters; secrets are only in the answer to its creation.",
        {
            "token": text("The secret token."),
            "proxyServer": text("URL for the agents."),
            "secureProxyServer": text("For v1, URL with TLS for the agents."),
            "hostKeys": texts("Fingerprints of the proxy's SSH host keys."),
            "caHash": text("Hash of the CA of the proxy's certificate."),
            "certificateAuthority": text("For v1 and an import URL, the CA of the proxy's certificate, PEM."),
            "importURL": text("Secret URL of the agent's manifest, which can be fetched once."),
            "agent": text("For v1, ID of the token."),
            "expirationTimestamp": text("Time of expiry.", format="date-time"),
            "remainingUses": number("Number of agents that can still join; only in lists."),
            "type": text("token, or url of a manifest; only in lists."),
        },
    )
    return object_schema(
        "A token with which agents join a cluster; deleting it revokes it, and no enrolled agent.",
        {**kind_properties(), "spec": spec, "status": status},
    )


def _kubeconfig() -> dict[str, Any]:
    spec = object_schema(
        "The requested credential.",
        {
            "user": text("Name of the user; required."),
            "groups": texts("Groups of the user, for a cluster."),
            "ttl": text("Lifetime, such as 8h."),
            "via": text("For a cluster, front-door (default) or port."),
            "auth": text("Credential type: cert (default) or token."),
        },
    )
    status = object_schema(
        "The kubeconfig; only in the answer to its creation.",
        {
            "kubeconfig": text("The kubeconfig, with the secret credential."),
            "credential": text("ID of the credential."),
            "expirationTimestamp": text("Time of expiry.", format="date-time"),
        },
    )
    return object_schema(
        "A kubeconfig for a user of a cluster or, without a cluster, of Tower's API.  Create only.",
        {**kind_properties(), "spec": spec, "status": status},
    )


def _node_kind() -> dict[str, Any]:
    spec = object_schema(
        "Position of the node.",
        {"cluster": text("Its cluster."), "address": text("Address of its sshd, HOST:PORT.")},
    )
    status: dict[str, Any] = ssh_status()["properties"]["nodes"]["items"]
    fields = {name: field for name, field in status["properties"].items() if name not in ("name", "address")}
    return object_schema(
        "A node of a cluster of type ssh.",
        {**kind_properties(), "spec": spec, "status": object_schema("Status of its tunnel.", fields)},
    )


def _host_key() -> dict[str, Any]:
    spec = object_schema(
        "The pinned key.",
        {
            "cluster": text("Its cluster."),
            "address": text("Address of its sshd, HOST:PORT."),
            "hostKey": text("Type and fingerprint of the key."),
        },
    )
    return object_schema(
        "The pinned host key of a node.  Deleting it below its cluster pins the key of the next connection.",
        {**kind_properties(), "spec": spec},
    )


def _credential() -> dict[str, Any]:
    spec = object_schema(
        "The issued credential.",
        {
            "cluster": text("Its cluster; empty for Tower's own API."),
            "user": text("Its user."),
            "groups": texts("Groups of the user."),
            "auth": text("cert or token."),
            "role": text("user, or trusted-caller: may act as other users of the cluster."),
            "expirationTimestamp": text("Time of expiry.", format="date-time"),
        },
    )
    return object_schema(
        "A credential of a user; deleting it revokes it.", {**kind_properties(), "spec": spec}
    )


def _rotation() -> dict[str, Any]:
    agent = object_schema(
        "An agent that has not confirmed the new key.",
        {
            "cluster": text("Its cluster."),
            "agent": text("Fingerprint of its key, or ID of its token."),
            "reason": text("Human-readable reason."),
        },
    )
    join_line = object_schema(
        "A join line with the old key.",
        {
            "cluster": text("Its cluster."),
            "expirationTimestamp": text("Latest time when it is waited for.", format="date-time"),
            "token": text("ID of an unused token of kubesphere-v1, which does not expire."),
        },
    )
    kubeconfig = object_schema(
        "A kubeconfig that depends on the old key.",
        {
            "cluster": text("Its cluster; empty for Tower's own API."),
            "user": text("Its user."),
            "credential": text("ID of its credential."),
            "expirationTimestamp": text("Expiry of its credential.", format="date-time"),
        },
    )
    dependents = {
        "lackingAgents": number("Number of agents that have not confirmed the new key."),
        "joinTokens": number("Number of valid join tokens that were issued with the old key."),
        "joinTokensUntil": text("Expiry of the last of them.", format="date-time"),
        "credentials": number("Number of valid credentials of users that depend on the old key."),
        "agents": {"type": "array", "items": agent, "description": "The first 100 such agents."},
        "joinLines": {"type": "array", "items": join_line, "description": "The first 100 join lines."},
        "kubeconfigs": {"type": "array", "items": kubeconfig, "description": "The first 100 kubeconfigs."},
    }
    remaining = object_schema(
        "Agents, tokens, credentials and records that a rotation in progress waits for.",
        {
            "readyAgents": number("Number of agents that have confirmed the new key."),
            "secrets": number("Number of records that are sealed with the old key."),
            **dependents,
        },
    )
    stranded = object_schema(
        "Agents, tokens and credentials that depended on the old key when the rotation finished.", dependents
    )
    spec = object_schema(
        "The requested rotation.",
        {
            "target": text("host-key, serving-ca, users-ca or secrets-key."),
            "after": text("Latest end after the request, such as 30d; 0s: now."),
            "untilTimestamp": text("Latest end; read only.", format="date-time"),
        },
    )
    status = object_schema(
        "Current status of the rotation; read only.",
        {
            "phase": text("InProgress or Finished."),
            "old": text("Fingerprint, hash or ID of the old key."),
            "new": text("Fingerprint, hash or ID of the new key."),
            "remaining": remaining,
            "stranded": stranded,
            "finishedTimestamp": text("Time of the end.", format="date-time"),
        },
    )
    return object_schema(
        "A rotation of a key or CA of the proxy; deleting it cancels it.",
        {**kind_properties(), "spec": spec, "status": status},
    )


def _login_session() -> dict[str, Any]:
    spec = object_schema(
        "The session; read only.",
        {
            "user": text("Name of the user."),
            "groups": texts("Groups of the user."),
            "issuer": text("URL of the identity provider."),
            "client": text("Description of the client."),
            "confirmed": flag("Whether the identity provider confirms the user every ten minutes."),
            "expirationTimestamp": text("Time of expiry.", format="date-time"),
        },
    )
    return object_schema(
        "The session of a user who logged in; deleting it ends it and its requests.",
        {**kind_properties(), "spec": spec},
    )


#: The schema of each kind of the API group.
KINDS = {
    "Cluster": cluster(),
    "Agent": _agent(),
    "JoinToken": _join_token(),
    "Kubeconfig": _kubeconfig(),
    "Node": _node_kind(),
    "HostKey": _host_key(),
    "Credential": _credential(),
    "Rotation": _rotation(),
    "LoginSession": _login_session(),
    "AccessPolicy": access_policy(),
    "AccessReview": access_review(),
}

#: The schema of clusters.
CLUSTER = KINDS["Cluster"]

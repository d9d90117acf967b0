"""The agent's Secrets, Deployment, PodDisruptionBudget and NetworkPolicy."""

from __future__ import annotations

import hashlib
from typing import Any

from tower.member.manifest.rights import KEY_SECRET, NAME, labels, metadata
from tower.member.manifest.settings import AgentSettings, Joining

#: Secret with the join token, which nothing needs once the agent's key is enrolled.
TOKEN_SECRET = "tower-agent-join"  # noqa: S105 - a name

#: Port of the health page.
HEALTH_PORT = 8081

_SELECTOR = {"app.kubernetes.io/name": NAME}


def workload(joining: Joining, settings: AgentSettings) -> list[dict[str, Any]]:
    """Return the Secrets and the objects that run the agent."""
    return [
        # without data, so that applying the manifest again keeps the agent's key
        {"apiVersion": "v1", "kind": "Secret", "metadata": metadata(settings, KEY_SECRET), "type": "Opaque"},
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": metadata(settings, TOKEN_SECRET),
            "type": "Opaque",
            "stringData": {"token": joining.token},
        },
        _network_policy(settings),
        *([_disruption_budget(settings)] if settings.replicas > 1 else []),
        _deployment(joining, settings),
    ]


def _network_policy(settings: AgentSettings) -> dict[str, Any]:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(settings),
        "spec": {
            "podSelector": {"matchLabels": _SELECTOR},
            "policyTypes": ["Ingress", "Egress"],
            "egress": [{}],
        },
    }


def _disruption_budget(settings: AgentSettings) -> dict[str, Any]:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata(settings),
        "spec": {
            "maxUnavailable": 1,
            "selector": {"matchLabels": _SELECTOR},
            # while the proxy is away no agent is ready, which must not block the drain of a node
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }


def _deployment(joining: Joining, settings: AgentSettings) -> dict[str, Any]:
    digest = hashlib.sha256(joining.token.encode()).hexdigest()
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(settings),
        "spec": {
            "replicas": settings.replicas,
            "revisionHistoryLimit": 2,
            "selector": {"matchLabels": _SELECTOR},
            "template": {
                "metadata": {
                    "labels": labels(),
                    # another join token restarts the pods, which read it when they start
                    "annotations": {"tower.kubesphere.io/join-token-digest": digest[:16]},
                },
                "spec": _pod(joining, settings),
            },
        },
    }


def _pod(joining: Joining, settings: AgentSettings) -> dict[str, Any]:
    secrets = [{"name": name} for name in settings.pull_secrets]
    return {
        "serviceAccountName": NAME,
        "automountServiceAccountToken": True,
        "enableServiceLinks": False,
        **({"imagePullSecrets": secrets} if secrets else {}),
        # the image names its user; with a number here, OpenShift could not choose one for the namespace
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": _SELECTOR},
            }
        ],
        "containers": [_container(joining, settings)],
    }


def _environment(joining: Joining, settings: AgentSettings) -> list[dict[str, Any]]:
    """Return the agent's options as variables, which ``tower doctor --agent`` in the pod has too."""
    options = {
        "TOWER_NAME": joining.cluster,
        "TOWER_PROXY_SERVER": joining.proxy_server,
        "TOWER_HOST_KEY": ",".join(joining.host_keys),
        "TOWER_CA_HASH": ",".join(joining.ca_hashes),
        "TOWER_KEY_SECRET": KEY_SECRET,
        "TOWER_HEALTH_ADDRESS": f"[$(POD_IP)]:{HEALTH_PORT}",
        "TOWER_TARGET": ",".join(settings.targets),
        "TOWER_KUBESPHERE_SERVICE": settings.kubesphere_service,
    }
    token = {"name": TOKEN_SECRET, "key": "token", "optional": True}
    return [
        {"name": "TOWER_TOKEN", "valueFrom": {"secretKeyRef": token}},
        {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        *({"name": name, "value": value} for name, value in options.items() if value),
    ]


def _container(joining: Joining, settings: AgentSettings) -> dict[str, Any]:
    return {
        "name": "agent",
        "image": settings.image,
        "command": ["tower-agent"],
        "env": _environment(joining, settings),
        "ports": [{"name": "health", "containerPort": HEALTH_PORT}],
        "livenessProbe": {
            "httpGet": {"path": "/healthz", "port": "health"},
            "periodSeconds": 10,
            "timeoutSeconds": 5,
        },
        "readinessProbe": {
            "httpGet": {"path": "/readyz", "port": "health"},
            "periodSeconds": 5,
            "timeoutSeconds": 5,
        },
        "resources": {
            "requests": {"cpu": "50m", "memory": "96Mi"},
            "limits": {"memory": "384Mi"},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }

"""Kubernetes objects for member clusters: rights, and an unmodified KubeSphere Tower agent.

Its differences from upstream's manifest: the agent may only impersonate, its token is in a Secret, and it
verifies the proxy with the proxy's CA.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from tower.member.manifest.text import manifest_text

#: Default image, as in KubeSphere.
IMAGE = "kubesphere/tower:v0.2.1"

_NAMESPACE = "kubesphere-system"
_NAME = "tower-v1-agent"
_CA_DIRECTORY = "/etc/tower"

_HEAD = """\
# KubeSphere Tower agent (protocol kubesphere-v1) for cluster {name}.  Keep it secret: it contains a token.
#
#   kubectl create namespace kubesphere-system      # if it does not exist
#   kubectl apply -f THIS-FILE                      # to remove the objects: kubectl delete -f THIS-FILE
#
# The agent sends the token of its service account to the proxy only when it connects: restart it before that
# token expires (kubectl -n kubesphere-system rollout restart deployment tower-v1-agent).  It may only
# impersonate, which is all that the proxy needs; with --v1-no-impersonation, it needs all rights itself.
"""


def rbac_manifest(program: str) -> str:
    """Return the service account and the rights of *program*: ``agent``, ``proxy``, ``host`` or ``crds``."""
    return (files("tower") / "deploy" / f"{program}-rbac.yaml").read_text().rstrip("\n")


def v1_manifest(name: str, status: dict[str, Any], image: str = IMAGE) -> str:
    """Return the manifest for cluster *name* from the status of a join token for v1."""
    objects = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _metadata()},
        *_rbac(),
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": _metadata(),
            "stringData": {"token": status["token"], "ca.crt": status["certificateAuthority"]},
        },
        _deployment(name, status["secureProxyServer"], image),
    ]
    return manifest_text(_HEAD.format(name=name), objects)


def _metadata() -> dict[str, str]:
    return {"name": _NAME, "namespace": _NAMESPACE}


def _rbac() -> list[dict[str, Any]]:
    group = "rbac.authorization.k8s.io"
    return [
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": _NAME},
            "rules": [{"apiGroups": [""], "resources": ["users", "groups"], "verbs": ["impersonate"]}],
        },
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": _NAME},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": _NAME},
            "subjects": [{"kind": "ServiceAccount", **_metadata()}],
        },
    ]


def _deployment(name: str, server: str, image: str) -> dict[str, Any]:
    labels = {"app.kubernetes.io/name": _NAME, "app.kubernetes.io/part-of": "tower"}
    secret = {"name": _NAME}
    container = {
        "name": "agent",
        "image": image,
        "command": ["/agent"],
        "args": [
            f"--name={name}",
            # the kubelet expands the variable, so that only the Secret contains the token
            "--token=$(TOWER_TOKEN)",
            f"--proxy-server={server}",
            "--keepalive=30s",
            "--kubernetes-service=kubernetes.default.svc:443",
            "--kubesphere-service=ks-apiserver.kubesphere-system.svc:80",
        ],
        "env": [
            {"name": "TOWER_TOKEN", "valueFrom": {"secretKeyRef": {**secret, "key": "token"}}},
            # Go reads the system's CAs from this file; the agent verifies the proxy with them
            {"name": "SSL_CERT_FILE", "value": f"{_CA_DIRECTORY}/ca.crt"},
        ],
        "resources": {
            "requests": {"cpu": "100m", "memory": "100M"},
            "limits": {"cpu": "1", "memory": "200M"},
        },
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "proxy-ca", "mountPath": _CA_DIRECTORY, "readOnly": True}],
    }
    pod = {
        "serviceAccountName": _NAME,
        "containers": [container],
        "volumes": [
            {
                "name": "proxy-ca",
                "secret": {"secretName": _NAME, "items": [{"key": "ca.crt", "path": "ca.crt"}]},
            }
        ],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {**_metadata(), "labels": labels},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }

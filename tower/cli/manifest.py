"""The objects that run KubeSphere Tower's own agent in its cluster.

The agent is not changed, but it is given less and told more than upstream's manifest does: it may impersonate
and nothing else, its token is in a Secret, and the CA of the proxy is among the CAs that it believes.
"""

from __future__ import annotations

from typing import Any

import yaml

#: The image that KubeSphere runs unless it is told otherwise.
IMAGE = "kubesphere/tower:v0.2.1"

_NAMESPACE = "kubesphere-system"
_NAME = "tower-v1-agent"
_CA_DIRECTORY = "/etc/tower"

_HEAD = """\
# The agent of KubeSphere Tower (protocol kubesphere-v1) for cluster {name}.  Holds a secret: treat it as one.
#
#   kubectl create namespace kubesphere-system      # unless it is there
#   kubectl apply -f THIS-FILE                      # kubectl delete -f THIS-FILE takes all of it away again
#
# It sends the token of its service account to the proxy when it connects, and never again: restart it before
# that ends (kubectl -n kubesphere-system rollout restart deployment tower-v1-agent).  It may impersonate and
# nothing else, which is what the proxy needs; with --v1-no-impersonation it needs every right itself.
"""


def v1_manifest(name: str, status: dict[str, Any], image: str = IMAGE) -> str:
    """Return the manifest for cluster *name*.

    :param status: of a join token for v1.
    """
    objects = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _metadata()},
        *_rights(),
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": _metadata(),
            "stringData": {"token": status["token"], "ca.crt": status["certificateAuthority"]},
        },
        _deployment(name, status["secureProxyServer"], image),
    ]
    text: str = yaml.dump_all(objects, Dumper=_Dumper, sort_keys=False, width=1000)
    return _HEAD.format(name=name) + text.rstrip("\n")


class _Dumper(yaml.SafeDumper):
    """Writes manifests as people do: no references, and lines as lines."""

    def ignore_aliases(self, _data: Any) -> bool:
        """Write everything where it stands."""
        return True

    def text(self, data: str) -> yaml.ScalarNode:
        """Write a text of several lines as a block."""
        style = "|" if "\n" in data else None
        return self.represent_scalar("tag:yaml.org,2002:str", data, style)


_Dumper.add_representer(str, _Dumper.text)


def _metadata() -> dict[str, str]:
    return {"name": _NAME, "namespace": _NAMESPACE}


def _rights() -> list[dict[str, Any]]:
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
            # the kubelet puts the variable in, so that the token is in no object but the Secret
            "--token=$(TOWER_TOKEN)",
            f"--proxy-server={server}",
            "--keepalive=30s",
            "--kubernetes-service=kubernetes.default.svc:443",
            "--kubesphere-service=ks-apiserver.kubesphere-system.svc:80",
        ],
        "env": [
            {"name": "TOWER_TOKEN", "valueFrom": {"secretKeyRef": {**secret, "key": "token"}}},
            # Go's own: the file with the CAs of the system, by which this agent verifies an https proxy
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

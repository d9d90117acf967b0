"""Clusters of KubeSphere and of Tower, as objects and as values of records."""

from __future__ import annotations

import json
from typing import Any

from tower.kube.rest.host_api import Object
from tower.store.records import Value

#: A cluster as KubeSphere's console creates it, with fields that Tower does not know.
KUBESPHERE: Object = {
    "apiVersion": "cluster.kubesphere.io/v1alpha1",
    "kind": "Cluster",
    "metadata": {
        "name": "alpha",
        "labels": {"cluster.kubesphere.io/group": "production"},
        "annotations": {"kubesphere.io/description": "Berlin"},
        "finalizers": ["finalizer.cluster.kubesphere.io"],
    },
    "spec": {
        "joinFederation": True,
        "externalKubeAPIEnabled": False,
        "provider": "QKE",
        "config": "e30=",
        "connection": {"type": "proxy", "token": "t" * 64, "kubeconfig": "YXBpVmVyc2lvbjogdjEK"},
        "unknown": {"a": [1, {"b": None}]},
    },
    "status": {
        "kubeSphereVersion": "v4.1.2",
        "nodeCount": 3,
        "region": "eu",
        "configz": {"devops": True},
        "conditions": [
            {
                "type": "Initialized",
                "status": "True",
                "reason": "Initialized",
                "message": "Cluster has been initialized",
                "lastUpdateTime": "2025-06-01T10:00:00Z",
                "lastTransitionTime": "2025-06-01T10:00:00Z",
            },
            {
                "type": "AgentAvailable",
                "status": "False",
                "message": "Agent has not connected to proxy.",
                "lastTransitionTime": "2025-06-01T10:00:01Z",
            },
            {"type": "KSCoreReady", "status": "True", "lastTransitionTime": "2025-06-01T11:00:00Z"},
        ],
    },
}


def cluster_value(uid: str = "0b3e", **marks: Any) -> Value:
    """Return the value of a cluster that *marks* distinguish."""
    return {
        "uid": uid,
        "created": 1_700_000_000.25,
        "enabled": True,
        "kubernetes_port": None,
        "conditions": [],
        "labels": {},
        "annotations": {key: json.dumps(mark) for key, mark in marks.items()},
    }

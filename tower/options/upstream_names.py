"""Options of kube-apiserver that Tower names otherwise, or does not have."""

from __future__ import annotations

#: Options of ``tower-proxy`` by kube-apiserver's names.
RENAMED = {"bind-address": "host"}

#: Options that Tower does not have, as docs/not-carried.md explains.
LEFT_OUT = frozenset(
    {
        "admission-control",
        "allow-privileged",
        "apiserver-count",
        "audit-log-compress",
        "authorization-config",
        "basic-auth-file",
        "delete-collection-workers",
        "egress-selector-config-file",
        "enable-garbage-collector",
        "enable-logs-handler",
        "enable-priority-and-fairness",
        "enable-swagger-ui",
        "encryption-provider-config",
        "event-ttl",
        "experimental-keystone-url",
        "feature-gates",
        "goaway-chance",
        "http2-max-streams-per-connection",
        "insecure-allow-any-token",
        "insecure-bind-address",
        "insecure-port",
        "kubelet-https",
        "kubelet-read-only-port",
        "kubernetes-service-node-port",
        "long-running-request-regexp",
        "master-service-namespace",
        "repair-malformed-updates",
        "runtime-config",
        "service-cluster-ip-range",
        "service-node-port-range",
        "target-ram-mb",
    }
)

_LEFT_OUT_PREFIXES = ("audit-log-batch-", "etcd-", "storage-", "watch-cache")


def hint(name: str) -> str:
    """Return the cure for an option of kube-apiserver; empty: it has none of this name, or Tower has it."""
    if name in RENAMED:
        return f"Tower's name for it is --{RENAMED[name]}"
    if name in LEFT_OUT or name.startswith(_LEFT_OUT_PREFIXES):
        return "Tower does not have this option of kube-apiserver: omit it (docs/not-carried.md)"
    return ""

"""Options of kube-apiserver that Tower names otherwise, or does not have."""

from __future__ import annotations

#: Options of ``tower-proxy`` by kube-apiserver's names.
RENAMED = {"bind-address": "host", "logging-format": "log-format"}

#: Options that Tower does not have, as docs/not-carried.md explains.
LEFT_OUT = frozenset(
    {
        "admission-control",
        "admission-control-config-file",
        "aggregator-reject-forwarding-redirect",
        "allow-metric-labels",
        "allow-metric-labels-manifest",
        "allow-privileged",
        "apiserver-count",
        "audit-log-compress",
        "authorization-config",
        "basic-auth-file",
        "contention-profiling",
        "coordinated-leadership-lease-duration",
        "coordinated-leadership-renew-deadline",
        "coordinated-leadership-retry-period",
        "debug-socket-path",
        "default-not-ready-toleration-seconds",
        "default-unreachable-toleration-seconds",
        "delete-collection-workers",
        "disable-admission-plugins",
        "disable-http2-serving",
        "disabled-metrics",
        "egress-selector-config-file",
        "emulated-version",
        "emulation-forward-compatible",
        "enable-admission-plugins",
        "enable-aggregator-routing",
        "enable-bootstrap-token-auth",
        "enable-garbage-collector",
        "enable-logs-handler",
        "enable-priority-and-fairness",
        "enable-swagger-ui",
        "encryption-provider-config",
        "encryption-provider-config-automatic-reload",
        "endpoint-reconciler-type",
        "event-ttl",
        "experimental-keystone-url",
        "feature-gates",
        "goaway-chance",
        "http2-max-streams-per-connection",
        "insecure-allow-any-token",
        "insecure-bind-address",
        "insecure-port",
        "kubelet-client-certificate",
        "kubelet-client-key",
        "kubelet-https",
        "kubelet-preferred-address-types",
        "kubelet-read-only-port",
        "kubelet-timeout",
        "kubernetes-service-node-port",
        "lease-reuse-duration-seconds",
        "livez-grace-period",
        "log-flush-frequency",
        "log-text-info-buffer-size",
        "log-text-split-stream",
        "long-running-request-regexp",
        "master-service-namespace",
        "max-connection-bytes-per-sec",
        "min-compatibility-version",
        "peer-advertise-ip",
        "peer-advertise-port",
        "peer-ca-file",
        "permit-address-sharing",
        "permit-port-sharing",
        "proxy-client-cert-file",
        "proxy-client-key-file",
        "repair-malformed-updates",
        "runtime-config",
        "runtime-config-emulation-forward-compatible",
        "service-account-extend-token-expiration",
        "service-account-lookup",
        "service-account-max-token-expiration",
        "service-account-signing-endpoint",
        "service-account-signing-key-file",
        "service-cluster-ip-range",
        "service-node-port-range",
        "show-hidden-metrics-for-version",
        "shutdown-send-retry-after",
        "shutdown-watch-termination-grace-period",
        "strict-transport-security-directives",
        "target-ram-mb",
        "tls-curve-preferences",
        "tracing-config-file",
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

"""Options of kube-apiserver, of current and old versions, that Tower names otherwise or does not have."""

from __future__ import annotations

#: kube-apiserver's names of options of ``tower-proxy``, which accepts both.
ALIASES = {"bind-address": "host", "logging-format": "log-format"}

#: Names of old versions of kube-apiserver, and the later ones that Tower has.
RENAMED = {
    "audit-webhook-batch-initial-backoff": "audit-webhook-initial-backoff",
    "public-address-override": "bind-address",
    "service-account-api-audiences": "api-audiences",
}

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
        "audit-dynamic-configuration",
        "audit-log-compress",
        "authorization-config",
        "authorization-rbac-super-user",
        "azure-container-registry-config",
        "basic-auth-file",
        "cloud-provider-gce-l7lb-src-cidrs",
        "cloud-provider-gce-lb-src-cidrs",
        "contention-profiling",
        "coordinated-leadership-lease-duration",
        "coordinated-leadership-renew-deadline",
        "coordinated-leadership-retry-period",
        "debug-socket-path",
        "default-not-ready-toleration-seconds",
        "default-unreachable-toleration-seconds",
        "default-watch-cache-size",
        "delete-collection-workers",
        "deserialization-cache-size",
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
        "enable-logs-support",
        "enable-priority-and-fairness",
        "enable-swagger-ui",
        "encryption-provider-config",
        "encryption-provider-config-automatic-reload",
        "endpoint-reconciler-type",
        "event-ttl",
        "experimental-bootstrap-token-auth",
        "experimental-encryption-provider-config",
        "experimental-keystone-ca-file",
        "experimental-keystone-url",
        "experimental-logging-sanitization",
        "feature-gates",
        "goaway-chance",
        "http2-max-streams-per-connection",
        "identity-lease-duration-seconds",
        "identity-lease-renew-interval-seconds",
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
        "log-json-info-buffer-size",
        "log-json-split-stream",
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
        "portal-net",
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
        "tls-ca-file",
        "tls-curve-preferences",
        "tracing-config-file",
    }
)

_LEFT_OUT_PREFIXES = ("audit-log-batch-", "etcd-", "ir-", "storage-", "watch-cache")


def hint(name: str) -> str:
    """Return the cure for an option of kube-apiserver; empty: it has none of this name, or Tower has it."""
    if name in RENAMED:
        return f"its name is now --{RENAMED[name]}"
    if name in LEFT_OUT or name.startswith(_LEFT_OUT_PREFIXES):
        return "Tower does not have this option of kube-apiserver: omit it (docs/not-carried.md)"
    return ""

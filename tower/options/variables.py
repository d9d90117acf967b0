"""``TOWER_`` environment variables: one for each option; any other is an error, not ignored."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping

from tower.native import VARIABLE
from tower.options.nearest import nearest_name

_PREFIX = "TOWER_"

_OPTIONS = """
access-log advertise-address allow-core-dumps allow-member-tokens allow-system-identities
allow-system-identity anonymous-auth api-audiences audit-log-format audit-log-maxage audit-log-maxbackup
audit-log-maxsize audit-log-mode audit-log-path audit-log-truncate-enabled audit-log-truncate-max-batch-size
audit-log-truncate-max-event-size audit-log-version audit-policy-file audit-webhook-batch-buffer-size
audit-webhook-batch-max-size audit-webhook-batch-max-wait audit-webhook-batch-throttle-burst
audit-webhook-batch-throttle-enable audit-webhook-batch-throttle-qps audit-webhook-config-file
audit-webhook-initial-backoff audit-webhook-mode audit-webhook-truncate-enabled
audit-webhook-truncate-max-batch-size audit-webhook-truncate-max-event-size audit-webhook-version
authentication-config authentication-kubeconfig authentication-token-webhook-cache-ttl
authentication-token-webhook-config-file authentication-token-webhook-version authorization-kubeconfig
authorization-mode authorization-policy-file authorization-webhook-cache-authorized-ttl
authorization-webhook-cache-unauthorized-ttl authorization-webhook-config-file authorization-webhook-version
bind-address buffer-budget ca-cert ca-hash ca-key cert-dir client-ca-file cloud-config cloud-provider
cluster-ports cors-allowed-origins external-hostname grace health-address health-port host host-key
insecure-skip-kubelet-tls-verify insecure-v1-any-host-key install-crds keepalive key-secret
keys-from-state-dir kubeconfig kubelet-certificate-authority kubelet-port kubernetes-service kubesphere-compat
kubesphere-host kubesphere-ports kubesphere-service leader-elect leader-elect-lease-duration
leader-elect-renew-deadline leader-elect-retry-period log-file log-format log-levels logging-format
login-client-id login-client-secret-file login-device-code login-session-ttl login-without-refresh-token
login-workload-ttl max-connections max-connections-per-address max-credential-ttl
max-mutating-requests-inflight max-requests-inflight max-requests-inflight-per-cluster
max-requests-inflight-per-user max-retry max-retry-interval max-streams-per-user max-tunnels-per-cluster
max-tunnels-per-key member-kubeconfig metrics-host metrics-port min-request-timeout name namespace new-ca
new-host-key no-impersonation node-files nodes nodes-file nodes-from-api oidc-ca-file oidc-client-id
oidc-groups-claim oidc-groups-prefix oidc-issuer-url oidc-required-claim oidc-signing-algs oidc-username-claim
oidc-username-prefix policy-config-map policy-file port profiling protocol proxy-protocol-from proxy-server
publish-service-address rekey-bytes request-timeout requestheader-allowed-names requestheader-client-ca-file
requestheader-extra-headers-prefix requestheader-group-headers requestheader-uid-headers
requestheader-username-headers require-v2 secrets-key-file secure-port service-account-issuer
service-account-jwks-uri service-account-key-file shutdown-delay-duration ssh-cluster ssh-host-keys
ssh-key-type ssh-keyfile ssh-known-hosts ssh-port ssh-user state-dir store target tls-cert-file
tls-cipher-suites tls-min-version tls-private-key-file tls-sni-cert-key token token-auth-file token-file v
v1-no-impersonation v1-open-ports vmodule
"""

#: Options of tower-proxy and tower-agent.  Each ignores the other's variables: both may share an environment.
OPTIONS = frozenset(_OPTIONS.split())

#: Options of `twisted.python.usage` itself, which no variable sets.
NOT_SETTINGS = frozenset({"help", "version"})

#: Kubernetes adds variables such as ``TOWER_PORT=tcp://10.0.0.1:80`` and ``TOWER_API_SERVICE_HOST=10.0.0.1``
#: to every pod in a namespace with a Service named tower or tower-api.
_SERVICE_URL = re.compile(r"(tcp|udp|sctp)://")
_SERVICE_NAME = re.compile(
    r"TOWER_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)


def variable_of(option: str) -> str:
    """Return the name of the variable that sets *option*."""
    return _PREFIX + option.replace("-", "_").upper()


def is_service_link(name: str, value: str) -> bool:
    """Return whether Kubernetes set the variable, for a Service named tower or tower-something."""
    return bool(_SERVICE_NAME.fullmatch(name) or (name.endswith("_PORT") and _SERVICE_URL.match(value)))


def unknown_variables(environ: Mapping[str, str], options: Collection[str]) -> Iterator[str]:
    """Yield an error text for each ``TOWER_`` variable that no program reads; *options*: of this program."""
    known = {variable_of(option) for option in OPTIONS.union(options)}
    ignored = set(map(variable_of, NOT_SETTINGS))
    for name, value in sorted(environ.items()):
        if (
            not name.startswith(_PREFIX)
            or not value
            or name in known | ignored | {VARIABLE}
            or is_service_link(name, value)
        ):
            continue
        names = [variable.removeprefix(_PREFIX) for variable in known]  # the prefix resembles any name
        nearest = nearest_name(name.removeprefix(_PREFIX), names)
        cure = f"did you mean {_PREFIX}{nearest}?" if nearest else "unset it; --help lists the options"
        yield f"{name} is not a variable of Tower: {cure}"

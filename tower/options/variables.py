"""``TOWER_`` environment variables: one for each option; any other is an error, not ignored."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping

from tower.options.nearest import nearest_name

_PREFIX = "TOWER_"

_OPTIONS = """
access-log allow-core-dumps allow-member-tokens allow-system-identities allow-system-identity audit-log-format
audit-log-maxage audit-log-maxbackup audit-log-maxsize audit-log-path buffer-budget ca-cert ca-hash ca-key
cloud-config cloud-provider cluster-ports grace health-address health-port host host-key
insecure-skip-kubelet-tls-verify insecure-v1-any-host-key install-crds keepalive key-secret
keys-from-state-dir kubeconfig kubelet-certificate-authority kubelet-port kubernetes-service kubesphere-compat
kubesphere-host kubesphere-ports kubesphere-service leader-elect leader-elect-lease-duration
leader-elect-renew-deadline leader-elect-retry-period log-file log-format log-levels max-connections
max-connections-per-address max-credential-ttl max-requests-inflight max-retry max-retry-interval
max-tunnels-per-cluster max-tunnels-per-key member-kubeconfig metrics-host metrics-port name namespace new-ca
new-host-key no-impersonation node-files nodes nodes-file nodes-from-api port protocol proxy-protocol-from
proxy-server publish-service-address rekey-bytes require-v2 secrets-key-file secure-port ssh-cluster
ssh-host-keys ssh-key-type ssh-keyfile ssh-known-hosts ssh-port ssh-user state-dir store target token
token-file v v1-no-impersonation v1-open-ports vmodule
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
            or name in known | ignored
            or is_service_link(name, value)
        ):
            continue
        names = [variable.removeprefix(_PREFIX) for variable in known]  # the prefix resembles any name
        nearest = nearest_name(name.removeprefix(_PREFIX), names)
        cure = f"did you mean {_PREFIX}{nearest}?" if nearest else "unset it; --help lists the options"
        yield f"{name} is not a variable of Tower: {cure}"

"""Options of ``tower-proxy`` for its host cluster: the store, and the election of a leader."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from twisted.python import usage

from tower.control.ssh_options import NodeOptions
from tower.options.errors import OptionError
from tower.options.parameters import Parameter, flag, parameter
from tower.options.values import read_boolean, read_duration, read_file, read_optional_port

#: Values of ``--store``.
SQLITE, KUBERNETES = "sqlite", "kubernetes"

#: The renew deadline is at least so many times the retry period, as for client-go.
JITTER_FACTOR = 1.2

#: Shortest retry period, s.
SHORTEST = 1.0

#: Options that require ``--store kubernetes``.
_NEED_HOST = (
    "namespace",
    "leader-elect",
    "leader-elect-lease-duration",
    "leader-elect-renew-deadline",
    "leader-elect-retry-period",
    "health-port",
    "keys-from-state-dir",
    "kubesphere-compat",
)

_BARE = ("--leader-elect", "--leader_elect")
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def _read_store(text: str) -> str:
    if text not in (SQLITE, KUBERNETES):
        raise ValueError(f"is not a store: give {SQLITE} or {KUBERNETES}")
    return text


def _read_namespace(text: str) -> str:
    if not _NAMESPACE.fullmatch(text):
        raise ValueError("is not a namespace: give a name of lower-case letters, digits and '-'")
    return text


class HostOptions(NodeOptions):
    """Options of a proxy that keeps its records in a host cluster."""

    optParameters: ClassVar[Sequence[Parameter]] = [
        parameter(
            "store",
            None,
            "Storage of the records: sqlite (in --state-dir) or kubernetes (in the host cluster).  "
            "[default: kubernetes with --kubeconfig, else sqlite]",
            _read_store,
        ),
        parameter(
            "kubeconfig",
            None,
            "Kubeconfig of the host cluster; implies --store kubernetes.  "
            "[default: the pod's service account]",
            read_file,
        ),
        parameter(
            "namespace",
            "kubesphere-system",
            "Namespace of records, Lease and Services in the host cluster.",
            _read_namespace,
        ),
        parameter(
            "leader-elect",
            "true",
            "Elect one of several proxies with the same host cluster; false: this is the only one.",
            read_boolean,
        ),
        parameter(
            "leader-elect-lease-duration",
            "30s",
            "Time after the last renewal until another proxy takes over.",
            read_duration,
        ),
        parameter(
            "leader-elect-renew-deadline",
            "15s",
            "Time after the last renewal until the leader stops.",
            read_duration,
        ),
        parameter("leader-elect-retry-period", "5s", "Interval of renewals.", read_duration),
        parameter(
            "health-port",
            "none",
            "Port of /livez, /readyz and /metrics at --host; the only port of a proxy that does not lead.",
            read_optional_port,
        ),
    ]

    optFlags: ClassVar[Sequence[tuple[str, None, str]]] = [
        flag("install-crds", "Install or update Tower's CRDs in the host cluster, and exit."),
        flag(
            "keys-from-state-dir",
            "If Secret tower-state is missing, create it with the keys in --state-dir, which may be old.  "
            "[default: do not start]",
        ),
        flag(
            "kubesphere-compat",
            "Keep kubeconfigs and tokens in the Cluster objects, as KubeSphere's console expects; all users "
            "who may read these objects can use them.  [default: in Secrets]",
        ),
    ]

    def read(self, arguments: Sequence[str]) -> None:
        """See `EnvironmentOptions.read`; ``--leader-elect`` may have no value, as in Go."""
        super().read([f"{word}=true" if word in _BARE else word for word in arguments])

    def check_rules(self) -> None:
        """See `EnvironmentOptions.check_rules`."""
        super().check_rules()
        for rule in (self._check_host, self._check_election):
            self.check(rule)

    @property
    def is_hosted(self) -> bool:
        """Whether the records are in a host cluster."""
        return bool(self["store"] == KUBERNETES or self["kubeconfig"])

    def _check_host(self) -> None:
        kubeconfig: Path | None = self["kubeconfig"]
        if kubeconfig is not None and self["store"] == SQLITE:
            raise OptionError("kubeconfig", str(kubeconfig), "requires --store kubernetes: omit one of them")
        if self["install-crds"] and self["store"] == SQLITE:
            raise usage.UsageError(
                "--install-crds is for a host cluster, not --store sqlite: omit one of them"
            )
        if self.is_hosted or self["install-crds"]:
            return
        for name in _NEED_HOST:
            if name in self.given:
                raise usage.UsageError(f"--{name} requires --store kubernetes: give both")

    def _check_election(self) -> None:
        lease, renew, retry = (
            self[f"leader-elect-{name}"] for name in ("lease-duration", "renew-deadline", "retry-period")
        )
        if retry < SHORTEST:
            text = f"is too short: give {SHORTEST:g}s or more"
            raise OptionError("leader-elect-retry-period", f"{retry:g}s", text)
        if renew <= retry * JITTER_FACTOR:
            text = f"must be more than {JITTER_FACTOR:g} times --leader-elect-retry-period {retry:g}s"
            raise OptionError("leader-elect-renew-deadline", f"{renew:g}s", text)
        if lease <= renew:
            text = f"must be longer than --leader-elect-renew-deadline {renew:g}s"
            raise OptionError("leader-elect-lease-duration", f"{lease:g}s", text)

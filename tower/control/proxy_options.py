"""What ``tower-proxy`` can be told, and which of it goes together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from twisted.python import usage

from tower.control.ssh_options import NodeOptions
from tower.net.load_balancers import read_networks
from tower.options import (
    ALLOW_DUMPS,
    OptionError,
    Parameter,
    flag,
    parameter,
    read_count,
    read_duration,
    read_file,
    read_host,
    read_port,
    read_port_range,
    read_size,
)
from tower.web.access.audit_formats import FORMATS
from tower.web.ports.kubesphere_port import OFFSET

#: One address may by default have this part of all connections, unauthenticated.
SHARE = 10

#: How many one may have where the number of connections has no limit.
DEFAULT_SHARE = 1000

_LATER = "comes with the store in a host cluster, which this version does not have: leave it out"


def _read_audit_format(text: str) -> str:
    if text not in FORMATS:
        raise ValueError(f"is no format: give {' or '.join(FORMATS)}")
    return text


def _read_megabytes(text: str) -> int:
    """Return a size, B."""
    count = read_count(text)
    if not 1 <= count <= 1_000_000:
        raise ValueError("is no size: give 1 to 1000000 megabytes")
    return count * 1_000_000


class Options(NodeOptions):
    """What ``tower-proxy`` takes; see docs/install.md."""

    synopsis = "[options]"
    optParameters: ClassVar[Sequence[Parameter]] = [
        parameter(
            "state-dir", "/var/lib/tower", "Directory for keys and records; only its owner may see it."
        ),
        parameter("host", "0.0.0.0", "Address to listen on.", read_host),
        parameter("port", "8080", "Port without TLS, for agents.", read_port),
        parameter("secure-port", "8443", "Port with TLS, for users, Tower's API and agents.", read_port),
        parameter("cluster-ports", "6000-7000", "Ports for the clusters, or none.", read_port_range),
        parameter(
            "publish-service-address", None, "Name or address that others reach the proxy at.", read_host
        ),
        parameter("ca-cert", None, "File with the CA that signs the serving certificate.", read_file),
        parameter("ca-key", None, "File with that CA's private key.", read_file),
        parameter("max-credential-ttl", "1d", "Longest life of a kubeconfig.", read_duration),
        parameter(
            "max-requests-inflight",
            "0",
            "Requests to one cluster at one time, watches and streams not counted; 0: any number.",
            read_count,
        ),
        parameter(
            "max-tunnels-per-key", "8", "Tunnels into a cluster with one agent key; 0: no limit.", read_count
        ),
        parameter(
            "max-tunnels-per-cluster", "64", "Tunnels of all agents of a cluster; 0: no limit.", read_count
        ),
        parameter(
            "max-connections",
            "10000",
            "Concurrent connections over all ports, agents included; 0: limited by open files only.",
            read_count,
        ),
        parameter(
            "max-connections-per-address",
            None,
            "Unauthenticated connections from one address or IPv6 /64 (a tenth of --max-connections); "
            "0: no limit.",
            read_count,
        ),
        parameter(
            "proxy-protocol-from",
            None,
            "Addresses or CIDRs of load balancers, comma-separated: each of their connections, to any port, "
            "must begin with a PROXY protocol header (v1 or v2).",
            read_networks,
        ),
        parameter("keepalive", "10s", "How often agents are probed.", read_duration),
        parameter("buffer-budget", "32MiB", "Memory for data under way, beyond 64 KiB a stream.", read_size),
        parameter(
            "kubesphere-ports",
            None,
            "Ports for each cluster's KubeSphere, 10000 above its own, or none.  They ask nobody who he is.",
            read_port_range,
        ),
        parameter("kubesphere-host", "127.0.0.1", "Address that those listen on.", read_host),
        parameter(
            "secrets-key-file", None, "Key that seals secrets in the records (secrets.key in --state-dir)."
        ),
        parameter(
            "node-files",
            None,
            "Directory of the files that clusters of type ssh may name (node-files in --state-dir).",
        ),
        parameter(
            "audit-log-path",
            None,
            "File that says who asked what, or - for standard output.",
        ),
        parameter("audit-log-format", "json", "json (audit.k8s.io/v1) or legacy.", _read_audit_format),
        parameter("audit-log-maxsize", "100", "Largest such file, MB.", _read_megabytes),
        parameter("audit-log-maxbackup", "0", "How many older ones to keep; 0: all.", read_count),
        parameter("audit-log-maxage", "0", "How long to keep them, days; 0: for ever.", read_count),
        parameter("metrics-port", None, "Port for /metrics, without TLS; none by default.", read_port),
        parameter("metrics-host", "127.0.0.1", "Address that it listens on.", read_host),
        parameter("kubeconfig", None, "Not yet: host cluster that keeps the records."),
    ]
    optFlags: ClassVar[Sequence[tuple[str, None, str]]] = [
        flag("require-v2", "Turn agents of KubeSphere Tower (kubesphere-v1) away."),
        flag(
            "v1-no-impersonation",
            "Let EVERY user of a cluster with an old agent act as that agent.",
        ),
        flag("v1-open-ports", "Let EVERYBODY into the ports of clusters with old agents, as it used to be."),
        ALLOW_DUMPS,
        flag("leader-elect", "Not yet: one leader among several proxies."),
    ]

    def postOptions(self) -> None:
        """Check which options work together."""
        super().postOptions()
        for rule in (
            self._check_later,
            self._check_ca,
            self._check_connections,
            self._check_ports,
            self._check_kubesphere,
            self._check_v1,
        ):
            self.check(rule)

    @property
    def connections_per_address(self) -> int:
        """Unauthenticated connections that one address may have; 0: any number."""
        given: int | None = self["max-connections-per-address"]
        if given is not None:
            return given
        whole: int = self["max-connections"]
        return max(whole // SHARE, 1) if whole else DEFAULT_SHARE

    def _check_later(self) -> None:
        if self["kubeconfig"] is not None:
            raise OptionError("kubeconfig", self["kubeconfig"], _LATER)
        if self["leader-elect"]:
            raise OptionError("leader-elect", "true", _LATER)

    def _check_ca(self) -> None:
        if (self["ca-cert"] is None) != (self["ca-key"] is None):
            raise usage.UsageError("--ca-cert and --ca-key go together: give both, or neither")

    def _check_v1(self) -> None:
        for name in ("v1-open-ports", "v1-no-impersonation"):
            if self[name] and self["require-v2"]:
                raise usage.UsageError(f"--{name} is for old agents, whom --require-v2 turns away: give one")

    def _check_connections(self) -> None:
        """Refuse a share that is none."""
        share, whole = self.connections_per_address, self["max-connections"]
        if self["max-connections-per-address"] is not None and share >= whole > 0:
            raise OptionError(
                "max-connections-per-address",
                str(share),
                f"is not below --max-connections {whole}: give less, or 0",
            )

    def _check_ports(self) -> None:
        """Refuse a port that two are to have."""
        single = ("port", "secure-port", "metrics-port")
        for place, name in enumerate(single):
            for ports in ("cluster-ports", "kubesphere-ports"):
                if self[name] in (self[ports] or range(0)):
                    raise OptionError(name, str(self[name]), f"lies within --{ports}: change one of them")
            for other in single[place + 1 :]:
                if self[name] == self[other]:
                    raise OptionError(name, str(self[name]), f"is --{other} too: change one of them")

    def _check_kubesphere(self) -> None:
        ports = self["kubesphere-ports"]
        if ports is None:
            return
        own = self["cluster-ports"]
        shown = f"{ports.start}-{ports.stop - 1}"
        if own is None:
            raise OptionError("kubesphere-ports", shown, "needs --cluster-ports, from which they are counted")
        wanted = range(own.start + OFFSET, own.stop + OFFSET)
        if not set(wanted) & set(ports):
            raise OptionError(
                "kubesphere-ports",
                shown,
                f"has none of the ports {wanted.start}-{wanted.stop - 1} that follow from --cluster-ports",
            )
        if set(own) & set(ports):
            raise OptionError("kubesphere-ports", shown, "has ports of --cluster-ports: change one of them")

"""Options of ``tower-proxy`` and their validation."""

from __future__ import annotations

import errno
import re
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import ClassVar, Self

from twisted.python import usage

from tower.control.front_door.audit_options import AuditOptions
from tower.logs.formats import read_format
from tower.net.addresses import is_wildcard
from tower.net.load_balancers import read_networks
from tower.net.own_address import default_address
from tower.net.port_owner import port_owner
from tower.options.errors import OptionError, OptionErrors, errors_of
from tower.options.parameters import ALLOW_DUMPS, Parameter, flag, parameter
from tower.options.upstream_names import ALIASES
from tower.options.values import (
    read_budget,
    read_count,
    read_duration,
    read_file,
    read_host,
    read_optional_port,
    read_port,
    read_port_range,
    read_public_host,
    unless_empty,
)
from tower.web.ports.kubesphere_port import OFFSET

#: Default limit for one address: this part of ``--max-connections``.
SHARE = 10

#: The same if ``--max-connections`` is 0.
DEFAULT_SHARE = 1000


# Default of --host.
_HOST = "0.0.0.0"

_INTEGER = re.compile(r"-?[0-9]{1,18}", re.ASCII)


def _read_secure_port(text: str) -> int:
    if _INTEGER.fullmatch(text) and not 1 <= int(text) <= 65535:
        raise ValueError("must be between 1 and 65535, inclusive. It cannot be turned off with 0")
    return read_port(text)


class Options(AuditOptions):
    """Options of ``tower-proxy``; see docs/install.md.

    :ivar find_address: returns the default of ``--advertise-address`` for ``--host``.
    :ivar found_address: that default, if it is used.
    """

    program = "tower-proxy"
    synopsis = "[options]"
    aliases = ALIASES
    optParameters: ClassVar[Sequence[Parameter]] = [
        parameter(
            "state-dir", "/var/lib/tower", "Directory for keys and records; accessible to its owner only."
        ),
        parameter(
            "host", _HOST, "Listening address of --port, --secure-port and --cluster-ports.", read_host
        ),
        parameter("bind-address", None, "Same as --host.", unless_empty(read_host, _HOST)),
        parameter("logging-format", None, "Same as --log-format.", read_format),
        parameter(
            "port",
            "8080",
            "Unencrypted HTTP port for agents and health checks; never serves users.  none: no such port.",
            read_optional_port,
        ),
        parameter("secure-port", "8443", "TLS port for users, Tower's API and agents.", _read_secure_port),
        parameter(
            "cluster-ports",
            "6000-7000",
            "Range of TLS ports, one for each cluster; none: no such ports.",
            read_port_range,
        ),
        parameter(
            "publish-service-address",
            None,
            "Name or address that users and agents connect to.  [default: --advertise-address]",
            read_public_host,
        ),
        parameter(
            "ca-cert",
            None,
            "Certificate file of the CA that signs the serving certificate.  [default: a CA in --state-dir]",
            read_file,
        ),
        parameter("ca-key", None, "Private key file of --ca-cert.", read_file),
        parameter("max-credential-ttl", "24h", "Maximum lifetime of a kubeconfig.", read_duration),
        parameter(
            "max-requests-inflight",
            "400",
            "Maximum number of concurrent requests that only read, not counting watches and streams; shared "
            "fairly by users and clusters.  0: no limit.",
            read_count,
        ),
        parameter(
            "max-mutating-requests-inflight",
            "200",
            "Maximum number of concurrent requests that may change something, not counting streams; shared "
            "fairly by users and clusters.  0: no limit.",
            read_count,
        ),
        parameter(
            "max-requests-inflight-per-cluster",
            "0",
            "Maximum number of concurrent requests to one cluster, not counting watches and streams; "
            "0: no limit.",
            read_count,
        ),
        parameter(
            "max-requests-inflight-per-user",
            "0",
            "Maximum number of concurrent requests of one user, not counting watches and streams; "
            "0: no limit.",
            read_count,
        ),
        parameter(
            "max-streams-per-user",
            "0",
            "Maximum number of watches, logs, upgrades (exec, port-forward) and raw streams of one user; "
            "0: no limit.",
            read_count,
        ),
        parameter(
            "max-tunnels-per-key",
            "8",
            "Maximum number of tunnels into a cluster with one agent key; 0: no limit.",
            read_count,
        ),
        parameter(
            "max-tunnels-per-cluster",
            "64",
            "Maximum number of tunnels of all agents of a cluster; 0: no limit.",
            read_count,
        ),
        parameter(
            "max-connections",
            "10000",
            "Maximum number of connections over all ports, agents included; "
            "0: limited by file descriptors only.",
            read_count,
        ),
        parameter(
            "max-connections-per-address",
            None,
            "Maximum number of unauthenticated connections from one address or IPv6 /64; 0: no limit.  "
            "[default: a tenth of --max-connections]",
            read_count,
        ),
        parameter(
            "proxy-protocol-from",
            None,
            "Comma-separated addresses or CIDRs of load balancers whose connections (to all ports) begin "
            "with a PROXY protocol header (v1 or v2).",
            read_networks,
        ),
        parameter("keepalive", "10s", "Interval of keepalive probes on a tunnel.", read_duration),
        parameter(
            "buffer-budget",
            "32MiB",
            "Memory for buffers, in addition to 64 KiB for each stream.",
            read_budget,
        ),
        parameter(
            "kubesphere-ports",
            "none",
            "Range of unencrypted ports for each cluster's KubeSphere, 10000 above the cluster's port.  "
            "These ports do not authenticate clients.",
            read_port_range,
        ),
        parameter("kubesphere-host", "127.0.0.1", "Listening address of --kubesphere-ports.", read_host),
        parameter(
            "secrets-key-file",
            None,
            "File with the keys that encrypt secrets in the records; created if missing.  "
            "[default: secrets.key in --state-dir]",
        ),
        parameter(
            "node-files",
            None,
            "Directory from which records of clusters of type ssh may name files.  "
            "[default: node-files in --state-dir]",
        ),
        parameter("access-log", None, "Access log file, or - for standard output."),
        parameter(
            "metrics-port",
            "none",
            "Port of /metrics for Prometheus, without TLS and authentication.",
            read_optional_port,
        ),
        parameter("metrics-host", "127.0.0.1", "Listening address of --metrics-port.", read_host),
    ]
    optFlags: ClassVar[Sequence[tuple[str, None, str]]] = [
        flag("require-v2", "Reject KubeSphere Tower agents (kubesphere-v1)."),
        flag(
            "v1-no-impersonation",
            "Insecure: users of a cluster with a KubeSphere Tower agent act with the agent's credential.",
        ),
        flag(
            "v1-open-ports",
            "Insecure: no authentication on the ports of clusters with KubeSphere Tower agents.",
        ),
        flag(
            "new-ca",
            "Replace a missing CA that is still in use; existing kubeconfigs and join lines become invalid.",
        ),
        flag(
            "new-host-key",
            "Create a new SSH host key if its file is missing, although every agent has to join again then.",
        ),
        ALLOW_DUMPS,
    ]

    def check_rules(self) -> None:
        """See `EnvironmentOptions.check_rules`."""
        super().check_rules()
        for rule in (
            self._check_ca,
            self._check_connections,
            self._check_ports,
            self._check_kubesphere,
            self._check_v1,
        ):
            self.check(rule)

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        super().__init__(environ)
        self.find_address: Callable[[str], str | None] = default_address
        self.found_address: str | None = None

    def complete(self) -> Self:
        """See `EnvironmentOptions.complete`."""
        super().complete()
        if self["max-connections-per-address"] is None:
            whole: int = self["max-connections"]
            self["max-connections-per-address"] = max(whole // SHARE, 1) if whole else DEFAULT_SHARE
        # the address of a leader in a host cluster changes
        if not self.is_hosted and self.public_address is None and is_wildcard(self["host"]):
            self["advertise-address"] = self.find_address(self["host"])
            self.found_address = self["advertise-address"]
        return self

    def find_errors(self) -> list[Exception]:
        """See `EnvironmentOptions.find_errors`; files are checked, too."""
        from tower.control.front_door.option_files import file_rules  # it imports this module

        return [*super().find_errors(), *errors_of(*file_rules(self, None, time.time()))]

    @property
    def warnings(self) -> list[str]:
        """Texts about options that are valid, but probably a mistake."""
        found, ports = [], self["cluster-ports"]
        if self.found_address is not None:
            found.append(
                f"--publish-service-address is not set: users and agents connect to {self.found_address}, "
                "the address of this machine's default route: set the name or address at which they reach it"
            )
        if ports is not None and len(ports) == 1:
            first = ports.start
            text = f"--cluster-ports {first} is a single port, so only one cluster gets a port"
            found.append(f"{text}: give a range such as {first}-{first + 1000}, or none")
        return found

    def check_listening(self) -> None:
        """Check that the addresses are this machine's and the ports are free.

        :raise OptionError: one is not; names the option of the address or of the port.
        :raise OptionErrors: several are not.
        """
        errors: dict[str, OptionError] = {}
        for name, host in (("port", "host"), ("secure-port", "host"), ("metrics-port", "metrics-host")):
            if self[name] is not None:
                try:
                    _check_port(name, self[name], host, self[host])
                except OptionError as e:
                    errors.setdefault(str(e), e)
        if errors:
            found = list(errors.values())
            raise found[0] if len(found) == 1 else OptionErrors(found)

    def _check_ca(self) -> None:
        if (self["ca-cert"] is None) != (self["ca-key"] is None):
            raise usage.UsageError("--ca-cert and --ca-key require each other: give both, or neither")

    def _check_v1(self) -> None:
        for name in ("v1-open-ports", "v1-no-impersonation"):
            if self[name] and self["require-v2"]:
                raise usage.UsageError(
                    f"--{name} is for KubeSphere Tower agents, which --require-v2 rejects: omit one of them"
                )

    def _check_connections(self) -> None:
        share, whole = self["max-connections-per-address"], self["max-connections"]
        if "max-connections-per-address" in self.given and share >= whole > 0:
            raise OptionError(
                "max-connections-per-address",
                str(share),
                f"must be less than --max-connections {whole}, or 0 for no limit",
            )

    def _check_ports(self) -> None:
        """Check that no port is given twice."""
        names = ("port", "secure-port", "metrics-port", "health-port")
        single = [name for name in names if self[name] is not None]
        for name in single:
            for ports in ("cluster-ports", "kubesphere-ports"):
                if self[name] in (self[ports] or ()):
                    raise OptionError(name, str(self[name]), f"is within --{ports}: change one of them")
        for name, other in combinations(single, 2):
            if self[name] == self[other]:
                raise OptionError(name, str(self[name]), f"is the same as --{other}: change one of them")

    def _check_kubesphere(self) -> None:
        ports, own = self["kubesphere-ports"], self["cluster-ports"]
        if ports is None:
            return
        shown = f"{ports.start}-{ports.stop - 1}"
        if own is None:
            raise OptionError(
                "kubesphere-ports", shown, "requires --cluster-ports: each is 10000 above one of them"
            )
        wanted = range(own.start + OFFSET, own.stop + OFFSET)
        if not set(wanted) & set(ports):
            raise OptionError(
                "kubesphere-ports",
                shown,
                f"must overlap {wanted.start}-{wanted.stop - 1}, the ports 10000 above --cluster-ports",
            )
        if set(own) & set(ports):
            raise OptionError("kubesphere-ports", shown, "overlaps --cluster-ports: change one of them")


def _check_port(name: str, port: int, host_name: str, host: str) -> None:
    """Check that this process can listen on *port* of *host*.

    :param name: option of the port.
    :param host_name: option of the host.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as e:
        reason = e.strerror or str(e)
        if isinstance(e, socket.gaierror) or e.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
            raise OptionError(
                host_name,
                host,
                f"is not an address of this machine ({reason}): set one of its addresses, or 0.0.0.0 for all",
            ) from e
        if e.errno == errno.EACCES:
            cure = "choose a port above 1023, or allow it: tower install-systemd proxy --low-ports"
            raise OptionError(name, str(port), f"is not permitted to this user: {cure}") from e
        owner = port_owner(port) if e.errno == errno.EADDRINUSE else ""
        shown = f"{reason.lower()} by {owner}" if owner else reason.lower()
        raise OptionError(
            name,
            str(port),
            f"is not available at {host} ({shown}): stop {owner or 'that process'}, or choose another port",
        ) from e

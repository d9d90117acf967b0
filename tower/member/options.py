"""Options of ``tower-agent`` and their validation."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from twisted.python import usage

from tower.clusters.object_meta import check_name
from tower.conch.transport.keys import checked_fingerprint
from tower.errors import ConfigurationError, Invalid
from tower.kube.system_identities import SystemIdentities, check_allowed
from tower.member.object_name import ObjectName
from tower.net.addresses import parse_address
from tower.net.proxy_environment import ServerURL, parse_server_url
from tower.net.tls.ca_pinning import NEW_CA, parse_ca_hash
from tower.net.tls.published_authorities import REASON, is_published
from tower.options.base import EnvironmentOptions
from tower.options.parameters import ALLOW_DUMPS, flag, parameter, secret
from tower.options.values import (
    read_address,
    read_budget,
    read_count,
    read_duration,
    read_file,
    read_host,
    read_optional_port,
    read_size,
)
from tower.reactor.process import forget_variable
from tower.tunnels.targets import KUBESPHERE_SERVICE, ServiceAddress, parse_target

#: Values of ``--protocol``.
AUTO, V1, V2 = "auto", "v1", "v2"

#: The flag that allows sending the cluster's credentials to a proxy with an unknown host key.
ANY_HOST_KEY = "insecure-v1-any-host-key"

#: File of the agent's private key in the state directory.
AGENT_KEY = "agent-key"

_JOIN_LINE = "copy it from the line that 'tower join' prints"
_MISSING_KEY = {
    V2: f"--host-key is missing: {_JOIN_LINE}",
    V1: f"--host-key or --{ANY_HOST_KEY} is missing: without them, a man in the middle could impersonate the "
    "proxy and receive the cluster's credentials; a KubeSphere Tower proxy creates a new host key at each "
    f"start, so it requires --{ANY_HOST_KEY}",
    AUTO: f"--host-key is missing: {_JOIN_LINE}; for a KubeSphere Tower proxy, "
    f"which creates a new host key at each start, set --{ANY_HOST_KEY}",
}


def read_protocol(text: str) -> str:
    """Parse ``--protocol``."""
    if text not in {AUTO, V1, V2}:
        raise ValueError(f"must be {AUTO}, {V2} or {V1}")
    return text


class Options(EnvironmentOptions):
    """Options of `twistd tower-agent`.

    :ivar server: URL of the proxy, after `parse`.
    """

    program = "tower-agent"
    optParameters: ClassVar = [
        parameter("name", None, "Name of the cluster, as added to the proxy."),
        parameter("proxy-server", None, "URL of the proxy: wss://HOST:PORT, or ws://HOST:PORT without TLS."),
        parameter(
            "ca-cert", None, "PEM file with the CA of a wss:// proxy.  [default: the system's CAs]", read_file
        ),
        *secret("token", "Join token; visible in the process list, so prefer --token-file."),
        parameter(
            "state-dir", None, "Directory of the agent's key.  [default: ~/.local/state/tower-agent/NAME]"
        ),
        parameter(
            "key-secret",
            None,
            "[NAMESPACE/]NAME of an existing Secret in the cluster for the agent's key, instead of "
            "--state-dir; its replicas share the key.  [default namespace: the pod's]",
            ObjectName.parse,
        ),
        parameter(
            "kubeconfig",
            None,
            "Kubeconfig file of the cluster.  [default, in a pod: its service account]",
            read_file,
        ),
        parameter(
            "protocol",
            AUTO,
            "v2, v1 (for KubeSphere Tower proxies) or auto: v2 with --host-key, otherwise v1 if the proxy "
            "offers no v2.",
            read_protocol,
        ),
        parameter(
            "policy-file",
            None,
            "YAML file with the owner's policy: the requests and streams that the agent allows; read again "
            "when it changes.  [default: all]",
            read_file,
        ),
        parameter(
            "policy-config-map",
            None,
            "[NAMESPACE/]NAME of a ConfigMap in the cluster with that policy, in the entry policy.yaml; "
            "excludes --policy-file.  [default namespace: the pod's]",
            partial(ObjectName.parse, kind="ConfigMap"),
        ),
        parameter("kubernetes-service", "", "HOST:PORT of the API server; overrides the kubeconfig's."),
        parameter(
            "kubesphere-service",
            "",
            "HOST:PORT of the KubeSphere API server, which is the target kubesphere.  "
            f"[default with kubesphere-v1: {ServiceAddress(*KUBESPHERE_SERVICE)}]",
        ),
        parameter("keepalive", "10s", "Interval of keepalive probes to the proxy.", read_duration),
        parameter(
            "max-retry",
            "0",
            "Number of consecutive failed retries after which the agent exits; 0: never.",
            read_count,
        ),
        parameter("max-retry-interval", "2m", "Longest delay between attempts to connect.", read_duration),
        parameter("health-address", None, "HOST:PORT of the health page: /healthz, /readyz.", read_address),
        parameter(
            "metrics-port",
            "none",
            "Port of /metrics for Prometheus, without TLS and authentication.",
            read_optional_port,
        ),
        parameter("metrics-host", "127.0.0.1", "Listening address of --metrics-port.", read_host),
        parameter("grace", "10s", "Time to wait for requests in progress at a stop.", read_duration),
        parameter(
            "buffer-budget",
            "32MiB",
            "Memory for buffers, in addition to 64 KiB for each stream.",
            read_budget,
        ),
        parameter(
            "rekey-bytes", "1GiB", "Amount of data after which the tunnel's keys are changed.", read_size
        ),
    ]
    optFlags: ClassVar = [
        flag(
            "allow-system-identities",
            "Insecure: allow ALL system identities: system:masters, nodes, service accounts, ...",
        ),
        flag(
            "allow-member-tokens",
            "Let trusted callers of the proxy send requests with tokens of this cluster's own accounts.",
        ),
        flag("no-impersonation", "Insecure: give ALL users the agent's own rights."),
        flag(
            "insecure-v1-any-host-key",
            "Insecure: send the cluster's credentials to ANY kubesphere-v1 proxy that answers at "
            "--proxy-server.",
        ),
        ALLOW_DUMPS,
    ]
    repeated = frozenset({"host-key", "ca-hash", "target", "allow-system-identity"})
    server: ServerURL

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        super().__init__(environ)
        self["host-keys"], self["ca-hashes"], self["targets"] = [], [], []
        self["allowed-identities"] = []

    def read(self, arguments: Sequence[str]) -> None:
        """See `EnvironmentOptions.read`; removes the join token from the process's environment."""
        try:
            super().read(arguments)
        finally:
            if self._environ is os.environ:
                forget_variable("TOWER_TOKEN")

    def opt_host_key(self, text: str) -> None:
        """Fingerprint of the proxy's host key, SHA256:..., from the join line.  Repeatable."""
        self.check(lambda: self["host-keys"].append(_usage(checked_fingerprint, text, "--host-key ")))

    def opt_ca_hash(self, text: str) -> None:
        """Hash of the key of the proxy's CA, sha256:..., from the join line.  Repeatable."""
        self.check(lambda: self["ca-hashes"].append(parse_ca_hash(text)))

    def opt_target(self, text: str) -> None:
        """Additional target of streams, as NAME=HOST:PORT.  Repeatable."""
        self.check(lambda: self["targets"].append(_usage(parse_target, text, "--target ")))

    def opt_allow_system_identity(self, text: str) -> None:
        """System user or group that users may impersonate, such as system:monitoring.  Repeatable."""
        self.check(self._allow, text)

    def _allow(self, text: str) -> None:
        name = _usage(check_allowed, text, "--allow-system-identity ")
        if name not in self["allowed-identities"]:
            self["allowed-identities"].append(name)

    @property
    def identities(self) -> SystemIdentities:
        """The rule for system identities."""
        return SystemIdentities(self["allowed-identities"], allow_all=bool(self["allow-system-identities"]))

    def check_rules(self) -> None:
        """See `EnvironmentOptions.check_rules`."""
        super().check_rules()
        self.check(self._check_name)
        self.check(self._check_server)
        self.check(self._check_protocol)
        self.check(self._check_key_secret)
        self.check(self._check_policy)
        for name, default in (("kubernetes-service", 443), ("kubesphere-service", 80)):
            if self[name]:
                read = partial(parse_address, default_port=default)
                self.check(_usage, read, self[name], f"--{name} ")

    def _check_name(self) -> None:
        if not self["name"]:
            raise usage.UsageError("--name is missing: name of the cluster, as in 'tower cluster add NAME'")
        _usage(check_name, self["name"], "--name: ")
        self._check_token()

    def _check_server(self) -> None:
        if not self["proxy-server"]:
            raise usage.UsageError(
                "--proxy-server is missing: URL of the proxy, such as wss://tower.example.com:8443"
            )
        self.server = parse_server_url(self["proxy-server"])
        self._check_authority()

    @property
    def may_speak_v1(self) -> bool:
        """Whether the options allow kubesphere-v1 only."""
        return bool(self["protocol"] == V1 or (self["protocol"] == AUTO and self[ANY_HOST_KEY]))

    def _check_protocol(self) -> None:
        """Require exactly one kind of trust in the proxy, which the protocol supports."""
        protocol, pinned, any_key = self["protocol"], self["host-keys"], self[ANY_HOST_KEY]
        if pinned and any_key:
            raise usage.UsageError(
                f"--host-key and --{ANY_HOST_KEY} are mutually exclusive: prefer --host-key, if known"
            )
        if protocol == V2 and any_key:
            raise usage.UsageError(
                f"--{ANY_HOST_KEY} is for kubesphere-v1; --protocol v2 requires --host-key: {_JOIN_LINE}"
            )
        if not (pinned or any_key):
            raise usage.UsageError(_MISSING_KEY[protocol])
        if self.may_speak_v1:
            self._check_v1()

    def _check_key_secret(self) -> None:
        if not self["key-secret"]:
            return
        if self["state-dir"]:
            raise usage.UsageError("--key-secret and --state-dir are mutually exclusive: omit one of them")
        if self.may_speak_v1:
            raise usage.UsageError(
                "--key-secret has no effect with kubesphere-v1, which has no keys: omit it"
            )

    def _check_policy(self) -> None:
        given = [name for name in ("policy-file", "policy-config-map") if self[name]]
        if len(given) > 1:
            raise usage.UsageError("--policy-file and --policy-config-map are mutually exclusive: omit one")
        if given and self.may_speak_v1:
            raise usage.UsageError(
                f"--{given[0]} has no effect with kubesphere-v1, whose proxy has the agent's credential: "
                "omit it, or use a proxy with tower-v2"
            )

    def _check_v1(self) -> None:
        if not self.secret("token"):
            raise usage.UsageError(
                "--token is missing: kubesphere-v1 authenticates agents by the cluster's token: "
                "set --token-file or TOWER_TOKEN"
            )
        for name, is_given in (
            ("no-impersonation", self["no-impersonation"]),
            ("allow-system-identities", self["allow-system-identities"]),
            ("allow-member-tokens", self["allow-member-tokens"]),
            ("allow-system-identity", self["allowed-identities"]),
        ):
            if is_given:
                raise usage.UsageError(
                    f"--{name} has no effect with kubesphere-v1, whose proxy has the agent's credential "
                    "and authorizes users itself: omit it"
                )
        if self["targets"]:
            raise usage.UsageError(
                "--target has no effect with kubesphere-v1, whose only targets are --kubernetes-service and "
                "--kubesphere-service: omit it"
            )

    def _check_token(self) -> None:
        """Require a join token or a key: an agent that has joined needs no token."""
        if self.may_speak_v1 or self["key-secret"] or self.secret("token") != "":
            return
        if not (self.state_dir / AGENT_KEY).exists():
            raise usage.UsageError(
                f"--token-file - : standard input is empty, and {self.state_dir} has no agent key: pipe the "
                "join token in, as the line of 'tower join' does, or set --state-dir to the directory of an "
                "agent that has joined"
            )

    def _check_authority(self) -> None:
        if self["ca-hashes"] and self["ca-cert"]:
            raise usage.UsageError("--ca-hash and --ca-cert are mutually exclusive: omit one of them")
        if not self.server.secure and (self["ca-hashes"] or self["ca-cert"]):
            raise usage.UsageError(
                f"--proxy-server {self.server} has no TLS to verify: "
                "use wss://, or omit --ca-hash and --ca-cert"
            )
        for text in self["ca-hashes"]:
            if is_published(text):
                raise usage.UsageError(f"--ca-hash {text}: {REASON}: {NEW_CA}")

    @property
    def state_dir(self) -> Path:
        """Directory of the agent's key."""
        return Path(self["state-dir"] or Path.home() / ".local" / "state" / "tower-agent" / self["name"])


def _usage(read: Callable[[str], Any], text: str, prefix: str = "") -> Any:
    """Return *text* parsed by *read*; convert its error to a usage error."""
    try:
        return read(text)
    except (ConfigurationError, Invalid) as e:
        raise usage.UsageError(f"{prefix}{e}") from None

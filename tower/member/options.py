"""What ``tower-agent`` can be told, and which of it goes together."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from twisted.python import usage

from tower.clusters.cluster import check_name
from tower.conch.transport.keys import checked_fingerprint
from tower.errors import ConfigurationError, Invalid
from tower.kube.system_identities import SystemIdentities, check_allowed
from tower.net.addresses import parse_address
from tower.net.proxy_environment import ServerURL, parse_server_url
from tower.net.tls.ca_pinning import NEW_CA, parse_ca_hash
from tower.net.tls.published_authorities import REASON, is_published
from tower.options import (
    ALLOW_DUMPS,
    EnvironmentOptions,
    flag,
    parameter,
    read_address,
    read_count,
    read_duration,
    read_file,
    read_size,
    secret,
)
from tower.reactor.process import forget_variable
from tower.tunnels.targets import KUBESPHERE_SERVICE, ServiceAddress, parse_target

#: Values of ``--protocol``.
AUTO, V1, V2 = "auto", "v1", "v2"

#: The flag without which nobody's credentials are sent to whoever answers.
ANY_HOST_KEY = "insecure-v1-any-host-key"

#: The file in the state directory that has the agent's private key.
AGENT_KEY = "agent-key"

_JOIN_LINE = "take it from the line that 'tower join' prints"
_MISSING_KEY = {
    V2: f"--host-key is missing: {_JOIN_LINE}",
    V1: f"--host-key or --{ANY_HOST_KEY} is missing: without either, anybody on the way could pose as the "
    "proxy and would be sent the cluster's credentials; a proxy of KubeSphere Tower makes a new key at each "
    "start, so none can be given for it",
    AUTO: f"--host-key is missing: {_JOIN_LINE}; for a proxy of KubeSphere Tower, "
    f"which makes a new key at each start, there is --{ANY_HOST_KEY}",
}


def read_protocol(text: str) -> str:
    """Read ``--protocol``."""
    if text not in {AUTO, V1, V2}:
        raise ValueError(f"is none of {AUTO}, {V2} and {V1}")
    return text


class Options(EnvironmentOptions):
    """What `twistd tower-agent` is told.

    :ivar server: where the proxy is, once the options are parsed.
    """

    optParameters: ClassVar = [
        parameter("name", None, "The cluster that this agent serves, as the proxy knows it."),
        parameter("proxy-server", None, "URL of the proxy: wss://HOST:PORT, or ws://HOST:PORT without TLS."),
        parameter("ca-cert", None, "PEM file with the CA of a wss:// proxy (the system's CAs).", read_file),
        *secret("token", "Join token; visible in the process list, so prefer --token-file."),
        parameter("state-dir", None, "Where the agent keeps its key (~/.local/state/tower-agent/NAME)."),
        parameter(
            "kubeconfig", None, "How the cluster is reached (the service account, in a pod).", read_file
        ),
        parameter(
            "protocol",
            AUTO,
            "v2, v1 for a proxy of KubeSphere Tower, or auto: v2 with --host-key, what there is without.",
            read_protocol,
        ),
        parameter("kubernetes-service", "", "host:port of the API server, in place of the kubeconfig's."),
        parameter(
            "kubesphere-service",
            "",
            "host:port of the KubeSphere API server: target kubesphere "
            f"(with kubesphere-v1: {ServiceAddress(*KUBESPHERE_SERVICE)}).",
        ),
        parameter("keepalive", "10s", "How often the proxy is probed.", read_duration),
        parameter("max-retry", "0", "Retries in a row before the agent gives up; 0: never.", read_count),
        parameter("max-retry-interval", "2m", "Longest wait between two tries.", read_duration),
        parameter("health-address", None, "host:port of the page with /healthz and /readyz.", read_address),
        parameter("grace", "10s", "How long a stop waits for requests under way.", read_duration),
        parameter("buffer-budget", "32MiB", "Memory for streams in flight.", read_size),
        parameter("rekey-bytes", "1GiB", "Bytes after which the tunnel's keys change.", read_size),
    ]
    optFlags: ClassVar = [
        flag(
            "allow-system-identities",
            "Allow ALL system identities: system:masters, nodes, service accounts, ...; insecure.",
        ),
        flag("no-impersonation", "Let EVERYBODY act with the agent's own rights."),
        flag(
            "insecure-v1-any-host-key",
            "Give the cluster's credentials to ANY proxy of kubesphere-v1 that answers at --proxy-server.",
        ),
        ALLOW_DUMPS,
    ]
    repeated = frozenset({"host-key", "ca-hash", "target", "allow-system-identity"})
    server: ServerURL

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        super().__init__(environ)
        self["host-keys"], self["ca-hashes"], self["targets"] = [], [], []
        self["allowed-identities"] = []

    def parse(self, arguments: Sequence[str]) -> None:
        """See `EnvironmentOptions.parse`; the token is in the process's environment no longer."""
        try:
            super().parse(arguments)
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
        """What streams may lead to besides the API server, as NAME=HOST:PORT.  Repeatable."""
        self.check(lambda: self["targets"].append(_usage(parse_target, text, "--target ")))

    def opt_allow_system_identity(self, text: str) -> None:
        """System user or group that users may act as, such as system:monitoring.  Repeatable."""
        self.check(self._allow, text)

    def _allow(self, text: str) -> None:
        name = _usage(check_allowed, text, "--allow-system-identity ")
        if name not in self["allowed-identities"]:
            self["allowed-identities"].append(name)

    @property
    def identities(self) -> SystemIdentities:
        """Whom of the system users may act as."""
        return SystemIdentities(self["allowed-identities"], allow_all=bool(self["allow-system-identities"]))

    def postOptions(self) -> None:
        """Check which options work together."""
        super().postOptions()
        self.check(self._check_name)
        self.check(self._check_server)
        self.check(self._check_protocol)
        for name, default in (("kubernetes-service", 443), ("kubesphere-service", 80)):
            if self[name]:
                read = partial(parse_address, default_port=default)
                self.check(_usage, read, self[name], f"--{name} ")

    def _check_name(self) -> None:
        if not self["name"]:
            raise usage.UsageError("--name is missing: the cluster's name, as in 'tower cluster add NAME'")
        _usage(check_name, self["name"], "--name: ")
        self._check_token()

    def _check_server(self) -> None:
        if not self["proxy-server"]:
            raise usage.UsageError(
                "--proxy-server is missing: where the proxy is, as in wss://tower.example.com:8443"
            )
        self.server = parse_server_url(self["proxy-server"])
        self._check_authority()

    @property
    def may_speak_v1(self) -> bool:
        """Whether kubesphere-v1 is what will be spoken, if anything is."""
        return bool(self["protocol"] == V1 or (self["protocol"] == AUTO and self[ANY_HOST_KEY]))

    def _check_protocol(self) -> None:
        """Find out whom the agent is to trust; one answer, and one that fits the protocol."""
        protocol, pinned, anybody = self["protocol"], self["host-keys"], self[ANY_HOST_KEY]
        if pinned and anybody:
            raise usage.UsageError(
                f"--host-key and --{ANY_HOST_KEY} contradict each other: give one of them, "
                "and the first if you have it"
            )
        if protocol == V2 and anybody:
            raise usage.UsageError(
                f"--{ANY_HOST_KEY} is for kubesphere-v1, and --protocol v2 needs --host-key: {_JOIN_LINE}"
            )
        if not (pinned or anybody):
            raise usage.UsageError(_MISSING_KEY[protocol])
        if self.may_speak_v1:
            self._check_v1()

    def _check_v1(self) -> None:
        if not self.secret("token"):
            raise usage.UsageError(
                "--token is missing: kubesphere-v1 knows an agent by the cluster's token alone; "
                "set --token-file or TOWER_TOKEN"
            )
        for name, is_given in (
            ("no-impersonation", self["no-impersonation"]),
            ("allow-system-identities", self["allow-system-identities"]),
            ("allow-system-identity", self["allowed-identities"]),
        ):
            if is_given:
                raise usage.UsageError(
                    f"--{name} has no meaning with kubesphere-v1, whose proxy has the agent's credential "
                    "and decides by itself who acts with it: leave it out"
                )
        if self["targets"]:
            raise usage.UsageError(
                "--target has no meaning with kubesphere-v1, which knows --kubernetes-service and "
                "--kubesphere-service alone: leave it out"
            )

    def _check_token(self) -> None:
        """Refuse to begin without a token and without a key: who has joined needs the key alone."""
        if not self.may_speak_v1 and self.secret("token") == "" and not (self.state_dir / AGENT_KEY).exists():
            raise usage.UsageError(
                f"--token-file - : standard input is empty, and {self.state_dir} has no agent key: pipe the "
                "token in, as the line of 'tower join' does, or set --state-dir to the directory of an agent "
                "that has joined"
            )

    def _check_authority(self) -> None:
        if self["ca-hashes"] and self["ca-cert"]:
            raise usage.UsageError("--ca-hash and --ca-cert say the same thing twice: give one of them")
        if not self.server.secure and (self["ca-hashes"] or self["ca-cert"]):
            raise usage.UsageError(
                f"--proxy-server {self.server} has no TLS to verify: "
                "begin it with wss://, or leave out --ca-hash and --ca-cert"
            )
        for text in self["ca-hashes"]:
            if is_published(text):
                raise usage.UsageError(f"--ca-hash {text}: {REASON}: {NEW_CA}")

    @property
    def state_dir(self) -> Path:
        """Where the key is kept."""
        return Path(self["state-dir"] or Path.home() / ".local" / "state" / "tower-agent" / self["name"])


def _usage(read: Callable[[str], Any], text: str, prefix: str = "") -> Any:
    """Return what *read* makes of *text*; its error is one of usage."""
    try:
        return read(text)
    except (ConfigurationError, Invalid) as e:
        raise usage.UsageError(f"{prefix}{e}") from None

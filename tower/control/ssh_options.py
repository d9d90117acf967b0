"""Options of ``tower-proxy`` for one cluster reached by SSH, with kube-apiserver's names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, cast, get_args

from twisted.python import usage

from tower.cloud.registry import is_external
from tower.clusters.node import parse_node
from tower.clusters.object_meta import check_name
from tower.clusters.ssh_spec import DefaultCluster, HostKeyMode, KeyType, SSHSpec
from tower.errors import ConfigurationError, Invalid
from tower.options.base import EnvironmentOptions
from tower.options.errors import OptionError
from tower.options.parameters import Parameter, flag, parameter
from tower.options.values import read_file, read_port, unless_empty

#: Options that require ``--ssh-user``.
_NEED_USER = (
    "ssh-keyfile",
    "ssh-known-hosts",
    "ssh-cluster",
    "nodes",
    "nodes-file",
    "cloud-provider",
    "cloud-config",
    "member-kubeconfig",
    "kubelet-certificate-authority",
)


def _read_mode(text: str) -> str:
    if text in get_args(HostKeyMode):
        return text
    raise ValueError(f"is not one of {', '.join(get_args(HostKeyMode))}")


def _read_key_type(text: str) -> str:
    if text in get_args(KeyType):
        return text
    raise ValueError(f"is not one of {', '.join(get_args(KeyType))}")


def _read_nodes(text: str) -> tuple[str, ...]:
    words = tuple(word.strip() for word in text.split(",") if word.strip())
    try:
        for word in words:
            parse_node(word)
    except ConfigurationError as e:
        raise ValueError(f"is not a list of nodes: {e}: give comma-separated host:port") from None
    return words


def _read_kubelet_port(text: str) -> int:
    return 0 if text == "0" else read_port(text)


class NodeOptions(EnvironmentOptions):
    """Options of kube-apiserver's node tunnels, and of the cluster that they lead to."""

    optParameters: ClassVar[Sequence[Parameter]] = [
        parameter(
            "ssh-user",
            "",
            "User name for SSH to the nodes of a cluster; adds that cluster, which has no agent.",
        ),
        parameter("ssh-keyfile", None, "Private key file of --ssh-user; created if missing."),
        parameter(
            "ssh-key-type",
            "ed25519",
            "Type of --ssh-keyfile if it is created: ed25519 or rsa.",
            _read_key_type,
        ),
        parameter(
            "ssh-known-hosts",
            None,
            "OpenSSH known_hosts file with the nodes' host keys.  "
            "[default: ~/.ssh/known_hosts and /etc/ssh/ssh_known_hosts]",
            read_file,
        ),
        parameter(
            "ssh-host-keys",
            "known-hosts",
            "Verification of host keys: known-hosts, accept-new or insecure-ignore.",
            _read_mode,
        ),
        parameter("ssh-port", "22", "SSH port of nodes that are listed without one.", read_port),
        parameter("ssh-cluster", None, "Name of the cluster of --ssh-user.  [default: default]"),
        parameter("nodes", "", "Comma-separated nodes of the --ssh-cluster, HOST:PORT.", _read_nodes),
        parameter("nodes-file", None, "File with the nodes of the --ssh-cluster, one per line.", read_file),
        parameter(
            "cloud-provider",
            None,
            "Cloud that lists the nodes and installs the key: aws, azure, gce or openstack.",
        ),
        parameter("cloud-config", None, "Cloud provider configuration file.", read_file),
        parameter(
            "member-kubeconfig",
            None,
            "Kubeconfig with the address of the API server, as the nodes reach it, and a credential.",
            read_file,
        ),
        parameter("kubelet-port", "10250", "Port of the kubelets.", _read_kubelet_port),
        parameter(
            "kubelet-certificate-authority",
            None,
            "CA file for the kubelets' certificates.  [default: the API server's CA]",
            unless_empty(read_file),
        ),
    ]
    optFlags: ClassVar[Sequence[tuple[str, None, str]]] = [
        flag(
            "nodes-from-api",
            "List the nodes with the cluster's API; --cloud-provider then only installs the key.",
        ),
        flag("insecure-skip-kubelet-tls-verify", "Insecure: do not verify the kubelets' certificates."),
    ]

    def check_rules(self) -> None:
        """See `EnvironmentOptions.check_rules`."""
        super().check_rules()
        rules = (self._check_ssh, self._check_nodes) if self["ssh-user"] else (self._check_no_user,)
        for rule in rules:
            self.check(rule)

    def _check_no_user(self) -> None:
        for name in _NEED_USER:
            if self[name]:
                given = ",".join(self[name]) if name == "nodes" else str(self[name])
                raise OptionError(name, given, "requires --ssh-user: give both")
        if self["nodes-from-api"]:
            raise usage.UsageError("--nodes-from-api requires --ssh-user: give both")

    def _check_ssh(self) -> None:
        if not self["ssh-keyfile"]:
            raise usage.UsageError(
                "--ssh-keyfile is missing: give the private key file of --ssh-user; it is created if missing"
            )
        if not self["kubelet-port"]:
            raise usage.UsageError("must enable kubelet port if proxy ssh-tunneling is specified")
        try:
            check_name(self._cluster_name)
        except Invalid as e:
            raise OptionError("ssh-cluster", self._cluster_name, str(e)) from None

    def _check_nodes(self) -> None:
        lists = [name for name in ("nodes", "nodes-file", "nodes-from-api") if self[name]]
        if self._cloud_provider and lists != ["nodes-from-api"]:
            lists.append("cloud-provider")
        if len(lists) > 1:
            raise usage.UsageError(f"--{lists[0]} and --{lists[1]} both list the nodes: give one of them")
        if self["cloud-config"] and not self["cloud-provider"]:
            raise usage.UsageError("--cloud-config requires --cloud-provider: give both")
        if not (lists or self["member-kubeconfig"] or self["cloud-provider"]):
            raise usage.UsageError(
                "no option lists the nodes: give --nodes, --nodes-file, --cloud-provider or "
                "--member-kubeconfig"
            )

    @property
    def _cloud_provider(self) -> str:
        """Empty for ``external`` too: as for kube-apiserver, another program manages the cloud then."""
        name = self["cloud-provider"] or ""
        return "" if is_external(name) else name

    @property
    def _cluster_name(self) -> str:
        return self["ssh-cluster"] or "default"

    @property
    def given_cluster(self) -> DefaultCluster | None:
        """The cluster of ``--ssh-user``, None without that option; its files have absolute paths."""
        if not self["ssh-user"]:
            return None
        spec = SSHSpec(
            user=self["ssh-user"],
            key_file=self._path("ssh-keyfile"),
            key_type=cast(KeyType, self["ssh-key-type"]),
            host_keys=cast(HostKeyMode, self["ssh-host-keys"]),
            known_hosts=self._path("ssh-known-hosts"),
            nodes=self["nodes"],
            nodes_file=self._path("nodes-file"),
            nodes_from_api=bool(self["nodes-from-api"]),
            cloud_provider=self._cloud_provider,
            cloud_config=self._path("cloud-config") if self._cloud_provider else "",
            ssh_port=self["ssh-port"],
            kubelet_port=self["kubelet-port"],
            kubelet_authority=self._path("kubelet-certificate-authority"),
            kubelet_insecure=bool(self["insecure-skip-kubelet-tls-verify"]),
        )
        return DefaultCluster(self._cluster_name, spec, self["member-kubeconfig"])

    def _path(self, name: str) -> str:
        return str(Path(self[name]).absolute()) if self[name] else ""

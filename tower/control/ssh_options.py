"""What ``tower-proxy`` can be told about one cluster that is reached by SSH, in kube-apiserver's words."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, cast, get_args

from twisted.python import usage

from tower.clusters.cluster import check_name
from tower.clusters.node import SSH_PORT, parse_node
from tower.clusters.ssh_spec import KUBELET_PORT, DefaultCluster, HostKeyMode, KeyType, SSHSpec
from tower.errors import ConfigurationError, Invalid
from tower.options import EnvironmentOptions, OptionError, Parameter, flag, parameter, read_file, read_port

#: What is for nothing without ``--ssh-user``.
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
    raise ValueError(f"is none of {', '.join(get_args(HostKeyMode))}")


def _read_key_type(text: str) -> str:
    if text in get_args(KeyType):
        return text
    raise ValueError(f"is none of {', '.join(get_args(KeyType))}")


def _read_nodes(text: str) -> tuple[str, ...]:
    words = tuple(word.strip() for word in text.split(",") if word.strip())
    try:
        for word in words:
            parse_node(word)
    except ConfigurationError as e:
        raise ValueError(f"{e}: give host:port between commas") from None
    return words


def _read_kubelet_port(text: str) -> int:
    return 0 if text == "0" else read_port(text)


class NodeOptions(EnvironmentOptions):
    """Those of kube-apiserver, and what a gateway needs beside them."""

    optParameters: ClassVar[Sequence[Parameter]] = [
        parameter("ssh-user", "", "Reach a cluster by SSH to its nodes, logging in as this user."),
        parameter("ssh-keyfile", None, "Private key for that; made if there is none."),
        parameter("ssh-key-type", "ed25519", "Of a key that is made: ed25519 or rsa.", _read_key_type),
        parameter("ssh-known-hosts", None, "OpenSSH's file of the nodes' host keys.", read_file),
        parameter("ssh-host-keys", "known-hosts", "known-hosts, accept-new or insecure-ignore.", _read_mode),
        parameter(
            "ssh-port", str(SSH_PORT), "Where nodes take SSH for which nobody says another.", read_port
        ),
        parameter("ssh-cluster", None, "What that cluster is called (default)."),
        parameter("nodes", "", "Its nodes, host:port between commas.", _read_nodes),
        parameter("nodes-file", None, "File with one node in a line.", read_file),
        parameter("cloud-provider", None, "Whose cloud lists the nodes and installs the key."),
        parameter("cloud-config", None, "File that tells the cloud provider.", read_file),
        parameter("member-kubeconfig", None, "The way to its API server, as nodes see it.", read_file),
        parameter("kubelet-port", str(KUBELET_PORT), "Where its kubelets listen.", _read_kubelet_port),
        parameter("kubelet-certificate-authority", None, "File with the kubelets' CA.", read_file),
    ]
    optFlags: ClassVar[Sequence[tuple[str, None, str]]] = [
        flag("insecure-skip-kubelet-tls-verify", "Do not verify kubelets."),
    ]

    def postOptions(self) -> None:
        """Check which options work together."""
        super().postOptions()
        self.check(self._check_ssh)

    def _check_ssh(self) -> None:
        if not self["ssh-user"]:
            for name in _NEED_USER:
                if self[name]:
                    given = ",".join(self[name]) if name == "nodes" else str(self[name])
                    raise OptionError(name, given, "has no meaning without --ssh-user: give both")
            return
        if not self["ssh-keyfile"]:
            raise usage.UsageError(
                "--ssh-keyfile is missing: say where the private key for --ssh-user is, or is to be made"
            )
        ways = [name for name in ("nodes", "nodes-file", "cloud-provider") if self[name]]
        if len(ways) > 1:
            raise usage.UsageError(f"--{ways[0]} and --{ways[1]} both say which nodes there are: give one")
        if self["cloud-config"] and not self["cloud-provider"]:
            raise usage.UsageError("--cloud-config has no meaning without --cloud-provider: give both")
        if not self["kubelet-port"]:
            raise usage.UsageError("must enable kubelet port if proxy ssh-tunneling is specified")
        if not (ways or self["member-kubeconfig"]):
            raise usage.UsageError(
                "nobody says which nodes there are: give --nodes, --nodes-file, --cloud-provider or "
                "--member-kubeconfig"
            )
        try:
            check_name(self._cluster_name)
        except Invalid as e:
            raise OptionError("ssh-cluster", self._cluster_name, str(e)) from None

    @property
    def _cluster_name(self) -> str:
        return self["ssh-cluster"] or "default"

    @property
    def given_cluster(self) -> DefaultCluster | None:
        """The cluster of ``--ssh-user``, or None without one; files by absolute path."""
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
            cloud_provider=self["cloud-provider"] or "",
            cloud_config=self._path("cloud-config"),
            ssh_port=self["ssh-port"],
            kubelet_port=self["kubelet-port"],
            kubelet_authority=self._path("kubelet-certificate-authority"),
            kubelet_insecure=bool(self["insecure-skip-kubelet-tls-verify"]),
        )
        return DefaultCluster(self._cluster_name, spec, self["member-kubeconfig"])

    def _path(self, name: str) -> str:
        return str(Path(self[name]).absolute()) if self[name] else ""

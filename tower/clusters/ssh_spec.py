"""The SSH access to a cluster of type ssh, as specified by an administrator.  Holds no secret."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, TypeAlias

from attrs import field, frozen

from tower.kube.system_identities import SystemIdentities

#: Verification of host keys: known_hosts only; learn at the first connection; none.
HostKeyMode: TypeAlias = Literal["known-hosts", "accept-new", "insecure-ignore"]

#: Type of created keys; RSA (2048 bits) is for nodes without Ed25519.
KeyType: TypeAlias = Literal["ed25519", "rsa"]

#: Default address types of a node's sshd, in order of preference.
ADDRESS_TYPES = ("ExternalIP", "LegacyHostIP", "InternalIP")

#: Default port of kubelets.
KUBELET_PORT = 10250


@frozen
class SSHSpec:
    """SSH access to the nodes of a cluster.

    Files are on the proxy's machine, below ``--node-files`` unless its command line names them; they are read
    when needed.

    :ivar key_file: private key; created if missing.
    :ivar key_type: of a created key.
    :ivar known_hosts: file in OpenSSH's format; may be empty.
    :ivar nodes: ``host:port`` each; empty: from another source.
    :ivar nodes_file: file with one node per line; may be empty.
    :ivar cloud_provider: lists the instances and installs the key; may be empty.
    :ivar cloud_config: its configuration file; may be empty.
    :ivar address_types: address types of nodes, in order of preference.
    :ivar ssh_port: default SSH port of nodes.
    :ivar kubelet_port: of all nodes; 0: kubelets are not a target.
    :ivar kubelet_authority: file with the CAs of kubelets; empty: the API server's.
    :ivar kubelet_insecure: do not verify kubelets.
    :ivar targets: for streams and HTTP: name to ``host:port``, as seen from the nodes.
    :ivar allow_system: whether users may impersonate all system identities.
    :ivar allowed_identities: system identities that users may impersonate.
    :ivar nodes_from_api: list the nodes with the cluster's API; a cloud provider only installs the key.
    """

    user: str
    key_file: str
    key_type: KeyType = "ed25519"
    host_keys: HostKeyMode = "known-hosts"
    known_hosts: str = ""
    nodes: tuple[str, ...] = ()
    nodes_file: str = ""
    cloud_provider: str = ""
    cloud_config: str = ""
    address_types: tuple[str, ...] = ADDRESS_TYPES
    ssh_port: int = 22
    kubelet_port: int = KUBELET_PORT
    kubelet_authority: str = ""
    kubelet_insecure: bool = False
    targets: Mapping[str, str] = field(factory=dict)
    allow_system: bool = False
    allowed_identities: tuple[str, ...] = ()
    nodes_from_api: bool = False

    @property
    def identities(self) -> SystemIdentities:
        """The rule for system identities."""
        return SystemIdentities(self.allowed_identities, allow_all=self.allow_system)


@frozen
class DefaultCluster:
    """The cluster that the proxy's options define.

    :ivar kubeconfig: file with the access to its API server, as seen from its nodes; None without one.
    """

    name: str
    spec: SSHSpec
    kubeconfig: Path | None

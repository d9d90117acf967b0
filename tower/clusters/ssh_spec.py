"""How a cluster without an agent is reached: what its record says about SSH.  Holds no secret."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, TypeAlias

from attrs import field, frozen

from tower.kube.system_identities import SystemIdentities

#: How host keys are judged: by known_hosts alone; learned at the first connection and kept; not at all.
HostKeyMode: TypeAlias = Literal["known-hosts", "accept-new", "insecure-ignore"]

#: What is made where there is no key: RSA, of 2048 bits, is for nodes that know nothing newer.
KeyType: TypeAlias = Literal["ed25519", "rsa"]

#: Which of a node's addresses its sshd is reached at, the preferred one first.
ADDRESS_TYPES = ("ExternalIP", "LegacyHostIP", "InternalIP")

#: Where kubelets listen.
KUBELET_PORT = 10250


@frozen
class SSHSpec:
    """What an administrator said.

    Files are on the proxy's machine, below ``--node-files`` unless its command line names them; they are read
    when they are needed.

    :ivar user: to log in as.
    :ivar key_file: private key; made if there is none.
    :ivar key_type: of the key that is made.
    :ivar host_keys: how the nodes prove who they are.
    :ivar known_hosts: OpenSSH's file; empty without one.
    :ivar nodes: ``host:port`` each; empty: others say.
    :ivar nodes_file: one node in a line; empty without one.
    :ivar cloud_provider: lists the instances and installs the key; empty without one.
    :ivar cloud_config: its file; empty without one.
    :ivar address_types: which of a node's addresses is dialled, the preferred one first.
    :ivar ssh_port: of nodes for which nobody says another.
    :ivar kubelet_port: of every node; 0: kubelets are no target.
    :ivar kubelet_authority: file with the CAs of the kubelets' certificates; empty: the API server's.
    :ivar kubelet_insecure: do not verify kubelets.
    :ivar targets: named addresses as the nodes see them, for streams and HTTP: name to ``host:port``.
    :ivar allow_system: let users act as all of the system's own identities.
    :ivar allowed_identities: those of the system's own identities that users may act as.
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
        """Whom of the system users may act as."""
        return SystemIdentities(self.allowed_identities, allow_all=self.allow_system)


@frozen
class DefaultCluster:
    """The cluster that the options are about.

    :ivar kubeconfig: file with the way to its API server, as its nodes see it; None without one.
    """

    name: str
    spec: SSHSpec
    kubeconfig: Path | None

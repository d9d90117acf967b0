"""How the nodes of one cluster are verified; follows changes of the cluster's record."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from twisted.logger import Logger

from tower.clusters.node import Node
from tower.clusters.ssh_spec import SSHSpec
from tower.nodes.record_files import RecordFile
from tower.nodes.remembered_nodes import PinnedHostKeys, RememberedNodes
from tower.nodes.ssh.host_keys import AnyHostKey, HostKeyRefused, HostKeys
from tower.nodes.ssh.known_hosts import KnownHosts, KnownHostsFiles

#: Default known_hosts files, as in ssh.
KNOWN_HOSTS = ("~/.ssh/known_hosts", "/etc/ssh/ssh_known_hosts")

#: The mode without verification.
_IGNORE = "insecure-ignore"

_log = Logger()


class HostKeyPolicy(HostKeys):
    """Verifies nodes with the mode in a cluster's record.

    :param file: the known_hosts file; read only if *spec* names one.
    :ivar rule: for the current mode.
    :ivar keys: of the nodes that accepted our login, by address.
    :ivar unverified: addresses of those whose keys were not verified.
    """

    def __init__(self, spec: SSHSpec, remembered: RememberedNodes, file: RecordFile) -> None:
        self._remembered = remembered
        self.rule = _rule(spec, remembered, file)
        self.keys: dict[str, bytes] = {}
        self.unverified: set[str] = set()

    def kinds(self, node: Node) -> Collection[bytes]:
        """See `HostKeys.kinds`."""
        return self.rule.kinds(node)

    def judge(self, node: Node, blob: bytes) -> None:
        """See `HostKeys.judge`."""
        self.rule.judge(node, blob)

    def accepted(self, node: Node, blob: bytes) -> None:
        """See `HostKeys.accepted`."""
        self.rule.accepted(node, blob)
        self.keys[node.address] = blob
        if isinstance(self.rule, AnyHostKey):
            self.unverified.add(node.address)
        else:
            self.unverified.discard(node.address)

    def keep(self, nodes: Collection[Node]) -> None:
        """Forget all nodes but these."""
        addresses = {node.address for node in nodes}
        for address in self.keys.keys() - addresses:
            del self.keys[address]
            self.unverified.discard(address)

    def switch(self, spec: SSHSpec, nodes: Collection[Node], file: RecordFile) -> list[Node]:
        """Switch to the mode of *spec*; ``accept-new`` pins the keys of *nodes*.

        :param nodes: the connected nodes.
        :param file: the known_hosts file.
        :return: those that were never verified and that the new mode rejects.
        """
        self.rule = _rule(spec, self._remembered, file)
        rejected = []
        for node in () if isinstance(self.rule, AnyHostKey) else nodes:
            blob = self.keys.get(node.address)
            if blob is None:
                continue
            try:
                self.judge(node, blob)
                self.accepted(node, blob)
            except HostKeyRefused as e:
                if node.address in self.unverified:
                    _log.warn("{cluster}: {problem}", cluster=self._remembered.cluster, problem=str(e))
                    rejected.append(node)
        return rejected


def _rule(spec: SSHSpec, remembered: RememberedNodes, file: RecordFile) -> HostKeys:
    if spec.host_keys == _IGNORE:
        _log.warn(
            "NOT SECURE: host keys of the nodes of {cluster} are not verified (insecure-ignore)",
            cluster=remembered.cluster,
        )
        return AnyHostKey()
    if spec.known_hosts:
        files = [KnownHosts(file.path, files=file.files)]
    else:
        files = [KnownHosts(Path(name).expanduser(), may_be_missing=True) for name in KNOWN_HOSTS]
    known_hosts = KnownHostsFiles(files)
    return known_hosts if spec.host_keys == "known-hosts" else PinnedHostKeys(remembered, known_hosts)

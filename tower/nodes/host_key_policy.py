"""Who vouches for the nodes of one cluster: a rule for host keys that may become another one."""

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

#: Whose known hosts count where nobody names a file: those that ssh would ask.
KNOWN_HOSTS = ("~/.ssh/known_hosts", "/etc/ssh/ssh_known_hosts")

#: The mode in which nobody vouches for anybody.
_ANYBODY = "insecure-ignore"

_log = Logger()


class HostKeyPolicy:
    """A `tower.nodes.ssh.host_keys.HostKeys` that does as a cluster's record says now.

    :param known: what is remembered of the nodes.
    :param file: of known hosts; looked at only if *spec* names one.
    """

    def __init__(self, spec: SSHSpec, known: RememberedNodes, file: RecordFile) -> None:
        self._known = known
        self._rule = _rule(spec, known, file)
        self._shown: dict[str, bytes] = {}  # by address: the keys of those that let us in
        self._strangers: set[str] = set()  # those of them that nobody vouched for

    def algorithms(self, node: Node) -> list[bytes]:
        """See `HostKeys.algorithms`."""
        return self._rule.algorithms(node)

    def judge(self, node: Node, blob: bytes) -> None:
        """See `HostKeys.judge`."""
        self._rule.judge(node, blob)

    def accepted(self, node: Node, blob: bytes) -> None:
        """See `HostKeys.accepted`."""
        self._rule.accepted(node, blob)
        self._shown[node.address] = blob
        if isinstance(self._rule, AnyHostKey):
            self._strangers.add(node.address)
        else:
            self._strangers.discard(node.address)

    def keep(self, nodes: Collection[Node]) -> None:
        """Forget all nodes but these."""
        addresses = {node.address for node in nodes}
        for address in self._shown.keys() - addresses:
            del self._shown[address]
            self._strangers.discard(address)

    def turn_to(self, spec: SSHSpec, nodes: Collection[Node], file: RecordFile) -> list[Node]:
        """Do as *spec* says from now on; where keys are learned, those of *nodes* are.

        :param nodes: that are connected.
        :param file: of known hosts.
        :return: those of them that nobody ever vouched for, and nobody does now.
        """
        self._rule = _rule(spec, self._known, file)
        refused = []
        for node in () if isinstance(self._rule, AnyHostKey) else nodes:
            blob = self._shown.get(node.address)
            if blob is None:
                continue
            try:
                self.judge(node, blob)
                self.accepted(node, blob)
            except HostKeyRefused as e:
                if node.address in self._strangers:
                    _log.warn("{cluster}: {problem}", cluster=self._known.cluster, problem=str(e))
                    refused.append(node)
        return refused


def _rule(spec: SSHSpec, known: RememberedNodes, file: RecordFile) -> HostKeys:
    if spec.host_keys == _ANYBODY:
        _log.warn(
            "NOT SECURE: nodes of {cluster} are believed to be who they say (insecure-ignore)",
            cluster=known.cluster,
        )
        return AnyHostKey()
    if spec.known_hosts:
        files = [KnownHosts(file.path, files=file.files)]
    else:
        files = [KnownHosts(Path(name).expanduser(), may_be_missing=True) for name in KNOWN_HOSTS]
    known_hosts = KnownHostsFiles(files)
    return known_hosts if spec.host_keys == "known-hosts" else PinnedHostKeys(known, known_hosts)

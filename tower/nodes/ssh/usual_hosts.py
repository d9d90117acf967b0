"""Several known_hosts files as one, as ssh reads those of its user and of its system."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tower.clusters.node import Node
from tower.nodes.ssh.host_keys import HostKeyRefused, HostKeyRevoked, HostKeyUnknown, preferring
from tower.nodes.ssh.known_hosts import KnownHosts


class UsualHosts:
    """A `tower.nodes.ssh.host_keys.HostKeys`: what one file knows is known; what one of them revokes is revoked.

    :param files: at least one; the first is the one that people are told to complete.
    """

    def __init__(self, files: Iterable[KnownHosts]) -> None:
        self._files: Sequence[KnownHosts] = tuple(files)

    def algorithms(self, node: Node) -> list[bytes]:
        """See `HostKeys.algorithms`."""
        return preferring({kind for file in self._files for kind in file.kinds(node)})

    def judge(self, node: Node, blob: bytes) -> None:
        """See `HostKeys.judge`.

        :raise HostKeyUnknown: no file has a key of *node*.
        :raise HostKeyRefused: one has another one, and none this one; or one revokes it.
        """
        problem: HostKeyRefused | None = None
        is_known = False
        for file in self._files:
            try:
                file.judge(node, blob)
            except HostKeyRevoked:
                raise
            except HostKeyUnknown as e:
                problem = problem or e
            except HostKeyRefused as e:
                problem = e if problem is None or isinstance(problem, HostKeyUnknown) else problem
            else:
                is_known = True
        if problem is not None and not is_known:
            raise problem

    def accepted(self, node: Node, blob: bytes) -> None:
        """See `HostKeys.accepted`; the files are their owners' to write."""

    def knows(self, node: Node) -> bool:
        """Tell whether one of them has a key of *node*."""
        return any(file.knows(node) for file in self._files)

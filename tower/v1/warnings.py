"""What is said about old agents: the condition ``AgentProtocol`` of each cluster, and lines in the log.

An agent of ``kubesphere-v1`` cannot be made as secure as our own from this side.  So the user is told, where
he looks, what it lacks, and when the credential that it sent ends, since it never sends another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias
from weakref import WeakSet

from twisted.application.service import Service
from twisted.logger import Logger
from twisted.python.failure import Failure

from tower.clusters import Cluster, Clusters, ConditionStatus, timestamp
from tower.errors import NotFound
from tower.tunnels import Tunnel, Tunnels
from tower.websocket.subprotocols import KUBESPHERE_V1

#: The condition's type.
AGENT_PROTOCOL = "AgentProtocol"

#: How often to say again what is open, and to look for credentials that have ended, s.
REMINDER = 600.0

_SECURE = "Each agent proves itself by its own key, verifies this proxy, and keeps its credentials to itself."
_INSECURE = (
    "An agent speaks kubesphere-v1: it does not verify this proxy's key, it sends its credentials for the "
    "API server to whoever answers, and nothing but a token says that it is this cluster's agent."
)
_NO_IMPERSONATION = "Every user acts with the agent's own rights (--v1-no-impersonation)."
_OPEN_PORT = "Whoever reaches the cluster's port is let in without being asked (--v1-open-ports)."

#: How many clusters a line in the log names.
_NAMED = 10

#: Status, reason, message.
_Verdict: TypeAlias = tuple[ConditionStatus, str, str]


class Notices(Service):
    """Follows the tunnels.  A cluster without any keeps what was said of its last ones.

    :param epoch: returns the time of day, s since the epoch.
    :param impersonate: False when users act with the agents' own rights (``--v1-no-impersonation``).
    :param open_ports: whether the ports of clusters ask nobody (``--v1-open-ports``).
    """

    _log = Logger()

    def __init__(
        self,
        clusters: Clusters,
        tunnels: Tunnels,
        epoch: Callable[[], float],
        *,
        impersonate: bool = True,
        open_ports: bool = False,
    ) -> None:
        self._clusters = clusters
        self._tunnels = tunnels
        self._epoch = epoch
        self._open = [
            text for text, on in ((_NO_IMPERSONATION, not impersonate), (_OPEN_PORT, open_ports)) if on
        ]
        self._told: WeakSet[Tunnel] = WeakSet()
        self._writing: set[str] = set()
        tunnels.watch(self._changed)

    def startService(self) -> None:
        """Begin."""
        super().startService()  # type: ignore[no-untyped-call]
        self._look()

    def remind(self) -> None:
        """Say again what is open; to be called every `REMINDER` s."""
        for text in self._open:
            self._log.critical("NOT SECURE: {text}", text=text)
        ended = sorted({tunnel.name for tunnel in self._tunnels if self._has_ended(tunnel)})
        if ended:
            self._log.warn(
                "the credentials that old agents sent have ended: restart those of {clusters}{more}",
                clusters=", ".join(ended[:_NAMED]),
                more=f" and {len(ended) - _NAMED} more" if len(ended) > _NAMED else "",
            )
        self._look()

    def _look(self) -> None:
        for name in {tunnel.name for tunnel in self._tunnels}:
            self._changed(name)

    def _changed(self, name: str) -> None:
        if not self.running:
            return
        tunnels = self._tunnels.live(name)
        old = [tunnel for tunnel in tunnels if tunnel.protocol == KUBESPHERE_V1]
        self._warn(old)
        cluster = self._clusters.get(name)
        # What changes while something is written is seen when that is done.
        if not tunnels or cluster is None or cluster.ssh is not None or name in self._writing:
            return
        verdict = self._verdict(old)
        if _said(cluster) == verdict:
            return
        self._writing.add(name)
        writing = self._clusters.set_condition(name, AGENT_PROTOCOL, *verdict)
        writing.addCallbacks(self._written, self._not_written, callbackArgs=(name,), errbackArgs=(name,))

    def _written(self, _: Cluster, name: str) -> None:
        self._writing.discard(name)
        self._changed(name)

    def _not_written(self, failure: Failure, name: str) -> None:
        self._writing.discard(name)
        if not failure.check(NotFound):  # removed in between
            self._log.failure("cannot write the condition of {cluster}", failure, cluster=name)

    def _warn(self, old: Sequence[Tunnel]) -> None:
        for tunnel in old:
            if tunnel not in self._told:
                self._told.add(tunnel)
                self._log.warn(
                    "agent of {cluster} at {peer} (token {token}) speaks kubesphere-v1: it has sent the "
                    "cluster's credential without verifying this proxy",
                    cluster=tunnel.name,
                    peer=tunnel.peer,
                    token=tunnel.fingerprint,
                )

    def _verdict(self, old: Sequence[Tunnel]) -> _Verdict:
        if not old:
            return "True", "TowerV2", _SECURE
        ends = [end for end in map(_credential_end, old) if end is not None]
        texts = [_INSECURE, *([self._ending(min(ends))] if ends else []), *self._open]
        return "False", "KubeSphereV1", "  ".join(texts)

    def _ending(self, end: float) -> str:
        if end <= self._epoch():
            return f"The credential that it sent ended at {timestamp(end)}: restart the agent."
        return (
            f"The credential that it sent ends at {timestamp(end)}, and it never sends another: restart the "
            "agent before that."
        )

    def _has_ended(self, tunnel: Tunnel) -> bool:
        end = _credential_end(tunnel)
        return end is not None and end <= self._epoch()


def _credential_end(tunnel: Tunnel) -> float | None:
    """Return when what an old agent sent ends, s since the epoch; None when it does not, or nobody knows."""
    end: float | None = getattr(tunnel, "credential_expires", None)
    return end


def _said(cluster: Cluster) -> _Verdict | None:
    known = cluster.condition(AGENT_PROTOCOL)
    return None if known is None else (known.status, known.reason, known.message)

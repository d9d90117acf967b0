"""Warnings about old agents: the condition ``AgentProtocol`` of each cluster, and log lines.

The proxy cannot make an agent of ``kubesphere-v1`` as secure as one of ``tower-v2``.  So the condition states
what it lacks, and when its credential expires, since it never sends a new one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias
from weakref import WeakSet

from attrs import define, field
from twisted.application.service import Service
from twisted.logger import Logger
from twisted.python.failure import Failure

from tower.clusters import Cluster, Clusters, ConditionStatus
from tower.errors import NotFound
from tower.kube.timestamps import timestamp
from tower.store.records import StoreFailed
from tower.tunnels import Tunnel, Tunnels
from tower.websocket.subprotocols import KUBESPHERE_V1

#: The condition's type.
AGENT_PROTOCOL = "AgentProtocol"

#: Interval of `V1Warnings.remind`, s.
REMINDER = 600.0

_SECURE = "Each agent authenticates with its own key, verifies this proxy, and keeps its credentials."
_INSECURE = (
    "An agent speaks kubesphere-v1: it does not verify this proxy's key, it sends its credentials for the "
    "API server to any server that answers, and only a token authenticates it as this cluster's agent."
)
_OVER_TLS = (
    "An agent speaks kubesphere-v1 over TLS: it verifies this proxy's certificate, but not its key, it sends "
    "its credentials for the API server to any server with a certificate that it trusts, and only a token "
    "authenticates it as this cluster's agent."
)
_NO_CREDENTIAL = "It sent no credential for the API server, so requests are rejected."
_NO_IMPERSONATION = "All users act with the agent's own credential (--v1-no-impersonation)."
_OPEN_PORT = "The cluster's port does not authenticate clients (--v1-open-ports)."

#: Log texts: by whether the agent verified TLS, and whether it sent a credential.
_RISKS = {
    (False, True): "it has sent the cluster's credential without TLS, so without verifying this proxy",
    (
        True,
        True,
    ): "it has verified this proxy's TLS certificate, not its key, and sent the cluster's credential",
    (False, False): "it connected without TLS, so without verifying this proxy; it has sent no credential",
    (True, False): "it has verified this proxy's TLS certificate, not its key; it has sent no credential",
}

#: Most clusters named in a log line.
_NAMED = 10

#: Status, reason, message.
_Verdict: TypeAlias = tuple[ConditionStatus, str, str]


@define(eq=False, slots=False)
class V1Warnings(Service):
    """Follows the tunnels.  A cluster without tunnels keeps the condition of its last ones.

    :param epoch: returns the time of day, s since the epoch.
    :param impersonate: False if users act with the agents' own credentials (``--v1-no-impersonation``).
    :param open_ports: whether the ports of clusters do not authenticate clients (``--v1-open-ports``).
    """

    _log = Logger()

    _clusters: Clusters
    _tunnels: Tunnels
    _epoch: Callable[[], float]
    _impersonate: bool = field(default=True, kw_only=True)
    _open_ports: bool = field(default=False, kw_only=True)
    _warned: WeakSet[Tunnel] = field(factory=WeakSet, init=False)
    _writing: set[str] = field(factory=set, init=False)

    def __attrs_post_init__(self) -> None:
        """Follow the tunnels."""
        texts = ((_NO_IMPERSONATION, not self._impersonate), (_OPEN_PORT, self._open_ports))
        self._open = [text for text, on in texts if on]
        self._tunnels.watch(self._changed)

    def startService(self) -> None:
        """Write the conditions of connected clusters."""
        super().startService()  # type: ignore[no-untyped-call]
        self._update()

    def remind(self) -> None:
        """Log insecure options and expired credentials; call it every `REMINDER` s."""
        for text in self._open:
            self._log.critical("NOT SECURE: {text}", text=text)
        expired = sorted({tunnel.name for tunnel in self._tunnels if self._has_expired(tunnel)})
        if expired:
            self._log.warn(
                "the credentials that old agents sent have expired: restart the agents of {clusters}{more}",
                clusters=", ".join(expired[:_NAMED]),
                more=f" and {len(expired) - _NAMED} more" if len(expired) > _NAMED else "",
            )
        self._update()

    def _update(self) -> None:
        for name in {tunnel.name for tunnel in self._tunnels}:
            self._changed(name)

    def _changed(self, name: str) -> None:
        if not self.running:
            return
        tunnels = self._tunnels.live(name)
        old = [tunnel for tunnel in tunnels if tunnel.protocol == KUBESPHERE_V1]
        self._warn(old)
        cluster = self._clusters.get(name)
        # Changes during a write are handled after it.
        if not tunnels or cluster is None or cluster.ssh is not None or name in self._writing:
            return
        verdict = self._verdict(old)
        if _current(cluster) == verdict:
            return
        self._writing.add(name)
        writing = self._clusters.set_condition(name, AGENT_PROTOCOL, *verdict)
        writing.addCallbacks(self._written, self._not_written, callbackArgs=(name,), errbackArgs=(name,))

    def _written(self, _: Cluster, name: str) -> None:
        self._writing.discard(name)
        self._changed(name)

    def _not_written(self, failure: Failure, name: str) -> None:
        self._writing.discard(name)
        if failure.check(StoreFailed):
            text = "cannot write the condition of {cluster}: {reason}"
            self._log.warn(text, cluster=name, reason=str(failure.value))
        elif not failure.check(NotFound):  # deleted in the meantime
            self._log.failure("cannot write the condition of {cluster}", failure, cluster=name)

    def _warn(self, old: Sequence[Tunnel]) -> None:
        for tunnel in old:
            if tunnel not in self._warned:
                self._warned.add(tunnel)
                self._log.warn(
                    "agent of {cluster} at {peer} (token {token}) speaks kubesphere-v1: {risk}",
                    cluster=tunnel.name,
                    peer=tunnel.peer,
                    token=tunnel.fingerprint,
                    risk=_RISKS[_has_verified_tls(tunnel), _has_sent_credential(tunnel)],
                )

    def _verdict(self, old: Sequence[Tunnel]) -> _Verdict:
        if not old:
            return "True", "TowerV2", _SECURE
        ends = [end for end in map(_credential_expiry, old) if end is not None]
        texts = [_OVER_TLS if all(map(_has_verified_tls, old)) else _INSECURE]
        if not all(map(_has_sent_credential, old)):
            texts.append(_NO_CREDENTIAL)
        texts += [*([self._expiry(min(ends))] if ends else []), *self._open]
        return "False", "KubeSphereV1", "  ".join(texts)

    def _expiry(self, end: float) -> str:
        if end <= self._epoch():
            return f"The credential that it sent expired at {timestamp(end)}: restart the agent."
        return (
            f"The credential that it sent expires at {timestamp(end)}, and it never sends another: restart "
            "the agent before that."
        )

    def _has_expired(self, tunnel: Tunnel) -> bool:
        end = _credential_expiry(tunnel)
        return end is not None and end <= self._epoch()


def _credential_expiry(tunnel: Tunnel) -> float | None:
    """Return when an old agent's credential expires, s since the epoch; None: never, or unknown."""
    end: float | None = getattr(tunnel, "credential_expires", None)
    return end


def _has_verified_tls(tunnel: Tunnel) -> bool:
    """Return whether an old agent connected by TLS; False if unknown."""
    return bool(getattr(tunnel, "verified_tls", False))


def _has_sent_credential(tunnel: Tunnel) -> bool:
    """Return whether an old agent sent a credential; True if unknown."""
    return bool(getattr(tunnel, "sent_credential", True))


def _current(cluster: Cluster) -> _Verdict | None:
    known = cluster.condition(AGENT_PROTOCOL)
    return None if known is None else (known.status, known.reason, known.message)

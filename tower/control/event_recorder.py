"""Records the events of clusters: connections, ports, credentials, and other changes of their conditions."""

from __future__ import annotations

from typing import Any

from twisted.application.service import Service

from tower.clusters import Cluster, Clusters
from tower.clusters.agent_keys import NEVER_CAME, was_purged
from tower.clusters.cluster_events import ClusterEvents, EventLevel
from tower.clusters.condition_types import AGENT_AVAILABLE, AVAILABLE, MEMBER_CHECKS, NODES_AVAILABLE
from tower.clusters.event_reasons import (
    AGENT_ENROLLED,
    AGENT_KEY_EXPIRED,
    AGENT_REVOKED,
    CONNECTED,
    CREDENTIAL_CHANGED,
    CREDENTIAL_SET,
    LOST,
    PORT_ASSIGNED,
    member_reason,
)
from tower.clusters.member_credentials import revision
from tower.kube.member_cures import WARNINGS
from tower.store import IStore
from tower.store.kinds import AGENT_KEYS, MEMBER_ACCESS
from tower.store.records import Event, EventType, Watch
from tower.tunnels import Tunnels

#: Conditions that connections, or other conditions, explain already.
_IMPLIED = frozenset({AVAILABLE, AGENT_AVAILABLE, NODES_AVAILABLE})

_DAYS = NEVER_CAME / 86400


class EventRecorder(Service):
    """Follows tunnels and records, and records the events."""

    def __init__(self, store: IStore, clusters: Clusters, tunnels: Tunnels, events: ClusterEvents) -> None:
        self._store = store
        self._clusters = clusters
        self._tunnels = tunnels
        self._events = events
        self._connected: set[str] = set()
        self._known: dict[str, Cluster] = {}
        self._revisions: dict[str, int] = {}  # number of each credential, by the cluster's uid
        self._watches: list[Watch] = []
        tunnels.watch(self._tunnels_changed)

    def startService(self) -> None:
        """Start; the current state is not an event."""
        super().startService()  # type: ignore[no-untyped-call]
        for cluster in self._clusters.list():
            self._known[cluster.name] = cluster
            self._tunnels_changed(cluster.name)
        self._revisions = {
            uid: revision(record) for uid, record in self._store.snapshot(MEMBER_ACCESS).items()
        }
        self._watches = [
            self._clusters.watch(self._cluster_changed),
            self._store.watch(MEMBER_ACCESS, self._access_changed),
            self._store.watch(AGENT_KEYS, self._key_changed),
        ]

    def stopService(self) -> Any:
        """Stop following, and write the occurrences that are only counted."""
        for watch in self._watches:
            watch.stop()
        super().stopService()  # type: ignore[no-untyped-call]
        return self._events.flush()

    def _tunnels_changed(self, name: str) -> None:
        if not self.running:
            return
        cluster = self._clusters.get(name)
        tunnels = self._tunnels.live(name)
        if bool(tunnels) == (name in self._connected):
            return
        if not tunnels:
            self._connected.discard(name)
            if cluster is not None:
                self._events.record(cluster, LOST, _sentence(self._tunnels.why_not(name)), "Warning")
            return
        self._connected.add(name)
        if cluster is None:
            return
        if cluster.ssh is not None:
            self._events.record(cluster, CONNECTED, "A tunnel to a node of the cluster is open.")
        else:
            peer, protocol = tunnels[0].peer, tunnels[0].protocol
            self._events.record(cluster, CONNECTED, f"An agent connected from {peer} ({protocol}).")

    def _cluster_changed(self, kind: EventType, cluster: Cluster) -> None:
        if kind == "DELETED":
            self._known.pop(cluster.name, None)
            return
        before = self._known.get(cluster.name)
        self._known[cluster.name] = cluster
        port = cluster.kubernetes_port
        if port is not None and (before is None or before.kubernetes_port != port):
            self._events.record(cluster, PORT_ASSIGNED, f"The cluster has port {port} of the proxy.")
        for condition in cluster.conditions:
            old = None if before is None else before.condition(condition.type)
            is_same = old is not None and (old.status, old.reason) == (condition.status, condition.reason)
            if is_same or condition.type in _IMPLIED or condition.status == "Unknown":
                continue
            reason = condition.reason
            level: EventLevel = "Warning" if condition.status == "False" or reason in WARNINGS else "Normal"
            if condition.type in MEMBER_CHECKS:  # its agent has chosen the reason
                reason = member_reason(reason, failed=condition.status == "False")
            self._events.record(cluster, reason, condition.message, level)

    def _access_changed(self, event: Event) -> None:
        uid = event.record.name
        if event.type == "DELETED":
            self._revisions.pop(uid, None)
            return
        before, now = self._revisions.get(uid), revision(event.record)
        self._revisions[uid] = now
        if before is None:
            self._of_record(event, CREDENTIAL_SET, "The credential for the cluster was set.")
        elif before != now:
            self._of_record(event, CREDENTIAL_CHANGED, "The credential for the cluster was replaced.")

    def _key_changed(self, event: Event) -> None:
        fingerprint = event.record.value["fingerprint"]
        if event.type == "ADDED":
            text = f"An agent joined with the key {fingerprint}."
            self._of_record(event, AGENT_ENROLLED, text, fingerprint)
        elif event.type == "DELETED" and was_purged(event.record, self._events.now):
            text = f"The key {fingerprint} was removed: its agent did not connect for {_DAYS:g} days."
            self._of_record(event, AGENT_KEY_EXPIRED, text, fingerprint)
        elif event.type == "DELETED":
            text = f"The key {fingerprint} of an agent was revoked."
            self._of_record(event, AGENT_REVOKED, text, fingerprint)

    def _of_record(self, event: Event, reason: str, message: str, key: str = "") -> None:
        value = event.record.value
        cluster = self._clusters.get(value["cluster"])
        if cluster is not None and cluster.uid == value["cluster_uid"]:
            self._events.record(cluster, reason, message, key=key)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."

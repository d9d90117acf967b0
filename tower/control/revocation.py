"""Closes tunnels and users' connections as soon as the records no longer allow them.

It follows the records, so code that writes to the store need not close anything.
"""

from __future__ import annotations

from typing import Any

from twisted.application.service import Service
from twisted.logger import Logger

from tower.clusters import Cluster, Clusters
from tower.clusters.credentials import Credential, Credentials
from tower.clusters.v1_tokens import id_of
from tower.store import IStore
from tower.store.kinds import AGENT_KEYS, V1_TOKENS
from tower.store.records import Event, Watch
from tower.tunnels import Tunnels
from tower.tunnels.drains import ClusterDrains
from tower.web.access.sessions import Sessions


class Revocation(Service):
    """Follows clusters, agents' keys and tokens, and credentials."""

    _log = Logger()

    def __init__(
        self,
        store: IStore,
        clusters: Clusters,
        credentials: Credentials,
        tunnels: Tunnels,
        sessions: Sessions,
        drains: ClusterDrains,
    ) -> None:
        self._store = store
        self._clusters = clusters
        self._credentials = credentials
        self._tunnels = tunnels
        self._sessions = sessions
        self._drains = drains
        self._watches: list[Watch] = []

    def startService(self) -> None:
        """Start to follow the records."""
        super().startService()  # type: ignore[no-untyped-call]
        self._watches = [
            self._clusters.watch(self._cluster_changed),
            self._store.watch(AGENT_KEYS, self._key_changed),
            self._store.watch(V1_TOKENS, self._token_changed),
        ]
        self._credentials.watch_ends(self._credential_ended)

    def stopService(self) -> None:
        """Stop to follow the records."""
        super().stopService()  # type: ignore[no-untyped-call]
        for watch in self._watches:
            watch.stop()
        self._watches.clear()
        self._drains.stop()

    def _cluster_changed(self, event: str, cluster: Cluster) -> None:
        if event == "DELETED":
            self._drains.cancel(cluster.name)
            self._cut(cluster.name, "was removed")
            self._tunnels.forget(cluster.name)
        elif cluster.enabled:
            self._drains.cancel(cluster.name)
        elif cluster.drain:
            self._drains.begin(cluster.name, cluster.drain, lambda: self._cut(cluster.name, "is disabled"))
        else:
            self._drains.cancel(cluster.name)
            self._cut(cluster.name, "is disabled")

    def _cut(self, name: str, what: str) -> None:
        reason = f"cluster {name} {what}"
        tunnels = self._tunnels.cut(name, reason)
        sessions = self._sessions.cut(reason, cluster=name)
        if tunnels or sessions:
            self._log.info(
                "{reason}: closed {tunnels} tunnels and {sessions} requests",
                reason=reason,
                tunnels=tunnels,
                sessions=sessions,
            )

    def _key_changed(self, event: Event) -> None:
        if event.type == "DELETED":
            value: Any = event.record.value
            self._tunnels.cut(value["cluster"], "this agent's key was revoked", value["fingerprint"])

    def _token_changed(self, event: Event) -> None:
        if event.type == "DELETED":
            value: Any = event.record.value
            self._tunnels.cut(value["cluster"], "this agent's token was revoked", id_of(value["digest"]))

    def _credential_ended(self, credential: Credential) -> None:
        self._sessions.cut("the credential was revoked or has expired", credential=credential.id)

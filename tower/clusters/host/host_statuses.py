"""Facts that are written to a ``Cluster`` object's status together with its conditions, at no extra write.

They are not in the clusters' records: their sources are bound later than the codec of the objects.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from attrs import define, field

from tower.kube.rest.host_api import Object
from tower.kube.timestamps import parse_timestamp, timestamp

KUBERNETES_VERSION = "kubernetesVersion"
AGENT_VERSION = "agentVersion"
LAST_SEEN = "lastSeen"
OBSERVED_GENERATION = "observedGeneration"


class ConnectedAgent(Protocol):
    """A connected agent."""

    @property
    def version(self) -> str:
        """Its version."""
        ...


class Sightings(Protocol):
    """Knowledge about the agents of clusters; `tower.tunnels.Tunnels`."""

    def live(self, cluster: str) -> Sequence[ConnectedAgent]:
        """Return the connected agents."""

    def kubernetes_version(self, cluster: str) -> str:
        """Return the last known version of the API server; empty: unknown."""

    def last_seen(self, cluster: str) -> float | None:
        """Return the time of the last sign of life of an agent, s since the epoch."""

    def remember(self, cluster: str, seen: float | None, version: str) -> None:
        """Restore the knowledge of an earlier proxy."""


@define(eq=False)
class HostStatuses:
    """The facts of all clusters; empty until `bind`.

    :ivar generations: those of the objects that the controller has handled, by name.
    """

    generations: dict[str, int] = field(factory=dict, init=False)
    _sightings: Sightings | None = field(default=None, init=False)
    _loaded: dict[str, tuple[float | None, str]] = field(factory=dict, init=False)

    def bind(self, sightings: Sightings) -> None:
        """Use *sightings* from now on, and restore to it what the objects had when they were loaded."""
        self._sightings = sightings
        loaded, self._loaded = self._loaded, {}
        for name, known in loaded.items():
            sightings.remember(name, *known)

    def read(self, obj: Object) -> None:
        """Remember the status of an object that is loaded."""
        status = obj.get("status")
        if self._sightings is not None or not isinstance(status, dict):
            return
        seen, version = parse_timestamp(status.get(LAST_SEEN)), status.get(KUBERNETES_VERSION)
        if seen is not None or version:
            self._loaded[obj["metadata"]["name"]] = seen, version if isinstance(version, str) else ""

    def facts(self, name: str) -> dict[str, Any]:
        """Return the fields about the cluster's agents that are known."""
        if self._sightings is None:
            return {}
        live, seen = self._sightings.live(name), self._sightings.last_seen(name)
        found = {
            KUBERNETES_VERSION: self._sightings.kubernetes_version(name),
            AGENT_VERSION: live[0].version if live else "",
            LAST_SEEN: "" if seen is None else timestamp(seen),
        }
        return {key: text for key, text in found.items() if text}

    def added(self, name: str, before: Object | None, after: Object) -> Object:
        """Return the object *after* a change; if its status changes, with all facts.

        :param before: the object before; None: it is new.
        """
        if before is None or after.get("status") == before.get("status"):
            return after
        status = {**(after.get("status") or {}), **self.facts(name)}
        generation = before["metadata"].get("generation")
        if generation is not None and generation == self.generations.get(name):
            status[OBSERVED_GENERATION] = generation
        return {**after, "status": status}

"""The condition ``Available`` of each cluster, and those that it sums up; see `tower.control.conditions`."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import define, field
from twisted.application.service import Service
from twisted.internet.interfaces import IReactorTime

from tower.clusters import Cluster, Clusters
from tower.clusters.cluster import Condition
from tower.control.condition_writer import ConditionWriter
from tower.control.conditions import (
    before_report,
    is_new,
    link_down,
    link_type,
    link_up,
    member_conditions,
    summary,
    unchecked,
    unreported,
)
from tower.control.grace import GracePeriods
from tower.store.records import EventType, Watch
from tower.tunnels import Tunnel, Tunnels

#: Time without a usable tunnel, or without a report, until a condition changes, s; a reconnect is faster.
GRACE = 10.0


@define(eq=False, slots=False)
class Availability(Service):
    """Follows tunnels and records; a loss of all tunnels that ends within the grace period is not written."""

    _clock: IReactorTime
    _clusters: Clusters
    _tunnels: Tunnels
    _grace: float = GRACE
    _down: GracePeriods = field(init=False)
    _unreported: GracePeriods = field(init=False)
    _writer: ConditionWriter = field(init=False)
    _watch: Watch | None = field(default=None, init=False)
    _started: float = field(default=0.0, init=False)

    def __attrs_post_init__(self) -> None:
        """Follow the tunnels."""
        self._down = GracePeriods(self._clock, self._grace, self._changed)
        self._unreported = GracePeriods(self._clock, self._grace, self._changed)
        self._writer = ConditionWriter(self._clock, self._clusters, self._changed)
        self._tunnels.watch(self._changed)

    def startService(self) -> None:
        """Start; conditions of the previous run stay for the grace period."""
        super().startService()  # type: ignore[no-untyped-call]
        self._started = self._clock.seconds()
        self._watch = self._clusters.watch(self._recorded)
        for cluster in self._clusters.list():
            self._changed(cluster.name)

    def stopService(self) -> None:
        """Stop; the store finishes pending writes."""
        super().stopService()  # type: ignore[no-untyped-call]
        if self._watch is not None:
            self._watch.stop()
        for part in (self._down, self._unreported, self._writer):
            part.stop()

    def _recorded(self, event: EventType, cluster: Cluster) -> None:
        if event == "DELETED":
            for part in (self._down, self._unreported, self._writer):
                part.forget(cluster.name)
        else:
            self._changed(cluster.name)

    def _changed(self, name: str) -> None:
        cluster = self._clusters.get(name) if self.running else None
        if cluster is None:
            return
        live = self._tunnels.live(name)
        found = {condition.type: condition for condition in self._parts(cluster, live)}
        self._writer.want(cluster, [*found.values(), summary(cluster, found, live, self._tunnels.is_silent)])

    def _parts(self, cluster: Cluster, live: Sequence[Tunnel]) -> list[Condition]:
        """Return the conditions to sum up; during a grace period those of the record."""
        name = cluster.name
        is_silent = self._tunnels.silent_since(name) is not None
        is_up = bool(live) and not self._tunnels.trouble(name) and not is_silent
        # the tunnels of a disabled cluster do not come back by themselves
        is_down = self._down.lasts(name, not is_up, at_once=not cluster.enabled)
        is_expected = cluster.enabled and not is_new(cluster, self._tunnels, self._started)
        is_down = is_down or is_silent or not (live or is_expected)
        status = None if is_silent else self._tunnels.member_status(name)
        is_unreported = self._unreported.lasts(name, bool(live) and not is_silent and status is None)
        if is_up:
            link: Condition | None = link_up(cluster)
        elif is_down:
            link = link_down(cluster, self._tunnels)
        else:
            link = cluster.condition(link_type(cluster))
        found = [] if link is None else [link]
        if status is not None:
            return found + member_conditions(status)
        if is_unreported:
            return found + unreported(live)
        if is_down and link is not None:
            return found + unchecked(link)
        return found + before_report(cluster, is_live=bool(live))

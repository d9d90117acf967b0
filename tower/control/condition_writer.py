"""Writes conditions of clusters; limits keep a member that changes all the time from causing many writes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from attrs import define, field
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger, LogLevel
from twisted.python.failure import Failure

from tower.clusters import Cluster, Clusters
from tower.clusters.cluster import Condition
from tower.clusters.condition_types import AGENT_DEGRADED, AVAILABLE, DISABLED
from tower.errors import NotFound
from tower.kube.member_cures import WARNINGS
from tower.store.write_failures import WriteFailures

#: Reasons of available clusters that the log contains as warnings.
_WARNINGS = WARNINGS | {AGENT_DEGRADED}

#: Most writes for one cluster within `WINDOW` s.
BURST = 4
WINDOW = 20.0

#: Shortest time between writes that change reasons, but no status, and those that change messages only, s.
REASON_PAUSE = 10.0
MESSAGE_PAUSE = 30.0

#: Time until a failed write is tried again, s.
RETRY = 30.0


@define(eq=False)
class ConditionWriter:
    """Writes the latest conditions of each cluster, and logs each change of ``Available``.

    :param on_written: called with the cluster's name after a write; changes during the write were ignored.
    """

    _log = Logger()

    _clock: IReactorTime
    _clusters: Clusters
    _on_written: Callable[[str], None]
    _recent: dict[str, deque[float]] = field(factory=dict, init=False)
    _timers: dict[str, IDelayedCall] = field(factory=dict, init=False)
    _writing: dict[str, Deferred[Any]] = field(factory=dict, init=False)
    _logged: dict[str, tuple[str, str]] = field(factory=dict, init=False)  # not yet written
    _failures: WriteFailures = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._failures = WriteFailures(self._clock, "conditions of clusters")

    def want(self, cluster: Cluster, wanted: Sequence[Condition]) -> None:
        """Write *wanted* if it differs from the record, once the limits allow; replaces earlier calls."""
        name = cluster.name
        if name in self._writing:
            return
        self._cancel(name)
        pause = _pause(cluster, wanted)
        if pause is None:
            return
        now, recent = self._clock.seconds(), self._recent.setdefault(name, deque(maxlen=BURST))
        due = max(
            recent[-1] + pause if recent else now,
            recent[0] + WINDOW if len(recent) == BURST else now,
        )
        if due > now and not _is_requested(cluster, wanted):
            self._timers[name] = self._clock.callLater(due - now, self._due, name)
            return
        recent.append(now)
        self._log_change(cluster, wanted)
        writing = self._writing[name] = self._clusters.set_conditions(name, wanted)
        writing.addCallbacks(self._written, self._not_written, callbackArgs=(name,), errbackArgs=(name,))

    def forget(self, name: str) -> None:
        """Forget a removed cluster."""
        self._cancel(name)
        self._recent.pop(name, None)
        self._logged.pop(name, None)

    def stop(self) -> None:
        """Start no more writes; the store finishes pending ones."""
        for name in list(self._timers):
            self._cancel(name)

    def _cancel(self, name: str) -> None:
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()

    def _due(self, name: str) -> None:
        del self._timers[name]
        self._on_written(name)

    def _written(self, _: Cluster, name: str) -> None:
        self._writing.pop(name, None)
        self._logged.pop(name, None)
        self._failures.worked()
        self._on_written(name)

    def _not_written(self, failure: Failure, name: str) -> None:
        self._writing.pop(name, None)
        if failure.check(NotFound):  # removed in between
            return
        self._failures.failed(failure)
        if name not in self._timers:
            self._timers[name] = self._clock.callLater(RETRY, self._due, name)

    def _log_change(self, cluster: Cluster, wanted: Sequence[Condition]) -> None:
        before = cluster.condition(AVAILABLE)
        after = next((condition for condition in wanted if condition.type == AVAILABLE), None)
        if after is None or after.status == "Unknown":
            return
        change = (after.status, after.reason)
        known = self._logged.get(cluster.name, before and (before.status, before.reason))
        self._logged[cluster.name] = change
        if known == change:
            return
        text = "cluster {cluster} is available: {reason}: {detail}"
        if after.status == "False":
            text = "cluster {cluster} is not available: {reason}: {detail}"
        is_warning = after.status == "False" or after.reason in _WARNINGS
        level = LogLevel.warn if is_warning else LogLevel.info
        self._log.emit(level, text, cluster=cluster.name, reason=after.reason, detail=after.message)


def _is_requested(cluster: Cluster, wanted: Sequence[Condition]) -> bool:
    """Return whether an administrator has just disabled or enabled *cluster*."""
    known = cluster.condition(AVAILABLE)
    was_disabled = known is not None and known.reason == DISABLED
    is_disabled = any((each.type, each.reason) == (AVAILABLE, DISABLED) for each in wanted)
    return was_disabled != is_disabled


def _pause(cluster: Cluster, wanted: Sequence[Condition]) -> float | None:
    """Return how long after the last write *wanted* may be written, s; None: nothing changed."""
    pause = None
    for condition in wanted:
        known = cluster.condition(condition.type)
        if known is None or known.status != condition.status:
            return 0.0
        if known.reason != condition.reason:
            pause = REASON_PAUSE
        elif known.message != condition.message:
            pause = pause or MESSAGE_PAUSE
    return pause

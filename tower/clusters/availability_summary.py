"""The number of available clusters, in one sentence."""

from __future__ import annotations

from collections.abc import Iterable

from tower.clusters.cluster import Cluster
from tower.clusters.condition_types import AVAILABLE


def availability_summary(clusters: Iterable[Cluster]) -> str:
    """Return a sentence such as ``38 of 40 clusters available``; disabled clusters are counted separately."""
    listed = list(clusters)
    if not listed:
        return "no clusters"
    enabled = [cluster for cluster in listed if cluster.enabled]
    conditions = [cluster.condition(AVAILABLE) for cluster in enabled]
    available = sum(condition is not None and condition.status == "True" for condition in conditions)
    disabled = len(listed) - len(enabled)
    text = f"{available} of {len(enabled)} cluster{'' if len(enabled) == 1 else 's'} available"
    return f"{text}, {disabled} disabled" if disabled else text

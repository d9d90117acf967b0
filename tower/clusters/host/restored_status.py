"""The status of a ``Cluster`` object that is restored from a backup.  Sans-IO."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from tower.clusters.condition_types import NOT_CHECKED, RESTORED
from tower.kube.timestamps import timestamp


def restored_status(status: Mapping[str, Any], own: Collection[str], now: float) -> dict[str, Any]:
    """Return *status* with unknown conditions in place of true ones, because no proxy serves the cluster.

    :param own: types of the conditions that change; those of other programs stay.
    :param now: s since the epoch.
    """
    conditions = status.get("conditions")
    if not isinstance(conditions, list):
        return dict(status)
    changes = {"status": "Unknown", "reason": NOT_CHECKED, "message": RESTORED}
    times = dict.fromkeys(("lastTransitionTime", "lastUpdateTime"), timestamp(now))
    return {
        **status,
        "conditions": [{**each, **changes, **times} if _is_true(each, own) else each for each in conditions],
    }


def _is_true(condition: object, own: Collection[str]) -> bool:
    return isinstance(condition, dict) and condition.get("type") in own and condition.get("status") == "True"

"""The leaders of a host cluster, and the writes of the proxies, in the audit log of its API server."""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any

from attrs import frozen

from tests.integration.member import Member

_WRITES = frozenset(("create", "update", "patch", "delete", "deletecollection"))

#: Groups of requests that write nothing: reviews of rights and credentials.
_REVIEWS = frozenset(("authorization.k8s.io", "authentication.k8s.io"))


@frozen(order=True)
class AuditedWrite:
    """A successful write.

    :ivar received: s since the epoch.
    :ivar done: the same of its answer.
    """

    received: float
    done: float
    user: str
    target: str


def audited_writes(events: Iterable[Mapping[str, Any]], users: Collection[str]) -> list[AuditedWrite]:
    """Return the successful writes of *users*, in the order of their arrival."""
    found = []
    for event in events:
        target = event.get("objectRef", {})
        code = event.get("responseStatus", {}).get("code", 0)
        if (
            event["stage"] == "ResponseComplete"
            and event["user"]["username"] in users
            and event["verb"] in _WRITES
            and 200 <= code < 300
            and target.get("apiGroup", "") not in _REVIEWS
        ):
            name = f"{event['verb']} {target.get('resource')} {target.get('name', '')}"
            received, done = (_seconds(event[key]) for key in ("requestReceivedTimestamp", "stageTimestamp"))
            found.append(AuditedWrite(received, done, event["user"]["username"], name))
    return sorted(found)


def is_of_lease(write: AuditedWrite) -> bool:
    """Return whether a write is of the proxies' Lease."""
    return " leases " in write.target


def changes_of_leader(writes: Iterable[AuditedWrite]) -> list[AuditedWrite]:
    """Return the writes by which another proxy got the Lease."""
    leases = sorted((each for each in writes if is_of_lease(each)), key=lambda each: each.done)
    holders = [None, *(each.user for each in leases)]
    return [each for before, each in zip(holders, leases, strict=False) if before != each.user]


def lease_times(host: Member, namespace: str) -> tuple[float, float]:
    """Return when the Lease was acquired, and renewed last, s since the epoch."""
    lease = json.loads(host.kubectl("-n", namespace, "get", "lease", "tower", "-o", "json"))
    return _seconds(lease["spec"]["acquireTime"]), _seconds(lease["spec"]["renewTime"])


def late_writes(writes: Collection[AuditedWrite], renew: float, slack: float) -> list[str]:
    """Return the writes that their proxy must not have sent.

    These are writes after another proxy that got the Lease has written, and later than *renew* after the last
    own renewal.  A request that a frozen API server handled late may arrive after the change of the Lease,
    but before the first write of the next leader.

    :param slack: most time between a renewal's start and its arrival, s.
    """
    changes = changes_of_leader(writes)
    times = [each.done for each in changes]
    renewed: dict[str, float] = {}
    first_writes: dict[int, float] = {}
    found = []
    for write in sorted(writes):
        if is_of_lease(write):
            renewed[write.user] = write.received
            continue
        at = bisect_right(times, write.received)
        holder = changes[at - 1].user if at else "nobody"
        if holder != write.user:
            late = write.received - first_writes.get(at, math.inf if at else write.received)
            if late >= 0:
                found.append(f"{write.user}: {write.target}, {late:.3f} s after the first write of {holder}")
            continue
        first_writes.setdefault(at, write.received)
        if (since := write.received - renewed[write.user]) > renew + slack:
            found.append(f"{write.user}: {write.target}, {since:.3f} s after its last renewal")
    return found


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()

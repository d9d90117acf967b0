"""How the states that several agents of one cluster report are summed up.

A request needs one agent that works.  So the cluster has the state of its best agent, and streams are opened
through the best agents only: an agent with a problem gets none while another agent works.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from tower.kube.member_status import Check, MemberStatus
from tower.tunnels.live import Tunnel

T = TypeVar("T", bound=Tunnel)


def problem(status: MemberStatus | None) -> Check | None:
    """Return the first failed check; None: no failure is known."""
    if status is None:
        return None
    return next((check for check in status.checks if check.status == "False"), None)


def best(tunnels: Iterable[Tunnel]) -> MemberStatus | None:
    """Return the best of the reported states; None: nothing was reported."""
    reported = [tunnel.member_status for tunnel in tunnels if tunnel.member_status is not None]
    return min(reported, key=_rank, default=None)


def preferred(tunnels: Sequence[T]) -> list[T]:
    """Return the tunnels for new streams: not draining if possible, then with the least problem."""
    usable = [tunnel for tunnel in tunnels if not tunnel.draining] or list(tunnels)
    if len(usable) < 2:
        return usable
    ranks = [_severity(tunnel.member_status) for tunnel in usable]
    least = min(ranks)
    return [tunnel for tunnel, rank in zip(usable, ranks, strict=True) if rank == least]


def _severity(status: MemberStatus | None) -> int:
    """Return 0 without a known problem; the earlier the failed check, the higher."""
    if status is None:
        return 0
    failed = [check.status == "False" for check in status.checks]
    return len(failed) - failed.index(True) if True in failed else 0


def _rank(status: MemberStatus) -> tuple[int, int]:
    unknown = sum(check.status == "Unknown" for check in status.checks)
    return _severity(status), unknown

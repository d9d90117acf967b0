"""Observers of requests, in memory."""

from __future__ import annotations

from typing import Any

from attrs import define, field

from tower.web.gateway.measurements import Observation


@define
class FakeObserver:
    """Records the facts of each request.

    :ivar over: one dictionary of facts for each ended request.
    """

    over: list[dict[str, Any]] = field(factory=list)

    def ended(self, observation: Observation) -> None:
        """Record the facts."""
        request = observation.request
        self.over.append(
            {
                "cluster": request.cluster,
                "target": observation.target,
                "code": request.code,
                "by_member": request.by_member,
                "bytes_up": observation.bytes_up,
                "bytes_down": observation.bytes_down,
                "aborted": observation.aborted,
            }
        )

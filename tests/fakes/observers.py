"""Observers of requests, in memory."""

from __future__ import annotations

from typing import Any

from attrs import define, field

from tower.web.gateway.observer import Observation


@define
class FakeObserver:
    """Records the facts of each request; each look at its clock takes 1 s.

    :ivar inside: observations between `begun` and `ended`.
    :ivar over: one dictionary of facts for each ended request.
    """

    now: float = 0.0
    inside: list[Observation] = field(factory=list)
    over: list[dict[str, Any]] = field(factory=list)

    def seconds(self) -> float:
        """Let one second pass."""
        self.now += 1.0
        return self.now

    def begun(self, observation: Observation) -> None:
        """Record the request."""
        self.inside.append(observation)

    def ended(self, observation: Observation) -> None:
        """Record the facts."""
        if observation.kind:
            self.inside.remove(observation)
        names = ("cluster", "target", "kind", "code", "by_member", "bytes_up", "bytes_down")
        self.over.append({name: getattr(observation, name) for name in names})

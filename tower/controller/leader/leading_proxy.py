"""The proxy that a leader runs, as the election sees it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from prometheus_client.registry import Collector


class LeadingProxy(Protocol):
    """`tower.proxy.Proxy`, which is in a higher room."""

    on_ready: Callable[[], None]
    grace: float
    reason: str
    hand_over: Callable[[], Awaitable[None]] | None

    def add_metrics(self, collector: Collector) -> None:
        """Add metrics to its page."""

    def setServiceParent(self, parent: Any) -> Any:
        """Start it as a part of *parent*."""

    def disownServiceParent(self) -> Any:
        """Stop it; fires when it has stopped."""

    @property
    def host_problems(self) -> Sequence[str]:
        """See `tower.controller.controller.Controller.problems`."""

    def summary(self) -> str:
        """Return its state in one sentence."""

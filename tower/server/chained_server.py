"""One server of the chain: its paths, health checks, and hooks of start and stop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from attrs import frozen
from twisted.internet.defer import Deferred

from tower.server.health_pages import HealthCheck
from tower.web.gateway.request import Request
from tower.web.outcome import Outcome

Answer: TypeAlias = "Outcome | Deferred[Outcome]"

#: Answers a request with this path; None: it is not a path of the server.
Route: TypeAlias = Callable[[Request, bytes], "Answer | None"]


@frozen
class Hook:
    """A step of the start or of the stop, which the next one waits for."""

    name: str
    run: Callable[[], Awaitable[object]]


def no_route(_request: Request, _path: bytes) -> None:
    """Return None: no path."""


@frozen(eq=False)
class ChainedServer:
    """A server of the chain.

    :ivar paths: for the index.
    :ivar checks: for `/healthz`, `/livez` and `/readyz`.
    :ivar ready_checks: for `/readyz` only.
    :ivar start_hooks: before the ports open, in order; each is a check ``poststarthook/NAME``.
    :ivar stop_hooks: when the last request has ended, in order.
    """

    name: str
    route: Route = no_route
    paths: Sequence[str] = ()
    checks: Sequence[HealthCheck] = ()
    ready_checks: Sequence[HealthCheck] = ()
    start_hooks: Sequence[Hook] = ()
    stop_hooks: Sequence[Hook] = ()

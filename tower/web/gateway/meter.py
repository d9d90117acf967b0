"""The meter of requests: keeps the facts of each one when it is over, and counts many at once.

Measured: counting each request at its end takes 7 microseconds, most of them for code and data that are not
in the processor's caches then; in batches it takes about one.  `tower.web.gateway.observer` has more facts,
and costs more.  A connection that is handed over to an agent's protocol, and bytes that are not an HTTP
request, are not counted.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Protocol, TypeAlias

from tower.web.gateway.observer import RAW, SHORT, kind_of

if TYPE_CHECKING:
    from tower.web.gateway.gateway import Gateway

_PREFIX = re.compile(rb"/clusters/[^/?]*(/targets/)?")


#: Facts of a finished request: cluster, method, target, ``b"upgrade"`` for an upgrade, status (0: none was
#: sent), whether the member answered, and the times of the head, of the answer's head (0.0: that of the end)
#: and of the end, s.
Finished: TypeAlias = tuple[str, bytes, bytes, bytes, int, bool, float, float, float]

#: Number of finished requests that are counted at once.
BATCH = 256


#: Longest target that `RequestMeter.finished` keeps, B: unauthenticated clients choose it.
LONGEST_TARGET = 512

#: Stands for the target of any watch or stream.
_LONG_RUNNING = b"/api/v1/pods?watch=1"


class RequestMeter(Protocol):
    """Counts requests; its methods must be fast and must not raise.

    :ivar finished: the facts of requests that are not counted yet; each is appended exactly once.
    """

    finished: list[Finished]

    def watch(self, gateway: Gateway) -> None:
        """Count the current requests of *gateway*, too, as long as it exists."""

    def refused(self, error: BaseException) -> None:
        """Count the reason for an error answer of Tower."""

    def count(self) -> None:
        """Count and remove all of `finished`; called when there are `BATCH`."""


def is_surely_short(target: bytes) -> bool:
    """Return whether *target* has none of the words of long-running requests; it may be several targets."""
    return not (b"watch" in target or b"/log" in target or b"/proxy" in target)


def stand_in(method: bytes, target: bytes, upgrade: bytes) -> bytes:
    """Return a short target for a long one, which is short or long-running as well."""
    return b"" if request_kind(method, target, upgrade) == SHORT else _LONG_RUNNING


def request_kind(method: bytes, target: bytes, upgrade: bytes) -> str:
    """Return the kind of a request: one of the constants of `tower.web.gateway.observer`."""
    if not upgrade and is_surely_short(target):
        return SHORT
    prefix = _PREFIX.match(target)
    if prefix is None:
        return kind_of(method, target, bool(upgrade))
    if prefix[1]:
        return RAW if upgrade else SHORT
    return kind_of(method, target[prefix.end() :], bool(upgrade))

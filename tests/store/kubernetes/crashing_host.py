"""A host cluster that stops to answer after a number of writes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from attrs import define, field

from tests.kube.rest.fake_host import FakeHost
from tower.kube.client import APIError

_WRITES = ("create", "update", "patch", "delete")


@define(eq=False)
class CrashingHost:
    """A view of *host* that is cut off after *limit* writes.

    :ivar writes: number of writes so far.
    """

    host: FakeHost
    limit: float = float("inf")
    writes: int = field(default=0, init=False)

    @property
    def is_cut(self) -> bool:
        """Whether it does not answer anymore."""
        return self.writes >= self.limit

    def __getattr__(self, verb: str) -> Callable[..., Awaitable[Any]]:
        request = getattr(self.host, verb)

        async def send(*args: Any, **kwargs: Any) -> Any:
            is_write = verb in _WRITES
            if self.writes > self.limit or (is_write and self.is_cut):
                self.writes = int(self.limit) + 1
                raise APIError(verb, "/", 0, "connection lost")
            self.writes += is_write
            return await request(*args, **kwargs)

        return send

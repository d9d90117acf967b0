"""Destinations of audit events: the log and the webhook, each with its form, size limit and mode."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol

from attrs import define, field
from twisted.internet.defer import Deferred

from tower.web.access.audit.formats import JSON

#: Modes: a request waits for nothing; until its first event is stored, or that has failed; it fails with it.
BATCH, BLOCKING, STRICT = MODES = ("batch", "blocking", "blocking-strict")


class Backend(Protocol):
    """Takes events, one line each, with its line feed."""

    lost: int

    def put(self, line: bytes, count: int = 1) -> None:
        """Take a *line*, or *count* lines together; never blocks and never fails: lost lines are counted."""

    def hasten(self) -> None:
        """Store the queued lines now: they have already been delayed."""

    def flush(self) -> Deferred[bool]:
        """Return whether the lines so far were stored; fires in limited time."""

    def stop(self) -> Awaitable[None]:
        """Write what is left, in limited time."""


@define(eq=False)
class Destination:
    """One destination of events.

    :ivar name: as in kube-apiserver's metrics, ``log`` or ``webhook``.
    :ivar form: of the lines, one of `tower.web.access.audit.formats.FORMATS`.
    :ivar limit: largest event, B; a larger one loses its bodies; 0: any.
    :ivar oversized: events dropped because they are larger even so.
    """

    name: str
    backend: Backend
    form: str = JSON
    mode: str = BATCH
    limit: int = 0
    oversized: int = field(default=0, init=False)

    @property
    def lost(self) -> int:
        """Number of events that were dropped, except for their size."""
        return self.backend.lost

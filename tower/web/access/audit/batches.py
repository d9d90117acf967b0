"""Batches of audit events for the webhook: their sizes, their rate, and the list that is posted."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from attrs import define, field, frozen

from tower.web.access.audit.formats import EVENT_HEAD

#: Largest batch, if no option limits it, B.
BATCH_LIMIT = 8 * 1024 * 1024

_LIST_HEAD = b'{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":['
_LIST_END = b"]}\n"
_EVENT_HEAD = len(EVENT_HEAD)


@frozen
class BatchSettings:
    """Sizes and times of batches, with upstream's defaults.

    :ivar buffer_size: most events that wait; see `capacity`.
    :ivar max_size: most events in a batch.
    :ivar max_wait: longest time until an event is posted, s; 0: at once.
    :ivar qps: most batches a second on average; 0: no limit.
    :ivar burst: most batches at once.
    :ivar max_bytes: largest batch, B.
    :ivar initial_backoff: delay after the first failure, s.
    """

    buffer_size: int = 10_000
    max_size: int = 400
    max_wait: float = 30.0
    qps: float = 10.0
    burst: int = 15
    max_bytes: int = BATCH_LIMIT
    initial_backoff: float = 10.0

    @property
    def capacity(self) -> int:
        """Maximum number of events that are neither stored nor dropped.

        Upstream's buffer does not contain the batch that is being collected, nor those being posted, so a
        batch may be larger than the buffer.  Here all wait together, so there is room for two batches.
        """
        return max(self.buffer_size, 2 * self.max_size)


@define
class Throttle:
    """A token bucket: *burst* batches at once, *qps* a second on average; 0: no limit."""

    _qps: float
    _burst: int
    _seconds: Callable[[], float]
    _tokens: float = field(init=False)
    _since: float = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._tokens, self._since = float(self._burst), self._seconds()

    def take(self) -> float:
        """Take a token and return 0, or return the time until there is one, s."""
        if not self._qps:
            return 0.0
        now = self._seconds()
        self._tokens = min(self._burst, self._tokens + (now - self._since) * self._qps)
        self._since = now
        if self._tokens < 1:
            return (1 - self._tokens) / self._qps
        self._tokens -= 1
        return 0.0


def event_list(events: Iterable[bytes]) -> bytes:
    """Return the list of *events*, which are lines of the log."""
    return b"%b%b%b" % (_LIST_HEAD, b",".join(b"{" + each[_EVENT_HEAD:-1] for each in events), _LIST_END)

"""The hooks for measurements of requests: a meter and an observer; a gateway may have either, or both.

* A meter gets few facts about each request, and counts many at once.  Measured: counting each request at its
  end takes 7 microseconds, most of them for code and data that are not in the processor's caches then; in
  batches it takes about one.
* An observer gets more facts, at once, and costs more.

A gateway without them pays one comparison for each.  A connection that is handed over to an agent's protocol,
and bytes that are not an HTTP request, are not measured.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from tower.web.request_kind import stand_in

if TYPE_CHECKING:
    from tower.web.gateway.gateway import Gateway
    from tower.web.gateway.request import Request

#: Facts of a finished request: cluster, method, target, ``b"upgrade"`` for an upgrade, status (0: none was
#: sent; `ABORTED`), whether the member answered, and the times of the head, of the answer's head (0.0: that
#: of the end) and of the end, s.
Finished: TypeAlias = tuple[str, bytes, bytes, bytes, int, bool, float, float, float]

#: In place of the status: the answer had begun, and the member or Tower aborted it.
ABORTED: Final = 600

#: Number of finished requests that are counted at once.
BATCH: Final = 256

#: Longest target that `RequestMeter.finished` keeps, B: unauthenticated clients choose it.
LONGEST_TARGET: Final = 512


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


def measure(request: Request, code: int = 0) -> None:
    """Give the facts of a finished request to the meter; there is one if the request has times.

    :param code: in place of the status.
    """
    began, request.began = request.began, 0.0
    meter = request.channel.gateway.meter
    assert meter is not None, "a request has times only with a meter"
    finished, target, upgrade = meter.finished, request.target, request.fields.upgrade
    if len(target) > LONGEST_TARGET:
        target = stand_in(request.method, target, upgrade)
    finished.append(
        (
            request.cluster,
            request.method,
            target,
            upgrade and b"upgrade",
            code or request.code,
            request.by_member,
            began,
            request.answered_at,
            monotonic(),
        )
    )
    if len(finished) >= BATCH:
        meter.count()


class RequestObserver(Protocol):
    """Is notified of requests; its method must be fast and must not raise."""

    def ended(self, observation: Observation) -> None:
        """Handle the end of the request, or of its stream; called exactly once for each request."""


class Observation:
    """The facts about one request that the request itself does not keep.

    :ivar aborted: which side aborted the answer, ``client``, ``member`` or ``tower``; else empty.
    :ivar address: the client's IP address.
    :ivar began: when the head was complete, monotonic, s.
    :ivar target: of the cluster: ``kubernetes``, ``kubelet/NODE`` or a name; empty for Tower itself, and if
        the request was rejected before.
    """

    __slots__ = ("_received", "_sent", "aborted", "address", "began", "request", "target")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.began = request.began or monotonic()
        self.target = self.aborted = ""
        channel = request.channel
        self.address = channel.peer.address
        connection = channel.connection
        self._sent = connection.bytes_out
        self._received = connection.bytes_in - channel.kept - len(request.early)

    @property
    def bytes_up(self) -> int:
        """Bytes received from the user for this request: head, body, and raw bytes after an upgrade."""
        request = self.request
        size = len(request.head)
        if request.fields.body or request.fields.upgrade:
            channel = request.channel
            size += channel.connection.bytes_in - channel.kept - self._received
        return size

    @property
    def bytes_down(self) -> int:
        """Bytes sent to the user, heads included."""
        return self.request.channel.connection.bytes_out - self._sent

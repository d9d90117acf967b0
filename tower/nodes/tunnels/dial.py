"""One stream to an address by way of nodes: one after the other is asked, until one of them gets through."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from tower.errors import StreamRefused
from tower.net.addresses import join_address
from tower.nodes.tunnels.slot import NodeSlot
from tower.reactor.timers import Deadline

#: How many nodes are asked at the most.  What one node cannot reach another may, but "connection refused" is
#: mostly true for all of them.
MOST_NODES = 3

#: How long one node may say nothing until another is asked beside it, s: its kernel has sent a second SYN by
#: then, and has heard of an answer from anywhere on earth.
SILENCE = 1.5

#: How long one node may take, s, and all together.
NODE_TIMEOUT = 10.0
TIMEOUT = 15.0


class NodeDial:
    """One stream.  A node that is silent is not given up when the next is asked: whoever is first counts.

    :param clock: an ``IReactorTime``.
    :param pick: returns the best node that is not among those given, or None.
    """

    def __init__(
        self, clock: Any, pick: Callable[[list[NodeSlot]], NodeSlot | None], host: str, port: int
    ) -> None:
        self._clock = clock
        self._pick = pick
        self._host, self._port = host, port
        self._asked: list[NodeSlot] = []
        self._openings: dict[NodeSlot, Deferred[Any]] = {}
        self._error: Exception = StreamRefused("unreachable", f"{join_address(host, port)}: no node is left")
        self._next: Deadline | None = None
        self._over = False
        self._began = clock.seconds()
        self._end = Deadline(clock, TIMEOUT, self._too_late)
        self._done: Deferred[Any] | None = None

    def start(self) -> Deferred[Any]:
        """Ask the first node.

        :return: fires with the channel, paused; or with what the last node said, `StreamRefused` or
            `TunnelLost`.  Cancelling it leaves nothing.
        """
        done: Deferred[Any] = Deferred(self._cancelled)
        self._done = done
        self._ask()
        return done

    def _ask(self) -> None:
        self._wait_no_more()
        place = self._pick(self._asked) if len(self._asked) < MOST_NODES else None
        if place is None or place.tunnel is None:
            if not self._openings:
                self._fail()
            return
        self._asked.append(place)
        left = TIMEOUT - (self._clock.seconds() - self._began)
        self._next = Deadline(self._clock, SILENCE, partial(self._silent, place))
        opening = place.tunnel.dial(self._host, self._port, min(NODE_TIMEOUT, left))
        self._openings[place] = opening
        opening.addCallbacks(self._opened, self._refused, callbackArgs=(place,), errbackArgs=(place,))

    def _silent(self, place: NodeSlot) -> None:
        place.suspect(f"no answer to a dial in {SILENCE:g} s")
        self._ask()

    def _opened(self, channel: Any, place: NodeSlot) -> None:
        self._openings.pop(place, None)
        if self._over:
            channel.abort()
            return
        place.works()
        done = self._stop()
        if done is not None:
            done.callback(channel)

    def _refused(self, failure: Failure, place: NodeSlot) -> None:
        self._openings.pop(place, None)
        if self._over:
            return
        error = failure.value
        self._error = error if isinstance(error, Exception) else self._error
        if isinstance(error, StreamRefused) and error.code != "timeout":
            place.works()
        elif isinstance(error, StreamRefused):
            place.suspect(str(error))
        if place is self._asked[-1] or not self._openings:
            self._ask()

    def _too_late(self) -> None:
        text = f"{join_address(self._host, self._port)}: no answer in {TIMEOUT:g} s"
        self._error = StreamRefused("timeout", text)
        self._fail()

    def _fail(self) -> None:
        done, error = self._stop(), self._error
        error.with_traceback(None)  # its frames hold the Deferred that holds it
        if done is not None:
            done.errback(error)

    def _wait_no_more(self) -> None:
        call, self._next = self._next, None
        if call is not None:
            call.cancel()

    def _cancelled(self, _: Deferred[Any]) -> None:
        self._stop()

    def _stop(self) -> Deferred[Any] | None:
        """Leave nothing behind; return who waits for the end of it."""
        self._over = True
        self._wait_no_more()
        self._end.cancel()
        openings, self._openings = self._openings, {}
        for opening in openings.values():
            opening.cancel()
        done, self._done = self._done, None  # which holds us
        return done

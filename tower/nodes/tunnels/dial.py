"""One stream to an address, opened through the first node that reaches it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from tower.conch.connection.channel import Channel
from tower.errors import StreamRefused
from tower.net.addresses import join_address
from tower.nodes.tunnels.slot import NodeSlot
from tower.reactor.timers import Deadline

#: Most nodes to try.  Another node may reach what one cannot, but "connection refused" is mostly true for
#: all.
MOST_NODES = 3

#: Silence of one node after which another is tried in parallel, s: by then its kernel has sent a second SYN
#: and received an answer from anywhere on earth.
SILENCE = 1.5

#: Time limit for one node and for the whole dial, s.
NODE_TIMEOUT = 10.0
TIMEOUT = 15.0


class NodeDial:
    """One stream.  A silent node is not given up when the next one is tried: the first answer is used.

    :param pick: returns the best node that is not among those given, or None.
    """

    def __init__(
        self, clock: IReactorTime, pick: Callable[[list[NodeSlot]], NodeSlot | None], host: str, port: int
    ) -> None:
        self._clock = clock
        self._pick = pick
        self._host, self._port = host, port
        self._tried: list[NodeSlot] = []
        self._openings: dict[NodeSlot, Deferred[Channel]] = {}
        self._error: Exception = StreamRefused(
            "unreachable", f"{join_address(host, port)}: no other node can be tried"
        )
        self._next: Deadline | None = None
        self._over = False
        self._began = clock.seconds()
        self._end = Deadline(clock, TIMEOUT, self._timed_out)
        self._done: Deferred[Channel] | None = None

    def start(self) -> Deferred[Channel]:
        """Try the first node.

        :return: fires with the channel, paused; or fails with the last node's `StreamRefused` or
            `TunnelLost`.  Cancelling it leaves nothing.
        """
        done: Deferred[Channel] = Deferred(self._cancelled)
        self._done = done
        self._try_next()
        return done

    def _try_next(self) -> None:
        self._stop_waiting()
        slot = self._pick(self._tried) if len(self._tried) < MOST_NODES else None
        if slot is None or slot.tunnel is None:
            if not self._openings:
                self._fail()
            return
        self._tried.append(slot)
        left = TIMEOUT - (self._clock.seconds() - self._began)
        self._next = Deadline(self._clock, SILENCE, partial(self._silent, slot))
        opening = slot.tunnel.dial(self._host, self._port, min(NODE_TIMEOUT, left))
        self._openings[slot] = opening
        opening.addCallbacks(self._opened, self._refused, callbackArgs=(slot,), errbackArgs=(slot,))

    def _silent(self, slot: NodeSlot) -> None:
        slot.mark_suspect(f"no answer to a dial within {SILENCE:g} s")
        self._try_next()

    def _opened(self, channel: Channel, slot: NodeSlot) -> None:
        self._openings.pop(slot, None)
        if self._over:
            channel.abort()
            return
        slot.mark_working()
        done = self._stop()
        if done is not None:
            done.callback(channel)

    def _refused(self, failure: Failure, slot: NodeSlot) -> None:
        self._openings.pop(slot, None)
        if self._over:
            return
        error = failure.value
        self._error = error if isinstance(error, Exception) else self._error
        if isinstance(error, StreamRefused) and error.code != "timeout":
            slot.mark_working()
        elif isinstance(error, StreamRefused):
            slot.mark_suspect(str(error))
        if slot is self._tried[-1] or not self._openings:
            self._try_next()

    def _timed_out(self) -> None:
        text = f"{join_address(self._host, self._port)}: no answer within {TIMEOUT:g} s"
        self._error = StreamRefused("timeout", text)
        self._fail()

    def _fail(self) -> None:
        done, error = self._stop(), self._error
        error.with_traceback(None)  # its frames hold the Deferred that holds it
        if done is not None:
            done.errback(error)

    def _stop_waiting(self) -> None:
        call, self._next = self._next, None
        if call is not None:
            call.cancel()

    def _cancelled(self, _: Deferred[Channel]) -> None:
        self._stop()

    def _stop(self) -> Deferred[Channel] | None:
        """Leave nothing behind; return the Deferred to fire."""
        self._over = True
        self._stop_waiting()
        self._end.cancel()
        openings, self._openings = self._openings, {}
        for opening in openings.values():
            opening.cancel()
        done, self._done = self._done, None  # which holds us
        return done

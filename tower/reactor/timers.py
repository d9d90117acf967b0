"""Delayed calls: deadlines, named timers of one connection, and a timing wheel for very many connections."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from math import ceil, floor
from typing import Any, Protocol, TypeVar

from attrs import define
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

_T = TypeVar("_T")

#: Largest delay of a call on a wheel, s.
STEP = 0.125


class DelayedCall(Protocol):
    """A delayed call."""

    def cancel(self) -> None:
        """Cancel the call; it was not made yet."""


class Clock(Protocol):
    """A reactor's clock, or a `Wheel`."""

    def seconds(self) -> float:
        """Return monotonic time, s."""

    def callLater(self, delay: float, callable: Callable[..., Any], *args: Any) -> Any:  # noqa: A002
        """Call *callable* in *delay* s; return a `DelayedCall`."""


class Deadline:
    """Calls *late* after *seconds*, once everything received by then was read.

    A reactor makes due calls before it looks at its sockets.  If this process was stalled, a timely answer
    would count as late: it waits in the socket.  So the deadline gives the reactor one more iteration.
    """

    __slots__ = ("_call", "_clock", "_late")

    def __init__(self, clock: Clock, seconds: float, late: Callable[[], object]) -> None:
        self._clock = clock
        self._late: Callable[[], object] | None = late
        self._call: DelayedCall | None = clock.callLater(seconds, self._look_once_more)

    def _look_once_more(self) -> None:
        self._call = self._clock.callLater(0, self._over)

    def _over(self) -> None:
        self._call = None
        late, self._late = self._late, None
        if late is not None:
            late()

    def cancel(self) -> None:
        """Cancel the call, and release *late*; does nothing if it was made or cancelled."""
        call, self._call = self._call, None
        self._late = None  # its owner mostly holds this object, too
        if call is not None:
            call.cancel()


def within(clock: Clock, seconds: float, doing: Deferred[_T], late: Callable[[], Exception]) -> Deferred[_T]:
    """Cancel *doing* after *seconds* (see `Deadline`); it fails with the error that *late* returns."""
    is_late = False

    def give_up() -> None:
        nonlocal is_late
        is_late = True
        doing.cancel()

    def done(result: _T | Failure) -> _T | Failure:
        if is_late:
            raise late() from None
        timer.cancel()
        return result

    timer = Deadline(clock, seconds, give_up)
    return doing.addBoth(done)


@define(eq=False, repr=False)
class _WheelCall:
    """A call on a wheel, in its slot."""

    _wheel: Wheel
    _slot: dict[_WheelCall, None]
    call: Callable[..., Any]
    arguments: Any

    def cancel(self) -> None:
        """See `DelayedCall.cancel`."""
        if self in self._slot:
            del self._slot[self]
            self._wheel.cancelled()


class Wheel:
    """A clock for thousands of delayed calls, nearly all of which are cancelled.

    Making and cancelling a call takes constant time, and the reactor has a single call.  A call is never
    early, and at most `STEP` late.
    """

    _log = Logger()

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.seconds = clock.seconds
        self._slots: dict[int, dict[_WheelCall, None]] = {}
        self._numbers: list[int] = []
        self._active = 0
        self._timer: DelayedCall | None = None
        self._next = 0
        self._done = -1

    def callLater(self, delay: float, callable: Callable[..., Any], *args: Any) -> _WheelCall:  # noqa: A002
        """See `Clock.callLater`; an error in it is logged."""
        number = max(ceil((self.seconds() + delay) / STEP), self._done + 1)
        slot = self._slots.get(number)
        if slot is None:
            slot = self._slots[number] = {}
            heappush(self._numbers, number)
        call = _WheelCall(self, slot, callable, args)
        slot[call] = None
        self._active += 1
        if self._timer is None or number < self._next:
            self._schedule()
        return call

    def cancelled(self) -> None:
        """Count a cancelled call."""
        self._active -= 1
        if not self._active:
            self._schedule()

    def _schedule(self) -> None:
        """Set the reactor's call to the first slot; without calls, clear all slots."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._active:
            self._slots.clear()
            self._numbers.clear()
        else:
            self._next = self._numbers[0]
            delay = max(0.0, self._next * STEP - self.seconds())
            self._timer = self._clock.callLater(delay, self._turn)

    def _turn(self) -> None:
        """Make the due calls."""
        self._timer = None
        self._done = floor(self.seconds() / STEP)
        while self._numbers and self._numbers[0] <= self._done:
            slot = self._slots.pop(heappop(self._numbers))
            for call in list(slot):
                if call in slot:
                    del slot[call]
                    self._active -= 1
                    self._make(call)
        if self._timer is None:
            self._schedule()

    def _make(self, call: _WheelCall) -> None:
        try:
            call.call(*call.arguments)
        except Exception:  # noqa: BLE001 - the other calls must be made
            self._log.failure("error in a delayed call")


class Timers:
    """Delayed calls by name, one for each."""

    __slots__ = ("_calls", "_clock")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._calls: dict[str, DelayedCall] = {}

    def set(self, name: str, delay: float, call: Callable[[], None]) -> None:
        """Call *call* in *delay* s; replaces the call of that name."""
        self.cancel(name)
        self._calls[name] = self._clock.callLater(delay, self._due, name, call)

    def _due(self, name: str, call: Callable[[], None]) -> None:
        del self._calls[name]
        call()

    def cancel(self, name: str) -> None:
        """Cancel the call of that name, if any."""
        call = self._calls.pop(name, None)
        if call is not None:
            call.cancel()

    def cancel_all(self) -> None:
        """Cancel all calls."""
        for name in list(self._calls):
            self.cancel(name)

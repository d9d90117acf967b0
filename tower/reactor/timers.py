"""Delayed calls: those of one connection, by name, and a wheel for those of very many connections."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from math import ceil, floor
from typing import Any, Protocol, TypeVar

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

_T = TypeVar("_T")

#: How late a call on a wheel may be, s.
STEP = 0.125


class Call(Protocol):
    """A delayed call."""

    def cancel(self) -> None:
        """Have it not made; it was not made yet."""


class Clock(Protocol):
    """The part of ``IReactorTime`` that is needed here."""

    def seconds(self) -> float:
        """Return monotonic time, s."""

    def callLater(self, delay: float, callable: Callable[..., Any], *args: Any) -> Any:  # noqa: A002
        """Make a call in *delay* s, and return a `Call`."""


class Deadline:
    """Calls *late* when *seconds* have passed, and what has come by then was read.

    A reactor makes the calls that are due before it looks at its sockets.  So after this process stood still
    itself, because the machine gave it nothing, whoever answered in time would be taken for late: his answer
    waits in the socket.  Therefore the reactor gets one more turn.

    :param seconds: s.
    """

    __slots__ = ("_call", "_clock", "_late")

    def __init__(self, clock: Clock, seconds: float, late: Callable[[], object]) -> None:
        self._clock = clock
        self._late = late
        self._call: Call | None = clock.callLater(seconds, self._look_once_more)

    def _look_once_more(self) -> None:
        self._call = self._clock.callLater(0, self._over)

    def _over(self) -> None:
        self._call = None
        self._late()

    def cancel(self) -> None:
        """Have it not called; a second time, or after that, this does nothing."""
        call, self._call = self._call, None
        if call is not None:
            call.cancel()


def within(clock: Clock, seconds: float, doing: Deferred[_T], late: Callable[[], Exception]) -> Deferred[_T]:
    """Give *doing* up, which is to be cancelled for that, after so many seconds; see `Deadline`.

    :param late: returns what it fails with then.
    """
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


class _WheelCall:
    """A call on a wheel, in the slot where it is due."""

    __slots__ = ("_slot", "_wheel", "arguments", "call")

    def __init__(
        self, wheel: Wheel, slot: dict[_WheelCall, None], call: Callable[..., Any], arguments: Any
    ) -> None:
        self._wheel = wheel
        self._slot = slot
        self.call = call
        self.arguments = arguments

    def cancel(self) -> None:
        """See `Call.cancel`."""
        if self in self._slot:
            del self._slot[self]
            self._wheel.left()


class Wheel:
    """A clock for delayed calls of which there are thousands, nearly all of them cancelled.

    Neither making nor cancelling one costs more the more there are, and the reactor knows of a single call.
    A call is never early, and at most `STEP` late.
    """

    _log = Logger()

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.seconds = clock.seconds
        self._slots: dict[int, dict[_WheelCall, None]] = {}
        self._numbers: list[int] = []
        self._active = 0
        self._timer: Any = None
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

    def left(self) -> None:
        """Note that a call is not waited for any more."""
        self._active -= 1
        if not self._active:
            self._schedule()

    def _schedule(self) -> None:
        """Be called when the first slot is due; leave nothing behind if nobody waits."""
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
        """Make the calls that are due."""
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
        except Exception:  # noqa: BLE001 - the other calls have to be made
            self._log.failure("an error in a delayed call")


class Timers:
    """Delayed calls; there is at most one of each name."""

    __slots__ = ("_calls", "_clock")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._calls: dict[str, Call] = {}

    def set(self, name: str, delay: float, call: Callable[[], None]) -> None:
        """Have *call* called in *delay* s, instead of what was set under that name."""
        self.cancel(name)
        self._calls[name] = self._clock.callLater(delay, self._due, name, call)

    def _due(self, name: str, call: Callable[[], None]) -> None:
        del self._calls[name]
        call()

    def cancel(self, name: str) -> None:
        """Have nothing called under that name."""
        call = self._calls.pop(name, None)
        if call is not None:
            call.cancel()

    def cancel_all(self) -> None:
        """Have nothing called at all."""
        for name in list(self._calls):
            self.cancel(name)

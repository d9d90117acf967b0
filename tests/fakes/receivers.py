"""Receivers of pipes that write down what happens, for tests."""

from __future__ import annotations

from collections.abc import Callable


class Recorder:
    """A receiver that writes down what happens.

    :ivar log: the names of events, in order; ``received`` only once in a row.
    :ivar on: what to do in an event, by name.
    """

    def __init__(self, **on: Callable[[], object]) -> None:
        self.got = bytearray()
        self.log: list[str] = []
        self.reason: Exception | None = None
        self.on = on

    def _note(self, event: str) -> None:
        if event != "received" or self.log[-1:] != ["received"]:
            self.log.append(event)
        if event in self.on:
            self.on[event]()

    def received(self, data: memoryview) -> None:
        """See Receiver."""
        self.got += data
        self._note("received")

    def ended(self) -> None:
        """See Receiver."""
        self._note("ended")

    def drained(self) -> None:
        """See Receiver."""
        self._note("drained")

    def closed(self, reason: Exception) -> None:
        """See Receiver."""
        self.reason = reason
        self._note("closed")


class BufferRecorder(Recorder):
    """A receiver with its own buffer.

    :ivar room: size of its buffer; None: it takes nothing now.
    :ivar lent: how many buffers are out.
    """

    def __init__(self, room: int | None, **on: Callable[[], object]) -> None:
        super().__init__(**on)
        self.room = room
        self.lent = 0
        self._space = bytearray(1 << 20)

    def buffer(self) -> memoryview | None:
        """Return where bytes go."""
        if self.room is None:
            return None
        self.lent += 1
        return memoryview(self._space)[: self.room]

    def filled(self, count: int) -> None:
        """Take them."""
        self.lent -= 1
        if count:
            self.received(memoryview(self._space)[:count])

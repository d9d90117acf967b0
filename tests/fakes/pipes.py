"""A pipe in memory, for tests of everything that sends to one or gets bytes from one."""

from __future__ import annotations

from tower.net.pipes import Buffer, Receiver


class FakePipe:
    """Records what is done to it; the test plays the far side with `deliver`, `end` and `lose`.

    :ivar sent: everything sent so far.
    :ivar full: while true, `send` answers False.
    :ivar broken: the far side has disconnected; nothing more is accepted until `lose`.
    :ivar is_large: whether it has a large window, as a channel may.
    :ivar is_leaving: whether its tunnel is about to close.
    """

    receiver: Receiver

    def __init__(self) -> None:
        self.sent = bytearray()
        self.full = self.broken = False
        self.is_large = self.is_leaving = False
        self.paused = True
        self.finished = False
        self.closing = False
        self.aborted = False
        self.lost = False
        self._waiting = bytearray()
        self._end_waiting = False

    @property
    def close_sent(self) -> bool:
        """Whether nothing more is sent."""
        return self.lost

    @property
    def _takes(self) -> bool:
        return not (self.finished or self.closing or self.lost or self.broken)

    def send(self, data: Buffer) -> bool:
        """Record *data* unless nothing more is taken."""
        if not self._takes:
            return False
        self.sent += data
        return not self.full

    def finish(self) -> None:
        """Record the half close."""
        self.finished = True

    def close(self) -> None:
        """Record the close; the test calls `lose` to complete it."""
        self.closing = True

    def abort(self) -> None:
        """Close at once."""
        self.aborted = True
        self.lose()

    def pause(self) -> None:
        """Stop delivery."""
        self.paused = True

    def resume(self) -> None:
        """Deliver what waited."""
        self.paused = False
        if self._waiting:
            data, self._waiting = bytes(self._waiting), bytearray()
            self.receiver.received(memoryview(data))
        if self._end_waiting and not self.paused:
            self._end_waiting = False
            self.receiver.ended()

    def deliver(self, data: bytes) -> None:
        """Deliver *data* from the far side, now or when reading resumes."""
        if self.paused:
            self._waiting += data
        else:
            self.receiver.received(memoryview(data))

    def end(self) -> None:
        """End the far side's direction."""
        if self.paused:
            self._end_waiting = True
        else:
            self.receiver.ended()

    def drain(self) -> None:
        """Accept bytes again."""
        self.full = False
        if self._takes:
            self.receiver.drained()

    def lose(self, reason: Exception | None = None) -> None:
        """Close the pipe, once."""
        if not self.lost:
            self.lost = True
            self.receiver.closed(reason or ConnectionError("closed"))

    def taken(self) -> bytes:
        """Return what was sent since the last call."""
        data, self.sent = bytes(self.sent), bytearray()
        return data

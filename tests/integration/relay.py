"""A TCP relay between two real processes: it can stall with everything open, cut, and slow down."""

from __future__ import annotations

import contextlib  # trial takes a name `suppress` in a module for its own
import socket
import threading
import time
from dataclasses import dataclass

from tests.integration.programs import LOOPBACK

CHUNK = 64 * 1024  # B


@dataclass(frozen=True)
class Fault:
    """A fault of a connection: after a number of bytes it is cut, or it stalls.

    :ivar up: whether to count the bytes from the client, instead of those to it.
    :ivar after: bytes to pass before the fault.
    :ivar stalls: whether it stalls, in place of being cut.
    """

    up: bool
    after: int
    stalls: bool = False


class Relay:
    """Forwards every connection to its own port to another loopback port.

    :ivar port: its port.
    :ivar target: port of new connections, with `host`.
    :ivar accepted: connections so far.
    :ivar fault: of the next connection only, or None.
    :ivar dribble: s between one byte and the next, each sent by itself; None: without delay.
    """

    def __init__(self, target: int) -> None:
        self.target = target
        self.host = LOOPBACK
        self.fault: Fault | None = None
        self.dribble: float | None = None
        self._record: tuple[bytearray, bytearray] | None = None
        self._flowing = threading.Event()
        self._flowing.set()
        self._open: set[_Link] = set()
        self._lock = threading.Lock()
        self._listener = socket.create_server((LOOPBACK, 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        self.accepted = 0
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def open(self) -> int:
        """Number of connections that are open on at least one side."""
        return len(self._open)

    def stall(self) -> None:
        """Forward nothing more, in either direction; close nothing (a pulled cable)."""
        self._flowing.clear()

    def flow(self) -> None:
        """Forward again."""
        self._flowing.set()

    def wait(self) -> None:
        """Return when it forwards."""
        self._flowing.wait()

    def cut(self) -> None:
        """Close every connection; accept new ones."""
        with self._lock:
            for each in self._open:
                each.cut()

    def record(self) -> tuple[bytearray, bytearray]:
        """Record the bytes up and down on the next connection, slightly more than `CHUNK` at most each."""
        self._record = bytearray(), bytearray()
        return self._record

    def close(self) -> None:
        """End the relay."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        self.flow()

    def _accept(self) -> None:
        while True:
            try:
                near = self._listener.accept()[0]
            except OSError:
                return
            self.accepted += 1
            fault, self.fault = self.fault, None
            record, self._record = self._record, None
            threading.Thread(target=self._serve, args=(near, fault, record), daemon=True).start()

    def _serve(
        self, near: socket.socket, fault: Fault | None, record: tuple[bytearray, bytearray] | None
    ) -> None:
        try:
            far = socket.create_connection((self.host, self.target), 10)
        except OSError:
            near.close()
            return
        far.settimeout(None)
        link = _Link(self, near, far, fault, record)
        with self._lock:
            self._open.add(link)
        back = threading.Thread(target=link.pump, args=(False,), daemon=True)
        back.start()
        link.pump(True)
        back.join()
        with self._lock:
            self._open.discard(link)
        near.close()
        far.close()


class _Link:
    """One forwarded connection.

    :param record: gets the bytes up and down.
    """

    def __init__(
        self,
        relay: Relay,
        near: socket.socket,
        far: socket.socket,
        fault: Fault | None,
        record: tuple[bytearray, bytearray] | None,
    ) -> None:
        self._relay = relay
        self._near, self._far = near, far
        self._fault = fault
        self._left = fault.after if fault is not None else 0
        self._stalled = False
        self._record = record
        for each in (near, far):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def cut(self) -> None:
        """Close both sides."""
        for each in (self._near, self._far):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def pump(self, up: bool) -> None:
        """Forward in one direction up to the end; drop the bytes of a stalled connection."""
        source, sink = (self._near, self._far) if up else (self._far, self._near)
        with contextlib.suppress(OSError):
            while data := source.recv(CHUNK):
                self._relay.wait()
                self._forward(up, data, sink)
        self._relay.wait()
        if not self._stalled:
            with contextlib.suppress(OSError):
                sink.shutdown(socket.SHUT_WR)

    def _forward(self, up: bool, data: bytes, sink: socket.socket) -> None:
        fault = self._fault
        due = False
        if fault is not None and fault.up == up:
            due = len(data) >= self._left
            data = data[: self._left]
            self._left -= len(data)
        if self._stalled:
            return
        if self._record is not None and len(self._record[not up]) < CHUNK:
            self._record[not up].extend(data)
        self._send(data, sink)
        if due:
            self._stalled = fault is not None and fault.stalls
            if not self._stalled:
                self.cut()

    def _send(self, data: bytes, sink: socket.socket) -> None:
        at = 0
        while (pause := self._relay.dribble) is not None and at < len(data):
            sink.sendall(data[at : at + 1])
            at += 1
            if pause:
                time.sleep(pause)
        sink.sendall(data[at:])

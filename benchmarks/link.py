"""Emulation of a long-distance link on one machine: a TCP relay with a delay and a rate limit.

``python -m benchmarks.link LISTEN TARGET`` forwards one loopback port to another.  Each direction is a
separate link: bytes leave at the link's rate and arrive after its delay, behind a short queue as in a router.
When the queue is full, the sender is not read, so nothing is lost.  Loss, jitter and TCP congestion control
over the distance are not emulated.
"""

from __future__ import annotations

import argparse
import socket
import threading
import time
from collections import deque
from contextlib import suppress

LOOPBACK = "127.0.0.1"

#: One-way delay, s, and rate, B/s (1 Gbit/s).
DELAY = 0.05
RATE = 125e6

#: Length of the queue in front of a link, s.
QUEUE = 0.01

#: Maximum size of one receive, B.
CHUNK = 128 * 1024


class Direction:
    """One direction of one connection: a thread that receives and a thread that sends when bytes are due."""

    def __init__(self, source: socket.socket, sink: socket.socket, delay: float, rate: float) -> None:
        self._source, self._sink = source, sink
        self._delay, self._rate = delay, rate
        self._capacity = int((delay + 2 * QUEUE) * rate) + CHUNK
        self._inside = 0
        self._chunks: deque[tuple[float, bytearray, int]] = deque()
        self._free: list[bytearray] = []
        self._changed = threading.Condition()
        self._ended = False

    def run(self) -> None:
        """Forward until the sender's EOF was sent on, or either side is closed."""
        taking = threading.Thread(target=self._take, daemon=True)
        taking.start()
        with suppress(OSError):
            self._let_out()
            self._sink.shutdown(socket.SHUT_WR)
        with self._changed:
            self._ended = True
            self._changed.notify()
        with suppress(OSError):
            self._source.shutdown(socket.SHUT_RD)
        taking.join()

    def _take(self) -> None:
        leaves = 0.0
        with suppress(OSError):
            while not self._ended:
                buffer = self._free.pop() if self._free else bytearray(CHUNK)
                size = self._source.recv_into(buffer)
                now = time.monotonic()
                leaves = max(leaves, now) + size / self._rate
                with self._changed:
                    self._chunks.append((leaves + self._delay, buffer, size))
                    self._inside += size
                    self._changed.notify()
                    while self._inside > self._capacity and not self._ended:
                        self._changed.wait()
                if not size:
                    return
                if leaves - now > QUEUE:
                    time.sleep(leaves - now - QUEUE)
        with self._changed:
            self._chunks.append((0.0, bytearray(), 0))
            self._changed.notify()

    def _let_out(self) -> None:
        while True:
            with self._changed:
                while not self._chunks:
                    self._changed.wait()
                due, buffer, size = self._chunks.popleft()
            early = due - time.monotonic()
            if early > 0:
                time.sleep(early)
            if not size:
                return
            self._sink.sendall(memoryview(buffer)[:size])
            self._free.append(buffer)
            with self._changed:
                self._inside -= size
                self._changed.notify()


class Link:
    """Listener that forwards each connection over its own link.

    :param target: loopback port.
    :param listen: loopback port; 0: any.
    :param delay: one-way delay, s.
    :param rate: rate in each direction, B/s.
    :ivar port: listening port.
    """

    def __init__(self, target: int, listen: int = 0, *, delay: float = DELAY, rate: float = RATE) -> None:
        self._target = target
        self._delay, self._rate = delay, rate
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._listener = socket.create_server((LOOPBACK, listen))
        self.port: int = self._listener.getsockname()[1]

    def start(self) -> None:
        """Forward in another thread."""
        threading.Thread(target=self.run, daemon=True).start()

    def run(self) -> None:
        """Forward until `close`."""
        while True:
            try:
                near = self._listener.accept()[0]
            except OSError:
                return
            threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def close(self) -> None:
        """Stop listening, and close all connections."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            for each in self._open:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def _serve(self, near: socket.socket) -> None:
        with near, socket.create_connection((LOOPBACK, self._target)) as far:
            pair = {near, far}
            for each in pair:
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._open |= pair
            there = Direction(near, far, self._delay, self._rate)
            back = Direction(far, near, self._delay, self._rate)
            returning = threading.Thread(target=back.run, daemon=True)
            returning.start()
            there.run()
            returning.join()
            with self._lock:
                self._open -= pair


def main() -> None:
    """Forward until the process ends."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.link", description="Relay loopback TCP with a delay and a rate limit."
    )
    parser.add_argument("listen", type=int, help="loopback port to listen on")
    parser.add_argument("target", type=int, help="loopback port to forward to")
    parser.add_argument("--delay", type=float, default=DELAY, help="one-way delay, s (default: %(default)s)")
    parser.add_argument("--rate", type=float, default=RATE, help=f"rate, B/s (default: {RATE:.0f})")
    given = parser.parse_args()
    Link(given.target, given.listen, delay=given.delay, rate=given.rate).run()


if __name__ == "__main__":
    main()

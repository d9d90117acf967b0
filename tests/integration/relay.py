"""A TCP relay between two real processes that can stop forwarding without closing anything, and can cut."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

from .programs import LOOPBACK

CHUNK = 64 * 1024  # B


class Relay:
    """Forwards every connection to its own port to another loopback port.

    :ivar port: where it listens.
    :ivar accepted: connections so far.
    """

    def __init__(self, target: int) -> None:
        self._target = target
        self._flowing = threading.Event()
        self._flowing.set()
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._listener = socket.create_server((LOOPBACK, 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        self.accepted = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def stall(self) -> None:
        """Forward nothing more, in either direction; close nothing (a cable that was pulled)."""
        self._flowing.clear()

    def flow(self) -> None:
        """Forward again."""
        self._flowing.set()

    def cut(self) -> None:
        """Close every connection; new ones are taken."""
        with self._lock:
            for each in self._open:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End the relay."""
        with suppress(OSError):
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
            threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        try:
            far = socket.create_connection((LOOPBACK, self._target), 10)
        except OSError:
            near.close()
            return
        far.settimeout(None)
        pair = {near, far}
        with self._lock:
            self._open |= pair
        back = threading.Thread(target=self._pump, args=(far, near), daemon=True)
        back.start()
        self._pump(near, far)
        back.join()
        with self._lock:
            self._open -= pair
        near.close()
        far.close()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(CHUNK):
                self._flowing.wait()
                sink.sendall(data)
        self._flowing.wait()
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

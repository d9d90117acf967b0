"""HTTP proxies that answer CONNECT, and servers behind them."""

from __future__ import annotations

import contextlib  # trial takes a name `suppress` in a module for its own
import socket
import threading
from collections.abc import Callable

from tests.integration.programs import LOOPBACK

MIB = 2**20


TIMEOUT = 300.0  # s


NAME = "tower.test"  # that only the CONNECT proxy can resolve


class Server:
    """A thread that serves each connection to a free port with a function.

    :ivar port: its port.
    :ivar served: connections so far.
    """

    def __init__(self, serve: Callable[[socket.socket], None]) -> None:
        self._serve = serve
        self._listener = socket.create_server((LOOPBACK, 0))
        self.port: int = self._listener.getsockname()[1]
        self.served = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection = self._listener.accept()[0]
            except OSError:
                return
            self.served += 1
            threading.Thread(target=self._run, args=(connection,), daemon=True).start()

    def _run(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            self._serve(connection)

    def close(self) -> None:
        """Stop accepting connections."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


def copy(source: socket.socket, sink: socket.socket) -> None:
    """Copy up to the end, and end the other side."""
    with contextlib.suppress(OSError):
        while data := source.recv(MIB):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)


def connect_proxy(connection: socket.socket) -> None:
    """Act as an HTTP proxy that only supports CONNECT, and resolves every name to this machine."""
    head = b""
    while b"\r\n\r\n" not in head:
        head += connection.recv(4096)
    method, target, _ = head.split(b" ", 2)
    name, _, port = target.decode().rpartition(":")
    if method != b"CONNECT" or name != NAME:
        connection.sendall(b"HTTP/1.1 403 Forbidden\r\n\r\n")
        return
    with socket.create_connection((LOOPBACK, int(port)), TIMEOUT) as onward:
        connection.sendall(b"HTTP/1.1 200 Connected\r\n\r\n")
        back = threading.Thread(target=copy, args=(onward, connection), daemon=True)
        back.start()
        copy(connection, onward)
        back.join(TIMEOUT)

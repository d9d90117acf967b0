"""An HTTP proxy as a separate process, and the name that only it resolves."""

from __future__ import annotations

import contextlib
import socket
import threading

from tests.integration.programs import LOOPBACK
from tests.integration.threaded import ThreadedServer

#: Name of the proxy.
NAME = "tower.test"


class ConnectProxy(ThreadedServer):
    """An HTTP proxy that only supports CONNECT, and resolves every name to this machine.

    :ivar asked: the targets of its CONNECT requests.
    """

    def __init__(self) -> None:
        self.asked: list[str] = []
        super().__init__()

    def serve(self, near: socket.socket) -> None:
        """See `ThreadedServer.serve`."""
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            byte = near.recv(1)
            if not byte:
                return
            head += byte
        method, target, _ = head.split(b" ", 2)
        self.asked.append(f"{method.decode()} {target.decode()}")
        far = socket.create_connection((LOOPBACK, int(target.rpartition(b":")[2])))
        near.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        threading.Thread(target=self._copy, args=(near, far), daemon=True).start()
        self._copy(far, near)

    def _copy(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(64 * 1024):
                sink.sendall(data)
        for each in (source, sink):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

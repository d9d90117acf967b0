"""A web service with a login of its own, as KubeSphere's API server has: plain HTTP, cookies, a WebSocket."""

from __future__ import annotations

import contextlib
import socket
import threading

from .programs import LOOPBACK

COOKIE = "token=signed-in"
WEBSOCKET = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"


class PlainService:
    """Runs in threads of the test.

    ``POST /login`` with the right password gives a cookie, with which ``/home`` is open; ``/ws`` echoes after
    an upgrade; ``/big`` is `BIG` long; ``/away`` leads to an absolute URL by the request's Host.

    :ivar port: where it listens.
    :ivar heads: of the requests that came, as they came.
    """

    BIG = 20 << 20  # B

    def __init__(self) -> None:
        self._listener = socket.create_server((LOOPBACK, 0))
        self.port: int = self._listener.getsockname()[1]
        self.heads: list[bytes] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Take no more connections."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection = self._listener.accept()[0]
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream, contextlib.suppress(OSError):
            while line := stream.readline():
                head = line
                while (line := stream.readline()) not in (b"\r\n", b""):
                    head += line
                self.heads.append(head + b"\r\n")
                fields = dict(each.split(b": ", 1) for each in head.split(b"\r\n")[1:-1])
                body = stream.read(int(fields.get(b"Content-Length", b"0")))
                if fields.get(b"Upgrade") == b"websocket":
                    connection.sendall(WEBSOCKET)
                    while data := stream.read1(65536):
                        connection.sendall(data)
                    return
                connection.sendall(self._answer(head.split(b" ")[1].partition(b"?")[0], fields, body))

    def _answer(self, path: bytes, fields: dict[bytes, bytes], body: bytes) -> bytes:
        signed_in = COOKIE.encode() in fields.get(b"Cookie", b"")
        if path == b"/login" and body == b"password=right":
            return _response(b"302 Found", b"Location: /home", b"Set-Cookie: %b; Path=/" % COOKIE.encode())
        if path == b"/home" and signed_in:
            return _response(b"200 OK", body=b"welcome")
        if path == b"/big":
            return _response(b"200 OK", body=b"x" * self.BIG)
        if path == b"/away":
            return _response(b"301 Moved Permanently", b"Location: http://%b/home" % fields[b"Host"])
        return _response(b"401 Unauthorized", body=b"log in")


def _response(status: bytes, *fields: bytes, body: bytes = b"") -> bytes:
    lines = [b"HTTP/1.1 " + status, *fields, b"Content-Length: %d" % len(body)]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body

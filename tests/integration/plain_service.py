"""A web service with its own login, as KubeSphere's API server has: plain HTTP, cookies, a WebSocket."""

from __future__ import annotations

import contextlib
import socket

from tests.integration.threaded import ThreadedServer

COOKIE = "token=signed-in"
WEBSOCKET = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"


class PlainService(ThreadedServer):
    """Runs in threads of the test.

    ``POST /login`` with the right password sets a cookie, which opens ``/home``; ``/ws`` echoes after
    an upgrade; ``/big`` is `BIG` long; ``/away`` leads to an absolute URL by the request's Host.

    :ivar heads: of the requests so far.
    """

    BIG = 20 << 20  # B

    def __init__(self) -> None:
        self.heads: list[bytes] = []
        super().__init__()

    def serve(self, connection: socket.socket) -> None:
        """See `ThreadedServer.serve`."""
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

"""A backend as a separate program: it knows the owner of every byte, and can be slow on purpose.

``markserver.py CERTIFICATE KEY NAME...`` prints one line of JSON, with the ports on which it listens for each
name of a cluster, and serves until it is stopped.

| path | answer |
|---|---|
| ``/marks/OWNER?size=N`` | takes a body that has to be OWNER's, answers with N bytes of OWNER's |
| the same with ``&cut=M`` | breaks the connection after M bytes of the answer |
| the same with ``&early`` | answers before it has read the body |
| the same with ``Upgrade: echo`` | 101, then echoes, which has to be OWNER's |
| ``/stored`` | keeps a body and answers with its SHA-256; gives it back, with ``?chunked`` in chunks |
| ``/echo`` with ``Upgrade: echo`` | 101, then echoes |
| ``/flood``, ``/sink`` | an answer that does not end; a body that is read slowly |
| ``/ping`` | gives a small body back |
| ``/report``, ``/close-idle`` | findings so far, as JSON; closes connections that wait for a request |
| port ``ping`` | echoes |
| port ``raw`` | a line with OWNER, then echoes, which has to be OWNER's |
| port ``slow`` | sends without end, and reads slowly |

OWNER is ``USER@CLUSTER/NUMBER``.  The request has to come with that user impersonated, to the ports of that
cluster.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, TypeAlias

from tests.integration.marks import Follower, Strayed, marked
from tests.integration.programs import LOOPBACK

PIECE = 32 * 1024  # B
SLOW_PIECE = 4 * 1024  # B, read each
SLOW_PAUSE = 0.05  # s
SWITCHED = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"
LIMIT = 64 * 1024  # largest head, and the approximate buffer of a connection, B
KERNEL = 128 * 1024  # kernel buffer of a slow peer, B; the default is megabytes in rare bursts

_MARKS = re.compile(r"/marks/([^?]+)(?:\?(.*))?")
_GONE = (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError, TimeoutError)

Reader: TypeAlias = asyncio.StreamReader
Writer: TypeAlias = asyncio.StreamWriter


class Request:
    """The head of one request, and its body to be read once."""

    def __init__(self, head: bytes, reader: Reader) -> None:
        lines = head.decode("latin-1").split("\r\n")
        self.method, self.target, _ = lines[0].split(" ")
        pairs = (line.partition(": ") for line in lines[1:] if line)
        self.fields = {name.lower(): value for name, _, value in pairs}
        self._reader = reader

    async def body(self, piece: int = PIECE) -> AsyncIterator[bytes]:
        """Yield the body in pieces as they come."""
        left = int(self.fields.get("content-length", 0))
        chunked = "transfer-encoding" in self.fields
        while left or chunked:
            if not left:
                left = int((await self._reader.readline()).split(b";")[0] or b"x", 16)
                if not left:
                    await self._reader.readline()
                    return
            data = await self._reader.read(min(piece, left))
            if not data:
                raise ConnectionResetError("the body was cut")
            left -= len(data)
            if chunked and not left:
                await self._reader.readexactly(2)
            yield data


class Backend:
    """Everything that is served.

    :ivar faults: requests and bytes that do not belong here.
    :ivar served: exchanges that were begun, by kind.
    :ivar flooded: sent to those who read slowly, B.
    """

    def __init__(self) -> None:
        self.faults: list[str] = []
        self.served: dict[str, int] = {}
        self.flooded = 0
        self._idle: set[Writer] = set()
        self._bodies: dict[str, bytes] = {}

    async def listen(self, name: str, tls: ssl.SSLContext) -> dict[str, int]:
        """Serve one cluster; return the ports by kind."""
        kinds: dict[str, tuple[Callable[..., Coroutine[Any, Any, None]], ssl.SSLContext | None]] = {
            "http": (self._http, None),
            "https": (self._http, tls),
            "ping": (self._ping, None),
            "raw": (self._raw, None),
            "slow": (self._slow, None),
        }
        ports = {}
        for kind, (serve, context) in kinds.items():
            server = await asyncio.start_server(
                self._guarded(serve, name), LOOPBACK, 0, ssl=context, limit=LIMIT, backlog=1024
            )
            ports[kind] = server.sockets[0].getsockname()[1]
        return ports

    def _guarded(
        self, serve: Callable[..., Coroutine[Any, Any, None]], name: str
    ) -> Callable[[Reader, Writer], Coroutine[Any, Any, None]]:
        """Return *serve* for `asyncio.start_server`: disconnections are ignored, stray bytes are recorded."""

        async def guarded(reader: Reader, writer: Writer) -> None:
            writer.transport.set_write_buffer_limits(LIMIT)
            try:
                await serve(name, reader, writer)
                writer.close()
            except Strayed as e:
                self.faults.append(str(e))
                writer.transport.abort()
            except _GONE:
                writer.transport.abort()
            finally:
                self._idle.discard(writer)

        return guarded

    def _count(self, kind: str) -> None:
        self.served[kind] = self.served.get(kind, 0) + 1

    # HTTP

    async def _http(self, name: str, reader: Reader, writer: Writer) -> None:
        while True:
            self._idle.add(writer)
            request = Request((await reader.readuntil(b"\r\n\r\n"))[:-4], reader)
            self._idle.discard(writer)
            path = request.target.partition("?")[0]
            if match := _MARKS.fullmatch(request.target):
                await self._marks(name, match[1], match[2] or "", request, reader, writer)
            elif path == "/stored":
                await self._stored(name, request, writer)
            elif path == "/echo":
                writer.write(SWITCHED)
                await self._ping(name, reader, writer)
                return
            elif path == "/flood":
                await self._flood(request, writer)
            elif path == "/sink":
                _keep_little(writer)
                async for _ in request.body(SLOW_PIECE):
                    await asyncio.sleep(SLOW_PAUSE)
            else:
                body = b"".join([data async for data in request.body()])
                await self._answer(writer, self._report(path) or body or b"pong")

    def _report(self, path: str) -> bytes:
        if path == "/close-idle":
            for each in self._idle:
                each.close()
        elif path != "/report":
            return b""
        report = {"faults": self.faults, "served": self.served, "flooded": self.flooded}
        return json.dumps(report).encode()

    async def _answer(self, writer: Writer, body: bytes) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        await writer.drain()

    async def _stored(self, name: str, request: Request, writer: Writer) -> None:
        if request.method != "GET":
            body = self._bodies[name] = b"".join([data async for data in request.body()])
            await self._answer(writer, hashlib.sha256(body).hexdigest().encode())
        elif "chunked" not in request.target:
            await self._answer(writer, self._bodies[name])
        else:
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            body = self._bodies[name]
            for begin in range(0, len(body), PIECE - 1):
                data = body[begin : begin + PIECE - 1]
                writer.write(b"%x\r\n%b\r\n" % (len(data), data))
                await writer.drain()
            writer.write(b"0\r\n\r\n")

    async def _marks(
        self, name: str, owner: str, query: str, request: Request, reader: Reader, writer: Writer
    ) -> None:
        user, cluster = owner.partition("/")[0].split("@")
        came = request.fields.get("impersonate-user")
        if (came, name) != (user, cluster):
            raise Strayed(f"{owner}: the request came to {name} as {came}")
        options = dict(option.partition("=")[::2] for option in query.split("&"))
        if "upgrade" in request.fields:
            self._count("upgrade")
            writer.write(SWITCHED)
            await self._echo(owner, reader, writer)
            return
        self._count(request.method)
        early = "early" in options
        if not early:
            await self._check(owner, request)
        await self._send_marks(owner, options, writer)
        if early:
            await self._check(owner, request)

    async def _check(self, owner: str, request: Request) -> None:
        follower = Follower(f"{owner}/up")
        async for data in request.body():
            follower.feed(data)

    async def _send_marks(self, owner: str, options: dict[str, str], writer: Writer) -> None:
        """Answer with marked bytes, to the end or to the chosen cut."""
        size, chunked = int(options["size"]), "chunked" in options
        cut = int(options["cut"]) if "cut" in options else size
        framing = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: %d" % size
        writer.write(b"HTTP/1.1 200 OK\r\nX-Owner: %b\r\n%b\r\n\r\n" % (owner.encode(), framing))
        for begin in range(0, cut, PIECE):
            data = marked(f"{owner}/down", begin, min(begin + PIECE, cut))
            writer.write(b"%x\r\n%b\r\n" % (len(data), data) if chunked else data)
            await _drained(writer)
        if cut < size:
            raise ConnectionAbortedError("as asked")
        if chunked:
            writer.write(b"0\r\n\r\n")
        await writer.drain()

    async def _flood(self, request: Request, writer: Writer) -> None:
        _keep_little(writer)
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"%x\r\n%b\r\n" % (PIECE, bytes(PIECE)))
            await self._flooded(writer)

    async def _flooded(self, writer: Writer) -> None:
        self.flooded += PIECE
        await _drained(writer)
        await asyncio.sleep(0)  # `drain` does not yield to other tasks as long as the kernel takes bytes

    # Raw streams

    async def _raw(self, name: str, reader: Reader, writer: Writer) -> None:
        owner = (await reader.readline()).decode().strip()
        if not owner:
            return
        if owner.partition("/")[0].partition("@")[2] != name:
            raise Strayed(f"{owner}: the stream came to {name}")
        self._count("raw")
        await self._echo(owner, reader, writer)

    async def _echo(self, owner: str, reader: Reader, writer: Writer) -> None:
        follower = Follower(f"{owner}/up")
        while data := await reader.read(PIECE):
            follower.feed(data)
            writer.write(data)
            await writer.drain()

    async def _ping(self, name: str, reader: Reader, writer: Writer) -> None:
        while data := await reader.read(PIECE):
            writer.write(data)
            await writer.drain()

    async def _slow(self, name: str, reader: Reader, writer: Writer) -> None:
        self._count("slow")
        _keep_little(writer)

        async def read() -> None:
            while await reader.read(SLOW_PIECE):
                await asyncio.sleep(SLOW_PAUSE)

        reading = asyncio.ensure_future(read())
        try:
            while not reading.done():
                writer.write(bytes(PIECE))
                await self._flooded(writer)
        finally:
            reading.cancel()


async def _drained(writer: Writer) -> None:
    """Wait as ``drain`` does, which alone does not notice that the other side closed until TLS is over."""
    if writer.is_closing():
        raise ConnectionResetError("the other side closed the connection")
    await writer.drain()


def _keep_little(writer: Writer) -> None:
    """Make slow peers progress evenly, instead of in rare bursts of megabytes."""
    sock = writer.get_extra_info("socket")
    for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
        sock.setsockopt(socket.SOL_SOCKET, option, KERNEL)


async def main(certificate: str, key: str, *names: str) -> None:
    """Serve until the end."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    backend = Backend()
    ports = {name: await backend.listen(name, tls) for name in names}
    print(json.dumps(ports), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

"""Many streams of one user as a program: quick ones that are measured, or slow ones that obstruct them.

``streamload.py SETTINGS``, which is JSON; see `Settings`.  It runs commands from its standard input and
answers each in JSON: ``open``, ``measure SECONDS``, ``pushed`` (by slow ones so far, B), ``close``.

A quick stream sends 1 KiB, waits for its echo and pauses a little.  A slow one takes and gives as much as the
other side allows, except that it reads a little and then waits; its peer reads slowly as well.
"""

from __future__ import annotations

import asyncio
import json
import random
import socket
import ssl
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

Reader: TypeAlias = asyncio.StreamReader
Writer: TypeAlias = asyncio.StreamWriter

PING = 1024  # B
PAUSE = 0.04  # s between an echo and the next ping, on average
SLOW_PIECE = 4 * 1024  # B, read each
SLOW_PAUSE = 0.05  # s
LIMIT = 16 * 1024  # B that a slow stream holds


@dataclass
class Settings:
    """Settings of a program.

    :ivar prefix: of the cluster, at the front door.
    :ivar raw: whether the streams are raw ones; else they are HTTP requests.
    :ivar slow: whether they are slow.
    """

    host: str
    port: int
    ca: str
    token: str
    prefix: str
    raw: bool
    slow: bool
    count: int


class Load:
    """All streams of one program."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._tls = ssl.create_default_context(cadata=settings.ca)
        self._streams: list[tuple[Reader, Writer]] = []
        self._running: list[asyncio.Task[None]] = []
        self._times: list[float] = []
        self._random = random.Random(4)
        self._pushed = 0

    # Opening

    async def _connect(self) -> tuple[Reader, Writer]:
        settings = self._settings
        sock = socket.socket()
        if settings.slow:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, LIMIT)
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, (settings.host, settings.port))
        return await asyncio.open_connection(
            sock=sock, ssl=self._tls, server_hostname=settings.host, limit=LIMIT
        )

    def _head(self, method: str, path: str, *fields: str) -> bytes:
        settings = self._settings
        lines = [
            f"{method} {settings.prefix}{path} HTTP/1.1",
            f"Host: {settings.host}:{settings.port}",
            f"Authorization: Bearer {settings.token}",
            *fields,
        ]
        return "".join(f"{line}\r\n" for line in (*lines, "")).encode()

    async def _open(self, number: int) -> tuple[Reader, Writer]:
        settings = self._settings
        reader, writer = await self._connect()
        if settings.raw:
            target = "slow" if settings.slow else "ping"
            writer.write(
                self._head("GET", f"/targets/{target}", "Connection: Upgrade", "Upgrade: tower-stream")
            )
            head = await reader.readuntil(b"\r\n\r\n")
            assert b" 101 " in head, head
        elif settings.slow and number % 2:
            writer.write(self._head("PUT", "/sink", "Transfer-Encoding: chunked"))
        elif settings.slow:
            writer.write(self._head("GET", "/flood"))
        return reader, writer

    async def open(self) -> int:
        """Open all streams; return their number."""
        opening = (self._open(number) for number in range(self._settings.count))
        self._streams = list(await asyncio.gather(*opening))
        if self._settings.slow:
            start = asyncio.get_running_loop().create_task
            for number, (reader, writer) in enumerate(self._streams):
                writer.transport.set_write_buffer_limits(LIMIT)
                if self._settings.raw or number % 2:
                    self._running.append(start(self._push(writer)))
                if self._settings.raw or not number % 2:
                    self._running.append(start(self._read_slowly(reader)))
        return len(self._streams)

    async def close(self) -> int:
        """Cut all streams; return the number of those that had broken before."""
        broken = sum(task.done() for task in self._running)
        for task in self._running:
            task.cancel()
        for _, writer in self._streams:
            writer.transport.abort()
        self._running.clear()
        self._streams.clear()
        return broken

    # Slow ones

    async def _push(self, writer: Writer) -> None:
        piece = bytes(SLOW_PIECE) if self._settings.raw else b"1000\r\n%b\r\n" % bytes(SLOW_PIECE)
        while True:
            writer.write(piece)
            self._pushed += SLOW_PIECE
            await writer.drain()
            await asyncio.sleep(0)  # `drain` does not yield to other tasks as long as the kernel takes bytes

    async def pushed(self) -> int:
        """Return the number of bytes that the slow streams have sent so far."""
        return self._pushed

    async def _read_slowly(self, reader: Reader) -> None:
        while await reader.read(SLOW_PIECE):
            await asyncio.sleep(SLOW_PAUSE)

    # Quick ones

    async def measure(self, seconds: float) -> dict[str, float]:
        """Ping for a while on each stream; return the percentiles of the echoes' times, s."""
        self._times.clear()
        until = time.monotonic() + seconds
        await asyncio.gather(*(self._ping(*stream, until) for stream in self._streams))
        times = sorted(self._times)
        return {"count": len(times), "p50": times[len(times) // 2], "p95": times[len(times) * 95 // 100]}

    async def _ping(self, reader: Reader, writer: Writer, until: float) -> None:
        payload = self._random.randbytes(PING)
        head = b"" if self._settings.raw else self._head("POST", "/ping", f"Content-Length: {PING}")
        while time.monotonic() < until:
            await asyncio.sleep(self._random.uniform(0, 2 * PAUSE))
            began = time.monotonic()
            writer.write(head + payload)
            if head:
                await reader.readuntil(b"\r\n\r\n")
            assert await reader.readexactly(PING) == payload
            self._times.append(time.monotonic() - began)


async def main(settings: str) -> None:
    """Run commands until the end of the standard input."""
    load = Load(Settings(**json.loads(settings)))
    read = asyncio.get_running_loop().run_in_executor
    while line := await read(None, sys.stdin.readline):
        command, *words = line.split()
        obey: dict[str, Callable[..., Awaitable[object]]]
        obey = {"open": load.open, "measure": load.measure, "pushed": load.pushed, "close": load.close}
        result = await obey[command](*map(float, words))
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))

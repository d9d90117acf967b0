"""Attacks of unauthenticated clients, as a separate program: it shares no interpreter with the measurement.

``python -m tests.attacks.flood KIND PORT [options]`` runs until it is ended, or for ``--seconds``.  It prints
``ready`` once all its sockets have started, and a line of JSON with its counts at the end.

| kind | attack |
|---|---|
| ``pipeline`` | ``--sockets`` send ``--bytes`` in all, requests one behind the other, and never read |
| ``heads`` | ``--sockets`` send ``--size`` bytes each of a head that does not end |
| ``open`` | ``--sockets`` connect and send nothing |
| ``slow`` | ``--sockets`` send a byte of a head every second |
| ``handshakes`` | ``--rate`` TLS handshakes a second, each on a new connection |
| ``upgrades`` | ``--rate`` WebSocket upgrades of an agent a second, which then stay silent |
| ``nonsense`` | ``--rate`` of these a second that send something other than SSH |
| ``requests`` | ``--sockets`` request ``--path``, ``--rate`` times a second in total (0: at once) |

With ``--again`` a client that is cut off reconnects, after ``--pause`` s.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import resource
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable

from tests.integration.programs import LOOPBACK

UPGRADE = (
    b"GET /agent HTTP/1.1\r\nHost: tower\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Protocol: tower-v2\r\n\r\n"
)
PIECE = 256 * 1024  # B sent at one time
_GONE = (OSError, asyncio.IncompleteReadError, TimeoutError)


class Flood:
    """:ivar counts: of events, by kind."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.counts: Counter[str] = Counter()
        self._options = options
        self._tls: ssl.SSLContext | None = None
        if options.tls or options.kind == "handshakes":
            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            self._tls.check_hostname, self._tls.verify_mode = False, ssl.CERT_NONE

    async def run(self) -> None:
        """Attack, for the wanted time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._options.seconds):
                await getattr(self, self._options.kind)()

    async def pipeline(self) -> None:
        """Send requests and read nothing."""
        request = b"GET %b HTTP/1.1\r\nHost: t\r\n\r\n" % self._options.path.encode()
        piece = request * (PIECE // len(request))
        each = self._options.bytes // self._options.sockets

        async def one() -> None:
            sent = 0
            while sent < each:
                with contextlib.suppress(*_GONE):
                    _, writer = await self._connect(limit=1)
                    writer.transport.pause_reading()  # type: ignore[attr-defined]
                    while sent < each:
                        writer.write(piece)
                        await writer.drain()
                        sent += len(piece)
                        self.counts["sent"] += len(piece)
                    self.counts["done"] += 1
                    await asyncio.Event().wait()
                self.counts["lost"] += 1
                if not self._options.again:
                    return

        await self._all(one)

    async def heads(self) -> None:
        """Hold a head that does not end."""
        head = b"GET /healthz HTTP/1.1\r\nHost: t\r\nX-Filler: "

        async def one() -> None:
            with contextlib.suppress(*_GONE):
                reader, writer = await self._connect()
                writer.write(head.ljust(self._options.size, b"x"))
                await writer.drain()
                self.counts["held"] += 1
                self._count_answer(await reader.read(12))
            self.counts["lost"] += 1

        await self._all(self._again(one))

    async def open(self) -> None:
        """Send nothing."""

        async def one() -> None:
            with contextlib.suppress(*_GONE):
                reader, _ = await self._connect()
                self.counts["open"] += 1
                await reader.read()
            self.counts["lost"] += 1

        await self._all(one)

    async def slow(self) -> None:
        """Send a byte a second."""

        async def one() -> None:
            with contextlib.suppress(*_GONE):
                _, writer = await self._connect()
                for byte in b"GET /healthz HTTP/1.1\r\nHost: t\r\nX-Filler: ".ljust(4096, b"x"):
                    writer.write(bytes([byte]))
                    await writer.drain()
                    self.counts["bytes"] += 1
                    await asyncio.sleep(1)
            self.counts["lost"] += 1

        await self._all(one)

    async def handshakes(self) -> None:
        """Do a TLS handshake, and disconnect."""

        async def one() -> None:
            with contextlib.suppress(*_GONE):
                _, writer = await self._connect()
                self.counts["done"] += 1
                writer.transport.abort()
                return
            self.counts["lost"] += 1

        await self._at_rate(one)

    async def upgrades(self) -> None:
        """Upgrade as an agent does, and send nothing."""
        opened: list[asyncio.StreamWriter] = []

        async def one() -> None:
            with contextlib.suppress(*_GONE):
                reader, writer = await self._connect()
                opened.append(writer)
                writer.write(UPGRADE)
                self._count_answer(await reader.read(12))
                return
            self.counts["lost"] += 1

        await self._at_rate(one)

    async def nonsense(self) -> None:
        """Connect as an agent does, and send something other than SSH."""
        frame = b"\x82\x8a" + bytes(4) + b"nonsense\r\n"

        async def one() -> None:
            with contextlib.suppress(*_GONE):
                reader, writer = await self._connect()
                writer.write(UPGRADE + frame * 30)
                await reader.read()
                writer.transport.abort()

        await self._at_rate(one)

    async def requests(self) -> None:
        """Send requests on kept-alive connections."""
        request = b"GET %b HTTP/1.1\r\nHost: t\r\n\r\n" % self._options.path.encode()
        options = self._options
        pause = options.sockets / options.rate if options.rate else 0.0

        async def one() -> None:
            with contextlib.suppress(*_GONE):
                reader, writer = await self._connect()
                while True:
                    writer.write(request)
                    head = await reader.readuntil(b"\r\n\r\n")
                    length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0] or b"0")
                    await reader.readexactly(length)
                    self._count_answer(head)
                    await asyncio.sleep(pause)
            self.counts["lost"] += 1

        await self._all(self._again(one))

    def _again(self, one: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
        """Repeat *one*, forever with ``--again``."""
        if not self._options.again:
            return one

        async def endless() -> None:
            while True:
                await one()
                await asyncio.sleep(self._options.pause)

        return endless

    def _count_answer(self, head: bytes) -> None:
        self.counts[head[9:12].decode("latin-1") or "closed"] += 1

    async def _connect(self, limit: int = 65536) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.wait_for(
            asyncio.open_connection(LOOPBACK, self._options.port, ssl=self._tls, limit=limit), 30
        )

    async def _all(self, one: Callable[[], Awaitable[None]]) -> None:
        """Run every socket's part; print ``ready`` once all are at work."""
        tasks = [asyncio.ensure_future(one()) for _ in range(self._options.sockets)]
        await asyncio.sleep(0.5)
        print("ready", flush=True)
        await asyncio.gather(*tasks)
        await asyncio.Event().wait()

    async def _at_rate(self, one: Callable[[], Awaitable[None]]) -> None:
        """Start one after the other, at the given rate."""
        loop = asyncio.get_running_loop()
        print("ready", flush=True)
        pending: set[asyncio.Future[None]] = set()
        due = loop.time()
        while True:
            if len(pending) < self._options.rate * 4:
                task = asyncio.ensure_future(one())
                pending.add(task)
                task.add_done_callback(pending.discard)
            due += 1 / self._options.rate
            await asyncio.sleep(max(0.0, due - loop.time()))


def parse() -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kind")
    parser.add_argument("port", type=int)
    parser.add_argument("--sockets", type=int, default=100)
    parser.add_argument("--bytes", type=int, default=64 * 2**20)
    parser.add_argument("--size", type=int, default=60_000)
    parser.add_argument("--rate", type=int, default=100)
    parser.add_argument("--path", default="/healthz")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--pause", type=float, default=0.01)
    parser.add_argument("--tls", action="store_true")
    parser.add_argument("--again", action="store_true")
    return parser.parse_args()


def main() -> None:
    """Attack."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))
    flood = Flood(parse())
    asyncio.run(flood.run())
    print(json.dumps(flood.counts), flush=True)


if __name__ == "__main__":
    main()

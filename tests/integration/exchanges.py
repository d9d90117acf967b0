"""Exchanges of marked bytes by many users at once; some users break off in the middle."""

from __future__ import annotations

import asyncio
import random
import ssl
from collections import Counter
from collections.abc import Iterator
from typing import TypeAlias

from tests.integration.marks import Follower, marked
from tests.integration.person import Person

Reader: TypeAlias = asyncio.StreamReader
Writer: TypeAlias = asyncio.StreamWriter

KINDS = ("get", "get", "post", "post", "upgrade", "raw")  # the last one at the front door alone
SIZES = ((0, 300), (1000, 20_000), (60_000, 400_000))  # B
PIECE = 16 * 1024  # B
PATIENCE = 300.0  # s for one exchange

_GONE = (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError)


class BrokenOff(Exception):
    """The exchange ended on purpose, at the chosen byte."""


class Client:
    """One of many clients; each does one exchange with the backend after the other.

    :param person: has a credential for *cluster*.
    :param first: number of the first exchange.
    :param seed: of all its random choices.
    :param lossy: whether an answer may be lost whole when the backend breaks it off: old agents drop its
    buffered part when they cannot send the rest of the upload.
    :ivar seen: how the exchanges ended, by kind.
    """

    def __init__(
        self, person: Person, user: str, cluster: str, first: int, seed: int, *, lossy: bool = False
    ) -> None:
        self._person = person
        self._who = f"{user}@{cluster}"
        self._number = first
        self._random = random.Random(seed)
        self._lossy = lossy
        self._connection: tuple[Reader, Writer] | None = None
        self.seen: Counter[str] = Counter()

    async def run(self, count: int) -> None:
        """Do *count* exchanges; raise stray bytes and unexpected ends."""
        try:
            for _ in range(count):
                await asyncio.wait_for(self._exchange(), PATIENCE)
                self._number += 1
        finally:
            self._leave(abruptly=True)

    async def _exchange(self) -> None:
        chance = self._random
        kind = chance.choice(KINDS if self._person.prefix else KINDS[:-1])
        size = chance.randint(*chance.choice(SIZES))
        until = chance.randrange(size + 1) if chance.random() < 0.4 else None
        try:
            if kind in {"upgrade", "raw"}:
                await self._echo(kind, size, until)
            else:
                await self._request(kind, size, until)
            self.seen[kind] += 1
        except BrokenOff:
            self.seen[f"{kind}, broken off"] += 1
            self._leave(abruptly=chance.random() < 0.7)

    # Connections

    async def _connect(self) -> tuple[Reader, Writer]:
        if self._connection is None:
            person = self._person
            self._connection = await asyncio.open_connection(
                person.host, person.port, ssl=person.tls, server_hostname=person.host, limit=4 * PIECE
            )
        return self._connection

    def _leave(self, *, abruptly: bool) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            if abruptly:
                connection[1].transport.abort()
            else:
                connection[1].close()

    def _head(self, method: str, path: str, *fields: str) -> bytes:
        person = self._person
        credential = [f"{name}: {value}" for name, value in person.headers().items()]
        first = f"{method} {person.prefix}{path} HTTP/1.1"
        lines = [first, f"Host: {person.host}:{person.port}", *credential, *fields, "", ""]
        return "\r\n".join(lines).encode()

    @property
    def _owner(self) -> str:
        return f"{self._who}/{self._number}"

    # HTTP

    async def _request(self, kind: str, size: int, until: int | None) -> None:
        """Send a body, if any, and read an answer; if *until* is given, one of the three is broken off there.

        The backend may be the side that breaks off.
        """
        chance = self._random
        chunked = chance.random() < 0.5
        path = f"/marks/{self._owner}?size={size}"
        path += "&chunked" * (chance.random() < 0.5) + "&early" * (kind == "post" and chance.random() < 0.2)
        places = ("up", "down", "backend") if kind == "post" else ("down", "backend")
        where = None if until is None else chance.choice(places)
        if where == "backend" and until is not None and until < size:
            path += f"&cut={until}"
        reader, writer = await self._connect()
        if kind == "get":
            writer.write(self._head("GET", path))
        else:
            length = chance.randint(*chance.choice(SIZES))
            framing = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {length}"
            writer.write(self._head("POST", path, framing))
            await self._send_body(writer, length, until if where == "up" else None, chunked=chunked)
        try:
            await self._read_answer(reader, size, until if where == "down" else None)
        except _GONE:
            if where == "backend":
                raise BrokenOff from None
            raise

    async def _send_body(self, writer: Writer, size: int, until: int | None, *, chunked: bool) -> None:
        for data in self._pieces("up", size if until is None else min(size, until)):
            writer.write(b"%x\r\n%b\r\n" % (len(data), data) if chunked else data)
            await writer.drain()
        if until is not None:
            raise BrokenOff
        if chunked:
            writer.write(b"0\r\n\r\n")
        await writer.drain()

    def _pieces(self, way: str, size: int) -> Iterator[bytes]:
        begin = 0
        while begin < size:
            end = min(size, begin + self._random.randint(1, PIECE))
            yield marked(f"{self._owner}/{way}", begin, end)
            begin = end

    async def _read_answer(self, reader: Reader, size: int, until: int | None) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        if self._lossy and head.startswith("HTTP/1.1 502 "):
            raise ConnectionResetError("the answer was lost")
        assert head.startswith("HTTP/1.1 200 "), f"{self._owner}: {head}"
        assert f"X-Owner: {self._owner}\r\n" in head, f"{self._owner}: {head}"
        follower = Follower(f"{self._owner}/down")
        chunked = "Transfer-Encoding: chunked" in head
        left = 0 if chunked else size
        while left or chunked:
            if not left:
                left = int(await reader.readline(), 16)
                if not left:
                    await reader.readexactly(2)
                    break
            data = await reader.read(min(left, PIECE))
            if not data:
                raise ConnectionResetError("the answer was cut")
            follower.feed(data)
            left -= len(data)
            if chunked and not left:
                await reader.readexactly(2)
            if until is not None and follower.seen >= until:
                raise BrokenOff
        assert follower.seen == size, f"{self._owner}: {follower.seen} B of {size}"
        if "\r\nConnection: close\r\n" in head:
            self._leave(abruptly=False)

    # Streams

    async def _echo(self, kind: str, size: int, until: int | None) -> None:
        """Send bytes into an upgraded connection or a raw stream, and read their echo."""
        self._leave(abruptly=False)
        reader, writer = await self._connect()
        fields = ("Connection: Upgrade", f"Upgrade: {'echo' if kind == 'upgrade' else 'tower-stream'}")
        path = f"/marks/{self._owner}" if kind == "upgrade" else "/targets/raw"
        writer.write(self._head("GET", path, *fields))
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101 "), f"{self._owner}: {head!r}"
        if kind == "raw":
            writer.write(f"{self._owner}\n".encode())
        sending = asyncio.ensure_future(self._send_all(writer, size))
        try:
            follower = Follower(f"{self._owner}/up")
            while follower.seen < size:
                data = await reader.read(PIECE)
                if not data:
                    raise ConnectionResetError("the stream was cut")
                follower.feed(data)
                if until is not None and follower.seen >= until:
                    raise BrokenOff
            await sending
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
        self._leave(abruptly=self._random.random() < 0.3)

    async def _send_all(self, writer: Writer, size: int) -> None:
        for data in self._pieces("up", size):
            writer.write(data)
            await writer.drain()

"""Deeds of users: each is one request or stream, checked to the last byte."""

from __future__ import annotations

import hashlib
import http.client
import json
import random
import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from tests.integration.person import Person
from tests.soak.content import digest, pieces
from tower.nodes.tunnels.tunnels import GRACE

#: Nothing takes longer than this without being an error, s.
PATIENCE = 40.0

#: Watches end before a node that leaves the list is left, s.
LONGEST_WATCH = GRACE - 5

KIB, MIB = 1 << 10, 1 << 20
_SIZES = (1, 1000, 64 * KIB, 300 * KIB, MIB, 4 * MIB, 16 * MIB)
_OFFSETS = 64


class Wrong(Exception):
    """Something came that should not have; no cut connection excuses that."""


class Unavailable(Exception):
    """The proxy reported that it has no tunnel to the cluster now."""


@dataclass
class User:
    """One user in one cluster.

    :ivar port: of the cluster itself, or None for the front door.
    """

    name: str
    person: Person
    random: random.Random
    port: int | None = None

    def path(self, path: str) -> str:
        """Return *path* with the prefix of the request."""
        return path if self.port else self.person.prefix + path

    def connect(self) -> http.client.HTTPSConnection:
        """Return a connection, which is not made yet."""
        return self.person.connect(self.port, PATIENCE)

    def socket(self) -> ssl.SSLSocket:
        """Return a TLS connection."""
        plain = socket.create_connection((self.person.host, self.port or self.person.port), PATIENCE)
        return self.person.tls.wrap_socket(plain, server_hostname=self.person.host)

    def check(self, answer: dict[str, Any], **expected: object) -> None:
        """Compare a server's answer with the right one; above all, the user that it saw.

        :raise Wrong: it is something else.
        """
        for name, value in {"user": self.name, "agent": "Bearer soak", **expected}.items():
            if answer.get(name) != value:
                raise Wrong(f"{name}: {answer.get(name)!r}, not {value!r}")

    def some_bytes(self) -> tuple[int, int]:
        """Return an offset and a size."""
        return self.random.randrange(_OFFSETS) * 1021, self.random.choice(_SIZES)


def _answered(response: http.client.HTTPResponse) -> http.client.HTTPResponse:
    if response.status in (502, 503, 504):
        raise Unavailable(response.read()[:300].decode(errors="replace"))
    if response.status != 200:
        raise Wrong(f"status {response.status}: {response.read()[:300]!r}")
    return response


def small(user: User) -> int:
    """Ask small things on one connection; return how many."""
    connection = user.connect()
    count = user.random.choice((1, 20, 100))
    try:
        for _ in range(count):
            nonce = user.random.randbytes(12).hex()
            answer = _answered(user.person.ask(connection, user.path(f"/who?nonce={nonce}"))).read()
            user.check(json.loads(answer), nonce=nonce)
            time.sleep(0.01)
    finally:
        connection.close()
    return count


def _download(user: User, connection: http.client.HTTPSConnection, rest: float) -> None:
    offset, size = user.some_bytes()
    chunked = "&chunked=1" if user.random.random() < 0.5 else ""
    path = user.path(f"/bytes?offset={offset}&size={size}{chunked}")
    response = _answered(user.person.ask(connection, path))
    sha, came = hashlib.sha256(), 0
    while piece := response.read(64 * KIB):
        sha.update(piece)
        came += len(piece)
        time.sleep(rest)
    if came < size:
        raise ConnectionError(f"a download of {size} B was cut after {came} B")
    if sha.hexdigest() != digest(offset, size):
        raise Wrong(f"a download of {size} B came as something else")


def download(user: User) -> int:
    """Get some bytes, three times on one connection."""
    connection = user.connect()
    try:
        for _ in range(3):
            _download(user, connection, 0)
    finally:
        connection.close()
    return 3


def slow_download(user: User) -> int:
    """Get some bytes slowly."""
    connection = user.connect()
    try:
        _download(user, connection, 0.02)
    finally:
        connection.close()
    return 1


def _slowly(parts: Iterator[bytes], rest: float) -> Iterator[bytes]:
    for part in parts:
        yield part
        time.sleep(rest)


def upload(user: User) -> int:
    """Send some bytes, framed in one of two ways, at some pace."""
    connection = user.connect()
    try:
        for rest in (0.0, user.random.choice((0.0, 0.01))):
            offset, size = user.some_bytes()
            chunked = user.random.random() < 0.5
            headers = user.person.headers() | ({} if chunked else {"Content-Length": str(size)})
            body = _slowly(pieces(offset, size), rest)
            connection.request("POST", user.path("/sum"), body, headers, encode_chunked=chunked)
            answer = json.loads(_answered(connection.getresponse()).read())
            user.check(answer, sha256=digest(offset, size), size=size)
    finally:
        connection.close()
    return 2


def watch(user: User) -> int:
    """Follow events for a while; none is missing and none is another user's."""
    connection = user.connect()
    until = time.monotonic() + user.random.uniform(2, LONGEST_WATCH)
    try:
        response = _answered(user.person.ask(connection, user.path("/watch")))
        number = 0
        while time.monotonic() < until:
            line = response.readline()
            if not line.endswith(b"\n"):
                raise ConnectionError("a watch was cut")
            user.check(json.loads(line), number=number)
            number += 1
    finally:
        connection.close()
    return 1


def _switch(user: User, path: str, protocol: str) -> ssl.SSLSocket:
    """Return a connection that is HTTP no more."""
    fields = {"Host": user.person.host, "Connection": "Upgrade", "Upgrade": protocol, **user.person.headers()}
    lines = [f"GET {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
    connection = user.socket()
    try:
        connection.sendall("\r\n".join([*lines, "", ""]).encode())
        head = b""
        while b"\r\n\r\n" not in head:
            if not (byte := connection.recv(1)):
                raise ConnectionError("cut within the answer to an upgrade")
            head += byte
        status = head.split()[1]
        if status in (b"502", b"503", b"504"):
            raise Unavailable(head.decode(errors="replace"))
        if status != b"101":
            raise Wrong(f"an upgrade was answered with {head[:200]!r}")
    except BaseException:
        connection.close()
        raise
    return connection


def _echoed(user: User, connection: ssl.SSLSocket) -> int:
    try:
        for _ in range(user.random.choice((1, 5, 50))):
            offset, size = user.random.randrange(_OFFSETS), user.random.choice((1, 100, 30 * KIB, 200 * KIB))
            sent = b"".join(pieces(offset, size))
            connection.sendall(sent)
            got = bytearray()
            while len(got) < size:
                piece = connection.recv(64 * KIB)
                if not piece:
                    raise ConnectionError("a stream was cut")
                got += piece
            if got != sent:
                raise Wrong(f"an echo of {size} B came back as something else")
            time.sleep(0.02)
    finally:
        connection.close()
    return 1


def upgrade(user: User) -> int:
    """Change the protocol and have bytes echoed by the server."""
    return _echoed(user, _switch(user, user.path("/echo"), "SPDY/3.1"))


def stream(user: User) -> int:
    """Open a raw stream and have bytes echoed by its target."""
    if user.port:
        return upgrade(user)  # a cluster's own port has no targets
    return _echoed(user, _switch(user, f"{user.person.prefix}/targets/echo", "tower-stream"))


def abort(user: User) -> int:
    """Begin something and disconnect in the middle."""
    offset, size = user.some_bytes()
    paths = ("/watch", f"/bytes?offset={offset}&size={16 * MIB}", f"/bytes?offset={offset}&size={size}")
    fields = {"Host": user.person.host, **user.person.headers()}
    line = f"GET {user.path(user.random.choice(paths))} HTTP/1.1"
    if user.random.random() < 0.4:
        line = f"POST {user.path('/sum')} HTTP/1.1"
        fields["Content-Length"] = str(16 * MIB)
    lines = [line, *(f"{name}: {value}" for name, value in fields.items())]
    connection = user.socket()
    try:
        connection.sendall("\r\n".join([*lines, "", ""]).encode())
        if line.startswith("POST"):
            connection.sendall(b"".join(pieces(offset, user.random.randrange(MIB))))
        elif user.random.random() < 0.7:
            connection.recv(user.random.randrange(1, 64 * KIB))
        time.sleep(user.random.choice((0.0, 0.05, 0.5)))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    finally:
        connection.close()
    return 1


Deed: TypeAlias = Callable[[User], int]

#: Number of users of each deed, in each cluster.
DEEDS: dict[Deed, int] = {
    small: 4,
    download: 2,
    slow_download: 2,
    upload: 2,
    watch: 6,
    upgrade: 2,
    stream: 2,
    abort: 2,
}

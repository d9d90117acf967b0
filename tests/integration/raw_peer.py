"""A peer of a tunnel that sends what the test wants, valid or not, over a blocking socket.

Up to authentication it behaves, through Tower's own transports, unless the test interferes.  After
that the test chooses every packet.  No wait here is longer than `PATIENCE`.
"""

from __future__ import annotations

import base64
import hashlib
import os
import socket
import struct
import time
from collections.abc import Callable, Iterable
from typing import Any

from twisted.conch.ssh.common import NS
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure

from tests.integration.programs import LOOPBACK
from tower.conch.transport.keys import KeyPair
from tower.v2.hello import AgentHello
from tower.v2.transport import ClientTransport, ServerTransport
from tower.v2.userauth import Gatekeeper
from tower.websocket.frames import BINARY, Control, FrameReader, FrameWriter
from tower.websocket.subprotocols import TOWER_V2

PATIENCE = 100.0  # s, for anything that the other side does sooner or later
CHUNK = 256 * 1024  # B
MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
DISCONNECT = 1
OPEN, CONFIRM, REFUSE, ADJUST, DATA, EXTENDED, END, CLOSE, REQUEST, SUCCESS, FAILURE = range(90, 101)


def number(*values: int) -> bytes:
    """Return each as a ``uint32``."""
    return struct.pack(f">{len(values)}I", *values)


def first(payload: bytes) -> int:
    """Return the number that follows a message's type."""
    return int.from_bytes(payload[1:5], "big")


class AcceptingGatekeeper(Gatekeeper):
    """A gatekeeper that accepts every agent."""

    def __init__(self) -> None:
        """No-op: there are no records."""

    def is_enrolled(self, cluster: str, fingerprint: str) -> bool:
        """Return true."""
        return True

    async def enrol(self, cluster: str, token: str, fingerprint: str, blob: bytes) -> None:
        """Never asked."""


class Gone(Exception):
    """The other side closed the connection."""


class RawPeer:
    """One connection.

    :param ssh: our end of SSH, which does the handshake, and whose ``ready`` fires after it; None if the test
    does not need one.
    :param from_client: whether what we receive comes from a client: then we are the proxy.
    :ivar is_client: whether we are the agent.
    :ivar reason: the other side's reason for disconnecting.
    """

    def __init__(self, sock: socket.socket, ssh: Any, *, from_client: bool) -> None:
        sock.settimeout(PATIENCE)
        self.socket = sock
        self.ssh = ssh
        self.reason = ""
        self.is_client = not from_client
        self._reader = FrameReader(from_client=from_client)
        self.writer = FrameWriter(to_server=not from_client)
        self._begun = False
        self._inbox: list[bytes] = []
        self._unparsed: bytearray | None = None
        self._outlet = StringTransport()
        if ssh is not None:
            ssh.ready.addCallbacks(self._take_over, self._not_ready)

    # The handshake

    def begin(self) -> None:
        """Send the first line of SSH."""
        self._begun = True
        self.ssh.makeConnection(self._outlet)
        self._flush()

    def authenticate(self) -> None:
        """Do the handshake up to the hello; the test sends all later messages."""
        self.begin()
        self.until(lambda: self._unparsed is not None)

    def _take_over(self, _: object) -> None:
        self._unparsed = bytearray(self.ssh.release())

    def _not_ready(self, failure: Failure) -> None:
        self.reason = failure.getErrorMessage()

    def until(self, ready: Callable[[], bool]) -> None:
        """Continue the handshake until *ready*."""
        deadline = time.monotonic() + PATIENCE
        while not ready():
            if time.monotonic() > deadline:
                raise TimeoutError("the handshake does not go on")
            self._receive()

    def _flush(self) -> None:
        """Send the output of our end of SSH."""
        if data := self._outlet.value():
            self._outlet.clear()
            self.frame(data)

    # Sending

    def raw(self, data: bytes) -> None:
        """Send bytes unchanged."""
        self.socket.sendall(data)

    def frame(self, data: bytes, opcode: int = BINARY) -> None:
        """Send bytes of SSH, or a control frame."""
        self.raw(self.writer.wrap(data, opcode))

    def say(self, *payloads: bytes) -> None:
        """Seal and send messages."""
        seal = self.ssh.sealer.seal
        self.frame(b"".join(map(seal, payloads)))

    def flood(self, pieces: Iterable[bytes]) -> bool:
        """Send bytes unchanged, without reading; return whether the other side took all of them."""
        try:
            for piece in pieces:
                self.raw(piece)
        except (ConnectionError, TimeoutError):
            return False
        return True

    def storm(self, payload: bytes, count: int, batch: int = 200) -> bool:
        """Send one message repeatedly, without reading; return whether all of it was taken."""
        seal, wrap = self.ssh.sealer.seal, self.writer.wrap
        batches = (wrap(b"".join(seal(payload) for _ in range(batch))) for _ in range(count // batch))
        return self.flood(batches)

    # Receiving

    def _receive(self) -> None:
        """Receive once and handle it, before authentication; after it, record the messages."""
        try:
            data = bytearray(self.socket.recv(CHUNK))
        except ConnectionError as e:
            raise Gone(self.reason or str(e)) from None
        if not data:
            raise Gone(self.reason)
        view = memoryview(data)
        for piece in self._reader.feed(view):
            if isinstance(piece, Control) or not self._begun:
                continue
            payload = bytes(view[piece[0] : piece[1]])
            if self._unparsed is None:
                self.ssh.dataReceived(payload)
                self._flush()
                payload = b""
            if self._unparsed is not None:
                self._parse(payload)

    def _parse(self, data: bytes) -> None:
        unparsed = self._unparsed
        assert unparsed is not None
        unparsed += data
        while len(unparsed) >= 4:
            opener = self.ssh.opener
            length = opener.wire_length(unparsed, 0)
            if len(unparsed) < length:
                return
            message = opener.open(bytes(unparsed[:length]))
            del unparsed[:length]
            if message[0] == DISCONNECT:
                size = int.from_bytes(message[5:9], "big")
                self.reason = message[9 : 9 + size].decode()
            elif message[0] >= 80:
                self._inbox.append(message)
            else:
                self.ssh.dispatch(message)  # a key exchange
                self._flush()

    def next(self, *kinds: int) -> bytes:
        """Return the next message of one of these kinds, 80 and above; others before it are dropped."""
        deadline = time.monotonic() + PATIENCE
        while True:
            while self._inbox:
                message = self._inbox.pop(0)
                if message[0] in kinds:
                    return message
            if time.monotonic() > deadline:
                raise TimeoutError(f"none of the messages {kinds} came")
            self._receive()

    def rekey(self) -> None:
        """Change the keys, from our side."""
        before = self.ssh.opener
        self.ssh.start_rekey()
        self._flush()
        self.until(lambda: self.ssh.opener is not before and not self.ssh.in_key_exchange)

    def end(self) -> str:
        """Read up to the end of the connection; return the other side's reason."""
        deadline = time.monotonic() + PATIENCE
        try:
            while time.monotonic() < deadline:
                self._receive()
                self._inbox.clear()
        except Gone:
            return self.reason
        raise TimeoutError("the connection was not closed")

    def close(self) -> None:
        """Close the connection, with a reset."""
        if self.socket.fileno() < 0:
            return
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    # Channels

    def confirm(self, window: int, longest: int, local: int = 7) -> int:
        """Accept the next channel that the other side opens; return its number of it."""
        message = self.next(OPEN)
        size = int.from_bytes(message[1:5], "big")
        remote = int.from_bytes(message[5 + size : 9 + size], "big")
        self.say(bytes((CONFIRM,)) + number(remote, local, window, longest))
        return remote

    def data(self, remote: int, data: bytes) -> None:
        """Send data on a channel."""
        self.say(bytes((DATA,)) + number(remote) + NS(data))


def read_head(sock: socket.socket) -> bytes:
    """Return the head of an HTTP message; the bytes after it stay in the socket."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        byte = sock.recv(1)
        if not byte:
            raise Gone(head.decode("latin-1"))
        head += byte
    return head


def open_socket(port: int, protocol: str = TOWER_V2) -> socket.socket:
    """Return a connection to a proxy's plain port on which an agent's WebSocket is open."""
    sock = socket.create_connection((LOOPBACK, port), PATIENCE)
    key = base64.b64encode(os.urandom(16)).decode()
    sock.sendall(
        f"GET /agent HTTP/1.1\r\nHost: {LOOPBACK}:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n"
        f"Sec-WebSocket-Protocol: {protocol}\r\n\r\n".encode()
    )
    head = read_head(sock)
    assert b" 101 " in head, head
    return sock


def agent_peer(port: int, cluster: str, key: KeyPair, host_key: str, token: str | None = None) -> RawPeer:
    """Return a peer for the plain port of a proxy, before SSH begins."""
    hello = AgentHello("hostile", "hostile", ("kubernetes",))
    ssh = ClientTransport(Clock(), key, cluster, [host_key], hello, token=token, keepalive=0)
    return RawPeer(open_socket(port), ssh, from_client=False)


class RawProxy:
    """Accepts agents, one at a time, and gives each to the test.

    :ivar port: its port.
    :ivar host_key: what agents have to pin.
    """

    def __init__(self) -> None:
        self.host_key = KeyPair.generate()
        self._listener = socket.create_server((LOOPBACK, 0), backlog=16)
        self._listener.settimeout(PATIENCE)
        self.port: int = self._listener.getsockname()[1]

    def bare(self) -> tuple[socket.socket, bytes]:
        """Return the next agent's connection and the head of its request, which was not answered."""
        sock = self._listener.accept()[0]
        sock.settimeout(PATIENCE)
        return sock, read_head(sock)

    def accept(self) -> RawPeer:
        """Return the next agent, before SSH begins."""
        sock, head = self.bare()
        key = next(line for line in head.split(b"\r\n") if line.lower().startswith(b"sec-websocket-key:"))
        proof = base64.b64encode(hashlib.sha1(key.split(b": ")[1] + MAGIC).digest())
        sock.sendall(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: %b\r\nSec-WebSocket-Protocol: %b\r\n\r\n" % (proof, TOWER_V2.encode())
        )
        ssh = ServerTransport(Clock(), [self.host_key], AcceptingGatekeeper(), keepalive=0)
        return RawPeer(sock, ssh, from_client=True)

    def close(self) -> None:
        """Stop accepting agents."""
        self._listener.close()

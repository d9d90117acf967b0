"""An agent of ``kubesphere-v1`` by hand: the test chooses every message after authentication.

Until then it behaves, through the old agent of the unit tests.
"""

from __future__ import annotations

import ssl
import time
from pathlib import Path

from twisted.conch.ssh.common import NS
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from tests.fakes.v1_pairs import OldAgent
from tests.integration.raw_peer import (
    CLOSE,
    CONFIRM,
    DATA,
    OPEN,
    PATIENCE,
    Gone,
    RawPeer,
    number,
    open_socket,
)
from tower.net.tls.session import PIECE, TLSEnded, TLSSession
from tower.v1.config import CHANNEL, CONFIG, AgentConfig
from tower.websocket.frames import BINARY, PING, TEXT
from tower.websocket.subprotocols import KUBESPHERE_V1

GLOBAL_REQUEST, ACCEPTED, REFUSED = 80, 81, 82

#: Gorilla's frames and x/crypto's messages, B.
FRAME, MESSAGE = 1024, 4096
WINDOW = 2 * 1024 * 1024  # B; x/crypto's
LONGEST = 32 * 1024  # B; x/crypto's


class Admitted(OldAgent):
    """Our end of SSH.

    :ivar ready: fires when the proxy has authenticated us, before any config.
    """

    def __init__(self) -> None:
        super().__init__(Clock())
        self.ready: Deferred[None] = Deferred()

    def start_connection(self) -> None:
        """See `OldAgent`."""
        super().start_connection()
        self.ready.callback(None)


class RawOldAgent(RawPeer):
    """One connection to a proxy's plain port.

    :ivar text: whether text messages are sent.
    :ivar go: whether messages and frames are cut as Go's libraries cut them, with pings in between.
    """

    def __init__(self, port: int) -> None:
        super().__init__(open_socket(port, KUBESPHERE_V1), Admitted(), from_client=False)
        self.text = self.go = False

    def frame(self, data: bytes, opcode: int = BINARY) -> None:
        """Send bytes of SSH, or a control frame."""
        if opcode != BINARY or not (self.go or self.text):
            super().frame(data, opcode)
            return
        opcode = TEXT if self.text else BINARY
        size = MESSAGE if self.go else len(data)
        self.raw(
            b"".join(self._message(data[start : start + size], opcode) for start in range(0, len(data), size))
        )

    def _message(self, data: bytes, opcode: int) -> bytes:
        pieces = [data[start : start + FRAME] for start in range(0, len(data), FRAME)]
        frames = []
        for place, piece in enumerate(pieces):
            first = (opcode if place == 0 else 0) | (0x80 if place == len(pieces) - 1 else 0)
            size = len(piece)
            head = (
                bytes((first, 0x80 | size)) if size < 126 else b"%c\xfe%b" % (first, size.to_bytes(2, "big"))
            )
            frames += [head + bytes(4) + piece, self.writer.wrap(b"still here", PING) if self.go else b""]
        return b"".join(frames)

    def _receive(self) -> None:
        """See `RawPeer`; the proxy's probes are rejected, as x/crypto rejects requests without a handler."""
        super()._receive()
        probes = [message for message in self._inbox if message[0] == GLOBAL_REQUEST]
        for message in probes:
            self._inbox.remove(message)
            self.say(bytes((REFUSED,)))

    def ask(self, name: bytes, data: bytes = b"") -> None:
        """Send a global request that wants a reply."""
        self.say(bytes((GLOBAL_REQUEST,)) + NS(name) + b"\1" + data)

    def answered(self) -> bytes:
        """Return the proxy's next answer, its type first."""
        return self.next(ACCEPTED, REFUSED)

    def register(self, config: AgentConfig | bytes) -> bytes:
        """Send our config; return the answer.  The proxy's check of the API server gets none."""
        self.ask(CONFIG, config.encode() if isinstance(config, AgentConfig) else config)
        answer = self.answered()
        if answer[0] == ACCEPTED:
            self.next(OPEN)
        return answer

    def seconds_until_closed(self) -> float:
        """Read up to the end of the connection; return the time until then, s."""
        began = time.monotonic()
        try:
            self.end()
        except Gone:
            pass
        return time.monotonic() - began


def authenticated_agent(port: int) -> RawOldAgent:
    """Return an agent that the proxy at *port* has authenticated, before its config."""
    peer = RawOldAgent(port)
    peer.authenticate()
    return peer


class RawServer:
    """The API server behind such an agent: TLS by hand, inside the next channel that the proxy opens.

    :param clients: PEM of the CA whose client certificates it requires.
    :ivar target: of the channel.
    :ivar remote: the proxy's number of it.
    """

    def __init__(
        self, peer: RawOldAgent, certificate: Path, key: Path, clients: str = "", local: int = 7
    ) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        if clients:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(cadata=clients)
        self._session = TLSSession(context, server_side=True)
        self._peer = peer
        self._local = local
        self._buffer = memoryview(bytearray(1 << 20))
        self._read = b""
        message = memoryview(peer.next(OPEN))
        size = int.from_bytes(message[1:5], "big")
        kind, rest = bytes(message[5 : 5 + size]), message[5 + size :]
        assert kind == CHANNEL, kind
        self.remote = int.from_bytes(rest[:4], "big")
        self.target = bytes(rest[12:])
        peer.say(bytes((CONFIRM,)) + number(self.remote, local, WINDOW, LONGEST))

    def shake(self) -> None:
        """Shake hands."""
        while not self._session.handshake():
            self._send(self._session.take())
            self._session.feed(self._next())
        self._send(self._session.take())

    def shown(self) -> bytes | None:
        """Return the certificate that the proxy showed, DER."""
        return self._session.object.getpeercert(binary_form=True)

    def _next(self) -> memoryview:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            message = self._peer.next(DATA)
            if int.from_bytes(message[1:5], "big") == self._local:
                return memoryview(message)[9:]
        raise TimeoutError("nothing comes on the channel")

    def read(self) -> bytes:
        """Return the next bytes; empty at the end."""
        while True:
            try:
                if count := self._session.read_into(self._buffer):
                    return bytes(self._buffer[:count])
            except TLSEnded:
                return b""
            self._session.feed(self._next())

    def request(self) -> bytes:
        """Return the head of the next request."""
        while b"\r\n\r\n" not in self._read:
            self._read += self.read()
        head, _, self._read = self._read.partition(b"\r\n\r\n")
        return head

    def send(self, data: bytes) -> None:
        """Send plain text, no more than the proxy's window in all."""
        for start in range(0, len(data), PIECE):
            self._send(self._session.encrypt(data[start : start + PIECE]))

    def end(self) -> None:
        """End our side (close_notify)."""
        self._send(self._session.end())

    def close(self) -> None:
        """Close the channel, as old agents do at the first end of anything."""
        self._peer.say(bytes((CLOSE,)) + number(self.remote))

    def _send(self, data: bytes) -> None:
        for start in range(0, len(data), LONGEST):
            self._peer.data(self.remote, data[start : start + LONGEST])

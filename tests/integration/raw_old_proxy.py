"""An old proxy (kubesphere-v1) that sends what the test wants, over blocking sockets; see `raw_peer`."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from tests.fakes.v1_proxies import OldProxyEnd
from tests.integration.raw_peer import MAGIC, RawPeer, RawProxy, number
from tower.conch.connection.global_requests import MSG_REQUEST_FAILURE, MSG_REQUEST_SUCCESS
from tower.v1.config import AgentConfig

ANSWERS = {True: bytes((MSG_REQUEST_SUCCESS,)), False: bytes((MSG_REQUEST_FAILURE,))}


class RawOldEnd(OldProxyEnd):
    """SSH up to the agent's config, which is not answered.

    :ivar ready: fires when the config has come.
    """

    def __init__(self) -> None:
        super().__init__(Clock(), None)
        self.ready: Deferred[None] = Deferred()
        self.before_reply: Callable[[], None] = lambda: self.ready.callback(None)

    def ended(self, reason: Exception) -> None:
        """Report that there was none."""
        super().ended(reason)
        if not self.ready.called:
            self.ready.errback(Failure(reason))


class RawOldPeer(RawPeer):
    """One agent's connection."""

    def config(self) -> AgentConfig:
        """Do the handshake up to the config and return it; the test sends all later packets."""
        self.authenticate()
        return AgentConfig.decode(self.ssh.requests[0][1])

    def answer(self, *, good: bool, text: bytes = b"") -> None:
        """Answer the last request."""
        self.say(ANSWERS[good] + text)

    def open(self, address: bytes, ours: int = 5, window: int = 2 << 20) -> None:
        """Open a channel, with the windows that deployed proxies have."""
        kind = b"kubesphere"
        self.say(b"\x5a" + number(len(kind)) + kind + number(ours, window, 32 << 10) + address)


class RawOldProxy(RawProxy):
    """Accepts agents, one at a time; other protocols get the 404 that old proxies give.

    :ivar others: the subprotocols that were requested and rejected.
    """

    def __init__(self) -> None:
        super().__init__()
        self.others: list[str] = []

    def accept(self) -> RawOldPeer:
        """Return the next agent, before SSH begins."""
        while True:
            sock, head = self.bare()
            fields: dict[str, Any] = dict(
                line.decode().lower().split(": ", 1) for line in head.split(b"\r\n")[1:] if line
            )
            if fields["sec-websocket-protocol"] == "kubesphere-v1":
                break
            self.others.append(fields["sec-websocket-protocol"])
            with sock:
                sock.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 9\r\n\r\nNot Found")
        key = next(line for line in head.split(b"\r\n") if line.lower().startswith(b"sec-websocket-key:"))
        proof = base64.b64encode(hashlib.sha1(key.split(b": ")[1] + MAGIC).digest())
        sock.sendall(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: %b\r\n\r\n" % proof
        )
        return RawOldPeer(sock, RawOldEnd(), from_client=True)

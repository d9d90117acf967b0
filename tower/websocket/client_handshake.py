"""The agent's WebSocket handshake, by Autobahn; another protocol takes the connection over after it."""

from __future__ import annotations

import re
from typing import Any

from autobahn.twisted.websocket import WebSocketClientProtocol
from autobahn.websocket.types import ConnectingRequest
from twisted.internet.defer import Deferred

from tower import __version__
from tower.errors import TowerError
from tower.net.pipes import Pipe
from tower.net.proxy_environment import ServerURL

#: Longest head of a response to the handshake, B.
LONGEST_ANSWER = 16 * 1024

#: Temporary responses of a server in front of the proxy.
_NOT_NOW = frozenset({b"429", b"502", b"503", b"504"})

_STATUS = re.compile(rb"HTTP/1\.[01] ([0-9]{3})(?: [^\r\n]*)?\r\n")
_QUOTATION = re.compile('[":]')
#: End of Autobahn's reason if the server closed the connection during the handshake.
_DROPPED = "without previous WebSocket closing handshake"


class DialFailed(TowerError):
    """The proxy could not be reached; the text has the failed step."""


class HandshakeDropped(DialFailed):
    """The server closed the connection during the WebSocket handshake."""


class SubprotocolRefused(DialFailed):
    """The server answered, and refused the WebSocket with the requested subprotocol."""

    permanent = True


class _QuietAutobahnLog:
    """Drops Autobahn's log lines: the caller logs failures once."""

    def debug(self, *_: Any, **__: Any) -> None:
        """Drop the line."""

    info = warn = error = debug


class ClientSocket(WebSocketClientProtocol):
    """One handshake; `done` fires with the bytes received after it.

    :param protocol: the subprotocol to request.
    :param echoed: whether the server must confirm it; proxies of kubesphere-v1 do not.
    """

    log = _QuietAutobahnLog()

    def __init__(self, url: ServerURL, pipe: Pipe, protocol: str, *, echoed: bool) -> None:
        super().__init__()
        self._url = url
        self._pipe = pipe
        self._protocol = protocol
        self._echoed = echoed
        self.done: Deferred[bytes] = Deferred(lambda _: pipe.abort())

    def onConnecting(self, transport_details: Any) -> ConnectingRequest:
        """Return the request."""
        url = self._url
        host = f"[{url.host}]" if ":" in url.host else url.host
        return ConnectingRequest(
            host=host,
            port=url.port,
            resource=url.resource,
            headers={},
            useragent=f"tower-agent/{__version__}",
            protocols=[self._protocol],
        )

    def dataReceived(self, data: bytes) -> None:
        """Read the response, up to the limit; not called after `onOpen`."""
        head = self.data + data
        status = _STATUS.match(head)
        if status is not None and status[1] != b"101":
            self._refused(status[1])
        elif len(head) > LONGEST_ANSWER and b"\r\n\r\n" not in head:
            self._settle(DialFailed("answered with a head that is too long"))
            self._pipe.abort()
        else:
            try:
                super().dataReceived(data)
            except ValueError:  # Autobahn decodes the whole head
                self._settle(DialFailed("answered with a head that is not text"))
                self._pipe.abort()

    def _refused(self, status: bytes) -> None:
        """Fail: the server answered, but not with a WebSocket."""
        kind = DialFailed if status in _NOT_NOW else SubprotocolRefused
        self._settle(kind(f"answered with HTTP status {status.decode()}, not with {self._protocol}"))
        self._pipe.abort()

    def onOpen(self) -> None:
        """Finish, if the subprotocol is confirmed."""
        leftover, self.data = self.data, b""
        spoken = self.websocket_protocol_in_use
        if spoken == self._protocol or (spoken is None and not self._echoed):
            self._settle(leftover)
        else:
            self._settle(SubprotocolRefused(f"does not speak {self._protocol}"))
            self._pipe.abort()

    def onClose(self, wasClean: bool, code: int | None, reason: str | None) -> None:
        """Fail, with Autobahn's reason up to the first colon or quotation: the rest quotes the response."""
        why = self.wasNotCleanReason or reason or _DROPPED
        if why.endswith(_DROPPED):
            self._settle(HandshakeDropped("closed the connection during the WebSocket handshake"))
        else:
            self._settle(DialFailed(_QUOTATION.split(why, maxsplit=1)[0].strip()))

    def forget(self) -> None:
        """Release the connection: Autobahn's objects are in a reference cycle."""
        del self._pipe, self.transport

    def _settle(self, result: bytes | DialFailed) -> None:
        if self.done.called:
            return
        if isinstance(result, bytes):
            self.done.callback(result)
        else:
            self.done.errback(result)

"""The agent's end of the relay for answers of the API server, which pass unparsed.

Only the first answer to an upgrade is read: with a status of 101, no HTTP follows.
"""

from __future__ import annotations

import re

from tower.http.requests import HEAD_LIMIT
from tower.net.pipes import Lender, Pipe, join

_STATUS = re.compile(rb"HTTP/1\.1 ([1-5][0-9]{2})[ \r]")


class ResponseRelay:
    """Receives from the API server and relays unparsed."""

    def __init__(self, channel: Pipe, upstream: Pipe) -> None:
        self._channel = channel
        self._upstream = upstream

    def received(self, data: memoryview) -> None:
        """Relay; pause the API server while the channel is full."""
        if not self._channel.send(data):
            self._upstream.pause()

    def ended(self) -> None:
        """Relay the end; the proxy then closes the channel."""
        self._channel.finish()

    def drained(self) -> None:
        """Resume the channel: the connection has room again."""
        self._channel.resume()

    def closed(self, reason: Exception) -> None:
        """Close the channel; without an end before, the proxy treats this as a cut connection."""
        self._channel.close()


class DirectResponseRelay(ResponseRelay):
    """The same without a copy: bytes are received into the channel's buffer."""

    def __init__(self, channel: Lender, upstream: Pipe) -> None:
        super().__init__(channel, upstream)
        #: Returns the buffer for received bytes; None pauses until the channel has room.
        self.buffer = channel.lease
        #: Sends the received bytes.
        self.filled = channel.commit


class UpgradeResponseRelay(ResponseRelay):
    """Receives the answer to an upgrade, the first on its channel."""

    def __init__(self, channel: Pipe, upstream: Pipe) -> None:
        super().__init__(channel, upstream)
        self._head = b""

    def received(self, data: memoryview) -> None:
        """Wait for the complete head of the final answer."""
        self._head += data
        while True:
            stop = self._head.find(b"\r\n\r\n") + 4
            match = _STATUS.match(self._head)
            if stop < 4 and len(self._head) <= HEAD_LIMIT and (match or len(self._head) < 13):
                return
            code = match[1] if match and stop >= 4 else b""
            if not code.startswith(b"1") or code == b"101":
                break
            if not self._channel.send(self._head[:stop]):  # an interim answer
                self._upstream.pause()
            self._head = self._head[stop:]
        head, self._head = self._head, b""
        if code == b"101":
            self._channel.send(head)
            join(self._channel, self._upstream)
            return
        self._upstream.receiver = ResponseRelay(self._channel, self._upstream)
        self._upstream.receiver.received(memoryview(head))
        self._channel.resume()

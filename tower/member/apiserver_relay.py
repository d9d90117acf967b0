"""The agent's end of the relay: requests are checked and followed, answers spliced back as they come.

One accepted channel of the target ``kubernetes`` is joined with one connection to the API server.  Whatever
the proxy sends is either the head of a request, which `Rewrite` has to accept, or belongs to the body of
one; nothing passes unchecked, because with a client certificate a smuggled request would run as the agent.

An upgrade has to be the first request on its channel.  So the first bytes of an answer are certainly the
answer to it, and if they say 101 the agent has itself seen that what follows is no HTTP.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeAlias

from twisted.logger import Logger

from tower.errors import PeerError
from tower.http.bodies import BadBody, ChunkedBody
from tower.http.requests import HEAD_LIMIT
from tower.kube import status
from tower.kube.head_policy import CHUNKED, Refusal, Rewritten
from tower.member.unfinished_heads import HEAD_TIMEOUT, UnfinishedHeads
from tower.net.pipes import Lender, Pipe, as_lender, join

#: Checks a request's head and returns it as it goes to the API server; `tower.kube.head_policy.HeadPolicy.rewrite`.
Rewrite: TypeAlias = Callable[[bytes], "Rewritten | Refusal"]

_STATUS = re.compile(rb"HTTP/1\.1 ([1-5][0-9]{2})[ \r]")


class _RefusedRequest(PeerError):
    """What the proxy sent is not passed on.

    :ivar code: the status to answer with.
    """

    def __init__(self, text: str, code: int = 403) -> None:
        super().__init__(text)
        self.code = code


def _too_long() -> _RefusedRequest:
    return _RefusedRequest(f"the head of the request is longer than {HEAD_LIMIT} B", 431)


class RequestRelay:
    """Receives requests from the proxy.

    It owns both pipes from `start` on.

    :param unfinished: counts what waits for the end of a head; None: nobody does.
    :ivar requests: how many were passed on.
    """

    __slots__ = (
        "_channel",
        "_chunks",
        "_left",
        "_over",
        "_partial",
        "_rewrite",
        "_unfinished",
        "_upstream",
        "_waits",
        "requests",
    )

    _log = Logger()

    def __init__(
        self, channel: Pipe, upstream: Pipe, rewrite: Rewrite, unfinished: UnfinishedHeads | None = None
    ) -> None:
        self._unfinished = unfinished
        self._waits = False  # is counted there
        self._channel = channel
        self._upstream = upstream
        self._rewrite = rewrite
        self._partial = b""  # of a head
        self._left = 0  # of a body of known length
        self._chunks: ChunkedBody | None = None  # a chunked body that goes on
        self._over = False  # takes no more requests
        self.requests = 0

    def start(self) -> None:
        """Become the receiver of both pipes and resume them."""
        if self._unfinished is not None:
            self._waits = True
            self._unfinished.opened(self)
        self._channel.receiver = self
        self._upstream.receiver = self._answers()
        self._upstream.resume()
        self._channel.resume()

    def _answers(self) -> ResponseRelay:
        lender = as_lender(self._channel)
        if lender is None:
            return ResponseRelay(self._channel, self._upstream)
        return DirectResponseRelay(lender, self._upstream)

    def received(self, data: memoryview) -> None:
        """Pass on what is allowed."""
        size = len(data)
        if self._left >= size:
            self._left -= size
            self._send(data)
        elif self._over:
            self._channel.abort()  # after a refusal or an upgrade nothing may come
        elif self._left or self._chunks is not None:
            self._follow(bytes(data))
        else:
            head = self._partial + data if self._partial else bytes(data)
            end = head.find(b"\r\n\r\n")
            if end < 0 or end + 4 < len(head):
                self._follow(head)
            else:
                self._begin(head)

    def _begin(self, head: bytes) -> None:
        """Pass on *head*, behind which nothing came: so do most requests."""
        self._partial = b""
        try:
            checked = self._check(head, alone=True)
        except _RefusedRequest as e:
            self._refuse([], str(e), e.code)
        else:
            if not self._upstream.send(checked):
                self._channel.pause()

    def _follow(self, data: bytes) -> None:
        """Pass on *data*, which begins where a head or the rest of a body does."""
        self._partial = b""
        passed: list[bytes] = []
        position, size = 0, len(data)
        try:
            while position < size:
                if self._left or self._chunks is not None:
                    stop = self._end_of_body(data, position)
                    passed.append(data[position:stop])
                else:
                    stop = data.find(b"\r\n\r\n", position) + 4
                    if stop < 4:
                        self._keep(data[position:])
                        break
                    passed.append(self._check(data[position:stop], alone=stop == size))
                position = stop
        except _RefusedRequest as e:
            self._refuse(passed, str(e), e.code)
            return
        except BadBody as e:
            self._refuse(passed, str(e), 403)
            return
        if passed:
            self._send(passed[0] if len(passed) == 1 else b"".join(passed))

    def _end_of_body(self, data: bytes, position: int) -> int:
        """Return up to where *data* belongs to the body under way."""
        size = len(data)
        if self._chunks is None:
            stop = min(size, position + self._left)
            self._left -= stop - position
            return stop
        stop = self._chunks.feed(data, position)
        if stop < 0:
            return size
        self._chunks = None
        return stop

    def _check(self, head: bytes, *, alone: bool) -> bytes:
        """Return *head* as it goes to the API server.

        :param alone: nothing came behind it.
        """
        if len(head) > HEAD_LIMIT:
            raise _too_long()
        if self._waits:
            self._wait_no_more()
        rewritten = self._rewrite(head)
        if isinstance(rewritten, Refusal):
            raise _RefusedRequest(rewritten.text)
        if rewritten.upgrade:
            if self.requests or rewritten.length or not alone:
                raise _RefusedRequest("an upgrade comes alone, and first on its channel")
            self._await_upgrade()
        elif rewritten.length == CHUNKED:
            self._chunks = ChunkedBody()
        else:
            self._left = rewritten.length
        self.requests += 1
        return rewritten.head

    def _keep(self, partial: bytes) -> None:
        """Keep the beginning of a head."""
        if len(partial) > HEAD_LIMIT:
            raise _too_long()
        if self._unfinished is not None:
            if not self._unfinished.keep(self, len(partial)):
                raise _RefusedRequest("the agent has no memory for more incomplete request heads", 503)
            self._waits = True
        self._partial = partial

    def too_slow(self) -> None:
        """See `tower.member.unfinished_heads.Stream`."""
        self._refuse([], f"the head of the request was not whole after {HEAD_TIMEOUT:g} s", 408)

    def _wait_no_more(self) -> None:
        """Note that there is a whole head, or that there will be none."""
        self._partial = b""
        if self._unfinished is not None and self._waits:
            self._waits = False
            self._unfinished.done(self)

    def _send(self, data: bytes | memoryview) -> None:
        if not self._upstream.send(data):
            self._channel.pause()

    def _await_upgrade(self) -> None:
        """Wait for the answer; what comes before it waits in the channel."""
        self._over = True
        self._channel.pause()
        self._upstream.receiver = _UpgradeResponseRelay(self, self._channel, self._upstream)

    def _refuse(self, passed: list[bytes], text: str, code: int) -> None:
        """Answer *code* in the API server's place, and take no more."""
        self._over = True
        self._wait_no_more()
        self._log.info("refused a request: {text}", text=text)
        if passed:
            self._upstream.send(b"".join(passed))
        self._upstream.receiver = _ClosingReceiver()
        self._upstream.close()
        self._channel.receiver = _RefusedReceiver(self._channel)  # which holds no connection
        self._channel.send(status.status_response(status.StatusError(code, text), close=True))
        self._channel.finish()  # the proxy closes it when it has read that

    def ended(self) -> None:
        """The proxy wants no answers any more."""
        self._wait_no_more()
        self._channel.close()
        self._upstream.abort()

    def drained(self) -> None:
        """The channel takes answers again."""
        self._upstream.resume()

    def closed(self, reason: Exception) -> None:
        """The channel is gone: the API server shall stop what it does for it."""
        self._wait_no_more()
        self._upstream.abort()


class _RefusedReceiver:
    """Receives from a channel on which nothing may come any more; the proxy may leave it open for long."""

    def __init__(self, channel: Pipe) -> None:
        self._channel = channel

    def received(self, data: memoryview) -> None:
        """Cut it."""
        self._channel.abort()

    def ended(self) -> None:
        """The proxy has read the refusal."""
        self._channel.close()

    def drained(self) -> None:
        """Nothing waits."""

    def closed(self, reason: Exception) -> None:
        """Nothing is held."""


class ResponseRelay:
    """Receives what the API server sends and passes it on unparsed."""

    def __init__(self, channel: Pipe, upstream: Pipe) -> None:
        self._channel = channel
        self._upstream = upstream

    def received(self, data: memoryview) -> None:
        """Pass on; a full channel stops the API server."""
        if not self._channel.send(data):
            self._upstream.pause()

    def ended(self) -> None:
        """Pass the end on; the proxy closes the channel then."""
        self._channel.finish()

    def drained(self) -> None:
        """The API server takes bytes again."""
        self._channel.resume()

    def closed(self, reason: Exception) -> None:
        """Take no more from the proxy; without an end before, it sees a cut in this, which it is."""
        self._channel.close()


class DirectResponseRelay(ResponseRelay):
    """The same without a copy: bytes are received where the channel wants them."""

    def __init__(self, channel: Lender, upstream: Pipe) -> None:
        super().__init__(channel, upstream)
        #: Where the connection puts bytes; None stops it until the channel has room.
        self.buffer = channel.lease
        #: Sends what was put there.
        self.filled = channel.commit


class _UpgradeResponseRelay(ResponseRelay):
    """Receives the answer to an upgrade, the first on its channel."""

    def __init__(self, end: RequestRelay, channel: Pipe, upstream: Pipe) -> None:
        super().__init__(channel, upstream)
        self._end = end
        self._head = b""

    def received(self, data: memoryview) -> None:
        """Wait for the whole head of the final answer."""
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


class _ClosingReceiver:
    """Receives from a connection that is being closed."""

    def received(self, data: memoryview) -> None:
        """Nobody wants it."""

    def ended(self) -> None:
        """Nobody waits for it."""

    def drained(self) -> None:
        """Nothing waits."""

    def closed(self, reason: Exception) -> None:
        """That was the aim."""

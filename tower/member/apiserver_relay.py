"""The agent's end of the relay: requests are checked, answers are relayed unparsed.

One channel of the target ``kubernetes`` is joined with one connection to the API server.  All bytes from the
proxy belong to a head, which `Rewrite` must accept, or to a body.  Nothing passes unchecked: with a client
certificate, a smuggled request would run as the agent.

An upgrade must be the first request on its channel.  So the first bytes received are its answer, and with a
status of 101 the agent knows that no HTTP follows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from tower.errors import PeerError
from tower.http.bodies import BadBody, ChunkedBody
from tower.http.requests import HEAD_LIMIT
from tower.kube import status
from tower.kube.head_policy import CHUNKED, Refusal, Rewritten
from tower.kube.request_info import is_discovery
from tower.member.response_relay import DirectResponseRelay, ResponseRelay, UpgradeResponseRelay
from tower.member.unfinished_heads import HEAD_TIMEOUT, UnfinishedHeads
from tower.net.pipes import Pipe, as_lender
from tower.reactor.log_batch import Summary

#: Checks and rewrites a request's head: `tower.kube.head_policy.HeadPolicy.rewrite`.
Rewrite: TypeAlias = Callable[[bytes], "Rewritten | Refusal"]


class _RefusedRequest(PeerError):
    """A request is rejected.

    :ivar code: status of the answer.
    :ivar warn: whether the answer repeats the text in a ``Warning`` line, for clients that show no other.
    """

    def __init__(self, text: str, code: int = 403, *, warn: bool = False) -> None:
        super().__init__(text)
        self.code = code
        self.warn = warn


def _too_long() -> _RefusedRequest:
    return _RefusedRequest(f"the request head is longer than {HEAD_LIMIT} B", 431)


class RequestRelay:
    """Receives requests from the proxy; owns both pipes from `start` on.

    :param rejections: summarizes the log lines about rejected requests.
    :param unfinished: limits the agent's incomplete heads; None: no limit.
    """

    __slots__ = (
        "_channel",
        "_chunks",
        "_left",
        "_over",
        "_partial",
        "_rejections",
        "_rewrite",
        "_unfinished",
        "_upstream",
        "_waits",
        "requests",
    )

    def __init__(
        self,
        channel: Pipe,
        upstream: Pipe,
        rewrite: Rewrite,
        rejections: Summary,
        unfinished: UnfinishedHeads | None = None,
    ) -> None:
        self._rejections = rejections
        self._unfinished = unfinished
        self._waits = False  # is registered there
        self._channel = channel
        self._upstream = upstream
        self._rewrite = rewrite
        self._partial = b""  # incomplete head
        self._left = 0  # of a body of known length
        self._chunks: ChunkedBody | None = None  # the chunked body in progress
        self._over = False  # accepts no more requests
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
        """Check and forward."""
        size = len(data)
        if self._left >= size:
            self._left -= size
            self._send(data)
        elif self._over:
            self._channel.abort()  # nothing may follow a rejected request or an upgrade
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
        """Forward *head*, without data after it: the common case."""
        self._partial = b""
        try:
            checked = self._check(head, alone=True)
        except _RefusedRequest as e:
            self._refuse([], e)
        else:
            if not self._upstream.send(checked):
                self._channel.pause()

    def _follow(self, data: bytes) -> None:
        """Forward *data*, which begins with a head or the rest of a body."""
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
            self._refuse(passed, e)
            return
        except BadBody as broken:
            self._refuse(passed, _RefusedRequest(str(broken)))
            return
        if passed:
            self._send(passed[0] if len(passed) == 1 else b"".join(passed))

    def _end_of_body(self, data: bytes, position: int) -> int:
        """Return the end position, in *data*, of the body in progress."""
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
        """Return *head* as it is sent to the API server.

        :param alone: no data follows it.
        """
        if len(head) > HEAD_LIMIT:
            raise _too_long()
        if self._waits:
            self._end_wait()
        rewritten = self._rewrite(head)
        if isinstance(rewritten, Refusal):
            target = head.partition(b" ")[2].partition(b" ")[0]
            raise _RefusedRequest(rewritten.text, warn=is_discovery(target))
        if rewritten.upgrade:
            if self.requests or rewritten.length or not alone:
                raise _RefusedRequest("an upgrade must be the only request on its channel")
            self._await_upgrade()
        elif rewritten.length == CHUNKED:
            self._chunks = ChunkedBody()
        else:
            self._left = rewritten.length
        self.requests += 1
        return rewritten.head

    def _keep(self, partial: bytes) -> None:
        """Keep an incomplete head."""
        if len(partial) > HEAD_LIMIT:
            raise _too_long()
        if self._unfinished is not None:
            if not self._unfinished.keep(self, len(partial), self._timed_out):
                raise _RefusedRequest(
                    "the agent has no memory for more incomplete request heads: retry later", 503, warn=True
                )
            self._waits = True
        self._partial = partial

    def _timed_out(self) -> None:
        text = f"the request head was incomplete after {HEAD_TIMEOUT:g} s"
        self._refuse([], _RefusedRequest(text, 408))

    def _end_wait(self) -> None:
        """Drop the incomplete head: it is complete now, or never will be."""
        self._partial = b""
        if self._unfinished is not None and self._waits:
            self._waits = False
            self._unfinished.done(self)

    def _send(self, data: bytes | memoryview) -> None:
        if not self._upstream.send(data):
            self._channel.pause()

    def _await_upgrade(self) -> None:
        """Wait for the answer; data from the proxy waits in the channel."""
        self._over = True
        self._channel.pause()
        self._upstream.receiver = UpgradeResponseRelay(self._channel, self._upstream)

    def _refuse(self, passed: list[bytes], error: _RefusedRequest) -> None:
        """Forward *passed*, answer with *error* instead of the API server, and end the channel."""
        text = str(error)
        self._over = True
        self._end_wait()
        what = f"requests were rejected with {error.code}"
        self._rejections.log(what, "rejected a request: {text}", text=text)
        if passed:
            self._upstream.send(b"".join(passed))
        self._upstream.receiver = _ClosingReceiver()
        self._upstream.close()
        self._channel.receiver = _RefusedReceiver(self._channel)  # holds no connection
        refusal = status.StatusError(error.code, text)
        self._channel.send(status.status_response(refusal, close=True, warn=error.warn))
        self._channel.finish()  # the proxy closes the channel after reading the answer

    def ended(self) -> None:
        """Close both pipes: the proxy needs no more answers."""
        self._end_wait()
        self._channel.close()
        self._upstream.abort()

    def drained(self) -> None:
        """Resume the API server: the channel has room again."""
        self._upstream.resume()

    def closed(self, reason: Exception) -> None:
        """Abort the connection, so that the API server cancels the request."""
        self._end_wait()
        self._upstream.abort()


class _RefusedReceiver:
    """Receives from a channel after a rejected request; the proxy may keep the channel open for long."""

    def __init__(self, channel: Pipe) -> None:
        self._channel = channel

    def received(self, data: memoryview) -> None:
        """Abort: no data is allowed."""
        self._channel.abort()

    def ended(self) -> None:
        """Close: the proxy has read the answer."""
        self._channel.close()

    def drained(self) -> None:
        """No-op."""

    def closed(self, reason: Exception) -> None:
        """No-op."""


class _ClosingReceiver:
    """Discards data from a connection that is being closed."""

    def received(self, data: memoryview) -> None:
        """No-op."""

    def ended(self) -> None:
        """No-op."""

    def drained(self) -> None:
        """No-op."""

    def closed(self, reason: Exception) -> None:
        """No-op."""

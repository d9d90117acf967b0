"""An API server in memory, as `tower.kube.client` reaches it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from twisted.internet.defer import succeed
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.web.http import HTTPChannel, HTTPFactory, Request

from tests.fakes.pipes import FakePipe
from tower.net.pipes import Pipe

#: Returns status and body of an answer, or None to leave it to the test.
Answers = Callable[[Request], tuple[int, bytes] | None]


class ServedPipe(FakePipe):
    """A pipe to an HTTP server, which answers when `serve` is called."""

    def __init__(self, factory: Any) -> None:
        super().__init__()
        self._channel = factory.buildProtocol(None)
        self._transport = StringTransport()
        self._channel.makeConnection(self._transport)

    def serve(self) -> None:
        """Let the server read the sent data, and deliver its answer."""
        if data := self.taken():
            self._channel.dataReceived(data)
        if answer := self._transport.value():
            self._transport.clear()
            self.deliver(answer)

    def close(self) -> None:
        """Close at once."""
        super().close()
        self.lose()


class Member:
    """An API server in memory.

    :ivar answer: makes what a request gets.
    :ivar requests: all so far.
    :ivar bodies: of the requests.
    """

    def __init__(self) -> None:
        self.clock = Clock()
        self.pipes: list[ServedPipe] = []
        self.requests: list[Request] = []
        self.bodies: list[bytes] = []
        self.answer: Answers = lambda _: (200, b"{}")
        member = self

        class Answering(Request):
            def process(self) -> None:
                member.requests.append(self)
                member.bodies.append(self.content.read())  # type: ignore[union-attr]
                self.content.seek(0)  # type: ignore[union-attr]
                answer = member.answer(self)
                if answer is None:
                    return
                code, body = answer
                self.setResponseCode(code)
                self.setHeader(b"content-length", b"%d" % len(body))
                self.write(body)
                self.finish()

        class Channel(HTTPChannel):
            requestFactory = Answering

        class Quiet(HTTPFactory):
            protocol: Any = Channel

            def log(self, request: Request) -> None:
                pass

        quiet: Any = Quiet
        self.factory = quiet(timeout=None, reactor=self.clock)

    def open(self) -> Awaitable[Pipe]:
        """Open a pipe."""
        self.pipes.append(ServedPipe(self.factory))
        return succeed(self.pipes[-1])

    def serve(self) -> None:
        """Deliver answers on all pipes until none is left."""
        for _ in range(12):
            for pipe in list(self.pipes):
                if not pipe.lost:
                    pipe.serve()

"""Common parts of stand-ins of clouds with JSON APIs: requests, responses, and scripted faults."""

from __future__ import annotations

import json
from collections.abc import Callable
from email.utils import formatdate
from typing import Any

from attrs import define, field, frozen
from twisted.web.iweb import IRequest
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET


@frozen
class Ask:
    """One request, as a stand-in judges it.

    :ivar query: the last value of each name.
    :ivar headers: by lower-case name.
    """

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        """Return the body, read as JSON.

        :raise ValueError: it is not JSON.
        """
        if self.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            raise ValueError("the content type is not application/json")
        return json.loads(self.body)


@frozen
class Reply:
    """A response.

    :ivar body: bytes unchanged; any other value as JSON.
    """

    code: int = 200
    body: Any = b""
    headers: dict[str, str] = field(factory=dict)

    def render(self) -> bytes:
        """Return the body as it is sent."""
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


class Refusal(Exception):
    """The real API would refuse this; carries the `Reply`."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(reply)
        self.reply = reply


@define
class Fault:
    """Trouble on order.

    :ivar reply: is sent in place of an answer; None: there is never one.
    :ivar times: so often.
    :ivar path: what the path of a request has in it that meets it.
    """

    reply: Reply | None
    times: int = 1
    path: str = ""


class RestResource(Resource):
    """Responds with *answer*, except for scripted faults.

    :param now: returns the time of the responses, s since the epoch; None: this machine's.
    :ivar asks: every request that came.
    :ivar refused: the requests that were refused, with the answer; faults on order do not count.
    :ivar faults: on order, the first that fits first.
    """

    isLeaf = True

    def __init__(self, answer: Callable[[Ask], Reply], now: Callable[[], float] | None = None) -> None:
        super().__init__()
        self._answer = answer
        self._now = now
        self.asks: list[Ask] = []
        self.refused: list[tuple[Ask, Reply]] = []
        self.faults: list[Fault] = []

    def render(self, request: IRequest) -> Any:
        """Answer *request*."""
        ask = _read(request)
        self.asks.append(ask)
        if self._now is not None:
            request.setHeader("Date", formatdate(self._now(), usegmt=True))
        for fault in self.faults:
            if fault.times and fault.path in ask.path:
                fault.times -= 1
                return NOT_DONE_YET if fault.reply is None else _send(request, fault.reply)
        try:
            return _send(request, self._answer(ask))
        except Refusal as refusal:
            self.refused.append((ask, refusal.reply))
            return _send(request, refusal.reply)

    def count(self, method: str, path: str) -> int:
        """Return how many requests of *method* came whose path ends in *path*."""
        return sum(each.method == method and each.path.endswith(path) for each in self.asks)


def _read(request: Any) -> Ask:
    headers = {
        name.decode().lower(): values[-1].decode()
        for name, values in request.requestHeaders.getAllRawHeaders()
    }
    query = {name.decode(): values[-1].decode() for name, values in request.args.items()}
    return Ask(request.method.decode(), request.path.decode(), query, headers, request.content.read())


def _send(request: Any, reply: Reply) -> bytes:
    request.setResponseCode(reply.code)
    if not isinstance(reply.body, bytes):
        request.setHeader("Content-Type", "application/json; charset=UTF-8")
    for name, value in reply.headers.items():
        request.setHeader(name, value)
    return reply.render()

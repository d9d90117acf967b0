"""Asks the API server of a cluster that is reached by SSH, with the credential that the proxy keeps for it.

The pipes come from elsewhere, with TLS up in them already; HTTP/1.1 over them is Twisted's own.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from urllib.parse import quote

from attrs import field, frozen
from twisted.internet.address import HostnameAddress
from twisted.internet.defer import Deferred
from twisted.internet.defer import TimeoutError as TooLate
from twisted.internet.interfaces import IProtocol, IProtocolFactory, IStreamClientEndpoint
from twisted.web.client import (
    URI,
    Agent,
    HTTPConnectionPool,
    RequestTransmissionFailed,
    ResponseNeverReceived,
)
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgentEndpointFactory, IResponse
from zope.interface import implementer

from tower.errors import TowerError
from tower.escaping import reported
from tower.http.client_bodies import NO_RESPONSE, Body, describe_failure, read_body
from tower.kube.canonical_head import identity_lines
from tower.kube.head_policy import Upstream
from tower.net.pipe_transport import connected
from tower.net.pipes import Pipe

#: How long one question and its answer may take, s.
TIMEOUT = 15.0

#: How long an answer may be, B; 500 nodes with all their images are some 10 MB.
ANSWER_LIMIT = 32 * 1024 * 1024

#: How long a connection is kept for the next question, s; it holds one node's tunnel.
IDLE = 5

#: How many objects a list is asked for at once, and how many it may have.
PAGE_SIZE = 500
OBJECT_LIMIT = 100_000

_EXPIRED = 410


class APIError(TowerError):
    """The API server did not answer, or not as asked.

    :ivar method: of the request.
    :ivar path: of the request, without its query.
    :ivar code: HTTP status; 0 when there was no answer.
    :ivar message: of the Status, or what there was instead of an answer.
    """

    def __init__(self, method: str, path: str, code: int, message: str) -> None:
        answer = f"answered {code}: {message}" if code else f"no answer: {message}"
        super().__init__(f"{method} {path}: {answer}")
        self.method, self.path, self.code, self.message = method, path, code, message


@frozen
class APIResponse:
    """What the API server said.

    :ivar code: HTTP status.
    :ivar body: complete.
    """

    code: int
    body: bytes = field(repr=False)


class APIClient:
    """:param reactor: has ``callLater``.
    :param open_pipe: opens a pipe to the API server, paused, with TLS up in it.
    :param upstream: returns what heads need now; see `tower.kube.apiserver.APIServer.upstream`.
    :param timeout: for each question, s.
    :param limit: of each answer, B.
    :param persistent: keep connections for a while; False: one for each question.
    """

    def __init__(
        self,
        reactor: Any,
        open_pipe: Callable[[], Awaitable[Pipe]],
        upstream: Callable[[], Upstream],
        *,
        timeout: float = TIMEOUT,
        limit: int = ANSWER_LIMIT,
        persistent: bool = True,
    ) -> None:
        self._reactor = reactor
        self._upstream = upstream
        self._timeout = timeout
        self._limit = limit
        self._pool = HTTPConnectionPool(reactor, persistent)
        self._pool.cachedConnectionTimeout = IDLE
        self._agent: Agent = Agent.usingEndpointFactory(reactor, _PipeEndpointFactory(open_pipe), self._pool)

    async def get(self, path: str) -> Any:
        """Return the object at *path*, which may have a query.

        :raise MemberAPIError: there is no answer, or not such a one.
        """
        return _value("GET", path, await self.ask("GET", path))

    async def items(self, path: str) -> list[Any]:
        """Return what is in the list at *path*, asked for in pages; one that expired is begun anew, once.

        :raise MemberAPIError: there is no answer, or not such a one.
        """
        try:
            return await self._items(path)
        except APIError as e:
            if e.code != _EXPIRED:
                raise
        return await self._items(path)

    async def _items(self, path: str) -> list[Any]:
        items: list[Any] = []
        first = f"{path}{'&' if '?' in path else '?'}limit={PAGE_SIZE}"
        page = first
        while True:
            answer = await self.get(page)
            if not isinstance(answer, dict) or not isinstance(answer.get("items"), list):
                raise APIError("GET", _bare(path), 200, "that is no list")
            items += answer["items"]
            rest = (answer.get("metadata") or {}).get("continue")
            if not rest:
                return items
            if not answer["items"] or len(items) > OBJECT_LIMIT:
                raise APIError("GET", _bare(path), 200, f"a list without an end, {len(items)} items so far")
            page = f"{first}&continue={quote(str(rest), safe='')}"

    async def post(
        self,
        path: str,
        body: Any,
        *,
        user: str | None = None,
        groups: Sequence[str] = (),
        repeatable: bool = False,
    ) -> Any:
        """Post *body* as JSON and return the object that comes back.

        :param user: to act as, with *groups*; None: as the credential itself.
        :param repeatable: it changes nothing, so it may be sent again if the connection broke under it.
        :raise MemberAPIError: there is no answer, or not such a one.
        :raise Invalid: a name cannot be sent.
        """
        data = json.dumps(body).encode()
        answer = await self.ask("POST", path, data, user=user, groups=groups, repeatable=repeatable)
        return _value("POST", path, answer)

    async def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        user: str | None = None,
        groups: Sequence[str] = (),
        repeatable: bool = False,
    ) -> APIResponse:
        """Return the answer as it is, whatever its status.

        :param body: JSON.
        :param repeatable: see `post`; what has no body always is.
        :raise MemberAPIError: there is none, it came too late, or it is too long.
        :raise Invalid: a name cannot be sent.
        """
        upstream = self._upstream()
        headers = _headers(upstream, user, groups, has_body=body is not None)
        target = _ORIGIN + upstream.prefix + path.encode("ascii")
        asking = Deferred.fromCoroutine(
            self._ask(method.encode("ascii"), target, headers, body, repeatable=repeatable)
        )
        asking.addTimeout(self._timeout, self._reactor, _too_late)
        try:
            return await asking
        except NO_RESPONSE as e:
            raise APIError(method, _bare(path), 0, describe_failure(e)) from None

    async def _ask(
        self, method: bytes, target: bytes, headers: Headers, body: bytes | None, *, repeatable: bool
    ) -> APIResponse:
        try:
            response = await self._send(method, target, headers, body)
        except (ResponseNeverReceived, RequestTransmissionFailed):
            if not repeatable:
                raise
            response = await self._send(method, target, headers, body)
        return APIResponse(response.code, await read_body(response, self._limit))

    def _send(
        self, method: bytes, target: bytes, headers: Headers, body: bytes | None
    ) -> Deferred[IResponse]:
        return self._agent.request(method, target, headers, None if body is None else Body(body))

    def close(self) -> None:
        """Close the connections that wait for another question."""
        self._pool.closeCachedConnections()


def _headers(upstream: Upstream, user: str | None, groups: Sequence[str], *, has_body: bool) -> Headers:
    headers = Headers({b"User-Agent": [b"tower-proxy"], b"Accept": [b"application/json"]})
    if has_body:
        headers.addRawHeader(b"Content-Type", b"application/json")
    lines = upstream.host_line + upstream.credential_line
    if user is not None:
        lines += identity_lines(user, groups)
    for line in lines.splitlines():
        name, _, value = line.partition(b": ")
        headers.addRawHeader(name, value)
    return headers


def _value(method: str, path: str, answer: APIResponse) -> Any:
    """Return the object in *answer*.

    :raise MemberAPIError: it is a failure, or no object.
    """
    try:
        value = json.loads(answer.body)
    except (ValueError, RecursionError):
        value = None
    if 200 <= answer.code < 300 and value is not None:
        return value
    message = value.get("message") if isinstance(value, dict) else None
    said = message if isinstance(message, str) else answer.body
    told = reported("the API server", said) if said else "an empty body"
    raise APIError(method, _bare(path), answer.code, told)


def _bare(path: str) -> str:
    return path.partition("?")[0]


def _too_late(_result: object, timeout: float) -> None:
    raise TooLate(f"it took longer than {timeout:g} s")


@implementer(IAgentEndpointFactory)
class _PipeEndpointFactory:
    """Leads to the same place whatever the URL says."""

    def __init__(self, open_pipe: Callable[[], Awaitable[Pipe]]) -> None:
        self._open_pipe = open_pipe

    def endpointForURI(self, uri: URI) -> IStreamClientEndpoint:
        """Return the only endpoint that there is."""
        return _PipeEndpoint(self._open_pipe)


@implementer(IStreamClientEndpoint)
class _PipeEndpoint:
    """Runs a protocol on a pipe that is opened for it."""

    def __init__(self, open_pipe: Callable[[], Awaitable[Pipe]]) -> None:
        self._open_pipe = open_pipe

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:
        """Open a pipe; cancelling leaves nothing behind if opening does."""
        return connected(Deferred.fromCoroutine(self._open()), protocolFactory, _MEMBER)

    async def _open(self) -> tuple[Pipe, bytes]:
        return await self._open_pipe(), b""


#: What the host in the URL is does not matter: there is one place to go, and the head says another.
_ORIGIN = b"http://member"
_MEMBER = HostnameAddress(b"member", 80)

"""A client of the API server of a member: the agent's, or the proxy's for a cluster of type ssh.

The caller opens the pipes, after the TLS handshake; HTTP/1.1 is `twisted.web.client`'s.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar
from urllib.parse import quote

from attrs import field, frozen
from twisted.internet import defer
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.web.client import RequestTransmissionFailed, ResponseNeverReceived
from twisted.web.http_headers import Headers
from twisted.web.iweb import IResponse

from tower.errors import TowerError
from tower.escaping import reported
from tower.http.client_bodies import NO_RESPONSE, cause_of, describe_failure, read_body
from tower.http.pipe_agent import PipeAgent
from tower.kube.canonical_head import identity_lines
from tower.kube.head_fields import Upstream
from tower.net.pipes import Pipe

#: Timeout of one request, with its answer, s.
TIMEOUT = 15.0

#: Largest answer, B; 500 nodes with all their images take about 10 MB.
ANSWER_LIMIT = 32 * 1024 * 1024

#: Objects per page of a list, and most objects of a list.
PAGE_SIZE = 500
OBJECT_LIMIT = 100_000

#: Media types of bodies.
JSON = b"application/json"
MERGE_PATCH = b"application/merge-patch+json"

_EXPIRED = 410

T = TypeVar("T")

#: Method, path with prefix and query, and header fields.
_Head = tuple[bytes, bytes, Headers]

#: End of an error of an admission webhook, with the cure.
WEBHOOK_CURE = (
    ": KubeSphere's webhook allows changes of a cluster only with --kubesphere-compat, while an agent is "
    "connected, and if the user kubesphere has rights in the cluster; for another webhook, correct what it "
    "reports"
)

#: The API server's words for a webhook that denied a request, or failed; `reported` escapes the quotes.
_WEBHOOK = re.compile(r'webhook \\?"([^"\\]+)')

#: Delays in seconds; dates are not used by API servers.
_SECONDS = re.compile(rb"[0-9]{1,5}")


class APIError(TowerError):
    """The API server did not answer, or answered with an error or an unexpected object.

    :ivar path: of the request, without its query.
    :ivar code: HTTP status; 0 without an answer.
    :ivar message: of the Status, or the reason why there is no answer.
    :ivar cause: the error that prevented an answer; None if there is an answer.
    :ivar reason: of the Status, such as ``AlreadyExists``; may be empty.
    :ivar retry_after: delay that the server requests, s; 0 without one.
    """

    def __init__(
        self,
        method: str,
        path: str,
        code: int,
        message: str,
        cause: BaseException | None = None,
        *,
        reason: str = "",
        retry_after: float = 0,
    ) -> None:
        answer = f"answered {code}: {message}" if code else f"no answer: {message}"
        super().__init__(f"{method} {path}: {answer}")
        self.method, self.path, self.code, self.message, self.cause = method, path, code, message, cause
        self.reason, self.retry_after = reason, retry_after

    @property
    def webhook(self) -> str:
        """The name of the admission webhook that denied the request, or did not answer; empty: none did."""
        found = _WEBHOOK.search(self.message)
        return "" if found is None else found[1]


@frozen
class APIResponse:
    """An answer of the API server.

    :ivar code: HTTP status.
    :ivar body: complete.
    :ivar date: value of the field ``Date``; empty without one.
    :ivar retry_after: delay in the field ``Retry-After``, s; 0 without one.
    """

    code: int
    body: bytes = field(repr=False)
    date: str = ""
    retry_after: float = 0


class APIClient:
    """Sends requests to one API server.

    :param open_pipe: opens a paused pipe to the API server, after the TLS handshake.
    :param upstream: returns the current `Upstream`; see `tower.kube.apiserver.APIServer.upstream`.
    :param timeout: of each request, s.
    :param limit: of each answer, B.
    :param persistent: keep connections for some seconds; False: one connection per request.
    :param kept: most connections that are kept.
    :param program: value of the field ``User-Agent``.
    """

    def __init__(
        self,
        reactor: IReactorTime,
        open_pipe: Callable[[], Awaitable[Pipe]],
        upstream: Callable[[], Upstream],
        *,
        timeout: float = TIMEOUT,
        limit: int = ANSWER_LIMIT,
        persistent: bool = True,
        kept: int = 2,
        program: bytes = b"tower-proxy",
    ) -> None:
        self._reactor = reactor
        self._program = program
        self._upstream = upstream
        self._timeout = timeout
        self._limit = limit
        self._agent = PipeAgent(reactor, open_pipe, kept if persistent else 0)

    async def get(self, path: str) -> Any:
        """Return the object at *path*, which may have a query.

        :raise APIError: the request failed.
        """
        return value_of("GET", path, await self.request("GET", path))

    async def items(self, path: str) -> list[Any]:
        """Return the items of the list at *path*, read in pages; restarts once if the list expires.

        :raise APIError: the request failed.
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
                raise APIError("GET", bare(path), 200, "not a list")
            items += answer["items"]
            token = (answer.get("metadata") or {}).get("continue")
            if not token:
                return items
            if not answer["items"] or len(items) > OBJECT_LIMIT:
                raise APIError("GET", bare(path), 200, f"endless list, {len(items)} items so far")
            page = f"{first}&continue={quote(str(token), safe='')}"

    async def post(
        self,
        path: str,
        body: Any,
        *,
        user: str | None = None,
        groups: Sequence[str] = (),
        repeatable: bool = False,
    ) -> Any:
        """Post *body* as JSON and return the object of the answer.

        :param user: to impersonate, with *groups*; None: the credential's own user.
        :param repeatable: safe to retry if the connection breaks.
        :raise APIError: the request failed.
        :raise Invalid: a name does not fit a header field.
        """
        data = json.dumps(body).encode()
        answer = await self.request("POST", path, data, user=user, groups=groups, repeatable=repeatable)
        return value_of("POST", path, answer)

    async def patch(self, path: str, patch: Any) -> Any:
        """Apply a JSON merge patch (RFC 7396) and return the changed object.

        With ``metadata.resourceVersion``, the API server answers 409 if the object has another version.

        :raise APIError: the request failed.
        """
        data = json.dumps(patch).encode()
        return value_of("PATCH", path, await self.request("PATCH", path, data, media=MERGE_PATCH))

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        user: str | None = None,
        groups: Sequence[str] = (),
        repeatable: bool = False,
        media: bytes = JSON,
    ) -> APIResponse:
        """Return the answer, regardless of its status.

        :param body: JSON.
        :param media: media type of *body*.
        :param repeatable: see `post`; requests without a body always are.
        :raise APIError: no answer within the timeout, or too large an answer.
        :raise Invalid: a name does not fit a header field.
        """
        head = self._head(method, path, user, groups, b"" if body is None else media)
        doing = self._request(head, body, repeatable=repeatable or body is None)
        return await self._limited(method, path, doing)

    async def open(self, path: str) -> IResponse:
        """Return the response of a GET, whose body is still to be delivered.

        :raise APIError: no response head within the timeout.
        """
        head = self._head("GET", path, None, (), b"")
        return await self._limited("GET", path, self._response(head, None, repeatable=True))

    def _head(self, method: str, path: str, user: str | None, groups: Sequence[str], media: bytes) -> _Head:
        upstream = self._upstream()
        headers = _headers(upstream, user, groups, media)
        headers.setRawHeaders(b"User-Agent", [self._program])
        return method.encode("ascii"), upstream.prefix + path.encode("ascii"), headers

    async def _limited(self, method: str, path: str, doing: Coroutine[Deferred[Any], Any, T]) -> T:
        answer = Deferred.fromCoroutine(doing)
        answer.addTimeout(self._timeout, self._reactor, _timed_out)
        try:
            return await answer
        except NO_RESPONSE as e:
            raise APIError(method, bare(path), 0, describe_failure(e), cause_of(e)) from None

    async def _request(self, head: _Head, body: bytes | None, *, repeatable: bool) -> APIResponse:
        response = await self._response(head, body, repeatable=repeatable)
        (date,) = response.headers.getRawHeaders(b"date", [b""])[:1]
        content = await read_body(response, self._limit)
        return APIResponse(response.code, content, date.decode("ascii", "replace"), retry_after(response))

    async def _response(self, head: _Head, body: bytes | None, *, repeatable: bool) -> IResponse:
        try:
            return await self._agent.request(*head, body)
        except (ResponseNeverReceived, RequestTransmissionFailed):
            if not repeatable:
                raise
            return await self._agent.request(*head, body)

    def close(self) -> None:
        """Close idle connections."""
        self._agent.close()


def _headers(upstream: Upstream, user: str | None, groups: Sequence[str], media: bytes) -> Headers:
    headers = Headers({b"Accept": [JSON]})
    if media:
        headers.addRawHeader(b"Content-Type", media)
    lines = upstream.host_line + upstream.credential_line
    if user is not None:
        lines += identity_lines(user, groups)
    for line in lines.splitlines():
        name, _, value = line.partition(b": ")
        headers.addRawHeader(name, value)
    return headers


def retry_after(response: IResponse) -> float:
    """Return the delay in a response's ``Retry-After`` in seconds; 0 without one."""
    (delay,) = response.headers.getRawHeaders(b"retry-after", [b""])[:1]
    return float(delay) if _SECONDS.fullmatch(delay) else 0


def value_of(method: str, path: str, answer: APIResponse, server: str = "the API server") -> Any:
    """Return the object in *answer*.

    :param server: names the sender in the error.
    :raise APIError: it is an error, or not JSON.
    """
    try:
        value = json.loads(answer.body)
    except (ValueError, RecursionError):
        value = None
    if 200 <= answer.code < 300 and value is not None:
        return value
    message = value.get("message") if isinstance(value, dict) else None
    text = message if isinstance(message, str) else answer.body
    detail = reported(server, text) if text else "an empty body"
    reason = value.get("reason") if isinstance(value, dict) else None
    raise APIError(
        method,
        bare(path),
        answer.code,
        detail,
        reason=reason if isinstance(reason, str) else "",
        retry_after=answer.retry_after,
    )


def bare(path: str) -> str:
    """Return *path* without its query."""
    return path.partition("?")[0]


def _timed_out(_result: object, timeout: float) -> None:
    raise defer.TimeoutError(f"it took longer than {timeout:g} s")

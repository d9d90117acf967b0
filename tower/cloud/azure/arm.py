"""Azure's resource manager: resources by path, lists page by page, long-running operations."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, TypeVar
from urllib.parse import SplitResult, urlsplit

from attrs import define, field
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater

from tower.cloud.errors import CloudAnswerError, CloudError, CloudUnreachable
from tower.cloud.http.answer import Answer, shorten
from tower.cloud.http.json_stream import EACH, Path, Shape, walk
from tower.cloud.session import CloudSession
from tower.cloud.token import RefreshedToken
from tower.reactor.cooperate import map_cooperatively

#: Maximum number of pages and of resources of a list.
PAGE_LIMIT, ITEM_LIMIT = 500, 100_000

#: Default and maximum delay between polls of an operation, s.
DEFAULT_DELAY, LONGEST_DELAY = 10.0, 60.0

#: Maximum pause after 429, s.
LONGEST_PAUSE = 1800.0

#: Timeout of an operation, s.
OPERATION_LIMIT = 900.0

#: A resource in the API's JSON.
Resource = dict[str, Any]

T = TypeVar("T")

_LIST: dict[Path, Shape] = {(): dict, ("value",): list, ("value", EACH): {}, ("nextLink",): str}

_DONE = "succeeded"
_OVER = frozenset(("failed", "canceled"))


class AzureError(CloudError):
    """Azure rejected a request, or an operation failed.

    :ivar status: HTTP status; 0: the operation failed later.
    :ivar code: Azure's error code, such as ``AuthorizationFailed``; may be empty.
    """

    def __init__(self, text: str, status: int, code: str) -> None:
        super().__init__(text)
        self.status = status
        self.code = code


class _ARMPage:
    """Iterates over the resources of a page.

    :ivar is_list: whether the response has a list; set at the end.
    :ivar next: URL of the next page, set at the end; empty: this is the last.
    """

    def __init__(self, answer: Answer) -> None:
        self.is_list = False
        self.next = ""
        self._answer = answer

    def __iter__(self) -> Iterator[Resource]:
        for path, value in walk(self._answer, _LIST):
            if path == ("value", EACH):
                yield value
            elif path == ("value",):
                self.is_list = True
            elif path == ("nextLink",):
                self.next = value


@define(eq=False, repr=False)
class ResourceManager:
    """The resource manager of one cloud.

    After 429 no requests are sent until the time of ``Retry-After``: they would count against the
    subscription's limits, which the cluster's own controllers share.

    :param address: without a trailing slash.
    """

    _session: CloudSession
    _clock: IReactorTime
    _address: str
    _token: RefreshedToken[str]
    _paused_until: float = field(default=float("-inf"), init=False)

    async def get(self, path: str, query: str) -> dict[str, Any]:
        """Return the resource at *path*.

        :param query: URL-encoded, with the API version.
        :raise AzureError: Azure rejects the request.
        """
        return _object(await self._send("GET", f"{self._address}{path}?{query}"))

    async def list(self, path: str, query: str, read: Callable[[Resource], T]) -> list[T]:
        """Return the results of *read* for all resources below *path*.

        :raise AzureError: Azure rejects the request.
        :raise CloudError: the list does not end, or has a link to another host.
        """
        found: list[T] = []
        url = f"{self._address}{path}?{query}"
        for _ in range(PAGE_LIMIT):
            page = _ARMPage(await self._send("GET", url))
            found += await map_cooperatively(self._clock, page, read)
            if not page.is_list:
                raise CloudError(f"{self._address}{path}: the response has no list")
            if not page.next:
                return found
            url = self._own(page.next)
            if len(found) > ITEM_LIMIT:
                break
        raise CloudError(f"{self._address}{path}: more than {ITEM_LIMIT} resources, or {PAGE_LIMIT} pages")

    async def put(self, path: str, query: str, resource: Mapping[str, Any]) -> None:
        """Create or change a resource, and wait for the operation.

        :raise AzureError: Azure rejects it, or the operation failed.
        :raise CloudUnreachable: it did not end within `OPERATION_LIMIT`.
        """
        url = f"{self._address}{path}?{query}"
        answer = await self._send("PUT", url, json.dumps(resource).encode(), (200, 201, 202))
        ends = self._clock.seconds() + OPERATION_LIMIT
        operation, location = answer.header("azure-asyncoperation"), answer.header("location")
        state = ""
        # If there is an operation, the state in this response is not that of the work.
        if operation:
            url, state_of = self._own(operation), _state_of_operation
        elif answer.code == 202 and location:
            url, state_of = self._own(location), _state_of_location
        else:
            state_of = _state_of_resource
            state = state_of(answer)
        while state != _DONE:
            if state in _OVER:
                raise _failure(path, state, answer)
            wait = _delay(answer)
            if self._clock.seconds() + wait > ends:
                raise CloudUnreachable(f"{path}: not done within {OPERATION_LIMIT:g} s")
            await deferLater(self._clock, wait)
            answer = await self._send("GET", url, expect=(200, 201, 202, 204))
            state = state_of(answer)

    def _own(self, url: object) -> str:
        """Check that a link of a response is on the same host: the token is not sent to others."""
        try:
            parts, own = urlsplit(str(url)), urlsplit(self._address)
        except ValueError:
            raise CloudError("Azure sent an invalid link") from None
        if (parts.scheme, _without_default_port(parts)) != (own.scheme, _without_default_port(own)):
            raise CloudError(f"Azure sent a link to {shorten(parts.netloc)}: it is not followed")
        return str(url)

    async def _send(
        self, method: str, url: str, body: bytes = b"", expect: Collection[int] = (200,)
    ) -> Answer:
        pause = self._paused_until - self._clock.seconds()
        if pause > 0:
            text = f"{method} {urlsplit(url).path}: not sent, Azure throttles requests for {pause:.0f} s"
            raise AzureError(text, 429, "TooManyRequests")

        async def send(token: str) -> Answer:
            headers = {"authorization": f"Bearer {token}"}
            if body:
                headers["content-type"] = "application/json"
            return await self._session.request(method, url, headers=headers, body=body, expect=expect)

        try:
            return await self._token.used_for(send)
        except CloudAnswerError as e:
            if e.code == 429:
                self._paused_until = self._clock.seconds() + min(e.retry_after, LONGEST_PAUSE)
            code, _ = _read_error(e.body)
            raise AzureError(f"{method} {urlsplit(url).path}: {e.detail or e.code}", e.code, code) from None


def _without_default_port(parts: SplitResult) -> str:
    """Return host and port of a URL; Azure's links have the default port."""
    return parts.netloc.lower().removesuffix({"https": ":443", "http": ":80"}.get(parts.scheme, ":"))


def _object(answer: Answer) -> dict[str, Any]:
    resource = answer.json()
    if not isinstance(resource, dict):
        raise answer.unexpected()
    return resource


def _state_of_operation(answer: Answer) -> str:
    # The response for an operation in progress may be 202 without a body.
    return str(_object(answer).get("status", "")).lower() if answer.body.strip() else ""


def _state_of_location(answer: Answer) -> str:
    return "" if answer.code == 202 else _DONE


def _state_of_resource(answer: Answer) -> str:
    if answer.code == 202 or not answer.body.strip():
        return "" if answer.code == 202 else _DONE
    properties = _object(answer).get("properties")
    state = properties.get("provisioningState") if isinstance(properties, dict) else None
    return _DONE if state is None else str(state).lower()


def _failure(path: str, state: str, answer: Answer) -> AzureError:
    code, message = _read_error(answer.body)
    reason = ": ".join(filter(None, (code, message))) or state
    return AzureError(f"PUT {path}: {shorten(reason)}", 0, code)


def _read_error(body: bytes) -> tuple[str, str]:
    """Return code and message of an error; both may be empty."""
    try:
        error = json.loads(body)["error"]
        return str(error.get("code") or ""), str(error.get("message") or "")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return "", ""


def _delay(answer: Answer) -> float:
    text = answer.header("retry-after") or ""
    if not re.fullmatch(r"[0-9]{1,6}", text, re.ASCII):
        return DEFAULT_DELAY
    return min(max(float(text), 1.0), LONGEST_DELAY)

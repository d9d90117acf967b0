"""Azure's resource manager: resources by their paths, lists page by page, and work that takes its time."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, TypeVar
from urllib.parse import SplitResult, urlsplit

from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater

from tower.cloud.errors import CloudAnswerError, CloudError, CloudUnreachable
from tower.cloud.http.answer import Answer, shorten
from tower.cloud.http.json_shape import Shape
from tower.cloud.http.json_stream import EACH, Path, walk
from tower.cloud.session import CloudSession
from tower.cloud.token import RefreshedToken
from tower.reactor.cooperate import map_cooperatively

#: Most pages of one list, and most things in it.
PAGE_LIMIT, ITEM_LIMIT = 500, 100_000

#: How long to wait before work under way is looked at again where Azure does not say, and at most, s.
USUAL_WAIT, LONGEST_WAIT = 10.0, 60.0

#: Longest that Azure is left alone, s.
LONGEST_QUIET = 1800.0

#: Longest that work is followed, s.
WORK_LIMIT = 900.0

#: A resource, as the API's JSON has it.
Resource = dict[str, Any]

T = TypeVar("T")

_LIST: dict[Path, Shape] = {(): dict, ("value",): list, ("value", EACH): {}, ("nextLink",): str}

_DONE = "succeeded"
_OVER = frozenset(("failed", "canceled"))


class AzureError(CloudError):
    """Azure refused, or did not get something done.

    :ivar status: HTTP's; 0: it was accepted at first.
    :ivar code: Azure's word for the reason, such as ``AuthorizationFailed``; empty if it said none.
    """

    def __init__(self, text: str, status: int, code: str) -> None:
        super().__init__(text)
        self.status = status
        self.code = code


class _ARMPage:
    """One page of a list: its resources, one by one.

    :ivar is_list: whether there is one, known when all are had; and so
    :ivar next: where the next page is; empty: this is the last.
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


class ResourceManager:
    """The resource manager of one cloud.

    Who is told to come again in some minutes is not asked before: each question in that time is counted, and
    the limits are shared with whoever else uses the subscription, such as the cluster's own controllers.

    :param address: without a slash at its end.
    :param token: for it.
    """

    def __init__(
        self, session: CloudSession, clock: IReactorTime, address: str, token: RefreshedToken[str]
    ) -> None:
        self._session = session
        self._clock = clock
        self._address = address
        self._token = token
        self._quiet_until = float("-inf")

    async def get(self, path: str, query: str) -> dict[str, Any]:
        """Return the resource at *path*.

        :param query: with the version of the API; written as it has to be in a URL.
        :raise AzureError: there is none, or it is not for us.
        """
        return _object(await self._ask("GET", f"{self._address}{path}?{query}"))

    async def list(self, path: str, query: str, read: Callable[[Resource], T]) -> list[T]:
        """Return what *read* makes of all resources below *path*.

        :raise AzureError: they are not for us.
        :raise CloudError: the list does not end, or leads elsewhere.
        """
        found: list[T] = []
        url = f"{self._address}{path}?{query}"
        for _ in range(PAGE_LIMIT):
            page = _ARMPage(await self._ask("GET", url))
            found += await map_cooperatively(self._clock, page, read)
            if not page.is_list:
                raise CloudError(f"{self._address}{path} answered with no list")
            if not page.next:
                return found
            url = self._own(page.next)
            if len(found) > ITEM_LIMIT:
                break
        raise CloudError(f"{self._address}{path}: more than {ITEM_LIMIT} resources, or {PAGE_LIMIT} pages")

    async def put(self, path: str, query: str, resource: Mapping[str, Any]) -> None:
        """Create or change a resource, and wait until it is done.

        :raise AzureError: it was refused, or it failed.
        :raise CloudUnreachable: it is not done within `WORK_LIMIT`.
        """
        url = f"{self._address}{path}?{query}"
        answer = await self._ask("PUT", url, json.dumps(resource).encode(), (200, 201, 202))
        ends = self._clock.seconds() + WORK_LIMIT
        operation, location = answer.header("azure-asyncoperation"), answer.header("location")
        state = ""
        # Where an operation is named the answer itself says nothing of the work, whatever state is in it.
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
            wait = _wait(answer)
            if self._clock.seconds() + wait > ends:
                raise CloudUnreachable(f"{path}: not done within {WORK_LIMIT:g} s")
            await deferLater(self._clock, wait)
            answer = await self._ask("GET", url, expect=(200, 201, 202, 204))
            state = state_of(answer)

    def _own(self, url: object) -> str:
        """Return a URL that Azure gave us, if it is its own: our token goes nowhere else."""
        try:
            parts, own = urlsplit(str(url)), urlsplit(self._address)
        except ValueError:
            raise CloudError("Azure leads to what is no URL") from None
        if (parts.scheme, _without_usual_port(parts)) != (own.scheme, _without_usual_port(own)):
            raise CloudError(f"Azure leads to {shorten(parts.netloc)}: no token goes there")
        return str(url)

    async def _ask(
        self, method: str, url: str, body: bytes = b"", expect: Collection[int] = (200,)
    ) -> Answer:
        quiet = self._quiet_until - self._clock.seconds()
        if quiet > 0:
            text = f"{method} {urlsplit(url).path}: not asked, Azure wants to be left alone for {quiet:.0f} s"
            raise AzureError(text, 429, "TooManyRequests")

        async def ask(token: str) -> Answer:
            headers = {"authorization": f"Bearer {token}"}
            if body:
                headers["content-type"] = "application/json"
            return await self._session.request(method, url, headers=headers, body=body, expect=expect)

        try:
            return await self._token.used_for(ask)
        except CloudAnswerError as e:
            if e.code == 429:
                self._quiet_until = self._clock.seconds() + min(e.retry_after, LONGEST_QUIET)
            code, _ = _read_error(e.body)
            raise AzureError(f"{method} {urlsplit(url).path}: {e.detail or e.code}", e.code, code) from None


def _without_usual_port(parts: SplitResult) -> str:
    """Return whom a URL leads to; Azure's links say the port that goes without saying."""
    return parts.netloc.lower().removesuffix({"https": ":443", "http": ":80"}.get(parts.scheme, ":"))


def _object(answer: Answer) -> dict[str, Any]:
    said = answer.json()
    if not isinstance(said, dict):
        raise CloudError(f"{answer.url} answered with something else than a resource")
    return said


def _state_of_operation(answer: Answer) -> str:
    # An operation that has no result yet may answer 202 without a body.
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
    said = ": ".join(filter(None, (code, message))) or state
    return AzureError(f"PUT {path}: {shorten(said)}", 0, code)


def _read_error(body: bytes) -> tuple[str, str]:
    """Return code and message of an error; empty ones if there is none."""
    try:
        error = json.loads(body)["error"]
        return str(error.get("code") or ""), str(error.get("message") or "")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return "", ""


def _wait(answer: Answer) -> float:
    text = answer.header("retry-after") or ""
    if not re.fullmatch(r"[0-9]{1,6}", text, re.ASCII):
        return USUAL_WAIT
    return min(max(float(text), 1.0), LONGEST_WAIT)

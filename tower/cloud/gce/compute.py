"""Compute Engine's REST API, v1: requests with tokens, lists with all their pages, operations."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

from twisted.internet.task import deferLater

from tower.cloud.errors import CloudAnswerError, CloudError, InstanceNotFound
from tower.cloud.http.answer import Answer, shorten
from tower.cloud.http.json_shape import Shape, fits
from tower.cloud.http.json_stream import ANY, EACH, Path, walk
from tower.cloud.session import CloudSession
from tower.cloud.token import RefreshedToken
from tower.reactor.cooperate import PIECE, map_cooperatively

#: As many instances as the API gives in one page; with their metadata, each of which may be large, fewer.
PAGE_SIZE = 500
METADATA_PAGE_SIZE = 25
#: So many instances with metadata are looked at before others have their turn.
METADATA_PIECE = 5
#: Most pages of one list.
PAGE_LIMIT = 2000

#: What a list tells of each instance.
_FIELDS = (
    "name,zone,machineType,status,tags/items,networkInterfaces"
    "(network,networkIP,ipv6Address,accessConfigs/natIP,ipv6AccessConfigs/externalIpv6)"
)

OPERATION_INTERVAL = 1.0  # s between two looks at an operation
OPERATION_LIMIT = 300  # most looks

_RATE_LIMITS = frozenset(("rateLimitExceeded", "userRateLimitExceeded"))
_EMPTY = "NO_RESULTS_ON_PAGE"

#: An instance, an operation, a project, as the API's JSON has it.
Resource = dict[str, Any]

_METADATA: Shape = {"fingerprint": str, "items": [{"key": str, "value": str}]}
_INSTANCE: Shape = {
    "name": str,
    "zone": str,
    "machineType": str,
    "status": str,
    "tags": {"items": [str]},
    "metadata": _METADATA,
    "networkInterfaces": [
        {
            "network": str,
            "networkIP": str,
            "ipv6Address": str,
            "accessConfigs": [{"natIP": str}],
            "ipv6AccessConfigs": [{"externalIpv6": str}],
        }
    ],
}
PROJECT: Shape = {"commonInstanceMetadata": _METADATA}
_OPERATION: Shape = {"name": str, "status": str, "error": {"errors": [dict]}}

# What is where in a list: of a zone, and of all zones.
_LIST: dict[Path, Shape] = {
    (): dict,
    ("items",): list,
    ("items", EACH): _INSTANCE,
    ("nextPageToken",): str,
}
_SCOPES: dict[Path, Shape] = {
    (): dict,
    ("items",): dict,
    ("items", ANY): dict,
    ("items", ANY, "instances"): list,
    ("items", ANY, "instances", EACH): _INSTANCE,
    ("items", ANY, "warning"): {"code": str},
    ("nextPageToken",): str,
}

T = TypeVar("T")


class _ComputePage:
    """One page of a list: its instances, one by one.

    :ivar next: the token of the next page, known when all are had; empty: it is the last.
    """

    def __init__(self, answer: Answer, shapes: Mapping[Path, Shape]) -> None:
        self.next = ""
        self._answer = answer
        self._shapes = shapes

    def __iter__(self) -> Iterator[Resource]:
        for path, value in walk(self._answer, self._shapes):
            if path[-1:] == (EACH,):
                yield value
            elif path == ("nextPageToken",):
                self.next = value
            elif path[2:] == ("warning",):
                code = value.get("code") or _EMPTY
                if code != _EMPTY:
                    raise CloudError(f"the instances of {shorten(path[1])} are not known: {shorten(code)}")


class Compute:
    """Asks for what belongs to one project.

    :param clock: for waits.
    :param api: URL of the API, with a slash at its end.
    :param project: returns the project's id.
    :param tokens: access tokens.
    """

    def __init__(
        self,
        session: CloudSession,
        clock: Any,
        api: str,
        project: Callable[[], Awaitable[str]],
        tokens: RefreshedToken[str],
    ) -> None:
        self._session = session
        self._clock = clock
        self._api = api
        self._project = project
        self._tokens = tokens

    async def project(self) -> Resource:
        """Return the project.  Asked once, also after failures that may pass."""
        return await self._get("", PROJECT, retry=False)

    async def set_metadata(self, where: str, verb: str, metadata: Resource) -> None:
        """Replace metadata, and wait until it is done.

        :param where: the path of what they belong to; empty: the project.
        :param metadata: with the fingerprint of those that are replaced.
        :raise CloudError: they are not replaced; with code 412, as somebody else has changed them.
        """
        body = json.dumps(metadata).encode()
        operation = await self._ask("POST", f"{where}{verb}", {}, body, _OPERATION, retry=False)
        scope = "/".join(where.split("/")[:2]) if where else "global"
        await self._finish(operation, scope)

    async def instances(
        self, zone: str, wanted: str, read: Callable[[Resource], T | None], *, metadata: bool = False
    ) -> list[T]:
        """Return what *read* makes of the instances of the project.

        A part of them is never returned as if it were all: who is missing in the list is no node any more.

        :param zone: of that zone alone; empty: of all.
        :param wanted: a filter by the API's rules.
        :param read: gets each, with name and zone at least; None: it is not meant.
        :param metadata: with their metadata.
        """
        path = f"zones/{quote(zone, safe='')}/instances" if zone else "aggregated/instances"
        fields = f"{_FIELDS},metadata" if metadata else _FIELDS
        fields = f"items({fields})" if zone else f"items/*(warning/code,instances({fields}))"
        query = {
            "maxResults": str(METADATA_PAGE_SIZE if metadata else PAGE_SIZE),
            "fields": f"nextPageToken,{fields}",
        }
        if wanted:
            query["filter"] = wanted
        shapes = _LIST if zone else _SCOPES
        piece = METADATA_PIECE if metadata else PIECE
        found: list[T] = []
        for _ in range(PAGE_LIMIT):
            page = _ComputePage(await self._send("GET", path, query, b"", retry=True), shapes)
            made = await map_cooperatively(self._clock, page, lambda each: read(_whole(each)), piece)
            found += [each for each in made if each is not None]
            if not page.next:
                return found
            if page.next == query.get("pageToken"):
                break
            query["pageToken"] = page.next
        raise CloudError("the list of instances does not end")

    async def instance(self, zone: str, name: str, *, retry: bool = True) -> Resource:
        """Return an instance.

        :param retry: whether to ask again after failures that may pass.
        :raise InstanceNotFound: there is none.
        """
        where = f"zones/{quote(zone, safe='')}/instances/{quote(name, safe='')}"
        try:
            return _whole(await self._get(where, _INSTANCE, retry=retry))
        except CloudAnswerError as e:
            if e.code == 404:
                raise InstanceNotFound from None
            raise

    async def _get(
        self, path: str, shape: Shape, query: Mapping[str, str] | None = None, *, retry: bool = True
    ) -> Resource:
        return await self._ask("GET", path, query or {}, b"", shape, retry=retry)

    async def _ask(
        self, method: str, path: str, query: Mapping[str, str], body: bytes, shape: Shape, *, retry: bool
    ) -> Resource:
        answer = await self._send(method, path, query, body, retry=retry)
        said = answer.json()
        if not fits(said, shape):
            raise CloudError(f"{answer.url} answered with something that cannot be read")
        read: Resource = said
        return read

    async def _send(
        self, method: str, path: str, query: Mapping[str, str], body: bytes, *, retry: bool
    ) -> Answer:
        project = quote(await self._project(), safe=":")
        url = f"{self._api}projects/{project}/{path}".rstrip("/")
        if query:
            url += f"?{urlencode(query)}"

        async def ask(token: str) -> Answer:
            headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
            return await self._session.request(
                method, url, headers=headers, body=body, retry=retry, again=_is_rate_limit
            )

        return await self._tokens.used_for(ask)

    async def _finish(self, operation: Resource, scope: str) -> None:
        for _ in range(OPERATION_LIMIT):
            if operation.get("status") == "DONE":
                break
            await deferLater(self._clock, OPERATION_INTERVAL)
            name = quote(str(operation.get("name", "")), safe="")
            operation = await self._get(f"{scope}/operations/{name}", _OPERATION)
        else:
            raise CloudError("the operation does not end")
        errors = (operation.get("error") or {}).get("errors") or ()
        if errors:
            text = shorten("; ".join(f"{each.get('code')}: {each.get('message')}" for each in errors))
            raise CloudError(f"the operation failed: {text}")


def _whole(instance: Resource) -> Resource:
    """Return an instance that has what all of them have."""
    if not instance.get("name") or not instance.get("zone"):
        raise CloudError("there is an instance without name or zone")
    return instance


def _is_rate_limit(answer: Answer) -> bool:
    """Tell whether a refusal says that we ask too often, which Compute Engine does with 403."""
    if answer.code != 403:
        return False
    try:
        errors = answer.json()["error"]["errors"]
        return any(each["reason"] in _RATE_LIMITS for each in errors)
    except (CloudError, KeyError, TypeError):
        return False

"""Compute Engine's REST API, v1: requests with tokens, lists with all pages, operations."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

from attrs import define
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater

from tower.cloud.errors import CloudAnswerError, CloudError, InstanceNotFound
from tower.cloud.http.answer import Answer, shorten
from tower.cloud.http.json_stream import ANY, EACH, Path, Shape, fits, walk
from tower.cloud.session import CloudSession
from tower.cloud.token import RefreshedToken
from tower.reactor.cooperate import PIECE, map_cooperatively

#: The API's maximum number of instances in a page; fewer with metadata, which may be large.
PAGE_SIZE = 500
METADATA_PAGE_SIZE = 25
#: Number of instances with metadata that are processed before the reactor runs.
METADATA_PIECE = 5
#: Maximum number of pages of a list.
PAGE_LIMIT = 2000

#: The requested fields of instances in lists.
_FIELDS = (
    "name,zone,machineType,status,tags/items,networkInterfaces"
    "(network,networkIP,ipv6Address,accessConfigs/natIP,ipv6AccessConfigs/externalIpv6)"
)

OPERATION_INTERVAL = 1.0  # s between polls of an operation
OPERATION_LIMIT = 300  # polls

_RATE_LIMITS = frozenset(("rateLimitExceeded", "userRateLimitExceeded"))
_EMPTY = "NO_RESULTS_ON_PAGE"

#: An instance, operation or project in the API's JSON.
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

# Shapes of lists: of one zone, and of all.
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
    """Iterates over a page's instances; sets *next* at the end: the next page's token, or empty."""

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
                    raise CloudError(f"the instances of {shorten(path[1])} are unknown: {shorten(code)}")


@define(eq=False, repr=False)
class Compute:
    """Compute Engine, for one project.

    :param api: URL of the API, with a trailing slash.
    :param project: returns the project's ID.
    """

    _session: CloudSession
    _clock: IReactorTime
    _api: str
    _project: Callable[[], Awaitable[str]]
    _tokens: RefreshedToken[str]

    async def project(self) -> Resource:
        """Return the project; without retries."""
        return await self._get("", PROJECT, retry=False)

    async def set_metadata(self, where: str, verb: str, metadata: Resource) -> None:
        """Replace metadata, and wait for the operation.

        :param where: path of its owner; empty: the project.
        :param metadata: with the fingerprint of the old metadata.
        :raise CloudError: it failed; with code 412, another writer has changed the metadata.
        """
        body = json.dumps(metadata).encode()
        operation = await self._request("POST", f"{where}{verb}", {}, body, _OPERATION, retry=False)
        scope = "/".join(where.split("/")[:2]) if where else "global"
        await self._finish(operation, scope)

    async def instances(
        self, zone: str, wanted: str, read: Callable[[Resource], T | None], *, metadata: bool = False
    ) -> list[T]:
        """Return the results of *read* for the instances of the project.

        An incomplete list is an error: instances that are missing in it would lose their tunnels.

        :param zone: only this zone; empty: all.
        :param wanted: a filter in the API's syntax.
        :param read: called with each instance, which has at least name and zone; None skips it.
        :param metadata: request their metadata too.
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
            made = await map_cooperatively(self._clock, page, lambda each: read(_checked(each)), piece)
            found += [each for each in made if each is not None]
            if not page.next:
                return found
            if page.next == query.get("pageToken"):
                break
            query["pageToken"] = page.next
        raise CloudError("the list of instances does not end")

    async def instance(self, zone: str, name: str, *, retry: bool = True) -> Resource:
        """Return an instance.

        :param retry: whether to retry after temporary failures.
        :raise InstanceNotFound: there is none.
        """
        where = f"zones/{quote(zone, safe='')}/instances/{quote(name, safe='')}"
        try:
            return _checked(await self._get(where, _INSTANCE, retry=retry))
        except CloudAnswerError as e:
            if e.code == 404:
                raise InstanceNotFound from None
            raise

    async def _get(
        self, path: str, shape: Shape, query: Mapping[str, str] | None = None, *, retry: bool = True
    ) -> Resource:
        return await self._request("GET", path, query or {}, b"", shape, retry=retry)

    async def _request(
        self, method: str, path: str, query: Mapping[str, str], body: bytes, shape: Shape, *, retry: bool
    ) -> Resource:
        answer = await self._send(method, path, query, body, retry=retry)
        resource: Resource = answer.json()
        if not fits(resource, shape):
            raise answer.unexpected()
        return resource

    async def _send(
        self, method: str, path: str, query: Mapping[str, str], body: bytes, *, retry: bool
    ) -> Answer:
        project = quote(await self._project(), safe=":")
        url = f"{self._api}projects/{project}/{path}".rstrip("/")
        if query:
            url += f"?{urlencode(query)}"

        async def send(token: str) -> Answer:
            headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
            return await self._session.request(
                method, url, headers=headers, body=body, retry=retry, again=_is_rate_limit
            )

        return await self._tokens.used_for(send)

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


def _checked(instance: Resource) -> Resource:
    """Return an instance with name and zone."""
    if not instance.get("name") or not instance.get("zone"):
        raise CloudError("the response has an instance without name or zone")
    return instance


def _is_rate_limit(answer: Answer) -> bool:
    """Return whether a response is a rate limit, for which Compute Engine uses 403."""
    if answer.code != 403:
        return False
    try:
        errors = answer.json()["error"]["errors"]
        return any(each["reason"] in _RATE_LIMITS for each in errors)
    except (CloudError, KeyError, TypeError):
        return False

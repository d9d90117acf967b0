"""The host's API server over HTTPS; see `tower.kube.rest.host_api.HostAPI`."""

from __future__ import annotations

import json
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar
from urllib.parse import urlencode

from twisted.internet.defer import DeferredSemaphore
from twisted.internet.task import deferLater
from twisted.web.iweb import IResponse

from tower import __version__
from tower.errors import ConfigurationError
from tower.http.client_bodies import NO_RESPONSE, describe_failure, read_body
from tower.kube.client import (
    JSON,
    MERGE_PATCH,
    OBJECT_LIMIT,
    PAGE_SIZE,
    TIMEOUT,
    APIClient,
    APIError,
    APIResponse,
    bare,
    retry_after,
    value_of,
)
from tower.kube.head_fields import Upstream
from tower.kube.rest.heartbeat import Heartbeat
from tower.kube.rest.host_api import WATCH_TIME, Object, ObjectList, ResourceType, WatchEvent
from tower.kube.rest.host_link import HostRequests
from tower.kube.rest.rest_config import RestConfig
from tower.kube.rest.watch_body import WatchBody, is_stored
from tower.reactor.interfaces import IReactor

#: Most requests at a time, except watches, and most idle connections that are kept.
PARALLEL = 16
KEPT = 8

#: Repetitions of a request that the API server postpones, and their longest delay, s.
_POSTPONED = (429, 503)
RETRIES = 3
LONGEST_DELAY = 10.0

#: Timeout of a check whether the API server answers, s.
PROBE_TIMEOUT = 10.0

#: Largest answer that rejects a watch, B.
_REJECTION_LIMIT = 1 << 20

_NOT_FOUND = 404

_PROGRAM = f"tower-proxy/{__version__}".encode("ascii")

T = TypeVar("T")


class RestClient:
    """A client of the API server of *config*.

    A request that is not authenticated is repeated once with a new credential, and one that is postponed
    (``Retry-After``) is repeated later.  Writes are not repeated after a broken connection.

    :param requests: to count the requests in; None: its own.
    """

    def __init__(
        self,
        reactor: IReactor,
        config: RestConfig,
        chance: Callable[[], float] = random.random,
        *,
        requests: HostRequests | None = None,
    ) -> None:
        self.config = config
        self._requests = HostRequests() if requests is None else requests
        self._reactor = reactor
        self._chance = chance
        self._api = APIClient(reactor, config.open, config.upstream, kept=KEPT, program=_PROGRAM)
        self._prober = APIClient(
            reactor, config.open, config.upstream, timeout=PROBE_TIMEOUT, persistent=False, program=_PROGRAM
        )
        self._heartbeat = Heartbeat(reactor, lambda: self._prober.request("GET", "/version"))
        self._slots = DeferredSemaphore(PARALLEL)
        self._last = config.upstream()

    def close(self) -> None:
        """Close idle connections; the caller cancels its requests and watches."""
        self._api.close()

    async def get(self, resource: ResourceType, name: str, namespace: str | None = None) -> Object:
        """See `HostAPI.get`."""
        return await self._object("get", "GET", resource.path(namespace, name))

    async def list(
        self,
        resource: ResourceType,
        namespace: str | None = None,
        label_selector: str = "",
        *,
        field_selector: str = "",
    ) -> ObjectList:
        """See `HostAPI.list`."""
        query = _query(label_selector, field_selector, limit=str(PAGE_SIZE))
        try:
            return await self._list(resource, resource.path(namespace), query)
        except APIError as e:
            if e.code != 410:
                raise
        return await self._list(resource, resource.path(namespace), query)

    async def _list(self, resource: ResourceType, path: str, query: dict[str, str]) -> ObjectList:
        items: list[Object] = []
        version = ""
        while True:
            page = await self._object("list", "GET", f"{path}?{urlencode(query)}")
            metadata, found = page.get("metadata"), page.get("items") or []
            if not isinstance(metadata, dict) or not isinstance(found, list):
                raise APIError("GET", path, 200, "not a list")
            for item in found:
                if not is_stored(item):
                    raise APIError("GET", path, 200, "not a list of objects")
                item.setdefault("apiVersion", resource.api_version)
                item.setdefault("kind", resource.kind)
            items += found
            version = version or str(metadata.get("resourceVersion") or "")
            if not version:
                raise APIError("GET", path, 200, "a list without a resource version")
            token = metadata.get("continue")
            if not token:
                return ObjectList(items, version)
            if not found or len(items) > OBJECT_LIMIT:
                raise APIError("GET", path, 200, f"endless list, {len(items)} items so far")
            query = {**query, "continue": str(token)}

    async def create(self, resource: ResourceType, obj: Object, namespace: str | None = None) -> Object:
        """See `HostAPI.create`."""
        namespace = namespace or obj.get("metadata", {}).get("namespace")
        return await self._object("create", "POST", resource.path(namespace), _of_type(resource, obj))

    async def update(
        self, resource: ResourceType, obj: Object, namespace: str | None = None, subresource: str = ""
    ) -> Object:
        """See `HostAPI.update`."""
        metadata = obj["metadata"]
        path = resource.path(namespace or metadata.get("namespace"), metadata["name"], subresource)
        return await self._object("update", "PUT", path, _of_type(resource, obj))

    async def patch(
        self,
        resource: ResourceType,
        name: str,
        patch: Object,
        namespace: str | None = None,
        subresource: str = "",
    ) -> Object:
        """See `HostAPI.patch`."""
        return await self._object(
            "patch", "PATCH", resource.path(namespace, name, subresource), patch, MERGE_PATCH
        )

    async def delete(
        self,
        resource: ResourceType,
        name: str,
        namespace: str | None = None,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
    ) -> None:
        """See `HostAPI.delete`."""
        options: Object = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}
        wanted = {"uid": uid, "resourceVersion": resource_version}
        if conditions := {key: value for key, value in wanted.items() if value is not None}:
            options["preconditions"] = conditions
        await self._object("delete", "DELETE", resource.path(namespace, name), options)

    async def plurals(self, group: str, version: str) -> set[str]:
        """Return the plural names of a group's types; empty without the group.

        :raise APIError: the API server does not answer, or rejects the request.
        """
        try:
            found = await self._object("get", "GET", f"/apis/{group}/{version}")
        except APIError as e:
            if e.code != _NOT_FOUND:
                raise
            return set()
        return {str(each.get("name")) for each in found.get("resources") or ()}

    async def watch(
        self,
        resource: ResourceType,
        namespace: str | None,
        resource_version: str,
        deliver: Callable[[WatchEvent], None],
        label_selector: str = "",
        *,
        field_selector: str = "",
        seconds: int = WATCH_TIME,
        opened: Callable[[], None] | None = None,
    ) -> None:
        """See `HostAPI.watch`."""
        path = resource.path(namespace)
        query = _query(
            label_selector,
            field_selector,
            watch="1",
            allowWatchBookmarks="true",
            resourceVersion=resource_version,
            timeoutSeconds=str(seconds),
        )
        answer = await self._send("watch", "GET", path, lambda: self._open(path, query))
        if isinstance(answer, APIResponse):
            value_of("GET", path, answer)
            raise APIError("GET", path, answer.code, "the answer is not a watch")
        body = WatchBody(self._reactor, path, deliver, seconds)
        self._heartbeat.add(body)
        try:
            if opened is not None:
                opened()
            answer.deliverBody(body)
            await body.done
        finally:
            self._heartbeat.remove(body)

    async def _open(self, path: str, query: dict[str, str]) -> IResponse | APIResponse:
        """Return the response of a watch, or the whole answer that rejects it."""
        response = await self._api.open(f"{path}?{urlencode(query)}")
        if response.code == 200:
            return response
        try:
            content = await read_body(response, _REJECTION_LIMIT).addTimeout(TIMEOUT, self._reactor)
        except NO_RESPONSE as e:
            raise APIError("GET", path, response.code, describe_failure(e), e) from None
        return APIResponse(response.code, content, retry_after=retry_after(response))

    async def _object(
        self, verb: str, method: str, path: str, body: Object | None = None, media: bytes = JSON
    ) -> Object:
        data = None if body is None else json.dumps(body).encode()

        async def request() -> APIResponse:
            await self._slots.acquire()
            try:
                return await self._api.request(method, path, data, media=media)
            finally:
                self._slots.release()

        value = value_of(method, path, await self._send(verb, method, path, request))
        if not isinstance(value, dict):
            raise APIError(method, bare(path), 200, "the answer is not an object")
        return value

    async def _send(self, verb: str, method: str, path: str, request: Callable[[], Awaitable[T]]) -> T:
        """Return the answer to a request, after its repetitions."""
        is_renewed, retries = False, 0
        try:
            while True:
                await self.config.prepare()
                upstream = self._current()
                answer = await self._timed(verb, request)
                self._heartbeat.heard()
                if not isinstance(answer, APIResponse):
                    return answer
                if answer.code == 401 and not is_renewed:
                    is_renewed = True
                    if await self.config.renew(upstream):
                        continue
                if answer.code not in _POSTPONED or not answer.retry_after or retries == RETRIES:
                    return answer
                retries += 1
                delay = min(answer.retry_after, LONGEST_DELAY)
                await deferLater(self._reactor, delay * (1 + self._chance() / 4))
        except ConfigurationError as e:
            raise APIError(method, bare(path), 0, str(e), e) from e

    async def _timed(self, verb: str, request: Callable[[], Awaitable[T]]) -> T:
        """Count a request."""
        began, code = self._reactor.seconds(), 0
        try:
            answer = await request()
            code = answer.code if isinstance(answer, APIResponse) else 200
        except APIError as e:
            code = e.code
            raise
        finally:
            self._requests.observe(verb, code, self._reactor.seconds() - began)
        return answer

    def _current(self) -> Upstream:
        """Return the current credential; if it is new, close idle connections: they have its certificate."""
        upstream = self.config.upstream()
        if upstream is not self._last:
            self._last = upstream
            self._api.close()
        return upstream


def _of_type(resource: ResourceType, obj: Object) -> Object:
    return {"apiVersion": resource.api_version, "kind": resource.kind, **obj}


def _query(label_selector: str, field_selector: str, **parameters: str) -> dict[str, str]:
    if label_selector:
        parameters["labelSelector"] = label_selector
    if field_selector:
        parameters["fieldSelector"] = field_selector
    return parameters

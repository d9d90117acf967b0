"""Compute Engine's REST API, v1: requests with tokens, lists with all their pages, operations."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlencode

from twisted.internet.task import deferLater

from tower.cloud.answers import Answer, shorten
from tower.cloud.errors import CloudAnswerError, CloudError, InstanceNotFound
from tower.cloud.session import CloudSession
from tower.cloud.token import RefreshedToken

#: As many as the API gives in one page.
PAGE_SIZE = 500
#: Most pages of one list: half a million instances.
PAGE_LIMIT = 1000

OPERATION_INTERVAL = 1.0  # s between two looks at an operation
OPERATION_LIMIT = 300  # most looks

_RATE_LIMITS = frozenset(("rateLimitExceeded", "userRateLimitExceeded"))
_EMPTY = "NO_RESULTS_ON_PAGE"

#: An instance, an operation, a project, as the API's JSON has it.
Resource = dict[str, Any]


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

    async def get(self, path: str, query: Mapping[str, str] | None = None, *, retry: bool = True) -> Resource:
        """Return what there is at *path*, below the project.

        :param retry: whether to ask again after failures that may pass.
        """
        return await self._ask("GET", path, query or {}, b"", retry=retry)

    async def post(self, path: str, body: Resource, *, retry: bool = True) -> Resource:
        """Send *body* to *path*; return the operation that this starts."""
        return await self._ask("POST", path, {}, json.dumps(body).encode(), retry=retry)

    async def set_metadata(self, where: str, verb: str, metadata: Resource) -> None:
        """Replace metadata, and wait until it is done.

        :param where: the path of what they belong to; empty: the project.
        :param metadata: with the fingerprint of those that are replaced.
        :raise CloudError: they are not replaced; with code 412, as somebody else has changed them.
        """
        operation = await self.post(f"{where}{verb}", metadata, retry=False)
        scope = "/".join(where.split("/")[:2]) if where else "global"
        await self._finish(operation, scope)

    async def instances(self, zone: str, wanted: str = "") -> list[Resource]:
        """Return the instances of the project.

        A part of them is never returned as if it were all: who is missing in the list is no node any more.

        :param zone: of that zone alone; empty: of all.
        :param wanted: a filter by the API's rules.
        """
        path = f"zones/{quote(zone, safe='')}/instances" if zone else "aggregated/instances"
        found: list[Resource] = []
        query = {"maxResults": str(PAGE_SIZE)} | ({"filter": wanted} if wanted else {})
        for _ in range(PAGE_LIMIT):
            page = await self.get(path, query)
            found += page.get("items") or () if zone else _instances(page)
            token = page.get("nextPageToken")
            if not token:
                return found
            if token == query.get("pageToken"):
                break
            query["pageToken"] = str(token)
        raise CloudError("the list of instances does not end")

    async def instance(self, project: str, zone: str, name: str) -> Resource:
        """Return an instance.

        :param project: that it has to belong to.
        :raise InstanceNotFound: there is none.
        """
        if project != await self._project():
            raise InstanceNotFound
        try:
            return await self.get(f"zones/{quote(zone, safe='')}/instances/{quote(name, safe='')}")
        except CloudAnswerError as e:
            if e.code == 404:
                raise InstanceNotFound from None
            raise

    async def _ask(
        self, method: str, path: str, query: Mapping[str, str], body: bytes, *, retry: bool
    ) -> Resource:
        project = quote(await self._project(), safe=":")
        url = f"{self._api}projects/{project}/{path}".rstrip("/")
        if query:
            url += f"?{urlencode(query)}"

        async def ask(token: str) -> Answer:
            headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
            return await self._session.request(
                method, url, headers=headers, body=body, retry=retry, again=_is_rate_limit
            )

        answer = await self._tokens.used_for(ask)
        said = answer.json()
        if not isinstance(said, dict):
            raise CloudError(f"{answer.url} answered with something that is no object")
        return said

    async def _finish(self, operation: Resource, scope: str) -> None:
        for _ in range(OPERATION_LIMIT):
            if operation.get("status") == "DONE":
                break
            await deferLater(self._clock, OPERATION_INTERVAL)
            name = quote(str(operation.get("name", "")), safe="")
            operation = await self.get(f"{scope}/operations/{name}")
        else:
            raise CloudError("the operation does not end")
        errors = (operation.get("error") or {}).get("errors") or ()
        if errors:
            text = shorten("; ".join(f"{each.get('code')}: {each.get('message')}" for each in errors))
            raise CloudError(f"the operation failed: {text}")


def _instances(page: Resource) -> Iterator[Resource]:
    for scope, part in (page.get("items") or {}).items():
        code = (part.get("warning") or {}).get("code", _EMPTY)
        if code != _EMPTY:
            raise CloudError(f"the instances of {shorten(str(scope))} are not known: {shorten(str(code))}")
        yield from part.get("instances") or ()


def _is_rate_limit(answer: Answer) -> bool:
    """Tell whether a refusal says that we ask too often, which Compute Engine does with 403."""
    if answer.code != 403:
        return False
    try:
        errors = answer.json()["error"]["errors"]
        return any(each["reason"] in _RATE_LIMITS for each in errors)
    except (CloudError, KeyError, TypeError):
        return False

"""Nova's REST API, v2.1: requests with tokens and a microversion, lists with all pages."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

from twisted.internet.interfaces import IReactorTime

from tower.cloud.errors import CloudAnswerError, CloudError, InstanceNotFound
from tower.cloud.http.answer import Answer
from tower.cloud.http.json_stream import EACH, Path, Shape, fits, walk
from tower.cloud.openstack.auth import KeystoneLogin
from tower.cloud.session import CloudSession
from tower.cloud.token import RefreshedToken
from tower.reactor.cooperate import map_cooperatively

#: The first microversion with names of flavors in servers (Pike, 2017), and the oldest one.
WANTED = "2.47"
OLDEST = "2.1"

PAGE_SIZE = 500  # servers; clouds may limit it further
PAGE_LIMIT = 1000

#: A server in the API's JSON.
Server = dict[str, Any]

_SERVER: Shape = {
    "id": str,
    "name": str,
    "status": str,
    "metadata": {...: str},
    "addresses": {...: [{"addr": str, "OS-EXT-IPS:type": str}]},
    "accessIPv4": str,
    "accessIPv6": str,
    "flavor": {"id": str, "original_name": str},
    "OS-EXT-AZ:availability_zone": str,
}
_LIST: dict[Path, Shape] = {
    (): dict,
    ("servers",): list,
    ("servers", EACH): _SERVER,
    ("servers_links",): [{"rel": str}],
}

T = TypeVar("T")


class _NovaPage:
    """Iterates over the servers of a page.

    :ivar last: ID of the last server so far; empty: none.
    :ivar has_next: whether another page follows; set at the end.
    """

    def __init__(self, answer: Answer) -> None:
        self.last = ""
        self.has_next = False
        self._answer = answer

    def __iter__(self) -> Iterator[Server]:
        is_list = False
        for path, value in walk(self._answer, _LIST):
            if path == ("servers",):
                is_list = True
            elif path == ("servers", EACH):
                self.last = _checked(value)["id"]
                yield value
            elif path == ("servers_links",):
                self.has_next = any(each.get("rel") == "next" for each in value)
        if not is_list:
            raise CloudError("the response has no list of servers")


class Nova:
    """Nova, for the project of the login."""

    def __init__(
        self, session: CloudSession, clock: IReactorTime, logins: RefreshedToken[KeystoneLogin]
    ) -> None:
        self._session = session
        self.clock = clock
        self._logins = logins
        self._version = WANTED
        self._flavors: dict[str, str] = {}

    async def region(self) -> str:
        """Return the region."""
        return (await self._logins.get()).region

    async def servers(self, name: str, read: Callable[[Server], T | None]) -> list[T]:
        """Return the results of *read* for the servers of the project.

        Links to further pages are not followed: behind an HTTPS proxy, Nova may send ``http://`` links, and
        the token would be sent in cleartext.  The marker suffices.

        :param name: regular expression for their names; empty: all.
        :param read: called with each server, which has at least ID and name; None skips it.
        """
        found: list[T] = []
        query = {"limit": str(PAGE_SIZE)} | ({"name": name} if name else {})
        for _ in range(PAGE_LIMIT):
            page = _NovaPage(await self._send("GET", f"/servers/detail?{urlencode(query)}", b""))
            made = await map_cooperatively(self.clock, page, read)
            found += [each for each in made if each is not None]
            if not page.last or not page.has_next:
                return found
            if page.last == query.get("marker"):
                break
            query["marker"] = page.last
        raise CloudError("the list of servers does not end")

    async def server(self, number: str) -> Server:
        """Return a server; raise `InstanceNotFound` if there is none."""
        try:
            resource = await self._get(f"/servers/{quote(number, safe='')}", {"server": _SERVER})
        except CloudAnswerError as e:
            if e.code == 404:
                raise InstanceNotFound from None
            raise
        return _checked(resource.get("server") or {})

    async def flavor_name(self, number: str) -> str:
        """Return the name of a flavor, which an old Nova does not include in servers."""
        if number and number not in self._flavors:
            try:
                resource = await self._get(f"/flavors/{quote(number, safe='')}", {"flavor": {"name": str}})
            except CloudAnswerError as e:
                if e.code != 404:
                    raise
                return number  # deleted
            self._flavors[number] = (resource.get("flavor") or {}).get("name") or number
        return self._flavors.get(number, "")

    async def add_metadata(self, number: str, items: Mapping[str, str]) -> None:
        """Add or replace items of a server's metadata."""
        body = json.dumps({"metadata": dict(items)}).encode()
        await self._send("POST", f"/servers/{quote(number, safe='')}/metadata", body)

    async def _get(self, path: str, shape: Shape) -> dict[str, Any]:
        answer = await self._send("GET", path, b"")
        resource: dict[str, Any] = answer.json()
        if not fits(resource, shape):
            raise answer.unexpected()
        return resource

    async def _send(self, method: str, path: str, body: bytes) -> Answer:
        async def send(login: KeystoneLogin) -> Answer:
            headers = {
                "X-Auth-Token": login.token,
                "OpenStack-API-Version": f"compute {self._version}",
                "X-OpenStack-Nova-API-Version": self._version,
                "Accept": "application/json",
            }
            if body:
                headers["Content-Type"] = "application/json"
            return await self._session.request(
                method, f"{login.compute}{path}", headers=headers, body=body, again=_is_rate_limit
            )

        try:
            return await self._logins.used_for(send)
        except CloudAnswerError as e:
            if e.code != 406 or self._version == OLDEST:
                raise
        self._version = OLDEST
        return await self._logins.used_for(send)


def flavor_of(server: Server) -> tuple[str, str]:
    """Return name and ID of a server's flavor; one of them is empty, depending on Nova's version."""
    flavor = server.get("flavor") or {}
    return flavor.get("original_name") or "", flavor.get("id") or ""


def _is_rate_limit(answer: Answer) -> bool:
    """Return whether a response is a rate limit of an old Nova, which uses 413."""
    return answer.code == 413 and answer.header("retry-after") is not None


def _checked(server: Server) -> Server:
    """Return a server with ID and name."""
    if not server.get("id") or server.get("name") is None:
        raise CloudError("the response has a server without id or name")
    return server

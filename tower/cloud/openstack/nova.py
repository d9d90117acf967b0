"""Nova's REST API, v2.1: requests with tokens and a microversion, lists with all their pages."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

from tower.cloud.errors import CloudAnswerError, CloudError, InstanceNotFound
from tower.cloud.http.answer import Answer
from tower.cloud.http.json_shape import Shape, fits
from tower.cloud.http.json_stream import EACH, Path, walk
from tower.cloud.openstack.auth import KeystoneLogin
from tower.cloud.session import CloudSession
from tower.cloud.token import RefreshedToken
from tower.reactor.cooperate import map_cooperatively

#: The first microversion that tells a server's flavour by name (Pike, 2017), and the oldest one.
WANTED = "2.47"
OLDEST = "2.1"

PAGE_SIZE = 500  # servers; a cloud may have a smaller one
PAGE_LIMIT = 1000

#: A server, as the API's JSON has it.
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
    """One page of a list: its servers, one by one.

    :ivar last: id of the last one so far; empty: there is none.
    :ivar goes_on: whether another page follows, known when all are had.
    """

    def __init__(self, answer: Answer) -> None:
        self.last = ""
        self.goes_on = False
        self._answer = answer

    def __iter__(self) -> Iterator[Server]:
        is_list = False
        for path, value in walk(self._answer, _LIST):
            if path == ("servers",):
                is_list = True
            elif path == ("servers", EACH):
                self.last = _whole(value)["id"]
                yield value
            elif path == ("servers_links",):
                self.goes_on = any(each.get("rel") == "next" for each in value)
        if not is_list:
            raise CloudError("what should be a list of servers is none")


class Nova:
    """Asks for what belongs to the project of our login.

    :param clock: an ``IReactorTime``.
    """

    def __init__(self, session: CloudSession, clock: Any, logins: RefreshedToken[KeystoneLogin]) -> None:
        self._session = session
        self.clock = clock
        self._logins = logins
        self._version = WANTED
        self._flavors: dict[str, str] = {}

    async def region(self) -> str:
        """Return the region that we ask."""
        return (await self._logins.get()).region

    async def servers(self, name: str, read: Callable[[Server], T | None]) -> list[T]:
        """Return what *read* makes of the servers of the project.

        The links to further pages are not followed, as they may lead, with our token, past the HTTPS that
        stands before Nova: the marker is enough.

        :param name: a regular expression for their names; empty: all.
        :param read: gets each, with id and name at least; None: it is not meant.
        """
        found: list[T] = []
        query = {"limit": str(PAGE_SIZE)} | ({"name": name} if name else {})
        for _ in range(PAGE_LIMIT):
            page = _NovaPage(await self._ask("GET", f"/servers/detail?{urlencode(query)}", b""))
            made = await map_cooperatively(self.clock, page, read)
            found += [each for each in made if each is not None]
            if not page.last or not page.goes_on:
                return found
            if page.last == query.get("marker"):
                break
            query["marker"] = page.last
        raise CloudError("the list of servers does not end")

    async def server(self, number: str) -> Server:
        """Return the server of that id.

        :raise InstanceNotFound: there is none.
        """
        try:
            said = await self._get(f"/servers/{quote(number, safe='')}", {"server": _SERVER})
        except CloudAnswerError as e:
            if e.code == 404:
                raise InstanceNotFound from None
            raise
        return _whole(said.get("server") or {})

    async def flavor(self, server: Server) -> str:
        """Return the name of a server's flavour."""
        name, number = flavor_of(server)
        return name or await self.flavor_name(number)

    async def flavor_name(self, number: str) -> str:
        """Return the name of the flavour of that id, which an old Nova tells apart from its servers."""
        if number and number not in self._flavors:
            try:
                said = await self._get(f"/flavors/{quote(number, safe='')}", {"flavor": {"name": str}})
            except CloudAnswerError as e:
                if e.code != 404:
                    raise
                return number  # it has been deleted since
            self._flavors[number] = (said.get("flavor") or {}).get("name") or number
        return self._flavors.get(number, "")

    async def add_metadata(self, number: str, items: Mapping[str, str]) -> None:
        """Add items to a server's metadata, or replace those of the same name."""
        body = json.dumps({"metadata": dict(items)}).encode()
        await self._ask("POST", f"/servers/{quote(number, safe='')}/metadata", body)

    async def _get(self, path: str, shape: Shape) -> dict[str, Any]:
        answer = await self._ask("GET", path, b"")
        said = answer.json()
        if not fits(said, shape):
            raise CloudError(f"{answer.url} answered with something that cannot be read")
        read: dict[str, Any] = said
        return read

    async def _ask(self, method: str, path: str, body: bytes) -> Answer:
        async def ask(login: KeystoneLogin) -> Answer:
            headers = {
                "X-Auth-Token": login.token,
                "OpenStack-API-Version": f"compute {self._version}",
                "X-OpenStack-Nova-API-Version": self._version,
                "Accept": "application/json",
            }
            if body:
                headers["Content-Type"] = "application/json"
            return await self._session.request(
                method, f"{login.compute}{path}", headers=headers, body=body, again=_passes
            )

        try:
            return await self._logins.used_for(ask)
        except CloudAnswerError as e:
            if e.code != 406 or self._version == OLDEST:
                raise
        self._version = OLDEST
        return await self._logins.used_for(ask)


def flavor_of(server: Server) -> tuple[str, str]:
    """Return name and id of a server's flavour; one of them is empty, by Nova's age."""
    flavor = server.get("flavor") or {}
    return flavor.get("original_name") or "", flavor.get("id") or ""


def _passes(answer: Answer) -> bool:
    """Tell whether a refusal is a limit of an old Nova, which says with 413 when to come again."""
    return answer.code == 413 and answer.header("retry-after") is not None


def _whole(server: Server) -> Server:
    """Return a server that has what all of them have."""
    if not server.get("id") or server.get("name") is None:
        raise CloudError("there is a server without id or name")
    return server

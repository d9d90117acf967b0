"""The stand-in of Keystone and Nova refuses what the real ones refuse."""

from __future__ import annotations

import json
from typing import Any

from treq.testing import RequestTraversalAgent
from twisted.trial.unittest import SynchronousTestCase

from tests.cloud.asking import as_reactor, finish, started_clock
from tests.cloud.standins.openstack import (
    CREDENTIAL,
    CREDENTIAL_SECRET,
    DOMAIN,
    PASSWORD,
    PROJECT,
    USER,
    USER_NAME,
    OpenStack,
    Server,
)
from tower.cloud.http.answer import Answer
from tower.cloud.session import CloudSession

ANY = tuple(range(200, 600))
BASE = "http://cloud.test"
LIST = f"{BASE}/compute/v2.1/servers/detail"
SCOPE = {"project": {"id": PROJECT}}


def by_password(user: dict[str, Any], scope: Any = None, password: str = PASSWORD) -> dict[str, Any]:
    """Return the body of a login."""
    identity = {"methods": ["password"], "password": {"user": user | {"password": password}}}
    return {"auth": {"identity": identity} | ({"scope": scope} if scope else {})}


class StandInTests(SynchronousTestCase):
    """Requests of a client."""

    def setUp(self) -> None:
        """Start it, and log in."""
        self.clock = started_clock()
        self.cloud = OpenStack(self.clock.seconds, BASE)
        self.cloud.servers = [Server("a"), Server("b")]
        self.session = CloudSession(
            as_reactor(self.clock), agent=RequestTraversalAgent(self.cloud.resource), attempts=1
        )
        answer = self.log_in(by_password({"id": USER}, SCOPE))
        self.token = answer.header("X-Subject-Token") or ""

    def ask(self, method: str, url: str, headers: dict[str, str], body: Any = None) -> Answer:
        """Ask without any provider."""
        data = b"" if body is None else json.dumps(body).encode()
        fields = {"Content-Type": "application/json"} | headers
        return finish(self.clock, self.session.request(method, url, headers=fields, body=data, expect=ANY))

    def log_in(self, body: Any) -> Answer:
        """Request a token."""
        return self.ask("POST", f"{BASE}/identity/v3/auth/tokens", {}, body)

    def code(self, method: str, url: str, body: Any = None, **headers: str) -> int:
        """Return the status for a client with a token."""
        return self.ask(method, url, {"X-Auth-Token": self.token} | headers, body).code

    def test_logins(self) -> None:
        """Names need domains, secrets must be right, an application credential must not set a scope."""
        self.assertEqual(201, self.log_in(by_password({"name": USER_NAME, "domain": DOMAIN}, SCOPE)).code)
        self.assertEqual(400, self.log_in(by_password({"name": USER_NAME}, SCOPE)).code)
        self.assertEqual(400, self.log_in(by_password({"id": USER}, {"project": {"name": "demo"}})).code)
        self.assertEqual(401, self.log_in(by_password({"id": USER}, SCOPE, "wrong")).code)
        self.assertEqual(401, self.log_in(by_password({"id": USER}, {"project": {"id": "another"}})).code)
        self.assertEqual(400, self.log_in({"auth": {}}).code)
        said = {"id": CREDENTIAL, "secret": CREDENTIAL_SECRET}
        auth: dict[str, Any] = {"methods": ["application_credential"], "application_credential": said}
        self.assertEqual(201, self.log_in({"auth": {"identity": auth}}).code)
        self.assertEqual(401, self.log_in({"auth": {"identity": auth, "scope": SCOPE}}).code)
        said["secret"] = "wrong"
        self.assertEqual(401, self.log_in({"auth": {"identity": auth}}).code)

    def test_tokens(self) -> None:
        """A token has to be one that was given, for a project, and not to have ended."""
        self.assertEqual(200, self.code("GET", LIST))
        self.assertEqual(401, self.ask("GET", LIST, {}).code)
        self.assertEqual(401, self.code("GET", LIST, **{"X-Auth-Token": "gAAAA-made-up"}))
        unscoped = self.log_in(by_password({"id": USER})).header("X-Subject-Token") or ""
        self.assertEqual(401, self.code("GET", LIST, **{"X-Auth-Token": unscoped}))
        self.clock.advance(self.cloud.token_life)
        self.assertEqual(401, self.code("GET", LIST))

    def test_project_in_url(self) -> None:
        """The URL's project has to be the token's."""
        self.cloud.project_in_url = True
        self.assertEqual(200, self.code("GET", f"{BASE}/compute/v2.1/{PROJECT}/servers/detail"))
        self.assertEqual(400, self.code("GET", f"{BASE}/compute/v2.1/another/servers/detail"))

    def test_microversions(self) -> None:
        """A microversion has to be one that it speaks."""
        for text, code in (
            ("compute 2.47", 200),
            ("compute 2.997", 406),
            ("compute two", 400),
            ("2.47", 400),
        ):
            self.assertEqual(code, self.code("GET", LIST, **{"OpenStack-API-Version": text}))

    def test_pages(self) -> None:
        """Invalid limits and markers are rejected."""
        for query in ("limit=x", "marker=gone"):
            self.assertEqual(400, self.code("GET", f"{LIST}?{query}"))

    def test_metadata(self) -> None:
        """Names, values and their number have limits, and a server has to be settled."""
        server = self.cloud.servers[0]
        url = f"{BASE}/compute/v2.1/servers/{server.id}/metadata"
        self.assertEqual(200, self.code("POST", url, {"metadata": {"k": "v" * 255}}))
        for items in ({"k": "v" * 256}, {"": "v"}, {"k/": "v"}, {"k" * 256: "v"}, {"k": 5}):
            self.assertEqual(400, self.code("POST", url, {"metadata": items}))
        many = {f"k{number}": "v" for number in range(128)}
        self.assertEqual(403, self.code("POST", url, {"metadata": many}))
        server.status = "BUILD"
        self.assertEqual(409, self.code("POST", url, {"metadata": {"k": "w"}}))
        self.assertEqual(404, self.code("POST", url.replace(server.id, "gone"), {"metadata": {}}))
        self.assertEqual({"k": "v" * 255}, server.metadata)

    def test_seen_by_the_server(self) -> None:
        """A server reads its metadata as old as Nova's cache is."""
        self.cloud.cache = 15.0
        server = self.cloud.servers[0]
        url = f"{BASE}/as/{server.id}/openstack/latest/meta_data.json"
        self.assertEqual({}, self.ask("GET", url, {}).json()["meta"])
        server.metadata = {"k": "v"}
        self.assertEqual({}, self.ask("GET", url, {}).json()["meta"])
        self.clock.advance(15)
        self.assertEqual({"k": "v"}, self.ask("GET", url, {}).json()["meta"])
        self.assertEqual(404, self.ask("GET", url.replace(server.id, "gone"), {}).code)

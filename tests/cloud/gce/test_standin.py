"""The stand-in of Compute Engine refuses what the real one refuses."""

from __future__ import annotations

import json
from typing import Any

from treq.testing import RequestTraversalAgent
from twisted.trial.unittest import SynchronousTestCase

from tests.cloud.asking import as_reactor, finish, started_clock
from tests.cloud.standins.gce import GCE, PROJECT, Machine
from tower.cloud.http.answer import Answer
from tower.cloud.session import CloudSession

ANY = tuple(range(200, 600))
API = f"http://gce.test/compute/v1/projects/{PROJECT}"
SET = f"{API}/setCommonInstanceMetadata"


class StandInTests(SynchronousTestCase):
    """Requests of a client."""

    def setUp(self) -> None:
        """Start it, and get a token."""
        self.clock = started_clock()
        self.gce = GCE(self.clock.seconds)
        self.gce.machines = [Machine("a"), Machine("b")]
        self.session = CloudSession(
            as_reactor(self.clock), agent=RequestTraversalAgent(self.gce.resource), attempts=1
        )
        self.token = self.gce._issue()[0]

    def ask(self, method: str, url: str, headers: dict[str, str], body: Any = None) -> Answer:
        """Ask without any provider."""
        data = b"" if body is None else json.dumps(body).encode()
        asking = self.session.request(method, url, headers=headers, body=data, expect=ANY, retry=False)
        return finish(self.clock, asking)

    def code(self, method: str, url: str, body: Any = None, **headers: str) -> int:
        """Return the status for a client with a token."""
        fields = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"} | headers
        return self.ask(method, url, fields, body).code

    def test_metadata_service(self) -> None:
        """Its header has to be there, and no proxy's."""
        url = "http://gce.test/computeMetadata/v1/project/project-id"
        self.assertEqual(403, self.ask("GET", url, {}).code)
        flavor = {"Metadata-Flavor": "Google"}
        self.assertEqual(403, self.ask("GET", url, flavor | {"X-Forwarded-For": "10.0.0.1"}).code)
        self.assertEqual(404, self.ask("GET", f"{url}x", flavor).code)
        answer = self.ask("GET", url, flavor)
        self.assertEqual(
            (200, PROJECT, "Google"), (answer.code, answer.text(), answer.header("Metadata-Flavor"))
        )

    def test_tokens(self) -> None:
        """A token has to be one that was given, to be shown as a bearer's, and not to have ended."""
        self.assertEqual(200, self.code("GET", API))
        self.assertEqual(401, self.code("GET", API, Authorization="Bearer ya29.made-up"))
        self.assertEqual(401, self.code("GET", API, Authorization=self.token))
        self.clock.advance(self.gce.token_life)
        self.assertEqual(401, self.code("GET", API))

    def test_projects(self) -> None:
        """Another project is forbidden, another path not found."""
        self.assertEqual(403, self.code("GET", "http://gce.test/compute/v1/projects/another"))
        self.assertEqual(404, self.code("GET", f"{API}/nothing"))

    def test_fingerprints(self) -> None:
        """Metadata without the present fingerprint is refused with 412, with a used one too."""
        fingerprint = self.gce.project.fingerprint
        items = [{"key": "k", "value": "v"}]
        self.assertEqual(412, self.code("POST", SET, {"items": items}))
        self.assertEqual(412, self.code("POST", SET, {"items": items, "fingerprint": "stale"}))
        self.assertEqual(200, self.code("POST", SET, {"items": items, "fingerprint": fingerprint}))
        self.clock.advance(self.gce.operation_time)
        self.assertEqual(412, self.code("POST", SET, {"items": items, "fingerprint": fingerprint}))
        self.assertEqual({"k": "v"}, self.gce.project.items)

    def test_metadata(self) -> None:
        """Invalid and duplicate names, too long values and invalid bodies are rejected."""
        fingerprint = self.gce.project.fingerprint

        def code(*items: tuple[str, str]) -> int:
            said = [{"key": key, "value": value} for key, value in items]
            return self.code("POST", SET, {"items": said, "fingerprint": fingerprint})

        self.assertEqual(400, code(("a b", "v")))
        self.assertEqual(400, code(("k", "v"), ("k", "w")))
        self.assertEqual(400, code(("k", "v" * (256 * 1024 + 1))))
        self.assertEqual(400, code(*((f"k{number}", "v" * 200_000) for number in range(3))))
        self.assertEqual(400, self.code("POST", SET, [], **{"Content-Type": "text/plain"}))
        self.assertEqual({}, self.gce.project.items)

    def test_operations(self) -> None:
        """A change is so when its operation is done; one overtaken by another one fails."""
        fingerprint = self.gce.project.fingerprint
        bodies = [{"items": [{"key": key, "value": "v"}], "fingerprint": fingerprint} for key in "ab"]
        fields = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        first, second = (self.ask("POST", SET, fields, body).json() for body in bodies)
        self.assertEqual(({}, "PENDING"), (self.gce.project.items, first["status"]))
        self.clock.advance(self.gce.operation_time)
        where = f"{API}/global/operations/"
        first, second = (self.ask("GET", where + each["name"], fields).json() for each in (first, second))
        self.assertEqual(({"a": "v"}, "DONE"), (self.gce.project.items, first["status"]))
        self.assertEqual("CONDITION_NOT_MET", second["error"]["errors"][0]["code"])
        self.assertEqual(404, self.code("GET", f"{API}/zones/z/operations/{first['name']}"))

    def test_pages(self) -> None:
        """Invalid sizes, tokens, filters and zones are rejected."""
        lists = f"{API}/aggregated/instances"
        self.assertEqual(200, self.code("GET", f"{lists}?maxResults=1"))
        for query in ("maxResults=501", "maxResults=x", "pageToken=x", "filter=x", "maxresults=1"):
            self.assertEqual(400, self.code("GET", f"{lists}?{query}"), query)
        self.assertEqual(400, self.code("GET", f"{API}/zones/nowhere/instances"))

    def test_fields(self) -> None:
        """The requested fields are returned, and no others; invalid field masks are rejected."""
        lists = f"{API}/zones/europe-west1-b/instances?fields="
        fields = {"Authorization": f"Bearer {self.token}"}
        said = self.ask("GET", f"{lists}items(name,networkInterfaces/networkIP,tags/items)", fields).json()
        wanted = {"name": "a", "networkInterfaces": [{"networkIP": "10.0.0.2"}], "tags": {"items": []}}
        self.assertEqual(wanted, said["items"][0])
        self.assertEqual(["items"], list(said))
        every = f"{API}/aggregated/instances?fields=items/*(warning/code,instances(name))"
        said = self.ask("GET", every, fields).json()["items"]
        self.assertEqual({"instances": [{"name": "a"}, {"name": "b"}]}, said["zones/europe-west1-b"])
        self.assertEqual({"warning": {"code": "NO_RESULTS_ON_PAGE"}}, said["zones/us-east1-b"])
        for text in ("items(", "items)", "/", "items(name,)", "a,,b", "items-x"):
            self.assertEqual(400, self.code("GET", lists + text), text)

    def test_grants(self) -> None:
        """An invalid assertion is rejected."""
        self.assertEqual(400, self.code("POST", "http://gce.test/token", {}))
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        self.assertEqual(400, self.code("POST", "http://gce.test/token", {}, **form))
        self.assertEqual(401, self.ask("POST", "http://gce.test/alternate-token", {}).code)
        self.assertEqual(400, self.code("POST", "http://gce.test/alternate-token", {}))

    def test_guest(self) -> None:
        """Keys reach instances by the guest agent's rules."""
        a, b = self.gce.machines
        self.gce.project.items = {"ssh-keys": "x:1\ny:2", "sshKeys": "x:3\nz:4 google-ssh {}"}
        self.assertEqual([("x", "1"), ("y", "2"), ("x", "3")], list(self.gce.keys(a)))
        a.metadata.items = {"block-project-ssh-keys": "true", "ssh-keys": "x:5"}
        self.assertEqual([("x", "5")], list(self.gce.keys(a)))
        b.metadata.items = {"sshKeys": "x:6"}
        self.assertEqual([("x", "6")], list(self.gce.keys(b)))
        self.gce.project.items["enable-oslogin"] = "TRUE"
        self.assertEqual([], list(self.gce.keys(b)))

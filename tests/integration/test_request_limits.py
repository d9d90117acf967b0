"""Limits of requests in flight with real programs: one user's share, waiting requests, and caps."""

from __future__ import annotations

import json
import ssl
from threading import Thread

from tests.integration import harness
from tests.integration.backends import Backend
from tests.integration.person import Person
from tests.integration.programs import wait_for

SEATS = 8
OPTIONS = (harness.PATIENT, f"--max-mutating-requests-inflight={SEATS}", "--max-streams-per-user=1")
UPGRADE = {"Connection": "Upgrade", "Upgrade": "echo"}


class RequestLimitsTests(harness.TowerTestCase):
    """A user whose requests never end, and another one, with one cluster."""

    def new_tower(self) -> harness.Tower:
        """Return a Tower with low limits."""
        tower = super().new_tower()
        tower.proxy = tower.proxy_program(*OPTIONS)
        return tower

    def setUp(self) -> None:
        """Start a cluster whose server reads slowly."""
        super().setUp()
        backend = Backend(self.folder, "alpha")
        self.addCleanup(backend.program.stop)
        backend.start()
        self.tower.add("alpha", backend.kubeconfig("alpha"))
        self.greedy = self.tower.person("alpha", "greedy", "--auth", "token")
        self.jane = self.tower.person("alpha", "jane", "--auth", "token")

    def hold(self, person: Person) -> ssl.SSLSocket:
        """Return a connection with a change whose body never ends."""
        connection = person.connect()
        connection.putrequest("PUT", f"{person.prefix}/sink")
        for name, value in (*person.headers().items(), ("Transfer-Encoding", "chunked")):
            connection.putheader(name, value)
        connection.endheaders()
        connection.send(b"1\r\nx\r\n")
        assert isinstance(connection.sock, ssl.SSLSocket)
        self.addCleanup(connection.close)
        return connection.sock

    def value(self, name: str) -> float:
        """Return a metric of changes, as an administrator sees it."""
        wanted = f'{name}{{kind="mutating"}} '
        lines = self.tower.admin().get("/metrics").body.decode().splitlines()
        return next(float(line.removeprefix(wanted)) for line in lines if line.startswith(wanted))

    def test_shares(self) -> None:
        """A user's requests have half of the seats; others are served at once; those that wait get 429."""
        held = [self.hold(self.greedy) for _ in range(2 * SEATS)]
        wait_for("the requests", lambda: self.value("tower_requests_waiting") == SEATS * 3 / 2)
        self.assertEqual(self.value("tower_request_seats"), SEATS / 2)
        answers: list[int] = []
        worker = Thread(target=lambda: answers.append(self.post(self.jane)))
        worker.start()
        worker.join(10)
        self.assertEqual(answers, [200])
        answer = held[-1].recv(65536)
        self.assertTrue(answer.startswith(b"HTTP/1.1 429 "), answer)
        self.assertIn(b"\r\nRetry-After: 1\r\n", answer)
        status = json.loads(answer.partition(b"\r\n\r\n")[2] or held[-1].recv(65536))
        self.assertEqual(status["reason"], "TooManyRequests")
        self.assertIn("Too many requests, please try again later. (no seat of", status["message"])
        for each in held:
            each.close()
        wait_for("free seats", lambda: self.value("tower_request_seats") == 0)
        self.assertEqual(self.post(self.greedy), 200)

    def post(self, person: Person) -> int:
        """Send a change; return the status."""
        connection = person.connect()
        connection.request("POST", f"{person.prefix}/anything", body=b"{}", headers=person.headers())
        answer = connection.getresponse()
        answer.read()
        connection.close()
        return answer.status

    def test_streams(self) -> None:
        """A user has one stream at a time, and another one after its end."""

        def upgrade() -> tuple[int, bytes]:
            connection = self.jane.connect()
            self.addCleanup(connection.close)
            headers = {**self.jane.headers(), **UPGRADE}
            connection.request("GET", f"{self.jane.prefix}/echo", headers=headers)
            answer = connection.getresponse()
            opened.append(connection)
            return answer.status, b"" if answer.status == 101 else answer.read()

        opened: list[object] = []
        self.assertEqual(upgrade()[0], 101)
        code, body = upgrade()
        self.assertEqual(code, 429)
        self.assertIn(b"--max-streams-per-user is 1, and user jane has as many in progress", body)
        first = opened[0]
        first.close()  # type: ignore[attr-defined]
        wait_for("another stream", lambda: upgrade()[0] == 101)

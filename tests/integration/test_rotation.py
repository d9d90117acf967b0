"""Rotation of every key and CA of a proxy with 40 agents: no join line is needed, and no stream ends."""

from __future__ import annotations

import http.client
import json
import shlex
import ssl
import threading
from typing import Any

from tests.integration.backends import Backend
from tests.integration.fleet import FLEET
from tests.integration.harness import KEEPALIVE, Tower, TowerTestCase
from tests.integration.person import Person
from tests.integration.ports import free_ports
from tests.integration.programs import Program, script, wait_for

CLUSTERS = [f"c{number:02}" for number in range(40)]
BASE = "/apis/cluster.kubesphere.io/v1alpha1"
PATIENCE = 60.0  # s
PAUSE = 0.05  # s between two pieces of the stream


class Echo:
    """An upgraded connection of a user that checks the echo of its bytes, until it is stopped.

    :ivar count: of the pieces so far.
    :ivar failure: why it ended before; empty if it did not.
    """

    def __init__(self, person: Person) -> None:
        self.count = 0
        self.failure = ""
        self._person = person
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        connection = self._person.connect()
        try:
            self._echo(connection)
        except (OSError, http.client.HTTPException, AssertionError) as e:
            self.failure = repr(e)
        finally:
            connection.close()

    def _echo(self, connection: http.client.HTTPSConnection) -> None:
        path = f"{self._person.prefix}/echo"
        connection.request("GET", path, headers={"Connection": "Upgrade", "Upgrade": "echo"})
        sock: Any = connection.sock
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += self._received(sock, 1)
        assert head.startswith(b"HTTP/1.1 101 "), head
        while not self._stop.wait(PAUSE):
            piece = b"piece %08d." % self.count
            sock.sendall(piece)
            back = b""
            while len(back) < len(piece):
                back += self._received(sock, len(piece) - len(back))
            assert back == piece, (back, piece)
            self.count += 1

    def _received(self, sock: Any, count: int) -> bytes:
        data: bytes = sock.recv(count)
        if not data:
            raise ConnectionResetError("the stream ended")
        return data

    def stop(self) -> None:
        """End it."""
        self._stop.set()
        self._thread.join(PATIENCE)


class RotationTests(TowerTestCase):
    """One agent in its own process, with a user's stream, and 39 in another process."""

    def new_tower(self) -> Tower:
        """Return a Tower with a port for each cluster."""
        tower = Tower(self.folder)
        tower.cluster_ports = free_ports(len(CLUSTERS))
        tower.proxy = tower.proxy_program()
        return tower

    def setUp(self) -> None:
        """Start everything, and wait for all tunnels."""
        super().setUp()
        self.backend = Backend(self.folder, CLUSTERS[0])
        self.addCleanup(self.backend.program.stop)
        self.backend.start()
        self.admin = self.tower.admin()
        lines = [self.join(name) for name in CLUSTERS]
        self.agent = self.tower.agent(CLUSTERS[0], self.backend.kubeconfig(CLUSTERS[0]))
        self.agent.program.start()
        self.fleet = self.fleet_program([self.arguments(*line) for line in lines[1:]])
        self.addCleanup(self.stop_fleet)
        self.fleet.start()
        self.wait_for_tunnels()

    def join(self, name: str) -> tuple[str, dict[str, Any]]:
        """Add a cluster; return its name and the parameters of its join line."""
        self.create("Cluster", "clusters", metadata={"name": name})
        if name == CLUSTERS[0]:
            return name, {}
        return name, self.create("JoinToken", f"clusters/{name}/jointokens", spec={})["status"]

    def create(self, kind: str, path: str, **parts: Any) -> Any:
        """Return an object that Tower's API has created."""
        body = json.dumps({"apiVersion": "cluster.kubesphere.io/v1alpha1", "kind": kind, **parts}).encode()
        headers = {"Content-Type": "application/json"}
        answer = self.admin.request("POST", f"{BASE}/{path}", body=body, headers=headers)
        self.assertEqual(answer.status, 201, answer.body)
        return json.loads(answer.body)

    def arguments(self, name: str, status: dict[str, Any]) -> list[str]:
        """Return the arguments of an agent of the fleet."""
        (self.folder / f"{name}.token").touch(0o600)
        (self.folder / f"{name}.token").write_text(status["token"])
        return [
            *("--name", name, "--proxy-server", status["proxyServer"]),
            *("--host-key", *status["hostKeys"], "--ca-hash", status["caHash"]),
            *("--kubeconfig", str(self.backend.kubeconfig(CLUSTERS[0]))),
            *(f"--state-dir={self.folder / name}", f"--keepalive={KEEPALIVE:g}s"),
            *("--token-file", str(self.folder / f"{name}.token")),
        ]

    def fleet_program(self, arguments: list[list[str]]) -> Program:
        """Return the process of 39 agents; it is not started."""
        path = self.folder / "fleet.json"
        path.write_text(json.dumps(arguments))
        argv = [script("twistd"), "-n", "--pidfile=", "-y", str(FLEET)]
        return Program("fleet", argv, self.folder, {"FLEET": str(path)})

    def wait_for_tunnels(self) -> None:
        """Return when every cluster has a tunnel."""

        def connected() -> int:
            items = json.loads(Person(self.tower.state / "admin.kubeconfig").get(f"{BASE}/clusters").body)
            return sum(1 for item in items["items"] if item["status"]["agents"])

        wait_for("all tunnels", lambda: connected() == len(CLUSTERS), PATIENCE, 0.2)

    def stop_fleet(self) -> None:
        """Stop the 39 agents that run at the end."""
        self.fleet.stop()

    def restart_fleet(self) -> None:
        """Restart the 39 agents with the arguments of their first join line, but without its tokens."""
        self.assertTrue(self.fleet.stop())
        lists = json.loads((self.folder / "fleet.json").read_text())
        self.fleet = self.fleet_program([each[:-2] if "--token-file" in each else each for each in lists])
        self.fleet.start()
        self.wait_for_tunnels()

    def rotation(self, target: str) -> dict[str, Any]:
        """Return the object of a rotation."""
        admin = Person(self.tower.state / "admin.kubeconfig")
        status: dict[str, Any] = json.loads(admin.get(f"{BASE}/rotations/{target}").body)["status"]
        return status

    def pods(self, person: Person) -> int:
        """Return the status of a request of a user."""
        return person.get("/ping").status

    def test_every_rotation(self) -> None:
        """Each rotation finishes, or waits for old kubeconfigs; agents reconnect by their first join line."""
        jane = self.tower.person(CLUSTERS[0], "jane")
        echo = Echo(jane)
        self.addCleanup(echo.stop)
        wait_for("the stream", lambda: echo.count, PATIENCE)

        self.tower.tower("rotate", "host-key")
        wait_for("the new host key", lambda: self.rotation("host-key")["phase"] == "Finished", PATIENCE, 0.5)
        self.restart_fleet()

        self.tower.tower("rotate", "serving-ca")

        def remaining() -> dict[str, Any]:
            left: dict[str, Any] = self.rotation("serving-ca")["remaining"]
            return left

        wait_for("the agents", lambda: remaining()["readyAgents"] == len(CLUSTERS), PATIENCE, 0.5)
        self.assertEqual(
            [remaining()[key] for key in ("lackingAgents", "joinTokens", "credentials")], [0, 0, 1]
        )
        bill = self.tower.person(CLUSTERS[0], "bill")
        self.assertEqual(bill.ca.count("BEGIN CERTIFICATE"), 2)
        self.assertEqual((self.pods(jane), self.pods(bill)), (200, 200))
        self.tower.tower("rotate", "serving-ca", "--now")
        self.assertEqual(self.rotation("serving-ca")["phase"], "Finished")
        self.assertEqual(self.pods(bill), 200)
        self.assertRaises(ssl.SSLCertVerificationError, self.pods, jane)
        self.restart_fleet()

        self.assertIn("users-ca", self.tower.tower("rotate", "users-ca"))
        anna = self.tower.person(CLUSTERS[0], "anna")
        self.assertEqual((self.pods(anna), self.pods(bill)), (200, 200))
        self.assertEqual(self.rotation("users-ca")["remaining"]["credentials"], 2)
        self.assertIn("secrets-key rotated", self.tower.tower("rotate", "secrets-key"))
        self.assertIn("2 credentials of users", self.tower.tower("rotate", "status"))

        count = echo.count
        wait_for("more of the stream", lambda: echo.failure or echo.count > count + 2, PATIENCE)
        self.assertEqual(echo.failure, "")
        echo.stop()
        self.tower.proxy.stop()
        self.tower.start()
        self.wait_for_tunnels()
        self.assertEqual((self.pods(anna), self.pods(bill)), (200, 200))
        for program in (self.tower.proxy, self.fleet, self.agent.program):
            self.assertNotIn("Traceback", program.output())
        self.assertIn("--host-key", shlex.join(self.agent.argv))

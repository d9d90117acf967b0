"""A cluster of type ssh with real nodes, for tests of it."""

from __future__ import annotations

import base64
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.integration.backends import Backend
from tests.integration.harness import Tower
from tests.integration.node_fleet_kit import (
    CLUSTER,
    NodeFleet,
    ssh_status,
    wait_until_open,
)
from tests.integration.person import Answer, Person
from tests.integration.ports import free_port
from tests.integration.programs import wait_for
from tests.integration.sshd import Sshd

LISTED = 60.0  # s for a change of the nodes' source to take effect


DIAL = 30.0  # s that a request may wait for a node that hangs: its limit is 15 s


LOUD = "--v=9"


TOKEN = f"the-agent-of-{CLUSTER}"


class NodeClusterTestCase(SynchronousTestCase):
    """One proxy with verbose logs, a backend as API server, and two nodes that are up."""

    count = 2

    def setUp(self) -> None:
        """Start all of it; nothing is added yet."""
        self.folder = Path(tempfile.mkdtemp(prefix="tower-nodes-"))
        self.addCleanup(shutil.rmtree, self.folder, True)
        self.fleet = NodeFleet(self.folder / "fleet", self.count, port=free_port())
        self.addCleanup(self.fleet.stop)
        self.fleet.start()
        self.backend = Backend(self.folder, CLUSTER)
        self.addCleanup(self.backend.program.stop)
        self.backend.start()
        self.metrics = free_port()
        self.tower = Tower(self.folder)
        self.tower.proxy = self.tower.proxy_program(LOUD, f"--metrics-port={self.metrics}")
        self.addCleanup(self.check_programs)
        self.addCleanup(self.tower.stop)
        self.tower.start()

    @property
    def kubeconfig(self) -> Path:
        """The proxy's credential for the backend."""
        return self.backend.kubeconfig(CLUSTER)

    def add(self, *extra: str, nodes: list[Sshd] | None = None) -> Person:
        """Add the cluster; return jane, a user of it."""
        self.fleet.add_to(self.tower, self.kubeconfig, *extra, nodes=nodes)
        return self.tower.person(CLUSTER, "jane")

    def added(self, *extra: str, nodes: list[Sshd] | None = None) -> Person:
        """Do as `add`, and wait for the tunnels."""
        jane = self.add(*extra, nodes=nodes)
        wait_until_open(self.tower, self.fleet.nodes if nodes is None else nodes)
        return jane

    def check_programs(self) -> None:
        """The proxy has no errors in its log, and no secret in its log or on its disk."""
        logged = self.tower.proxy.output()
        self.assertNotIn("Traceback", logged)
        self.assertNotIn("Unhandled", logged)
        files = [self.tower.proxy.log, *(path for path in self.tower.state.rglob("*") if path.is_file())]
        for secret in self.secrets():
            self.assertEqual([str(path) for path in files if secret in path.read_bytes()], [])

    def secrets(self) -> Iterator[bytes]:
        """Yield secrets that must not leak: the member's credentials, and the middle of the private key."""
        yield TOKEN.encode()
        yield base64.b64encode(TOKEN.encode()).rstrip(b"=")[:-1]
        yield from self.fleet.key_file.read_bytes().splitlines()[2:-2]

    def wait_for_status(self, kind: str, wanted: str) -> str:
        """Wait for the status of a condition; return its message."""

        def condition() -> dict[str, str]:
            conditions = self.tower.status(CLUSTER)["status"]["conditions"]
            return next((each for each in conditions if (each["type"], each["status"]) == (kind, wanted)), {})

        return wait_for(f"{kind} to be {wanted}", condition, LISTED, 0.2)["message"]

    def node(self, number: int = 0) -> dict[str, object]:
        """Return the status of one node."""
        address = self.fleet.nodes[number].address
        (found,) = [node for node in ssh_status(self.tower)["nodes"] if node["address"] == address]
        return dict(found)

    def error(self, number: int = 0) -> str:
        """Return the last error of a node."""
        return str(self.node(number).get("error", ""))

    def sessions(self) -> int:
        """Return the number of the nodes' processes for connections."""
        return sum(node.sessions() for node in self.fleet.nodes)

    def refused(self, person: Person, within: float = DIAL) -> Answer:
        """Send a request while no path to the cluster works: a Status is returned, in bounded time."""
        began = time.monotonic()
        answer = person.get("/ping")
        self.assertLess(time.monotonic() - began, within)
        self.assertIn(answer.status, (502, 503, 504), answer.body)
        return answer


@contextmanager
def streaming(person: Person) -> Iterator[Callable[[], bool]]:
    """Hold an upgraded connection open; yield a function that returns whether it still echoes."""
    connection = person.connect()
    headers = {**person.headers(), "Connection": "Upgrade", "Upgrade": "echo"}
    connection.request("GET", f"{person.prefix}/echo", headers=headers)
    sock = connection.sock
    assert sock is not None
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += sock.recv(1)
    assert head.startswith(b"HTTP/1.1 101 "), head

    def echoes() -> bool:
        sock.sendall(b"still there?")
        return sock.recv(100) == b"still there?"

    assert echoes()
    try:
        yield echoes
    finally:
        connection.close()

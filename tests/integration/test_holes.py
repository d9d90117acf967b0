"""Holes that only programs show: open descriptors, ends, and output.

Those of old peers are in the tests of old agents, old proxies and fleets; see docs/holes.md.
"""

from __future__ import annotations

import http.client
import json
import re
import socket
import ssl
import threading

from tests.fakes.certificates import PUBLISHED
from tests.integration import harness
from tests.integration.backends import Backend
from tests.integration.programs import LOOPBACK, Program, wait_for

GARBAGE = b"SSH-1.5-nobody\r\nHTTP/1.1 400 Bad Request\r\n\r\n"
REFUSALS = 40
SETTLED = 60.0  # s


class Impostor:
    """Accepts connections, sends something that no proxy sends, and closes.

    :ivar port: where it listens.
    :ivar taken: connections so far.
    """

    def __init__(self) -> None:
        self._listener = socket.create_server((LOOPBACK, 0))
        self.port: int = self._listener.getsockname()[1]
        self.taken = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection = self._listener.accept()[0]
            except OSError:
                return
            self.taken += 1
            with connection:
                connection.sendall(GARBAGE)

    def close(self) -> None:
        """Stop accepting connections."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


class HoleTests(harness.TowerTestCase):
    """A proxy, and a cluster with a Tower agent."""

    def setUp(self) -> None:
        """Start them."""
        super().setUp()
        self.backend = Backend(self.folder, "alpha")
        self.addCleanup(self.backend.program.stop)
        self.backend.start()
        self.kubeconfig = self.backend.kubeconfig("alpha")
        self.agent = self.tower.add("alpha", self.kubeconfig)
        self.jane = self.tower.person("alpha", "jane")
        self.assertEqual(self.jane.get("/ping").status, 200)

    def available(self) -> str:
        """Return status and reason of the condition about the agent."""
        conditions = self.tower.status("alpha")["status"]["conditions"]
        (found,) = (each for each in conditions if each["type"] == "AgentAvailable")
        return f"{found['status']} {found['reason']}"

    def test_hole_01_22_no_port_without_credentials(self) -> None:
        """Holes 1 and 22: no port serves clients without a credential, and none is on another address."""
        context = ssl.create_default_context(cadata=self.jane.ca)
        port = self.tower.cluster_port("alpha")
        for number, path in ((port, "/api"), (self.tower.secure_port, "/clusters/alpha/api")):
            connection = http.client.HTTPSConnection(LOOPBACK, number, context=context, timeout=SETTLED)
            connection.request("GET", path)
            self.assertEqual(connection.getresponse().status, 401)
            connection.close()
            self.assertRaises(ConnectionRefusedError, socket.create_connection, ("127.0.0.2", number), 5)

    def test_hole_02_the_published_authority(self) -> None:
        """Hole 2: a proxy with the published CA ends with one line and exit code 1."""
        path = self.folder / "published.crt"
        path.write_text(PUBLISHED)
        self.tower.proxy.stop()
        again = self.tower.proxy_program(f"--ca-cert={path}", f"--ca-key={path}", name="published")
        again.start()
        self.assertEqual(again.wait(), 1)
        self.assertIn("the private key of this CA is public", again.output())
        self.assertNotIn("Traceback", again.output())

    def test_hole_12_refusals_leave_nothing_open(self) -> None:
        """Hole 12: an agent that is refused repeatedly leaks no descriptors on either side."""
        self.agent.program.stop()
        proxy = self.tower.proxy
        refused = self.tower.agent("alpha", self.kubeconfig, "--max-retry-interval=100ms")
        refused.program = self.with_token(refused, "tower-of-nobody")
        before = proxy.descriptors()
        refused.program.start()
        tries = "rejected this agent for cluster"
        wait_for("the first refusal", lambda: tries in refused.program.output(), SETTLED)
        few = refused.program.descriptors()
        wait_for("more refusals", lambda: rejections(proxy.output()) > REFUSALS, 3 * SETTLED)
        wait_for("it to close them", lambda: refused.program.descriptors() <= few + 2, SETTLED)
        wait_for("the proxy to close them", lambda: proxy.descriptors() <= before + 2, SETTLED)
        for program in (proxy, refused.program):
            self.assertNotIn("tower-of-nobody", program.output())
            self.assertNotIn("Traceback", program.output())

    def with_token(self, agent: harness.Agent, token: str) -> Program:
        """Return the program of an agent with a wrong join token."""
        return Program(agent.name, agent.argv, self.folder, {**agent.environment, "TOWER_TOKEN": token})

    def test_hole_16_not_a_proxy(self) -> None:
        """Hole 16: an agent retries after any answer, and ends with an error if it must not retry."""
        impostor = Impostor()
        self.addCleanup(impostor.close)
        for extra, ends in (([], False), (["--max-retry=3"], True)):
            agent = self.tower.agent(
                "alpha", self.kubeconfig, "--max-retry-interval=200ms", *extra, via=impostor.port
            )
            agent.program.start()
            if ends:
                self.assertEqual(agent.program.wait(SETTLED), 1)
                self.assertIn("giving up after 3 retries", agent.program.output())
                continue
            wait_for("ten tries", lambda: impostor.taken > 10, SETTLED)
            self.assertTrue(agent.program.running())
            self.assertIn("retrying in", agent.program.output())

    def test_hole_28_29_after_a_crash(self) -> None:
        """Holes 28 and 29: after kill -9 the agent reconnects at once; its death, if any, is shown."""
        self.tower.proxy.kill()
        self.tower.start()
        wait_for("jane's request", lambda: self.jane.get("/ping").status == 200, SETTLED)
        self.assertNotIn("was rejected", self.tower.proxy.output())
        self.assertEqual(self.available(), "True AgentConnected")
        self.tower.proxy.kill()
        self.agent.program.kill()
        self.tower.start()
        wait_for("the condition", lambda: self.available() == "False AgentDisconnected", SETTLED)

    def test_hole_30_the_log(self) -> None:
        """Hole 30: at normal verbosity both logs and the object show that the agent is connected."""
        self.assertIn("connected to ", self.agent.program.output())
        wait_for("the proxy's line", lambda: "agent of alpha connected from" in self.tower.proxy.output())
        self.assertEqual(self.available(), "True AgentConnected")
        self.agent.program.stop()
        answer = self.jane.get("/ping")
        self.assertEqual(answer.status, 503)
        self.assertIn(
            "no agent of cluster alpha is connected; one was last seen", json.loads(answer.body)["message"]
        )


def rejections(log: str) -> int:
    """Return the number of agents of alpha that a proxy has rejected, by its log."""
    more = sum(map(int, re.findall(r"(\d+) more agents were rejected", log)))
    return log.count("was rejected: for cluster 'alpha': ") + more

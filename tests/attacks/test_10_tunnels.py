"""Attack 10: the numbers of tunnels of one agent's key, and of one cluster, are limited."""

from __future__ import annotations

import json
import re
import shutil
import signal
from concurrent.futures import ThreadPoolExecutor

from twisted.internet.error import ConnectionLost
from twisted.python.failure import Failure

from tests.attacks.case import AttackTestCase
from tests.integration.fleet import FLEET, arguments_for
from tests.integration.harness import PATIENT
from tests.integration.programs import Program, script, wait_for
from tests.integration.raw_peer import Gone, RawPeer, agent_peer
from tests.integration.relay import Relay
from tower.conch.transport.keys import load_or_create
from tower.trust.statedir import StateDir

MANY = 40  # agents with one key
LIMIT = 8  # tunnels that a key has
BACK = 30.0  # s for an agent to get through behind its own dead tunnels
FULL = re.compile(
    r"attempt 1 to connect failed: .*key SHA256:\S+ has 8 tunnels into cluster evil.*--max-tunnels-per-key"
)
WAITS = re.compile(r"retrying in ([0-9.]+) s")
LONG = 60.0  # s, half of the longest wait


class KeyTests(AttackTestCase):
    """The proxy with default options, and one key that is enrolled for another cluster."""

    def setUp(self) -> None:
        """Enrol it."""
        super().setUp()
        self.evil = self.tower.add("evil", self.backend.kubeconfig("alpha"))
        self.evil.program.stop()
        self.evil.forget_token()

    def live(self) -> int:
        """Return the number of tunnels of the key's cluster."""
        count: int = self.tower.status("evil").get("status", {}).get("agents", 0)
        return count

    def test_agents(self) -> None:
        """40 agents with one key: 8 are accepted, the others log why and wait long; users do not notice."""
        lists = []
        for number in range(MANY):
            state = self.folder / f"fleet-{number}"
            shutil.copytree(self.evil.state, state)
            words = self.evil.argv[1:]
            kept = [word for word in words if not word.startswith(("--state-dir", "--health-address"))]
            lists.append([*kept, f"--state-dir={state}"])
        places = self.folder / "fleet.json"
        places.write_text(json.dumps(lists))
        argv = [script("twistd"), "-n", "--pidfile=", "-y", str(FLEET)]
        fleet = Program("fleet", argv, self.folder, {"FLEET": str(places)})
        self.addCleanup(fleet.stop)
        arrivals = self.arrivals(2)
        with self.bystanders() as users:
            users.until(10)
            fleet.start()
            wait_for("the refusals", lambda: len(FULL.findall(fleet.output())) >= MANY - LIMIT)
            users.agents_come_in(arrivals)
            users.until(40)
        self.assertEqual(self.live(), LIMIT)
        self.assertEqual(fleet.output().count("connected to"), LIMIT)
        waits = [float(wait) for wait in WAITS.findall(fleet.output())]
        self.assertEqual(len(waits), MANY - LIMIT, waits)
        self.assertGreaterEqual(min(waits), LONG)
        self.assertIn("was rejected", self.tower.proxy.output())
        for program in (fleet, self.tower.proxy):
            self.assertNotIn("Traceback", program.output())

    def test_silent_peers(self) -> None:
        """Peers that prove the key and then stay silent replace each other, and never exceed the limit."""
        port, words = self.tower.port, self.evil.argv
        host_key = words[words.index("--host-key") + 1]
        key = load_or_create(StateDir(self.evil.state), "agent-key")
        before = self.tower.proxy.descriptors()

        def come() -> RawPeer:
            peer = agent_peer(port, "evil", key, host_key)
            try:
                peer.authenticate()
            except Gone:
                peer.ssh.connectionLost(Failure(ConnectionLost()))  # which gives us the reason
            return peer

        with self.bystanders() as users, ThreadPoolExecutor(MANY) as pool:
            peers = list(pool.map(lambda _: come(), range(MANY)))
            users.until(20)
            for peer in peers:
                self.addCleanup(peer.close)
            refused = [peer.reason for peer in peers if "--max-tunnels-per-key" in peer.reason]
            self.assertGreaterEqual(len(refused), MANY - 2 * LIMIT)
            self.assertLessEqual(self.live(), LIMIT)
            most = before + LIMIT
            wait_for("descriptors", lambda: self.tower.proxy.descriptors() <= most + len(users.users) * 2)


class LimitTests(AttackTestCase):
    """Configured limits."""

    def test_cluster(self) -> None:
        """An agent too many for its cluster logs why, tries again late, and at once when it gets SIGHUP."""
        self.restart("--max-tunnels-per-cluster=1")
        second = self.tower.agent("alpha", self.backend.kubeconfig("alpha"))
        second.program.start()
        wait_for("the reason", lambda: "--max-tunnels-per-cluster" in second.program.output())
        self.assertIn("cluster alpha has 1 tunnels", second.program.output())
        wait_for("its wait", lambda: WAITS.search(second.program.output()))
        (wait,) = WAITS.findall(second.program.output())
        self.assertGreaterEqual(float(wait), LONG)
        self.assertTrue(self.agent.ready())
        self.agent.program.stop()
        second.program.signal(signal.SIGHUP)
        second.wait_until_ready(BACK)
        self.assertEqual(self.jane.get("/ping").body, b"pong")

    def test_dead_tunnels(self) -> None:
        """An agent whose network was cut repeatedly, without any notice, soon has a tunnel again."""
        self.restart("--max-tunnels-per-key=2", PATIENT)
        self.agent.program.stop()
        for number in range(4):
            relay = Relay(self.tower.secure_port)
            self.addCleanup(relay.close)
            argv = arguments_for(self.agent.argv, relay.port, tls=True)
            program = Program(f"agent-{number}", argv, self.folder)
            self.addCleanup(program.kill)
            self.agent.program = program
            program.start()
            self.agent.wait_until_ready(BACK)
            self.assertNotIn("attempt 1 to connect failed", program.output())
            relay.stall()
            program.kill()

    def restart(self, *options: str) -> None:
        """Restart the proxy with these options, and wait for the agent."""
        self.tower.proxy.stop()
        self.tower.proxy = self.tower.proxy_program(*options)
        self.tower.start()
        self.agent.wait_until_ready()

"""A connection that is cut, stalls or is slow at any point of an agent's handshake."""

from __future__ import annotations

import http.client
import json
import shutil
import time

from tests.integration import harness
from tests.integration.backends import Backend
from tests.integration.fleet import FLEET, arguments_for
from tests.integration.messages import message_ends, record_ends
from tests.integration.programs import Program, script, wait_for
from tests.integration.relay import Fault, Relay

AGENTS = "/apis/cluster.kubesphere.io/v1alpha1/clusters/alpha/agents"
BACK = 60.0  # s for the agent to come back
DEADLINE = 10.0  # s that a handshake may take
MESSAGES = 8  # in each direction, from the head of HTTP to the hello, at the least
TLS_RECORDS = 8  # including the handshake
SLOW = 0.006  # s between two bytes; a handshake has thousands


class HandshakeTests(harness.TowerTestCase):
    """One agent behind a relay that fails on purpose."""

    def setUp(self) -> None:
        """Enroll the agent and start its tunnel."""
        super().setUp()
        self.backend = Backend(self.folder, "alpha")
        self.addCleanup(self.backend.program.stop)
        self.backend.start()
        self.tower.tower("cluster", "add", "alpha")
        self.agent = self.tower.agent("alpha", self.backend.kubeconfig("alpha"))
        self.jane = self.tower.person("alpha", "jane")
        self.asking: http.client.HTTPSConnection | None = None

    def new_tower(self) -> harness.Tower:
        """Return a proxy that accepts any number of agents with one key, as the tests have only one."""
        tower = super().new_tower()
        tower.proxy = tower.proxy_program("--max-tunnels-per-key=0")
        return tower

    def begin(self, *, tls: bool) -> tuple[list[int], list[int]]:
        """Start the agent; return the ends of its messages in each direction, once they are known."""
        port = self.tower.secure_port if tls else self.tower.port
        self.relay = Relay(port)
        self.addCleanup(self.relay.close)
        agent = self.agent
        agent.argv = arguments_for(agent.argv, self.relay.port, tls=tls)
        agent.program = Program(agent.name, agent.argv, self.folder, agent.environment)
        agent.program.start()
        agent.wait_until_ready()
        record = self.relay.record()
        self.cut_and_wait()
        up, down = map(bytes, record)
        self.assertTrue(self.works())
        return (record_ends(up), record_ends(down)) if tls else (message_ends(up), message_ends(down))

    def cut_and_wait(self, connections: int = 1, timeout: float = BACK) -> None:
        """Cut the tunnel and return when the agent has one again, after that many connections."""
        wanted = self.relay.accepted + connections
        self.relay.cut()
        wait_for(
            f"the agent's return by {connections} connections",
            lambda: self.relay.accepted >= wanted and self.agent.ready(),
            timeout,
            0.01,
        )

    def works(self) -> bool:
        """Return whether a request of jane's gets through, on one kept-alive connection."""
        if self.asking is None:
            self.asking = self.jane.connect()
            self.addCleanup(self.asking.close)
        return self.jane.ask(self.asking, f"{self.jane.prefix}/ping").read() == b"pong"

    def tunnels(self) -> int:
        """Return the number of tunnels of the proxy."""
        items = json.loads(self.tower.admin().get(AGENTS).body)["items"]
        return sum(len(item["status"]["tunnels"]) for item in items)

    def check_cuts(self, faults: list[Fault]) -> None:
        """Inject each fault into one connection, and find everything as it was before."""
        programs = (self.tower.proxy, self.agent.program)
        before = [each.descriptors() for each in programs]
        for fault in faults:
            self.relay.fault = fault
            self.cut_and_wait(2)
            self.assertTrue(self.works(), fault)
        wait_for("the end of the cut connection", lambda: (self.relay.open, self.tunnels()) == (1, 1), BACK)
        for program, count in zip(programs, before, strict=True):
            self.wait_for_descriptors(program, count)
            self.assertNotIn("Traceback", program.output())

    def wait_for_descriptors(self, program: Program, count: int) -> None:
        """Return when a program has at most so many files open."""
        wait_for(f"the descriptors of {program.name}", lambda: program.descriptors() <= count, BACK)

    def test_cut(self) -> None:
        """The connection is cut after or within each message of the handshake; nothing is left of it."""
        faults = []
        for up, ends in zip((True, False), self.begin(tls=False), strict=True):
            self.assertGreaterEqual(len(ends), MESSAGES)
            faults += [Fault(up, end - (number % 2 == up)) for number, end in enumerate(ends)]
        self.check_cuts(faults)

    def test_cut_in_tls(self) -> None:
        """The same with the records of TLS."""
        faults = []
        for up, ends in zip((True, False), self.begin(tls=True), strict=True):
            faults += [Fault(up, end) for end in ends[:TLS_RECORDS]]
        self.check_cuts(faults)

    def test_stall(self) -> None:
        """After each message, both directions stall: both sides close in time, and the agent reconnects."""
        ways = zip((True, False), self.begin(tls=False), strict=True)
        faults = [Fault(up, end, stalls=True) for up, ends in ways for end in ends[:MESSAGES]]
        relays = [Relay(self.tower.port) for _ in faults]
        lists = []
        for number, (relay, fault) in enumerate(zip(relays, faults, strict=True)):
            self.addCleanup(relay.close)
            relay.fault = fault
            state = self.folder / f"fleet-{number}"
            shutil.copytree(self.agent.state, state)
            words = arguments_for(self.agent.argv, relay.port, tls=False)[1:]
            dropped = ("--state-dir", "--health-address")
            lists.append([each for each in words if not each.startswith(dropped)] + [f"--state-dir={state}"])
        places = self.folder / "fleet.json"
        places.write_text(json.dumps(lists))
        argv = [script("twistd"), "-n", "--pidfile=", "-y", str(FLEET)]
        fleet = Program("fleet", argv, self.folder, {"FLEET": str(places)})
        self.addCleanup(fleet.stop)
        fleet.start()
        wait_for("the stalled ones", lambda: all(relay.accepted for relay in relays), BACK)
        self.assertTrue(self.works())
        wait_for("all", lambda: self.tunnels() == 1 + len(relays), DEADLINE + BACK, 0.2)
        wait_for("the end of what stalled", lambda: {relay.open for relay in relays} == {1}, DEADLINE + BACK)
        for _ in range(2 * len(relays)):
            self.assertTrue(self.works())
        for program in (self.tower.proxy, fleet):
            self.assertNotIn("Traceback", program.output())

    def test_dribble(self) -> None:
        """With each byte in a separate packet the handshake and requests succeed."""
        self.begin(tls=True)
        self.relay.dribble = 0.0
        self.cut_and_wait()
        for _ in range(10):
            self.assertTrue(self.works())

    def test_crawl(self) -> None:
        """A handshake that would take a minute is aborted in time, on both sides, and then tried again."""
        self.begin(tls=False)
        self.relay.dribble = SLOW
        began, count = time.monotonic(), self.relay.accepted
        self.relay.cut()
        wait_for("another try", lambda: self.relay.accepted >= count + 2, DEADLINE + BACK)
        self.assertGreater(time.monotonic() - began, DEADLINE / 2)
        self.relay.dribble = None
        wait_for("the agent's return", self.agent.ready, BACK)
        self.assertTrue(self.works())
        wait_for("the end of what crawled", lambda: self.relay.open == 1, BACK)

"""Members that work badly, agents that disagree, and a proxy that is killed meanwhile."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path

from tests.integration import harness
from tests.integration.health_subjects import Credential, NodeCluster, OldAgentCluster, OurAgent
from tests.integration.health_views import NOTICED, Case, Fault, Views, everywhere
from tests.integration.member import Running
from tests.integration.node_fleet_kit import NodeFleet
from tests.integration.ports import free_port, free_ports
from tests.integration.process_clock import ProcessClock
from tests.integration.programs import wait_for
from tests.integration.slow_front import SlowFront

HOUR = 3600
DELAY = 5.0  # s
CLUSTERS = 5
SETTLED = 12.0  # s after a restart of the proxy
REQUESTS = 20

SYNCHRONIZE = '(59|60|61)m ahead of that of the API server"?: synchronize both machines with NTP'
LOAD = "check the load of the API server"

SLOW = Fault("slow", "APIServerReachable", "Slow", everywhere(LOAD), LOAD, available=True)
LIMITED = Fault(
    "429", "APIServerReachable", "TooManyRequests", everywhere("reduce the requests"), "", available=True
)
ERROR = Fault("500", "APIServerReachable", "ServerError", everywhere("see the log of the API server"), "")
CLOCK = Fault(
    "clock of the agent",
    "APIServerReachable",
    "ClockSkew",
    everywhere(SYNCHRONIZE),
    SYNCHRONIZE,
    available=True,
)


class MemberHealthTests(harness.TowerTestCase):
    """One API server; three clusters reach it through servers that answer badly."""

    timeout = 600

    def setUp(self) -> None:
        """Start the API server and the clusters."""
        super().setUp()
        folder = Path(tempfile.mkdtemp(prefix="tower-member-"))
        self.addCleanup(shutil.rmtree, folder, True)
        running = Running(folder, "--bare")
        self.addCleanup(running.halt)
        running.start()
        self.member = running.member
        fleet = NodeFleet(self.tower.node_files, 1, port=free_port())
        self.addCleanup(fleet.stop)
        fleet.start()
        self.fronts = [SlowFront(self.member) for _ in range(3)]
        for front in self.fronts:
            self.addCleanup(front.close)
        slow, limited, error = (front.server for front in self.fronts)
        old = OldAgentCluster(self.tower, "limited", self.credential("limited", limited))
        self.addCleanup(old.stop)
        self.clock = OurAgent(self.tower, "clock", self.credential("clock"))
        self.cases = [
            Case(SLOW, OurAgent(self.tower, "slow", self.credential("slow", slow))),
            Case(LIMITED, old),
            Case(ERROR, NodeCluster(self.tower, "error", self.credential("error", error), fleet)),
            Case(CLOCK, self.clock),
        ]
        self.healthy = OurAgent(self.tower, "two", self.credential("two"))
        for subject in (*(case.subject for case in self.cases), self.healthy):
            subject.start()
        self.second = self.credential("second")
        self.tower.agent("two", self.second.kubeconfig).program.start()

    def new_tower(self) -> harness.Tower:
        """Return a Tower with ports for all clusters."""
        tower = super().new_tower()
        tower.cluster_ports = free_ports(CLUSTERS)
        tower.proxy = tower.proxy_program()
        return tower

    def credential(self, name: str, server: str | None = None) -> Credential:
        """Return the files of a credential."""
        return Credential(self.tower.folder, name, self.member, self.member.least, server)

    def test_bad_answers(self) -> None:
        """The state of a member that answers badly is its true one, also after the proxy was killed."""
        views = Views(self.tower)
        views.wait("the first checks", self.cases)
        clock = ProcessClock(self.clock.program.pid)
        views.change("the bad answers", self.cases, lambda: self.set(clock, HOUR), broken=True)
        self.check_agents("AgentDegraded", "renew the agent's token")
        self.restart()
        views.change("the good answers", self.cases, lambda: self.set(clock, 0), broken=False)
        self.check_agents("Ready", "")

    def set(self, clock: ProcessClock, offset: int) -> None:
        """Let the fronts answer badly, and set a clock; 0 repairs everything."""
        slow, limited, error = self.fronts
        bad = bool(offset)
        slow.delay, limited.code, error.code = DELAY * bad, 429 * bad, 500 * bad
        clock.set(offset)
        self.second.write(token="wrong" * bad)

    def available(self, cluster: str) -> dict[str, str]:
        """Return the condition ``Available``."""
        conditions = self.tower.status(cluster)["status"]["conditions"]
        (found,) = (dict(each) for each in conditions if each["type"] == "Available")
        return found

    def check_agents(self, reason: str, cure: str) -> None:
        """Wait until the cluster with two agents has *reason*; requests go through the working one."""
        wait_for(reason, lambda: self.available("two")["reason"] == reason, NOTICED, 0.2)
        found = self.available("two")
        self.assertEqual(found["status"], "True")
        self.assertIn(cure, found["message"])
        jane = self.tower.person("two", "jane", "--group", "dev")
        self.assertEqual({jane.get("/version").status for _ in range(REQUESTS)}, {200})

    def restart(self) -> None:
        """Kill and start the proxy: no cluster is Ready meanwhile."""
        self.tower.proxy.kill()
        self.tower.start()
        deadline = time.monotonic() + SETTLED
        while time.monotonic() < deadline:
            for case in self.cases:
                found = self.available(case.subject.name)
                self.assertNotEqual(found["reason"], "Ready", found)
                # on a loaded machine, the agent comes back later
                expected = "False" if found["reason"] == "AgentDisconnected" else case.status
                self.assertIn(found["status"], (expected, "Unknown"), found)
            time.sleep(0.2)

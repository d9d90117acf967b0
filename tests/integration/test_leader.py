"""Two proxies of one host cluster, real programs: one leads, and the other takes over with all agents."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import time
import urllib.request
from pathlib import Path
from unittest import SkipTest
from urllib.error import HTTPError

from tests.integration.harness import Tower, TowerTestCase
from tests.integration.leader_terms import lease_times
from tests.integration.member import Running, kubectls
from tests.integration.old_peers import OldAgent
from tests.integration.own_time import OwnTime
from tests.integration.ports import free_port
from tests.integration.process_clock import ProcessClock
from tests.integration.programs import LOOPBACK, is_ready, run, wait_for

CRDS = Path(__file__).parent.parent.parent / "deploy" / "crds"
NAMESPACE = "kubesphere-system"
LEASE, RENEW, RETRY = 10.0, 7.0, 2.0  # s; shorter than the defaults, to save time
SLACK = 30.0  # s for a loaded machine


class HostedTower(Tower):
    """One of several proxies with the same host cluster and ports.

    :ivar health_port: the only port of a standby.
    """

    def __init__(self, folder: Path, number: int, kubeconfig: Path, first: HostedTower | None = None) -> None:
        self.health_port = free_port()
        super().__init__(folder)
        self.number, self._kubeconfig, self._starts = number, kubeconfig, 0
        self.state = folder / f"state-{number}"
        if first is not None:
            self.port, self.secure_port = first.port, first.secure_port
            self.cluster_ports, self.agents = first.cluster_ports, first.agents
        self.renew()

    def renew(self) -> None:
        """Prepare another start with an empty state directory, as of a new pod."""
        self._starts += 1
        self.state = self.folder / f"state-{self.number}-{self._starts}"
        self.proxy = self.proxy_program(
            f"--kubeconfig={self._kubeconfig}",
            f"--health-port={self.health_port}",
            f"--leader-elect-lease-duration={LEASE:g}s",
            f"--leader-elect-renew-deadline={RENEW:g}s",
            f"--leader-elect-retry-period={RETRY:g}s",
            name=f"proxy-{self.number}-{self._starts}",
        )

    def start(self) -> None:
        """Start the proxy, and wait until it leads or waits."""
        self.proxy.start()
        wait_for(f"readiness of {self.proxy.name}", self.ready)

    def ready(self) -> bool:
        """Return whether its pod would be ready."""
        if not self.proxy.running():
            raise AssertionError(f"{self.proxy.name} ended: {self.proxy.tail()}")
        return is_ready(self.health_port, "/readyz")

    @property
    def role(self) -> str:
        """First line of the verbose health page."""
        return self.page("/readyz?verbose").splitlines()[0]

    def leads(self) -> bool:
        """Return whether it serves."""
        return self.ready() and self.role.startswith("leader: ")

    def page(self, path: str) -> str:
        """Return a page of the health port."""
        try:
            answer = urllib.request.urlopen(f"http://{LOOPBACK}:{self.health_port}{path}")
        except HTTPError as e:
            answer = e  # such as 503
        with answer:
            text: str = answer.read().decode()
        return text


class LeaderTests(TowerTestCase):
    """A host cluster, two proxies, and agents of the same cluster: a new one of alpha, an old one of beta.

    :ivar leader: serves.
    :ivar standby: waits.
    """

    def setUp(self) -> None:
        """Start all parts."""
        super().setUp()
        self.standby = HostedTower(self.folder, 2, self.kubeconfig, self.leader)
        self.addCleanup(self.standby.stop)
        self.standby.start()
        self.agent = self.leader.add("alpha", self.running.member.agent)
        self.old_agent = self.add_old_agent("beta")
        self.janes = [self.leader.kubeconfig(name, "jane", "--group", "dev") for name in ("alpha", "beta")]

    def add_old_agent(self, cluster: str) -> OldAgent:
        """Add a cluster, and start an agent of KubeSphere Tower for it."""
        self.leader.tower("cluster", "add", cluster)
        words = shlex.split(self.leader.tower("join", cluster, "--protocol", "v1"))
        flags = dict(zip(words[1::2], words[2::2], strict=True))
        member = self.running.member
        agent = OldAgent(
            self.folder,
            flags["--proxy-server"],
            flags["--name"],
            flags["--token"],
            member.service,
            ca=member.ca,
            bearer=member.least.token_file,
        )
        self.addCleanup(agent.program.stop)
        agent.program.start()
        agent.wait_until_ready()
        return agent

    def new_tower(self) -> Tower:
        """Start the host cluster; return the first proxy."""
        (self.folder / "host").mkdir()
        self.running = Running(self.folder / "host", "--bare")
        self.addCleanup(self.running.halt)
        self.running.start()
        self.running.member.kubectl("apply", "-f", str(CRDS))
        self.running.member.kubectl("create", "namespace", NAMESPACE)
        self.kubeconfig = self.running.member.admin
        self.leader = HostedTower(self.folder, 1, self.kubeconfig)
        return self.leader

    def works(self) -> bool:
        """Return whether kubectl gets answers through the proxy that leads, and through both agents."""
        argv = [str(kubectls()[-1]), "get", "namespace", "demo", "-o", "name"]
        answers = (run([*argv, f"--kubeconfig={jane}"]).stdout.strip() for jane in self.janes)
        return all(answer == b"namespace/demo" for answer in answers)

    def own_time(self, *towers: HostedTower) -> OwnTime:
        """Measure the time that these proxies and the API server need from now on."""
        servers = self.running.member.info["pids"].values()
        return OwnTime(*(each.proxy for each in towers), servers=servers)

    def takeover(self, own: OwnTime) -> float:
        """Wait until the standby serves, and both agents have reconnected by themselves; exchange the roles.

        :return: the time until it served, s.
        """
        passed = own.until("the other proxy", self.standby.leads)
        self.leader, self.standby = self.standby, self.leader
        wait_for("kubectl through the other proxy", self.works)
        return passed

    def renew_standby(self) -> None:
        """Start the stopped proxy again, with nothing on its disk."""
        self.standby.renew()
        self.standby.start()
        self.assertTrue(self.standby.role.startswith("standby: "), self.standby.role)

    def test_take_over(self) -> None:
        """The standby takes over after SIGTERM and SIGKILL; keys, records and agents stay."""
        self.assertTrue(self.works())
        self.assertTrue(self.leader.role.startswith("leader: "), self.leader.role)
        self.assertIn("holds the Lease kubesphere-system/tower", self.standby.role)
        for proxy, status in ((self.leader, 1), (self.standby, 0)):
            self.assertIn(
                f'leader_election_master_status{{name="tower"}} {status}.0\n', proxy.page("/metrics")
            )

        own = self.own_time(self.leader, self.standby)
        self.leader.proxy.ask_to_end()
        self.assertLess(self.takeover(own), 3.0)
        self.assertTrue(self.standby.proxy.stop(), self.standby.proxy.tail())
        self.assertIn("released the Lease", self.standby.proxy.output())
        self.assertIn("is stopping; reconnecting", self.agent.program.output())

        self.renew_standby()
        items = json.loads(self.leader.tower("cluster", "list", "-o", "json"))["items"]
        self.assertEqual([item["metadata"]["name"] for item in items], ["alpha", "beta"])
        _, renewed = lease_times(self.running.member, NAMESPACE)
        own = self.own_time(self.standby)
        self.leader.proxy.kill()
        time.sleep(LEASE - RETRY)
        own.skip()
        passed = self.takeover(own)
        self.assertLess(passed, LEASE + RETRY + 1.0)
        acquired, _ = lease_times(self.running.member, NAMESPACE)
        self.assertGreater(acquired - renewed, LEASE)
        for agent in (self.agent.program, self.old_agent.program):
            self.assertTrue(agent.running(), agent.tail())

        self.renew_standby()
        self.frozen_server()
        self.events()
        self.restored_backup()

    def frozen_server(self) -> None:
        """Freeze the API server, and set the clock back: the leader stops in time, and one leads later."""
        pid = self.running.member.info["pids"]["kube-apiserver"]
        own = self.own_time(self.leader)
        os.kill(pid, signal.SIGSTOP)
        with contextlib.suppress(SkipTest):  # on other processors
            ProcessClock(self.leader.proxy.pid).set(-3600)
        try:
            passed = own.until("the end of serving", lambda: not is_ready(self.leader.port, "/health"))
            code = self.leader.proxy.wait()
        finally:
            os.kill(pid, signal.SIGCONT)
        self.assertLess(passed, RENEW + RETRY + 1.0)
        self.assertEqual(code, 1)
        self.assertIn("lost the Lease kubesphere-system/tower", self.leader.proxy.output())
        self.takeover(self.own_time(self.standby))
        for program in (self.leader.proxy, self.standby.proxy):
            self.assertNotIn("Traceback", program.output())

    def events(self) -> None:
        """Wait for the events about the Lease: there is one for each change of the leader."""
        selector = "--field-selector=reason=LeaderElection,involvedObject.kind=Lease"

        def are_there() -> bool:
            listed = self.running.member.kubectl("get", "events", "-n", NAMESPACE, selector, "-o", "json")
            texts = [event["message"].partition(" ")[2] for event in json.loads(listed)["items"]]
            return texts.count("became leader") >= 4 and texts.count("stopped leading") >= 1

        wait_for("the events", are_there, every=0.5)

    def restored_backup(self) -> None:
        """Save a running proxy, lose all of its objects, and restore them for the same agent and user."""
        host = f"--host-kubeconfig={self.kubeconfig}"
        file = str(self.folder / "host.tgz")
        self.assertIn("objects, verified", self.leader.tower("backup", file, host))
        code, _, error = self.leader.try_tower("restore", file, host)
        self.assertEqual(code, 1)
        self.assertIn("stop all proxies", error)
        self.standby.proxy.stop()
        self.leader.proxy.stop()
        kubectl = self.running.member.kubectl
        for name in ("alpha", "beta"):
            kubectl("patch", "cluster", name, "--type=merge", '--patch={"metadata":{"finalizers":null}}')
        own = kubectl("api-resources", "--api-group=tower.kubesphere.io", "-o", "name").split()
        for kinds, namespace in (("clusters", "default"), (",".join(["secrets", *own]), NAMESPACE)):
            kubectl("delete", kinds, "--all", "-n", namespace, "--timeout=30s")
        self.assertIn("start the proxies", self.leader.tower("restore", file, host))
        status = json.loads(kubectl("get", "cluster", "alpha", "-o", "json"))["status"]
        states = {each["type"]: each["status"] for each in status["conditions"]}
        self.assertEqual((states["Available"], states["AgentAvailable"]), ("Unknown", "Unknown"))
        self.leader.renew()
        self.leader.start()
        wait_for("the agents at the restored proxy", self.works)
        self.assertIn("alpha", self.leader.tower("cluster", "list"))

"""``docs/migrating-from-kubesphere-tower.md``, command by command: from old programs to ours and back."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.integration.adopted_cluster import HOST_HEADINGS
from tests.integration.guide import Guide, path_with
from tests.integration.harness import KEEPALIVE, Tower
from tests.integration.member import kubectls, member
from tests.integration.old_installation import OFFSET, SYSTEM, TOKENS, OldInstallation
from tests.integration.person import Person
from tests.integration.programs import wait_for

PAGE = "migrating-from-kubesphere-tower.md"
HOST = "127.0.0.2"  # the machine of the new proxy
NAMESPACES = "/api/v1/namespaces"

FIRST = (
    "Record the present state",
    "Start the new proxy next to the old one",
    "Take over clusters, ports and tokens",
    "Move the address",
    "Issue kubeconfigs to users and tools",
    "KubeSphere as a caller",
    "Go back",
    "Authorize the new agent",
    "Start the new agent",
    "Turn the old agent off",
    "Go back to the old agent",
    "Only new agents",
)
AGENTS_FIRST = (
    "Take the old agent's token",
    "Stop the old agent",
    "Start the new agent at the old proxy",
    "Go back to the old agent at the old proxy",
)


class PageTests(SynchronousTestCase):
    """The commands of the page."""

    def test_every_command_is_run(self) -> None:
        """No heading of the page has commands that no test here runs."""
        headings = {*FIRST, *AGENTS_FIRST, *HOST_HEADINGS}  # the last ones in test_kubesphere_host
        self.assertEqual(set(Guide(PAGE, Path(), {}, {}).blocks), headings)


class MigrationTests(SynchronousTestCase):
    """Begins with an old installation that works."""

    def setUp(self) -> None:
        """Start it, and everything that the page's commands expect."""
        self.folder = Path(tempfile.mkdtemp(prefix="tower-test-"))
        self.addCleanup(shutil.rmtree, self.folder, True)
        self.old = OldInstallation(self.folder, member())
        self.addCleanup(self.old.stop)
        self.old.start()
        self.tower = Tower(self.folder, HOST)
        self.guide = self.prepared_guide()

    def prepared_guide(self) -> Guide:
        """Return the page, with the files that its commands expect."""
        for name in ("host", "alpha"):
            shutil.copy(member().admin, self.folder / f"{name}.kubeconfig")
        shutil.copy(self.old.proxy.authority, self.folder / "ca.crt")
        shutil.copy(self.old.proxy.authority_key, self.folder / "ca.key")
        installed = Path(sys.executable).parent
        programs = (kubectls()[-1], installed / "tower", installed / "tower-proxy", installed / "tower-agent")
        ports = self.old.ports
        environment = {
            "PATH": path_with(self.folder / "bin", *programs),
            "TOWER_HOST": HOST,
            "TOWER_PORT": str(self.tower.port),
            "TOWER_SECURE_PORT": str(self.tower.secure_port),
            "TOWER_CLUSTER_PORTS": f"{ports.start}-{ports.stop - 1}",
            "TOWER_KEEPALIVE": f"{KEEPALIVE:g}s",
            "TOWER_GRACE": "1s",  # connections that the old proxy keeps would hold the new agent for ten
        }
        names = {
            "/var/lib/tower-agent": str(self.folder / "agent"),
            "/var/lib/tower": str(self.tower.state),
            "tower.example.org": HOST,
            "10.0.0.7": HOST,
            "16000-17000": f"{ports.start + OFFSET}-{ports.stop - 1 + OFFSET}",
            "old.example.org:8080": self.old.address,
            "ks-apiserver.kubesphere-system.svc": self.old.kubesphere,
        }
        return Guide(PAGE, self.folder, environment, names)

    def start_new(self, heading: str) -> None:
        """Start the new proxy by the page's command."""
        self.tower.proxy = self.guide.program(f"new-proxy-{heading.replace(' ', '-')}", heading)
        self.addCleanup(self.tower.proxy.stop)
        self.tower.start()

    def assertWorks(self, person: Person) -> None:
        """Expect the API server's namespaces."""
        answer = person.get(NAMESPACES)
        self.assertEqual(answer.status, 200, answer.body)
        self.assertEqual(json.loads(answer.body)["kind"], "NamespaceList")

    def condition(self, kind: str) -> tuple[str, str]:
        """Return status and reason of alpha's condition."""
        for each in self.tower.status("alpha")["status"]["conditions"]:
            if each["type"] == kind:
                return each["status"], each["reason"]
        return "", ""

    def wait_for_protocol(self, reason: str) -> None:
        """Return when the protocol of alpha's agents has this condition reason."""
        wait_for(reason, lambda: self.condition("AgentProtocol")[1] == reason)

    def test_proxy_first(self) -> None:
        """The proxy, and back, and again, the agent, and back, and again; users are served at each step."""
        self.assertWorks(self.old.user())
        self.assertEqual(self.old.ask_kubesphere(), 200)
        self.take_over()
        self.replace_proxy()
        self.go_back()
        self.guide.run("Go back", 2)
        self.replace_proxy()
        jane = self.give_kubeconfig()
        self.call_as_kubesphere()
        self.replace_agent(jane)
        self.only_new(jane)

    def take_over(self) -> None:
        """The new proxy takes over the old proxy's clusters, and the old one serves on."""
        self.guide.run("Record the present state")
        lines = [f"{name} {self.old.port} {token}\n" for name, token in TOKENS.items()]
        self.assertEqual((self.folder / "clusters.txt").read_text(), "".join(lines))
        self.assertEqual((self.folder / "clusters.txt").stat().st_mode & 0o077, 0)
        self.start_new("Start the new proxy next to the old one")
        listed = self.guide.run("Take over clusters, ports and tokens")
        self.assertIn("alpha", listed)
        self.assertEqual(self.tower.cluster_port("alpha"), self.old.port)
        self.assertNotEqual(self.tower.cluster_port("beta"), self.old.port)
        self.assertWorks(self.old.user())

    def replace_proxy(self) -> None:
        """With its address moved, the old agent connects to the new proxy, and users are served as before."""
        self.guide.run("Move the address", 0)
        self.old.settle()
        self.old.move(HOST, self.tower.port)
        wait_for("the old agent", lambda: self.tower.status("alpha")["status"].get("agents") == 1)
        self.wait_for_protocol("KubeSphereV1")
        self.assertIn("KubeSphereV1", self.guide.run("Move the address", 1))
        wait_for(
            "the port", lambda: self.condition("KubernetesAPIServerPortOpen") == ("True", "OpenToEverybody")
        )
        self.assertWorks(self.old.user())
        self.assertEqual(self.old.ask_kubesphere(HOST), 200)

    def go_back(self) -> None:
        """The old proxy has what it had; with DNS, once the new one has closed the agents' tunnels."""
        self.guide.run("Go back")
        self.old.settle()
        self.old.move_back_by_dns()
        self.assertEqual(self.old.proxy.agents(), 0)
        self.assertEqual(self.tower.status("alpha")["status"].get("agents"), 1)
        self.guide.run("Go back", 1)
        self.old.proxy.wait_for_agents()
        self.assertWorks(self.old.user())
        self.assertEqual(self.old.ask_kubesphere(), 200)

    def give_kubeconfig(self) -> Person:
        """Jane gets rights on the front door."""
        heading = "Issue kubeconfigs to users and tools"
        self.addCleanup(member().kubectl, "delete", "clusterrolebinding", "tower-dev")
        self.assertIn(SYSTEM, self.guide.run(heading))
        jane = Person(self.folder / "jane.kubeconfig")
        self.assertWorks(jane)
        return jane

    def call_as_kubesphere(self) -> None:
        """KubeSphere acts as jane, whose groups have the rights, through the old agent."""
        self.assertIn(SYSTEM, self.guide.run("KubeSphere as a caller"))

    def replace_agent(self, jane: Person) -> None:
        """Both agents serve, then the new one alone, then the old one again, then the new one."""
        self.guide.run("Authorize the new agent")
        self.guide.run("Start the new agent", 0)
        new = self.guide.program("new-agent", "Start the new agent", 1)
        self.addCleanup(new.stop)
        new.start()
        wait_for("both agents", lambda: self.tower.status("alpha")["status"].get("agents") == 2)
        self.assertWorks(jane)
        self.disable(jane)
        self.guide.run("Go back to the old agent")
        self.old.settle()
        self.wait_for_protocol("KubeSphereV1")
        self.assertWorks(jane)
        self.assertWorks(self.old.user())
        new.stop()
        self.guide.run("Authorize the new agent")
        shutil.rmtree(self.folder / "agent")
        new.start()
        wait_for("both agents", lambda: self.tower.status("alpha")["status"].get("agents") == 2)
        self.disable(jane)

    def disable(self, jane: Person) -> None:
        """Without the old agent the port authenticates clients."""
        self.guide.run("Turn the old agent off")
        self.old.settle()
        self.wait_for_protocol("TowerV2")
        wait_for("the port", lambda: self.condition("KubernetesAPIServerPortOpen") == ("True", "PortOpen"))
        self.assertWorks(jane)
        self.assertEqual(self.old.user().get(NAMESPACES).status, 401)
        self.assertEqual(self.old.ask_kubesphere(HOST), 200)

    def only_new(self, jane: Person) -> None:
        """A proxy without the old protocol serves the new agent, and no other."""
        self.tower.proxy.stop()
        self.start_new("Only new agents")
        wait_for("the agent", lambda: self.tower.status("alpha")["status"].get("agents") == 1)
        self.assertWorks(jane)
        self.assertEqual(self.old.ask_kubesphere(HOST), 200)
        before = self.old.agent.connections()
        self.old.agent.program.start()
        wait_for("its refusal", lambda: not self.old.agent.ready())
        self.assertEqual(self.old.agent.connections(), before)
        self.guide.run("Only new agents", 1)
        self.assertFalse((self.folder / "clusters.txt").exists())

    def test_agents_first(self) -> None:
        """Our agent replaces the old one at an old proxy, with never two at a time; and is removed again."""
        token, stop, start, back = AGENTS_FIRST
        self.guide.run(token)
        self.assertEqual((self.folder / "alpha.token").read_text(), TOKENS["alpha"])
        new = self.guide.program("new-agent", start)
        self.addCleanup(new.stop)
        new.start()
        wait_for("the warning", lambda: "an old agent next to this one" in new.output())
        new.stop()
        self.guide.run(stop)
        self.old.settle()
        self.old.proxy.wait_for_agents(0)
        before = new.output()
        new.start()
        self.old.proxy.wait_for_agents(1)
        self.assertWorks(self.old.user())
        self.assertEqual(self.old.ask_kubesphere(), 200)
        logged = new.output()
        self.assertNotIn("an old agent next to this one", logged.removeprefix(before))
        self.assertNotIn(TOKENS["alpha"], logged)
        new.stop()
        self.guide.run(back)
        self.old.settle()
        self.old.proxy.wait_for_agents(1)
        self.assertWorks(self.old.user())
        self.assertFalse((self.folder / "alpha.token").exists())

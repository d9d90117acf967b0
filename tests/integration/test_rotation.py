"""Rotation of every key and CA of a proxy with 40 agents: no join line is needed, and no stream ends."""

from __future__ import annotations

import json
import sqlite3
import ssl
import time
from contextlib import closing
from typing import Any

from tests.integration.backends import Backend
from tests.integration.fleet import FLEET
from tests.integration.harness import KEEPALIVE, Tower, TowerTestCase
from tests.integration.long_streams import BlockServer, Conversation, Download
from tests.integration.member import kubectls, member
from tests.integration.person import Person
from tests.integration.ports import free_ports
from tests.integration.programs import Program, script, wait_for

CLUSTERS = [f"c{number:02}" for number in range(40)]
BASE = "/apis/cluster.kubesphere.io/v1alpha1"
PATIENCE = 60.0  # s
SIZE = 1 << 30  # B, of the download
SHARES = 10  # in which it is read, one before each step
SOON = 3.0  # s, of --after


class RotationTests(TowerTestCase):
    """One agent of a real API server, with streams of users, and 39 agents in another process."""

    def new_tower(self) -> Tower:
        """Return a Tower with a port for each cluster."""
        tower = Tower(self.folder)
        tower.cluster_ports = free_ports(len(CLUSTERS) + 1)
        tower.proxy = tower.proxy_program()
        return tower

    def setUp(self) -> None:
        """Start everything, and wait for all tunnels."""
        super().setUp()
        self.backend = Backend(self.folder, CLUSTERS[1])
        self.addCleanup(self.backend.program.stop)
        self.backend.start()
        self.admin = self.tower.admin()
        source = BlockServer(SIZE)
        self.addCleanup(source.close)
        lines = [self.join(name) for name in CLUSTERS]
        self.agent = self.tower.agent(CLUSTERS[0], member().agent, source.option)
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
            *("--kubeconfig", str(self.backend.kubeconfig(CLUSTERS[1]))),
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
            return sum(1 for item in items["items"] if item["status"].get("agents"))

        wait_for("all tunnels", lambda: connected() == len(CLUSTERS), PATIENCE, 0.2)

    def stop_fleet(self) -> None:
        """Stop the 39 agents that run at the end."""
        self.fleet.stop()

    def stop_agents(self) -> None:
        """Stop the 39 agents."""
        self.assertTrue(self.fleet.stop())

    def start_agents(self) -> None:
        """Start the 39 agents with the arguments of their first join line, but without its tokens."""
        lists = json.loads((self.folder / "fleet.json").read_text())
        self.fleet = self.fleet_program([each[:-2] if "--token-file" in each else each for each in lists])
        self.fleet.start()

    def rotation(self, target: str) -> dict[str, Any]:
        """Return the status of the object of a rotation."""
        admin = Person(self.tower.state / "admin.kubeconfig")
        status: dict[str, Any] = json.loads(admin.get(f"{BASE}/rotations/{target}").body)["status"]
        return status

    def wait_until_finished(self, target: str) -> None:
        """Return when a rotation is over."""
        wait_for(f"the new {target}", lambda: self.rotation(target)["phase"] == "Finished", PATIENCE, 0.2)

    def ask(self, person: Person) -> int:
        """Return the status of a request of a user."""
        return person.get("/version").status

    def begin_streams(self) -> None:
        """Begin a download and two commands: users with a token, and with a certificate at another port."""
        options = ("--group", "dev")
        self.tina = self.tower.person(CLUSTERS[0], "tina", "--auth", "token", *options)
        self.jane = self.tower.person(CLUSTERS[0], "jane", *options)
        own_port = self.tower.kubeconfig(CLUSTERS[0], "jane", "--via", "port", *options)
        self.by_token = Conversation(kubectls()[-1], self.tina.kubeconfig)
        self.by_certificate = Conversation(kubectls()[0], own_port)
        self.commands = [self.by_token, self.by_certificate]
        self.download = Download(self.tina, SIZE)
        for close in (*(each.close for each in self.commands), self.download.close):
            self.addCleanup(close)

    def go_on(self) -> None:
        """Check the commands and a share of the download, and begin the next share."""
        for each in self.commands:
            each.check()
        self.download.check()
        self.download.release(SIZE // SHARES)

    def test_every_rotation(self) -> None:
        """Each rotation finishes while streams go on; agents reconnect by their first join line."""
        self.begin_streams()
        self.rotate_host_key()
        self.rotate_serving_ca()
        self.rotate_users_ca()
        self.rotate_secrets_key()
        self.go_on()
        self.download.finish()
        self.by_token.finish()
        self.assertEqual(self.agent.program.output().count("connected to"), 1)
        self.check_restart()

    def rotate_host_key(self) -> None:
        """Begin while 39 agents are away; it switches when the last one of them has the new key."""
        old = self.pinned()
        self.stop_agents()
        self.go_on()
        self.tower.tower("rotate", "host-key")
        status = self.rotation("host-key")
        self.assertEqual((status["phase"], status["old"]), ("InProgress", old))
        wait_for(
            "the agent that is connected", lambda: self.rotation("host-key")["remaining"]["readyAgents"] == 1
        )
        self.assertEqual(self.rotation("host-key")["remaining"]["lackingAgents"], len(CLUSTERS) - 1)
        self.go_on()
        self.start_agents()
        self.wait_until_finished("host-key")
        self.go_on()
        self.assertNotEqual(self.rotation("host-key")["new"], old)

    def rotate_serving_ca(self) -> None:
        """Begin with all agents there; older kubeconfigs keep it going until the date of --after."""
        self.go_on()
        self.tower.tower("rotate", "serving-ca")

        def remaining() -> dict[str, Any]:
            left: dict[str, Any] = self.rotation("serving-ca")["remaining"]
            return left

        wait_for("the agents", lambda: remaining()["readyAgents"] == len(CLUSTERS), PATIENCE, 0.2)
        self.assertEqual(
            [remaining()[key] for key in ("lackingAgents", "joinTokens", "credentials")], [0, 0, 3]
        )
        self.bill = self.tower.person(CLUSTERS[0], "bill")
        self.assertEqual(self.bill.ca.count("BEGIN CERTIFICATE"), 2)
        self.assertEqual((self.ask(self.jane), self.ask(self.bill)), (200, 200))
        self.go_on()
        began = time.monotonic()
        self.assertIn("at the latest at", self.tower.tower("rotate", "serving-ca", f"--after={SOON:g}s"))
        self.wait_until_finished("serving-ca")
        self.assertGreater(time.monotonic() - began, SOON)
        self.go_on()
        self.assertEqual(self.ask(self.bill), 200)
        self.assertRaises(ssl.SSLCertVerificationError, self.ask, self.jane)

    def rotate_users_ca(self) -> None:
        """The new CA signs at once; --now ends the streams of old certificates, and no others."""
        self.go_on()
        self.assertIn("users-ca", self.tower.tower("rotate", "users-ca"))
        self.assertEqual(self.rotation("users-ca")["phase"], "InProgress")
        self.anna = self.tower.person(CLUSTERS[0], "anna")
        self.assertEqual((self.ask(self.anna), self.ask(self.bill)), (200, 200))
        self.assertEqual(self.rotation("users-ca")["remaining"]["credentials"], 3)
        self.assertIn("3 credentials of users", self.tower.tower("rotate", "status"))
        self.go_on()
        self.tower.tower("rotate", "users-ca", "--now")
        self.assertEqual(self.rotation("users-ca")["phase"], "Finished")
        self.commands.remove(self.by_certificate)
        self.by_certificate.wait_for_end()
        self.go_on()
        self.assertEqual((self.ask(self.anna), self.ask(self.bill)), (200, 401))

    def rotate_secrets_key(self) -> None:
        """A stored credential is sealed with the new key."""
        kubeconfig = self.backend.kubeconfig(CLUSTERS[1])
        self.tower.tower(
            *("cluster", "add", "nodes", "--type", "ssh", "--ssh-user", "core", "--ssh-keyfile", "id"),
            *("--ssh-host-keys", "accept-new", "--nodes", "node1", "--member-kubeconfig", str(kubeconfig)),
        )
        before = self.sealed()
        self.go_on()
        self.assertIn("secrets-key rotated", self.tower.tower("rotate", "secrets-key"))
        self.go_on()
        self.assertNotEqual(self.sealed(), before)

    def sealed(self) -> str:
        """Return the stored credential."""
        with closing(sqlite3.connect(self.tower.state / "tower.db")) as connection:
            ((value,),) = connection.execute("SELECT value FROM records WHERE kind = 'memberaccess'")
        return str(value)

    def pinned(self) -> str:
        """Return the host key in the first join line of the agent."""
        argv = self.agent.argv
        return argv[argv.index("--host-key") + 1]

    def check_restart(self) -> None:
        """Restarted agents connect to a restarted proxy, with the arguments of their first join line."""
        self.stop_agents()
        self.assertTrue(self.agent.program.stop())
        self.agent.forget_token()
        self.tower.proxy.stop()
        self.tower.start()
        self.start_agents()
        self.agent.program.start()
        self.wait_for_tunnels()
        self.assertEqual(self.ask(self.anna), 200)
        self.assertRaises(OSError, self.ask, self.bill)  # the CA of this certificate is unknown now
        self.assertNotEqual(self.pinned(), self.rotation("host-key")["new"])
        for program in (self.tower.proxy, self.fleet, self.agent.program):
            self.assertIn("connected", program.output())
            self.assertNotIn("Traceback", program.output())


class DateTests(TowerTestCase):
    """A rotation with a date, while the only agent is away."""

    def setUp(self) -> None:
        """Let an agent join, and stop it."""
        super().setUp()
        self.backend = Backend(self.folder, "alpha")
        self.addCleanup(self.backend.program.stop)
        self.backend.start()
        self.agent = self.tower.add("alpha", self.backend.kubeconfig("alpha"))
        self.assertTrue(self.agent.program.stop())
        self.agent.forget_token()

    def new_key(self) -> str:
        """Return the new key of the rotation in the list, once it is over."""
        (found,) = json.loads(self.tower.tower("rotate", "status", "-o", "json"))["items"]
        return str(found["status"]["new"]) if found["status"]["phase"] == "Finished" else ""

    def test_host_key(self) -> None:
        """The key is used from the date on; an agent without it logs the cure, which works."""
        began = time.monotonic()
        text = self.tower.tower("rotate", "host-key", f"--after={SOON:g}s")
        for part in ("in progress", "1 lacks it", "at the latest at", "not connected"):
            self.assertIn(part, text)
        new = wait_for("the date", self.new_key, every=0.5)
        self.assertGreater(time.monotonic() - began, SOON)
        log = self.tower.proxy.output()
        self.assertIn("depended on the old one: agents 1, join lines 0, credentials of users 0", log)

        self.agent.program.start()
        wait_for("the agent's error", lambda: "host key is" in self.agent.program.output())
        for part in (new, "set --host-key to the new one"):
            self.assertIn(part, self.agent.program.output())
        self.assertTrue(self.agent.program.stop())
        at = self.agent.argv.index("--host-key") + 1
        self.agent.argv[at] = new
        self.agent.forget_token()
        self.agent.program.start()
        self.agent.wait_until_ready()

"""2: the proxy issues no name of the cluster itself, and rejects users who were issued one before."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing

from tests.attacks.head_server import NAMES, HeadServer
from tests.integration.harness import TowerTestCase
from tests.integration.node_fleet_kit import CLUSTER as NODES
from tests.integration.node_fleet_kit import NodeFleet, message, wait_until_up
from tests.integration.person import Person
from tests.integration.ports import free_port

ADMINISTRATORS = "kubeadm:cluster-admins"
JANE = ["Impersonate-User: jane", "Impersonate-Group: dev"]


class ProxyTestCase(TowerTestCase):
    """Each test has an API server that allows everything, and that records the users."""

    def setUp(self) -> None:
        """Start it."""
        super().setUp()
        self.server = HeadServer()
        self.addCleanup(self.server.close)
        self.kubeconfig = self.server.kubeconfig(self.folder)

    def refusal(self, *arguments: str) -> str:
        """Run the ``tower`` command, which must fail; return its error."""
        code, out, error = self.tower.try_tower(*arguments)
        self.assertEqual((code != 0, out), (True, ""), error)
        return error

    def refused(self, person: Person, path: str = "/api") -> str:
        """Send a request; return the message of the Status of the 403."""
        answer = person.get(path)
        self.assertEqual(answer.status, 403)
        return message(answer.body)

    def rename(self, user: str, *groups: str) -> None:
        """Put these names into jane's credentials, as if an earlier version had issued them so."""
        self.tower.proxy.stop()
        with closing(sqlite3.connect(self.tower.state / "tower.db")) as database, database:
            where = "kind = 'credentials'"
            for name, text in database.execute(f"SELECT name, value FROM records WHERE {where}").fetchall():
                value = json.loads(text)
                if value["user"] == "jane":
                    changed = json.dumps({**value, "user": user, "groups": list(groups)})
                    database.execute(
                        f"UPDATE records SET value = ? WHERE {where} AND name = ?", (changed, name)
                    )
        self.tower.start()


class AgentTests(ProxyTestCase):
    """A cluster with an agent, which would refuse them as well."""

    def test_issuing(self) -> None:
        """No kubeconfig has such a user or group; the error names it, and the fix."""
        self.tower.tower("cluster", "add", "alpha")
        for name in (*NAMES, "tower:admins", "system:authenticated"):
            for words in (("--user", name), ("--user", "jane", "--group", "dev", "--group", name)):
                if words != ("--user", "system:authenticated"):
                    message = self.refusal("kubeconfig", "alpha", *words)
                    self.assertIn(repr(name), message)
                    self.assertRegex(message, "choose another name|omit it")
        message = self.refusal("admin-kubeconfig", "--user", "system:admin")
        self.assertIn("'system:admin'", message)

    def test_issued_before(self) -> None:
        """A credential from before the upgrade is refused at each request, with the name in question."""
        agent = self.tower.add("alpha", self.kubeconfig)
        users = [
            self.tower.person("alpha", "jane", "--group", "dev", *words)
            for words in ((), ("--auth", "token"), ("--via", "port"))
        ]
        joe = self.tower.person("alpha", "joe")
        for person in users:
            self.assertEqual(person.get("/api").status, 200)
            self.assertEqual(self.server.identities(), [JANE])
        for user, groups, name in (
            ("jane", ("dev", ADMINISTRATORS), f"group '{ADMINISTRATORS}'"),
            ("jane", ("system:masters",), "group 'system:masters'"),
        ):
            self.rename(user, *groups)
            agent.wait_until_ready()
            for person in users:
                for path in ("/api", "/version", "/api/v1/pods?watch=1"):
                    self.assertIn(name, self.refused(person, path))
        self.assertEqual(self.server.identities(), [])
        self.assertEqual(joe.get("/api").status, 200)
        self.assertEqual(self.server.identities(), [["Impersonate-User: joe"]])


class NodeTests(ProxyTestCase):
    """A cluster of type ssh, whose record has the users to impersonate."""

    def setUp(self) -> None:
        """Add it."""
        super().setUp()
        fleet = NodeFleet(self.folder / "fleet", 1, port=free_port())
        self.addCleanup(fleet.stop)
        fleet.start()
        fleet.add_to(self.tower, self.kubeconfig)
        wait_until_up(self.tower, fleet.nodes)

    def test_one_that_is_allowed(self) -> None:
        """One name may be allowed, issued and used; no other one; and not when it is allowed no longer."""
        for name in NAMES:
            message = self.refusal("kubeconfig", NODES, "--user", "jane", "--group", name)
            self.assertIn(f"tower cluster set {NODES} --allow-system-identity {name}", message)
        self.tower.tower("cluster", "set", NODES, "--allow-system-identity", ADMINISTRATORS)
        ssh = self.tower.status(NODES)["spec"]["connection"]["ssh"]
        self.assertEqual(ssh["allowedSystemIdentities"], [ADMINISTRATORS])
        jane = self.tower.person(NODES, "jane", "--group", ADMINISTRATORS)
        self.assertEqual(jane.get("/api").status, 200)
        self.assertEqual(
            self.server.identities(), [["Impersonate-User: jane", f"Impersonate-Group: {ADMINISTRATORS}"]]
        )
        for name in set(NAMES) - {ADMINISTRATORS}:
            self.refusal("kubeconfig", NODES, "--user", name, "--group", ADMINISTRATORS)
        self.tower.tower("cluster", "set", NODES, "--allow-system-identity", "")
        for path in ("/api", "/targets/kubelet/node/healthz"):
            message = self.refused(jane, path)
            self.assertIn(f"group '{ADMINISTRATORS}'", message)
            self.assertIn(f"--allow-system-identity {ADMINISTRATORS}", message)
        self.assertEqual(self.server.identities(), [])

    def test_bad_names(self) -> None:
        """An invalid name of the system is refused, with the reason."""
        message = self.refusal("cluster", "set", NODES, "--allow-system-identity", "kubeadm:cluster-admin")
        self.assertIn("'kubeadm:cluster-admin' is not a system identity", message)

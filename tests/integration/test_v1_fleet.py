"""Old agents in great number: 300 clusters of one proxy, and 200 agents of one cluster."""

from __future__ import annotations

import http.client
import json
import shutil
import ssl
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml
from cryptography import x509
from cryptography.x509.oid import NameOID
from twisted.trial.unittest import SynchronousTestCase

from tests.integration.harness import Tower
from tests.integration.old_peers import gopeer
from tests.integration.ports import PARTNER as OFFSET
from tests.integration.ports import free_ports
from tests.integration.programs import LOOPBACK, clean_environment, wait_for
from tower.trust.pki import self_signed

CLUSTERS = 300
AGENTS = 200  # of one cluster
DAY = 86400.0
PATIENCE = 120.0  # s
BASE = "/apis/cluster.kubesphere.io/v1alpha1"
TOKEN = "a-token-that-all-of-them-have-from-before"


class Administrator:
    """Tower's API, on one connection."""

    def __init__(self, tower: Tower) -> None:
        self._person = tower.admin()
        self._connection = self._person.connect()

    def close(self) -> None:
        """Close it."""
        self._connection.close()

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Return the object that is the answer."""
        headers = {"Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        response = self._person.ask(self._connection, BASE + path, method, data, headers)
        answer = json.loads(response.read())
        assert response.status < 300, (response.status, answer)
        return answer

    def create(self, kind: str, path: str, **parts: Any) -> Any:
        """Return the object that was created."""
        made = {"apiVersion": "cluster.kubesphere.io/v1alpha1", "kind": kind, **parts}
        return self.ask("POST", path, made)

    def add(self, name: str) -> int:
        """Add a cluster that old agents with the token may serve; return its port."""
        made = self.create("Cluster", "/clusters", metadata={"name": name})
        self.create("JoinToken", f"/clusters/{name}/jointokens", spec={"protocol": "v1", "token": TOKEN})
        port: int = made["spec"]["connection"]["kubernetesAPIServerPort"]
        return port

    def bearer(self, name: str) -> str:
        """Return a bearer token for a user of a cluster."""
        spec = {"user": "jane", "auth": "token"}
        grant = self.create("Kubeconfig", f"/clusters/{name}/kubeconfigs", spec=spec)
        token: str = yaml.safe_load(grant["status"]["kubeconfig"])["users"][0]["user"]["token"]
        return token


class FleetTests(SynchronousTestCase):
    """One proxy, and a program that plays all the agents, each of which answers for its own cluster."""

    def setUp(self) -> None:
        """Start the proxy."""
        self.folder = Path(tempfile.mkdtemp(prefix="tower-fleet-"))
        self.addCleanup(shutil.rmtree, self.folder, True)
        self.tower = Tower(self.folder)
        self.addCleanup(self.tower.stop)
        ports = self.tower.cluster_ports = free_ports(CLUSTERS)
        plain = f"--kubesphere-ports={ports.start + OFFSET}-{ports.stop - 1 + OFFSET}"
        self.tower.proxy = self.tower.proxy_program(plain, "--max-tunnels-per-cluster=0")
        self.tower.start()
        self.admin = Administrator(self.tower)
        self.addCleanup(self.admin.close)
        self.tls = ssl.create_default_context(cadata=self.tower.admin().ca)
        self.certify()

    def certify(self) -> None:
        """Write the certificate that all API servers have."""
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fleet")])
        authority = self_signed(name, DAY, time.time())
        issued = authority.server_certificate([LOOPBACK], DAY, time.time())
        (self.folder / "ca.crt").write_bytes(authority.pem)
        (self.folder / "api.crt").write_bytes(issued.certificate_pem)
        (self.folder / "api.key").touch(0o600)
        (self.folder / "api.key").write_bytes(issued.key_pem)

    def storm(self, name: str, count: int, at_once: int) -> dict[str, Any]:
        """Connect agents that stay to the end of the test; return the summary of their program."""
        argv = [
            *(
                gopeer(),
                "storm",
                f"-url=ws://{LOOPBACK}:{self.tower.port}",
                f"-name={name}",
                f"-token={TOKEN}",
            ),
            *(f"-n={count}", f"-concurrency={at_once}", "-hold=0"),
            *(
                f"-cert={self.folder}/api.crt",
                f"-key={self.folder}/api.key",
                f"-ca-file={self.folder}/ca.crt",
            ),
        ]
        with (self.folder / "storm.log").open("wb") as errors:
            storm = subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env=clean_environment()
            )
        self.addCleanup(self.calm, storm)
        assert storm.stdout is not None
        line = storm.stdout.readline()
        self.assertTrue(line, (self.folder / "storm.log").read_text())
        summary: dict[str, Any] = json.loads(line)
        return summary

    def calm(self, storm: subprocess.Popen[bytes]) -> None:
        """End the agents."""
        storm.communicate(timeout=PATIENCE)

    def logged_at(self, port: int, bearer: str) -> str:
        """Return what is answered at a cluster's own port."""
        connection = http.client.HTTPSConnection(LOOPBACK, port, timeout=PATIENCE, context=self.tls)
        try:
            connection.request("GET", "/whoami", headers={"Authorization": f"Bearer {bearer}"})
            response = connection.getresponse()
            return f"{response.status} {response.read().decode().strip()}"
        finally:
            connection.close()

    def logged_plainly(self, port: int) -> str:
        """Return what is answered at a port for KubeSphere."""
        connection = http.client.HTTPConnection(LOOPBACK, port, timeout=PATIENCE)
        try:
            connection.request("GET", "/whoami", headers={"Authorization": "Bearer of-kubesphere"})
            response = connection.getresponse()
            return f"{response.status} {response.read().decode().strip()}"
        finally:
            connection.close()

    def test_hole_07_each_port_leads_to_its_own_cluster(self) -> None:
        """Hole 7: 300 clusters have 600 ports, and each reaches only the agent of its own cluster."""
        names = [f"c-{number}" for number in range(CLUSTERS)]
        ports = {name: self.admin.add(name) for name in names}
        self.assertEqual(len(set(ports.values())), CLUSTERS)
        self.assertLessEqual(set(ports.values()), set(self.tower.cluster_ports))
        summary = self.storm("c-%d", CLUSTERS, 64)
        self.assertEqual((summary["connected"], summary["failed"]), (CLUSTERS, 0))
        for name, port in ports.items():
            self.assertEqual(
                self.logged_at(port, self.admin.bearer(name)), f"200 {name} Bearer agent-of-{name}"
            )
            self.assertEqual(self.logged_plainly(port + OFFSET), f"200 {name} Bearer of-kubesphere")
        clusters = self.admin.ask("GET", "/clusters")["items"]
        self.assertEqual({item["metadata"]["name"] for item in clusters}, set(names))
        for kind in ("AgentAvailable", "KubernetesAPIServerPortOpen", "KubeSpherePortOpen"):
            wait_for(kind, lambda: self.statuses(kind) == ["True"] * CLUSTERS, PATIENCE)  # noqa: B023
        self.assertNotIn("Traceback", self.tower.proxy.output())

    def test_hole_14_two_hundred_agents_of_one_cluster(self) -> None:
        """Hole 14: 200 agents of one cluster at once are all accepted, and users are still served."""
        alpha, beta = self.admin.add("alpha"), self.admin.add("beta")
        self.storm("beta", 1, 1)
        summary = self.storm("alpha", AGENTS, AGENTS)
        self.assertEqual((summary["connected"], summary["failed"]), (AGENTS, 0))
        self.assertTrue(self.tower.proxy.running())
        self.assertEqual(self.agents("alpha"), AGENTS)
        for name, port in (("alpha", alpha), ("beta", beta)):
            bearer = self.admin.bearer(name)
            for _ in range(20):
                self.assertEqual(self.logged_at(port, bearer), f"200 {name} Bearer agent-of-{name}")
        self.assertNotIn("Traceback", self.tower.proxy.output())

    def test_hole_28_a_fleet_comes_back(self) -> None:
        """Holes 28 and 29: after kill -9 all valid agents reconnect, and missing ones are shown as such."""
        for number in range(20):
            self.admin.add(f"c-{number}")
        self.assertEqual(self.storm("c-%d", 20, 20)["connected"], 20)
        wait_for("the conditions", lambda: self.available() == {"True"}, PATIENCE)
        self.tower.proxy.kill()
        self.admin.close()
        self.tower.start()  # the agents of the storm do not come back
        self.admin = Administrator(self.tower)
        self.addCleanup(self.admin.close)
        self.assertEqual(self.storm("c-%d", 10, 10)["failed"], 0)
        wait_for("the conditions", lambda: self.available() == {"True", "False"}, PATIENCE)
        self.assertEqual([self.agents(f"c-{number}") for number in (0, 9, 10, 19)], [1, 1, 0, 0])
        self.assertNotIn("was rejected", self.tower.proxy.output())

    def agents(self, name: str) -> int:
        """Return how many agents a cluster has."""
        count: int = self.admin.ask("GET", f"/clusters/{name}")["status"]["agents"]
        return count

    def available(self) -> set[str]:
        """Return the different statuses of the agents' conditions."""
        return {*self.statuses("AgentAvailable")}

    def statuses(self, kind: str) -> list[str]:
        """Return the statuses of all conditions of a type."""
        items = self.admin.ask("GET", "/clusters")["items"]
        conditions = [each for item in items for each in item["status"]["conditions"]]
        return [each["status"] for each in conditions if each["type"] == kind]

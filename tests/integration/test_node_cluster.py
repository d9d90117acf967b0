"""A cluster that is reached by SSH to its nodes, from its first day to its last."""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import random
import re
import resource
import shlex
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import yaml

from tests.integration.harness import Tower
from tests.integration.member import member
from tests.integration.node_cluster_kit import DIAL, LISTED, TOKEN, NodeClusterTestCase, streaming
from tests.integration.node_fleet_kit import (
    CAME_UP,
    CLUSTER,
    addresses,
    look_now,
    message,
    ssh_status,
    states,
    wait_for_states,
    wait_until_open,
    wait_until_up,
    works,
)
from tests.integration.person import Person
from tests.integration.programs import LOOPBACK, has_ipv6, is_ready, wait_for
from tests.integration.sshd import Sshd

MIB = 2**20
CUT = 60.0  # s for streams to be cut
NOTICE = 60.0  # s for a node that hangs to be noticed
BURST = 200
FORGET = r"tower (cluster forget-host-key \S+ [^\s'\",;]+)"
PODS = "/api/v1/namespaces/default/pods"


class LifeTests(NodeClusterTestCase):
    """How it comes and goes."""

    def test_added_before_its_nodes(self) -> None:
        """A cluster may be added before its nodes are up: the error is shown, and it works once they are."""
        self.fleet.stop()
        jane = self.add()
        wait_for_states(self.tower, dict.fromkeys(map_addresses(self.fleet.nodes), "failed"))
        told = message(self.refused(jane).body)
        self.assertIn("No SSH tunnels currently open. Were the targets able to accept an ssh-key for", told)
        self.assertIn(f'user "{self.fleet.user}"', told)
        self.assertIn("refused", self.error())
        self.wait_for_status("NodesAvailable", "False")
        self.fleet.start()
        wait_until_open(self.tower, self.fleet.nodes, LISTED)
        self.assertTrue(works(jane))
        self.wait_for_status("NodesAvailable", "True")

    def test_proxy_restarted(self) -> None:
        """After an orderly end and after kill -9 all comes back: tunnels, credential, pinned keys."""
        self.fleet.write_known_hosts([])
        jane = self.added("--ssh-host-keys", "accept-new")
        for end in (self.tower.proxy.stop, self.tower.proxy.kill):
            end()
            wait_for("the nodes to be left", lambda: self.sessions() == 0, CUT)
            self.tower.start()
            wait_until_open(self.tower, self.fleet.nodes)
            self.assertTrue(works(jane))
        impostor = self.fleet.nodes[0]
        self.tower.proxy.stop()
        impostor.stop()
        impostor.change_host_keys()
        impostor.start()
        self.tower.start()
        second = self.fleet.nodes[1]
        wait_for_states(self.tower, {impostor.address: "failed", second.address: "open"})
        wait_for("the pinned key to count", lambda: "host key" in self.error(), CAME_UP, 0.1)
        self.assertEqual(self.node()["state"], "failed")
        self.assertTrue(works(jane))

    def test_secrets_key_lost(self) -> None:
        """Without the vault's key the proxy starts and reports the missing file and the cure, which works."""
        jane = self.added()
        (key,) = self.tower.state.glob("secrets.key")
        self.tower.proxy.stop()
        key.unlink()
        self.tower.start()
        wait_until_up(self.tower, self.fleet.nodes)
        wait_for("the error", lambda: "secrets.key" in ssh_status(self.tower).get("lastError", ""), CAME_UP)
        self.assertIn("secrets.key", message(self.refused(jane).body))
        self.assertIn("secrets.key", self.wait_for_status("MemberCredential", "False"))
        self.tower.tower("cluster", "set", CLUSTER, "--member-kubeconfig", str(self.kubeconfig))
        wait_for("the credential to work", lambda: works(jane), CAME_UP)

    def test_switched_off_and_removed(self) -> None:
        """Disabling and removing cut streams and tunnels, and nothing is left of it."""
        descriptors = self.tower.proxy.descriptors()
        before = {path.name for path in self.tower.state.rglob("*")}
        jane = self.added()
        port = self.tower.cluster_port(CLUSTER)
        for command in ("disable", "remove"):
            connection = jane.connect()
            self.addCleanup(connection.close)
            flood = jane.ask(connection, f"{jane.prefix}/flood")
            flood.read(MIB)
            self.assertGreater(self.sessions(), 0)
            self.tower.tower("cluster", command, CLUSTER)
            self.assertTrue(ends(flood, CUT))
            wait_for("the nodes to be left", lambda: self.sessions() == 0, CUT)
            if command == "disable":
                self.refused(jane)
                self.tower.tower("cluster", "enable", CLUSTER)
                wait_until_open(self.tower, self.fleet.nodes)
                self.assertTrue(works(jane))
        self.assertIn(jane.get("/ping").status, (401, 403, 404))
        self.assertFalse(is_ready(port, "/"))
        wait_for(
            "the descriptors to be closed", lambda: self.tower.proxy.descriptors() <= descriptors + 2, CUT
        )
        left = {path.name for path in self.tower.state.rglob("*")} - before
        self.assertLessEqual({name for name in left if "kubeconfig" not in name}, {"secrets.key"})

    def test_host_key(self) -> None:
        """The first key is pinned, another one rejected, until the command in the error removes the pin."""
        self.fleet.write_known_hosts([])
        jane = self.added("--ssh-host-keys", "accept-new")
        first, second = self.fleet.nodes
        self.assertEqual(self.node()["hostKey"], fingerprint(first.host_keys[0]))
        first.stop()
        first.change_host_keys()
        first.start()
        look_now(self.tower)
        wait_for("the node to be refused", lambda: "host key" in self.error(), LISTED, 0.1)
        error = self.error()
        self.assertIn(fingerprint(first.host_keys[0]), error)
        self.assertTrue(works(jane))
        found = re.search(FORGET, error)
        assert found is not None, error
        self.tower.tower(*shlex.split(found[1]))
        look_now(self.tower)
        wait_until_open(self.tower, [first, second], LISTED)
        self.assertEqual(self.node()["hostKey"], fingerprint(first.host_keys[0]))

    def test_known_hosts(self) -> None:
        """A node that known_hosts does not know is not let pass, and is when its key is put there."""
        known, unknown = self.fleet.nodes
        self.fleet.write_known_hosts([known])
        jane = self.add()
        wait_for_states(self.tower, {known.address: "open", unknown.address: "failed"})
        self.assertIn("known_hosts", self.error(1))
        self.assertNotIn("Accepted publickey", unknown.log())
        self.assertTrue(works(jane))
        self.fleet.write_known_hosts()
        look_now(self.tower)
        wait_until_open(self.tower, self.fleet.nodes, LISTED)


class ListTests(NodeClusterTestCase):
    """Sources of the list of nodes."""

    count = 3

    def test_file(self) -> None:
        """The file is read at every listing; an unreadable one changes nothing."""
        listed = self.fleet.folder / "nodes"
        listed.write_text("".join(f"{node.address}  # {node.port}\n" for node in self.fleet.nodes[:2]))
        jane = self.add("--nodes-file", str(listed), nodes=[])
        wait_until_open(self.tower, self.fleet.nodes[:2])
        with streaming(jane) as stream:
            listed.rename(self.folder / "elsewhere")
            listed.with_suffix(".new").write_text(f"{self.fleet.nodes[2].address}\n")
            look_now(self.tower)
            wait_for("the complaint", lambda: ssh_status(self.tower).get("lastError"), LISTED, 0.2)
            wait_until_open(self.tower, self.fleet.nodes[:2])
            self.assertTrue(stream())
            listed.with_suffix(".new").rename(listed)
            look_now(self.tower)
            wait_for("the new node", lambda: works_by(self.tower, self.fleet.nodes[2]), LISTED, 0.2)
            self.assertTrue(works(jane))

    def test_set(self) -> None:
        """Those that stay are not disturbed, streams on one that leaves may end in peace."""
        first, second, third = self.fleet.nodes
        jane = self.added(nodes=[first])
        with streaming(jane) as stream:
            self.tower.tower("cluster", "set", CLUSTER, "--nodes", addresses([second, third]))
            wait_for("the others", lambda: works_by(self.tower, second, third), CAME_UP, 0.1)
            before = logins(first)
            self.assertTrue(stream())
            self.assertEqual(states(self.tower).get(first.address), "leaving")
            self.assertEqual(logins(first), before)
        wait_until_open(self.tower, [second, third])
        wait_for("the first node to be left", lambda: first.sessions() == 0, CUT)


class TrafficTests(NodeClusterTestCase):
    """Requests and streams."""

    def test_burst(self) -> None:
        """Two hundred requests at once all get their answers, a dead node or not."""
        jane = self.added()
        self.assertEqual(burst(jane), [200] * BURST)
        self.fleet.nodes[0].kill()
        self.assertEqual(burst(jane), [200] * BURST)

    def test_hanging_node(self) -> None:
        """A node that hangs is noticed; no request waits longer than a dial may take, later none at all."""
        jane = self.added()
        hanging = self.fleet.nodes[0]
        hanging.pause()
        began = time.monotonic()
        while states(self.tower)[hanging.address] == "open":
            asked = time.monotonic()
            self.assertIn(jane.get("/ping").status, (200, 502))
            self.assertLess(time.monotonic() - asked, DIAL)
            self.assertLess(time.monotonic() - began, NOTICE)
        for _ in range(20):
            self.assertEqual(jane.get("/ping").status, 200)
        hanging.resume()
        wait_until_open(self.tower, self.fleet.nodes, LISTED)

    def test_slow_reader(self) -> None:
        """A client that does not read stops the backend, uses little memory, and does not delay others."""
        jane = self.added()
        before = self.tower.proxy.memory()
        connection = jane.connect()
        self.addCleanup(connection.close)
        jane.ask(connection, f"{jane.prefix}/flood").read(1000)
        flooded = [0]

        def stands_still() -> bool:
            flooded.append(self.backend.report()["flooded"])
            return flooded[-1] == flooded[-2]

        wait_for("the flood to stand still", stands_still, every=0.5)
        self.assertLess(self.tower.proxy.memory() - before, 32 * MIB)
        self.assertEqual(burst(jane, 20), [200] * 20)

    def test_bytes(self) -> None:
        """Bulk both ways comes back as it went."""
        jane = self.added()
        data = random.Random(1).randbytes(48 * MIB)
        digest = hashlib.sha256(data).hexdigest()
        path = f"{jane.prefix}/stored"
        self.assertEqual(jane.request("PUT", path, body=data).body.decode(), digest)
        self.assertEqual(hashlib.sha256(jane.get("/stored").body).hexdigest(), digest)

    def test_identity(self) -> None:
        """The user is impersonated; no user has the rights of the proxy's own credential."""
        jane = self.added()
        self.assertEqual(jane.get(f"/marks/jane@{CLUSTER}/1?size=10").status, 200)
        for wanted, headers in (
            (403, {"Impersonate-User": "joe"}),
            (403, {"Impersonate-User": "joe", "Impersonate-Group": "system:masters"}),
            (400, {"Impersonate-Group": "system:masters"}),  # without a user
            (403, {"X-Remote-User": "joe"}),
        ):
            answer = jane.request("GET", f"{jane.prefix}/ping", headers=headers)
            self.assertEqual(answer.status, wanted, headers)
        for options in (("--group", "system:masters"), ("--group", "system:nodes")):
            code, out, _ = self.tower.try_tower("kubeconfig", CLUSTER, "--user", "joe", *options)
            if code == 0:
                path = self.folder / "mighty.kubeconfig"
                path.write_text(out)
                self.assertEqual(Person(path).get("/ping").status, 403, options)
        self.assertEqual(self.backend.report()["faults"], [])

    def test_targets(self) -> None:
        """Named addresses are reached from the nodes, and no others."""
        ports = self.backend.ports[CLUSTER]
        jane = self.added("--target", f"web={LOOPBACK}:{ports['http']}")
        self.assertEqual(jane.get("/targets/web/ping").body, b"pong")
        answer = jane.get("/targets/database/ping")
        self.assertEqual(answer.status, 404)
        self.assertIn("database", message(answer.body))


class WatchedTests(NodeClusterTestCase):
    """Output, errors and logs."""

    def test_pages(self) -> None:
        """The metrics have upstream's names, the health page answers, the command shows the nodes."""
        self.added()
        self.fleet.nodes[0].kill()
        wait_for(
            "the loss", lambda: states(self.tower)[self.fleet.nodes[0].address] == "failed", CAME_UP, 0.1
        )
        for name in ("ssh_tunnel_open_count", "ssh_tunnel_open_fail_count"):
            wait_for(name, lambda: metric(page(self.metrics, "/metrics").decode(), name) > 0)  # noqa: B023
        text = page(self.metrics, "/metrics").decode()
        for name in (
            "apiserver_proxy_tunnel_sync_duration_seconds",
            "apiserver_proxy_tunnel_sync_latency_secs",
        ):
            self.assertLess(metric(text, name), 60)
        self.assertTrue(is_ready(self.tower.port, "/healthz/ssh-tunnel"))
        shown = self.tower.tower("cluster", "show", CLUSTER)
        for node in self.fleet.nodes:
            self.assertIn(node.address, shown)
        self.assertIn("failed", shown)
        self.assertIn("open", shown)

    def test_full_disk(self) -> None:
        """On a full disk everything open continues; with room again the key is pinned."""
        self.fleet.write_known_hosts([])
        jane = self.added("--ssh-host-keys", "accept-new")
        second, proxy = self.fleet.nodes[1], self.tower.proxy
        learned = f"pinned the host key of node {second.host}"
        self.tower.tower("cluster", "forget-host-key", CLUSTER, second.address)
        limits = resource.prlimit(proxy.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(proxy.pid, resource.RLIMIT_FSIZE, (1, limits[1]))
        second.cut()
        wait_for("the second login", lambda: logins(second) == 2, CAME_UP)
        for _ in range(5):
            self.assertTrue(works(jane))
        wait_for("the first node", lambda: works_by(self.tower, self.fleet.nodes[0]), CAME_UP)
        self.assertEqual(logins(self.fleet.nodes[0]), 1)
        self.assertEqual(self.tower.tower("cluster", "list").count(CLUSTER), 1)
        code, _, error = self.tower.try_tower("cluster", "add", "gamma")
        self.assertEqual(code, 1)
        self.assertIn("disk", error)
        resource.prlimit(proxy.pid, resource.RLIMIT_FSIZE, limits)
        second.cut()
        look_now(self.tower)
        wait_until_open(self.tower, self.fleet.nodes, LISTED)
        wait_for("the key to be learned", lambda: proxy.output().count(learned) == 2)
        self.assertTrue(works(jane))


class OddTests(NodeClusterTestCase):
    """Nodes, keys and accounts that are not as usual."""

    def test_restricted_account(self) -> None:
        """An account that may reach the API server alone is enough; others are avoided."""
        port = self.backend.ports[CLUSTER]["https"]
        line = self.fleet.key_file.with_suffix(".pub").read_text()
        may, may_not = self.fleet.nodes
        may.authorize(f'restrict,port-forwarding,permitopen="{LOOPBACK}:{port}" {line}')
        may_not.authorize(f'restrict,port-forwarding,permitopen="{LOOPBACK}:1" {line}')
        jane = self.add("--target", f"web={LOOPBACK}:{self.backend.ports[CLUSTER]['http']}")
        wait_until_up(self.tower, [may, may_not])  # the second is degraded as soon as it is checked
        self.assertEqual([jane.get("/ping").status for _ in range(30)], [200] * 30)
        answer = jane.get("/targets/web/ping")
        self.assertEqual(answer.status, 503)  # the node's refusal is not jane's
        self.assertIn("PermitOpen", message(answer.body))

    def test_key_file_lost(self) -> None:
        """Without the key an open tunnel stays; a new one fails with the reason until the key is back."""
        jane = self.added()
        elsewhere = self.folder / "id"
        self.fleet.key_file.rename(elsewhere)
        self.fleet.key_file.mkdir()  # so that no new key is created
        first = self.fleet.nodes[0]
        first.cut()
        wait_for("the complaint", lambda: "SSH key" in self.error(), CAME_UP, 0.1)
        self.assertIn(str(self.fleet.key_file), self.error())
        self.assertTrue(works(jane))
        self.fleet.key_file.rmdir()
        elsewhere.rename(self.fleet.key_file)
        look_now(self.tower)
        wait_until_open(self.tower, self.fleet.nodes)

    def test_ipv6(self) -> None:
        """A node with an IPv6 address is a node as others are, and so is one that is called by its name."""
        if not has_ipv6():
            self.skipTest("this machine has no ::1")
        line = self.fleet.key_file.with_suffix(".pub").read_text()
        node = Sshd(self.folder / "six", host="::1", authorized=[line])
        self.addCleanup(node.kill)
        node.start()
        named = Sshd(self.folder / "named", authorized=[line])
        self.addCleanup(named.kill)
        named.start()
        lines = [node.known_hosts_line(), named.known_hosts_line("localhost")]
        self.fleet.known_hosts.write_text("".join(lines))
        self.fleet.add_to(self.tower, self.kubeconfig, nodes=[node])
        jane = self.tower.person(CLUSTER, "jane")
        wait_until_open(self.tower, [node])
        self.assertTrue(works(jane))
        self.tower.tower("cluster", "set", CLUSTER, "--nodes", f"localhost:{named.port}")
        wait_for_states(self.tower, {f"localhost:{named.port}": "open"})
        self.assertTrue(works(jane))

    def test_one_host(self) -> None:
        """Nodes on one host with different ports are separate, and so are their host keys."""
        line = self.fleet.key_file.with_suffix(".pub").read_text()
        nodes = [Sshd(self.folder / f"same-{number}", authorized=[line]) for number in range(3)]
        for node in nodes:
            self.addCleanup(node.kill)
            node.start()
        self.fleet.write_known_hosts([])
        jane = self.added("--ssh-host-keys", "accept-new", nodes=nodes)
        nodes[0].stop()
        nodes[0].change_host_keys()
        nodes[0].start()
        look_now(self.tower)
        wait_for_states(
            self.tower, {node.address: "failed" if node is nodes[0] else "open" for node in nodes}
        )
        self.assertTrue(works(jane))
        found = re.search(FORGET, ssh_status(self.tower)["nodes"][0]["error"])
        assert found is not None
        told = self.tower.tower(*shlex.split(found[1]))
        self.assertIn(nodes[0].address, told)
        self.assertNotIn(nodes[1].address, told)


class RealTests(NodeClusterTestCase):
    """A real API server behind them, and the mightiest credential for it that there is."""

    def setUp(self) -> None:
        """Start the API server."""
        self.member = member()
        super().setUp()

    @property
    def kubeconfig(self) -> Path:
        """The proxy's credential."""
        return self.member.admin

    def secrets(self) -> Iterator[bytes]:
        """Yield the key of that credential, too."""
        yield from super().secrets()
        key = self.member.admin_pair[1].read_bytes()
        yield from key.splitlines()[1:-1]
        yield base64.b64encode(key)[100:200]

    def patch(self, *addresses: tuple[str, str]) -> None:
        """Set the addresses of the API server's node."""
        known = [{"type": kind, "address": address} for kind, address in addresses]
        patch = json.dumps({"status": {"addresses": known}})
        node = self.member.info["node"]
        self.member.kubectl("patch", "node", node, "--subresource=status", "--type=merge", "-p", patch)

    def test_listed_by_the_api(self) -> None:
        """By default the API server lists the nodes, and changes are followed."""
        first, second = self.fleet.nodes
        hostname = ("Hostname", self.member.info["node"])
        inside = ("InternalIP", LOOPBACK)
        self.addCleanup(self.patch, inside, hostname)
        self.patch(inside, hostname, ("ExternalIP", first.host))
        jane = self.add("--ssh-port", str(first.port), nodes=[])
        wait_until_open(self.tower, [first])
        self.assertEqual(jane.get("/version").status, 200)
        self.patch(inside, hostname, ("ExternalIP", second.host))
        look_now(self.tower)
        wait_until_open(self.tower, [second])
        self.tower.proxy.stop()
        self.tower.start()
        wait_until_open(self.tower, [second])
        self.assertEqual(ssh_status(self.tower)["nodes"][0]["name"], self.member.info["node"])

    def test_listed_by_the_api_with_a_cloud(self) -> None:
        """The API server lists the nodes, and the cloud only installs the key."""
        first, second = self.fleet.nodes
        hostname, inside = ("Hostname", self.member.info["node"]), ("InternalIP", LOOPBACK)
        self.addCleanup(self.patch, inside, hostname)
        self.patch(inside, hostname, ("ExternalIP", first.host))
        keys = self.fleet.folder / "second.keys"
        config = self.fleet.folder / "cloud.conf"
        config.write_text(
            f"[fake]\ninstance = second {second.address}\nauthorized-keys = {keys.with_stem('%h')}\n"
        )
        cloud = ("--nodes-from-api", "--cloud-provider", "fake", "--cloud-config", str(config))
        jane = self.add("--ssh-port", str(first.port), *cloud, nodes=[])
        wait_until_open(self.tower, [first])
        self.assertEqual(jane.get("/version").status, 200)
        wait_for("the key", keys.exists)
        (node,) = ssh_status(self.tower)["nodes"]
        self.assertEqual(node["name"], self.member.info["node"])

    def test_identity(self) -> None:
        """Users have their own rights, no more, and not those of the credential's owner."""
        since = self.member.audit_size()
        dev = self.added()
        dev = self.tower.person(CLUSTER, "jane", "--group", "dev")
        weak = self.tower.person(CLUSTER, "joe", "--group", "team")
        for via in ("front-door", "port"):
            dev = self.tower.person(CLUSTER, "jane", "--group", "dev", "--via", via)
            weak = self.tower.person(CLUSTER, "joe", "--group", "team", "--via", via)
            self.assertEqual(dev.get(PODS).status, 200)
            self.assertEqual(weak.get(PODS).status, 403)
            self.assertIn('"joe" cannot list', message(weak.get(PODS).body))
        events = [event for event in self.member.audit(since) if event.get("impersonatedUser")]
        self.assertEqual({event["impersonatedUser"]["username"] for event in events}, {"jane", "joe"})
        cluster_admin = [
            event
            for event in self.member.audit(since)
            if "impersonatedUser" not in event
            and event["user"]["username"] == events[0]["user"]["username"]
            and event["requestURI"] == PODS
        ]
        self.assertEqual(cluster_admin, [])
        for group in ("system:masters", "system:nodes"):
            code, out, _ = self.tower.try_tower("kubeconfig", CLUSTER, "--user", "joe", "--group", group)
            if code == 0:
                path = self.folder / "mighty.kubeconfig"
                path.write_text(out)
                self.assertEqual(Person(path).get(PODS).status, 403, group)

    def test_other_credential(self) -> None:
        """A credential that the member does not take is found out, and replaced while all goes on."""
        self.added()
        dev = self.tower.person(CLUSTER, "jane", "--group", "dev")
        self.assertEqual(dev.get(PODS).status, 200)
        stale = self.folder / "stale.kubeconfig"
        config = yaml.safe_load(self.kubeconfig.read_text())
        config["users"][0]["user"] = {"token": TOKEN}
        stale.write_text(yaml.safe_dump(config))
        self.tower.tower("cluster", "set", CLUSTER, "--member-kubeconfig", str(stale))
        wait_for("the other one to count", lambda: dev.get(PODS).status == 502, CUT)
        self.tower.tower("cluster", "set", CLUSTER, "--member-kubeconfig", str(self.kubeconfig))
        wait_for("the first one to count", lambda: dev.get(PODS).status == 200, CUT)
        wait_until_open(self.tower, self.fleet.nodes)

    def test_kubelet(self) -> None:
        """Kubelets answer authorized users, through the kubelets' own nodes."""
        node = json.loads(self.member.kubectl("get", "node", self.member.info["node"], "-o", "json"))
        port = node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"]
        self.added("--kubelet-port", str(port), "--insecure-skip-kubelet-tls-verify")
        first = self.fleet.nodes[0]
        dev = self.tower.person(CLUSTER, "jane", "--group", "dev")
        weak = self.tower.person(CLUSTER, "joe", "--group", "team")
        path = f"/targets/kubelet/{first.host}"
        self.assertEqual(dev.get(f"{path}/healthz").body, b"ok")
        answer = dev.get(f"{path}/pods")
        self.assertEqual((answer.status, json.loads(answer.body)["kind"]), (200, "PodList"))
        for refused in ("/healthz", "/pods"):
            self.assertEqual(weak.get(path + refused).status, 403)
        answer = dev.get("/targets/kubelet/node9/healthz")
        self.assertEqual(answer.status, 404)
        self.assertIn("node9", message(answer.body))


def map_addresses(nodes: list[Sshd]) -> list[str]:
    """Return the address of each node."""
    return [node.address for node in nodes]


def works_by(tower: Tower, *nodes: Sshd) -> bool:
    """Return whether the tunnels to these nodes are open."""
    now = states(tower)
    return all(now.get(node.address) == "open" for node in nodes)


def logins(node: Sshd) -> int:
    """Return the number of logins."""
    return node.log().count("Accepted publickey")


def fingerprint(line: str) -> str:
    """Return the fingerprint of a public key line."""
    digest = hashlib.sha256(base64.b64decode(line.split()[1])).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def ends(answer: http.client.HTTPResponse, seconds: float) -> bool:
    """Return whether a response ends within some seconds."""
    deadline = time.monotonic() + seconds
    try:
        while answer.read(MIB) and time.monotonic() < deadline:
            pass
    except (OSError, http.client.HTTPException):
        pass
    return time.monotonic() < deadline


def burst(person: Person, count: int = BURST) -> list[int]:
    """Send requests at once, each on its own connection; return the statuses."""
    statuses: list[int] = []

    def ask() -> None:
        statuses.append(person.get("/ping").status)

    threads = [threading.Thread(target=ask, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(CAME_UP)
    return statuses


def page(port: int, path: str) -> bytes:
    """Get a page without TLS."""
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=CAME_UP)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        assert answer.status == 200, answer.status
        return answer.read()
    finally:
        connection.close()


def metric(text: str, name: str) -> float:
    """Return the value of the cluster's metric."""
    found = re.search(rf'^{name}(?:_total)?\{{cluster="{CLUSTER}"\}} (\S+)$', text, re.MULTILINE)
    assert found is not None, text
    return float(found[1])

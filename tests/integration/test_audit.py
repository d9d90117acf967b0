"""The audit log: kubectl's requests are in it, with the cluster's own IDs, in spite of disk errors."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import shlex
from collections import defaultdict
from pathlib import Path
from typing import Any

from tests.integration import harness
from tests.integration.member import kubectls, member
from tests.integration.ports import free_port
from tests.integration.programs import LOOPBACK, Program, run, wait_for

PODS = "/api/v1/namespaces/default/pods"
GROUP = "cluster.kubesphere.io"
CLUSTERS = f"/apis/{GROUP}/v1alpha1/clusters"
DIGESTS = {f"{GROUP}/old-digest", f"{GROUP}/new-digest"}
UNABLE = "Unable to write audit log"
MANY = 500_000  # B, of a stream
TINY = 128 * 1024  # B, of a disk that is soon full
COUNTERS = re.compile(r"^apiserver_audit_(event|error)_total(?:\{plugin=\"log\"\})? (\S+)$", re.MULTILINE)


class AuditTestCase(harness.TowerTestCase):
    """Base of the tests of the audit log."""

    place: Path

    def events(self) -> list[dict[str, Any]]:
        """Return the lines of the audit log."""
        return [json.loads(line) for line in self.place.read_bytes().splitlines()]

    def requests(self) -> list[dict[str, dict[str, Any]]]:
        """Return the same by request: its events by their stage."""
        found: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
        for event in self.events():
            if DIGESTS & set(event.get("annotations", ())):
                continue  # a change of a record
            self.assertNotIn(event["stage"], found[event["auditID"]])
            found[event["auditID"]][event["stage"]] = event
        return list(found.values())


class KubectlTests(AuditTestCase):
    """A real cluster, and users with kubectl."""

    def setUp(self) -> None:
        """Start an agent."""
        super().setUp()
        self.tower.add("alpha", member().agent)

    def new_tower(self) -> harness.Tower:
        """Return a Tower with an audit log."""
        tower = super().new_tower()
        self.place = self.folder / "audit.log"
        tower.proxy = tower.proxy_program(f"--audit-log-path={self.place}")
        return tower

    def kubectl(self, person: Path, *arguments: str, stdin: bytes = b"") -> str:
        """Run the newest kubectl."""
        done = run(
            [str(kubectls()[-1]), f"--kubeconfig={person}", *arguments],
            environment={"KUBECACHEDIR": str(self.folder / "cache")},
            stdin=stdin,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.decode()

    def test_kubectl(self) -> None:
        """The log has jane's request from beginning to end, and the cluster has it under the same ID."""
        since = member().audit_size()
        jane = self.tower.kubeconfig("alpha", "jane", "--group", "dev")
        self.kubectl(jane, "get", "pods")
        self.assertIn("it works", self.kubectl(jane, "exec", "shell", "-c", "main", "--", "echo", "it works"))
        self.tower.stop()
        theirs = {event["auditID"]: event for event in member().audit(since)}
        execs = []
        for request in self.requests():
            first, last = request["RequestReceived"], request["ResponseComplete"]
            self.assertLess(last["responseStatus"]["code"], 400, request)
            if first["user"]["username"] != "jane":
                continue
            self.assertEqual(first["user"]["groups"], ["dev", "system:authenticated"])
            self.assertIn("kubectl/", first["userAgent"])
            self.assertEqual(first["annotations"][f"{GROUP}/name"], "alpha")
            self.assertTrue(first["annotations"][f"{GROUP}/credential"])
            their = theirs[first["auditID"]]
            self.assertEqual(their["impersonatedUser"]["username"], "jane")
            for same in ("verb", "objectRef"):
                self.assertEqual(first.get(same), their.get(same), (first, their))
            if first.get("objectRef", {}).get("subresource") == "exec":
                execs.append(request)
        (request,) = execs
        self.assertEqual(request["ResponseStarted"]["responseStatus"]["code"], 101)
        self.assertIn("command=it+works", request["RequestReceived"]["requestURI"])

    def test_exec_sizes(self) -> None:
        """The end of an exec has the number of bytes in each direction, also those of large streams."""
        jane = self.tower.kubeconfig("alpha", "jane", "--group", "dev")
        shell = ("shell", "-c", "main", "--")
        counted = self.kubectl(jane, "exec", "-i", *shell, "wc", "-c", stdin=bytes(MANY))
        self.assertEqual(counted.strip(), str(MANY))
        # with -i, the input's end may be unread when head ends; then the API server resets the connection
        written = self.kubectl(jane, "exec", *shell, "head", "-c", str(MANY), "/dev/zero")
        self.assertEqual(len(written), MANY)
        self.tower.stop()
        ends = [request["ResponseComplete"] for request in self.requests()]
        up, down = (
            [int(end["annotations"][f"{GROUP}/bytes-{way}"]) for way in ("received", "sent")]
            for end in ends
            if end.get("objectRef", {}).get("subresource") == "exec"
        )
        for many, few in (up, reversed(down)):
            self.assertTrue(MANY < many < 1.1 * MANY, (up, down))
            self.assertTrue(100 < few < 0.1 * MANY, (up, down))

    def test_stop(self) -> None:
        """A stop logs the end of each request that it cuts, on the cluster's own port and the front door."""
        for via in ("port", "front-door"):
            jane = self.tower.person("alpha", "jane", "--group", "dev", "--via", via)
            connection = jane.connect()
            self.addCleanup(connection.close)
            self.assertEqual(jane.ask(connection, f"{jane.prefix}{PODS}?watch=1").status, 200)
        self.tower.stop()
        watches = [r for r in self.requests() if r["RequestReceived"]["verb"] == "watch"]
        self.assertEqual(len(watches), 2)
        for request in watches:
            self.assertEqual(list(request), ["RequestReceived", "ResponseStarted", "ResponseComplete"])

    def test_refused(self) -> None:
        """The log has denied users with the reason, and not the requests that fail authentication."""
        jane = self.tower.person("alpha", "jane", "--group", "dev")
        self.assertEqual(jane.get(PODS).status, 200)
        self.assertEqual(jane.request("GET", CLUSTERS).status, 403)
        self.assertEqual(jane.request("GET", f"/clusters/beta{PODS}").status, 403)
        self.assertEqual(
            jane.request("GET", jane.prefix + PODS, headers={"Impersonate-User": "joe"}).status, 403
        )
        self.tower.stop()
        hers = [r for r in self.requests() if r["RequestReceived"]["user"]["username"] == "jane"]
        ends = [request["ResponseComplete"]["responseStatus"] for request in hers]
        self.assertEqual([end["code"] for end in ends], [200, 403, 403, 403])
        self.assertIn("is not valid for cluster beta", ends[2]["message"])
        self.assertIn('User "jane" cannot impersonate resource "users"', ends[3]["message"])

    def test_revoked(self) -> None:
        """The log names the credential, so that it can be revoked; then requests with it are rejected."""
        jane = self.tower.person("alpha", "jane", "--group", "dev")
        self.assertEqual(jane.get(PODS).status, 200)
        wait_for("the log", lambda: self.place.stat().st_size and len(self.of_jane()) == 2)
        (credential,) = {event["annotations"][f"{GROUP}/credential"] for event in self.of_jane()}
        self.tower.tower("credential", "revoke", credential)
        self.assertEqual(jane.get(PODS).status, 401)
        self.tower.stop()
        self.assertEqual(len(self.of_jane()), 2)

    def of_jane(self) -> list[dict[str, Any]]:
        """Return jane's log lines."""
        return [event for event in self.events() if event["user"]["username"] == "jane"]


class ChangeTests(AuditTestCase):
    """Changes of records."""

    def new_tower(self) -> harness.Tower:
        """Return a Tower with an audit log."""
        tower = super().new_tower()
        self.place = self.folder / "audit.log"
        tower.proxy = tower.proxy_program(f"--audit-log-path={self.place}")
        return tower

    def test_digests(self) -> None:
        """Changes of clusters, join tokens and credentials have author and digests, and no secret."""
        self.tower.tower("cluster", "add", "alpha")
        token = self.tower.tower("join", "alpha")
        kubeconfig = self.tower.kubeconfig("alpha", "jane", "--group", "dev").read_text()
        self.tower.tower("cluster", "disable", "alpha")
        self.tower.stop()
        changes = [event for event in self.events() if DIGESTS & set(event.get("annotations", ()))]
        found = [(event["verb"], event["objectRef"]["resource"]) for event in changes]
        for each in (
            ("create", "clusters"),
            ("update", "clusters"),
            ("create", "jointokens"),
            ("create", "credentials"),
        ):
            self.assertIn(each, found)
        first, second = (each for each in changes if each["objectRef"]["resource"] == "clusters")
        old, new = sorted(DIGESTS, reverse=True)
        self.assertEqual(first["annotations"][new], second["annotations"][old])
        admins = {event["user"]["username"] for event in changes if event["objectRef"]["name"] == "alpha"}
        self.assertEqual(len(admins - {"tower:proxy"}), 1)
        ids = {event["auditID"] for event in self.events() if event["stage"] == "RequestReceived"}
        self.assertIn(first["annotations"][f"{GROUP}/request-id"], ids)
        text = self.place.read_text()
        for secret in re.findall(r"[A-Za-z0-9+/=._-]{40,}", token + kubeconfig):
            self.assertNotIn(secret, text)


class FullDiskTests(AuditTestCase):
    """A small disk for the audit log alone."""

    def new_tower(self) -> harness.Tower:
        """Return a Tower with such a disk in place of an empty folder."""
        tower = super().new_tower()
        mount = self.folder / "tiny"
        mount.mkdir()
        own = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--mount"]
        if run([*own, "mount", "-t", "tmpfs", "tmpfs", str(mount)]).returncode:
            self.skipTest("this machine lets us mount nothing")
        self.metrics = free_port()
        proxy = tower.proxy_program(f"--audit-log-path={mount}/audit.log", f"--metrics-port={self.metrics}")
        tiny = f"mount -t tmpfs -o size={TINY} tmpfs {mount} && exec {shlex.join(proxy.argv)}"
        tower.proxy = Program("tower-proxy", [*own, "sh", "-c", tiny], self.folder)
        return tower

    def counters(self) -> dict[str, float]:
        """Return the numbers of events, and of errors."""
        connection = http.client.HTTPConnection(LOOPBACK, self.metrics, timeout=10)
        self.addCleanup(connection.close)
        connection.request("GET", "/metrics")
        return {
            name: float(value) for name, value in COUNTERS.findall(connection.getresponse().read().decode())
        }

    def test_full(self) -> None:
        """While the disk is full all users are served; then every line is written, once and whole."""
        disk = Path(f"/proc/{self.tower.proxy.pid}/root{self.folder}/tiny")
        self.place = disk / "audit.log"
        admin = self.tower.admin()
        filler = disk / "filler"
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        before = self.counters()["event"]
        while UNABLE not in self.tower.proxy.output():
            self.assertEqual(admin.request("GET", CLUSTERS).status, 200)
        for _ in range(50):
            self.assertEqual(admin.request("GET", CLUSTERS).status, 200)
        self.assertIn("No space left on device", self.tower.proxy.output())
        self.assertEqual(self.tower.proxy.output().count(UNABLE), 1)
        filler.unlink()
        wait_for("the rest", lambda: "is writable again; 0 lines lost" in self.tower.proxy.output())
        counters = self.counters()
        self.assertEqual(counters["error"], 0)
        self.assertGreaterEqual(counters["event"], before + 100)
        self.assertEqual(len(self.events()), counters["event"])
        self.requests()

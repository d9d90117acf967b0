"""The reason of a failure in the output of kubectl without a discovery cache: once, and soon."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import yaml

from tests.integration import harness
from tests.integration.member import kubectls, member
from tests.integration.person import Person
from tests.integration.ports import free_port
from tests.integration.programs import LOOPBACK, run, wait_for
from tests.integration.threaded import ThreadedServer

GROUP = "/apis/cluster.kubesphere.io/v1alpha1"
COMMANDS = (("get", "pods"), ("get", "clusters"), ("api-resources",), ("apply", "-f", "-"))
CONFIG_MAP = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: first-line}\n"
SOON = 8.0  # s, for a command and all of its requests
LONG = 30.0  # s, for commands that may take longer


class FirstLineTests(harness.TowerTestCase):
    """Real kubectl, the oldest and the newest, with an empty cache directory for each command."""

    def new_tower(self) -> harness.Tower:
        """Return one whose keepalives detect nothing within the time of a test."""
        tower = super().new_tower()
        tower.proxy = tower.proxy_program(harness.PATIENT)
        return tower

    def kubectl(self, kubectl: Path, kubeconfig: Path, *arguments: str) -> tuple[str, float]:
        """Run one command; return its output and its time, s."""
        cache = tempfile.mkdtemp(prefix="cache-", dir=self.folder)
        argv = [str(kubectl), f"--kubeconfig={kubeconfig}", f"--cache-dir={cache}", *arguments]
        began = time.monotonic()
        done = run(argv, stdin=CONFIG_MAP, timeout=LONG)
        shutil.rmtree(cache, ignore_errors=True)
        return (done.stdout + done.stderr).decode(errors="replace"), time.monotonic() - began

    def assert_reason(
        self, reason: str, kubeconfig: Path, *commands: tuple[str, ...], within: float = LONG
    ) -> None:
        """Check that the oldest and the newest kubectl print *reason* exactly once for each command."""
        chosen = commands or COMMANDS
        pairs = [(kubectl, command) for kubectl in (kubectls()[0], kubectls()[-1]) for command in chosen]
        with ThreadPoolExecutor(2) as threads:
            results = list(threads.map(lambda pair: self.kubectl(pair[0], kubeconfig, *pair[1]), pairs))
        for (kubectl, command), (output, took) in zip(pairs, results, strict=True):
            self.assertEqual(output.count(reason), 1, f"{kubectl.name} {command}: {output}")
            self.assertLess(took, within, f"{kubectl.name} {command}: {output}{self.tower.proxy.tail()}")

    def moved(self, kubeconfig: Path, path: str) -> Path:
        """Return a copy of *kubeconfig* for another path of the front door."""
        config = yaml.safe_load(kubeconfig.read_text())
        server = config["clusters"][0]["cluster"]["server"]
        config["clusters"][0]["cluster"]["server"] = server.partition("/clusters/")[0] + path
        copy = kubeconfig.with_name(f"moved-{kubeconfig.name}")
        copy.touch(0o600)
        copy.write_text(json.dumps(config))
        return copy

    def test_rejected(self) -> None:
        """401, 403, 404 and 503 of the proxy."""
        for name in ("alpha", "beta"):
            self.tower.tower("cluster", "add", name)
        jane = self.tower.kubeconfig("alpha", "jane")
        reason = "is not valid for cluster beta"
        self.assert_reason(reason, self.moved(jane, "/clusters/beta"))
        (admin,) = self.tower.state.glob("admin*.kubeconfig")
        copied = self.folder / "admin.kubeconfig"
        shutil.copy(admin, copied)
        self.assert_reason("cluster gamma not found", self.moved(copied, "/clusters/gamma"))
        self.tower.tower("cluster", "disable", "alpha")
        self.assert_reason("cluster alpha is disabled", jane, within=SOON)
        self.tower.tower("cluster", "enable", "alpha")
        answer = self.tower.admin().request("GET", f"{GROUP}/credentials")
        (issued,) = [item for item in json.loads(answer.body)["items"] if item["spec"]["cluster"] == "alpha"]
        self.tower.tower("credential", "revoke", issued["metadata"]["name"])
        self.assert_reason("was revoked", jane)

    def test_unreachable(self) -> None:
        """503 of an agent that cannot connect; 502 and 504 of API servers that answer nonsense or nothing."""
        nonsense = Nonsense()
        self.addCleanup(nonsense.close)
        for name, port in (("alpha", free_port()), ("beta", nonsense.port)):
            self.tower.add(name, self.plain(port))
            jane = self.tower.kubeconfig(name, "jane")
            reason = "cannot reach the API server" if name == "alpha" else "sent an invalid HTTP answer"
            self.assert_reason(reason, jane, within=SOON)
        silent = socket.create_server((LOOPBACK, 0), backlog=0)
        self.addCleanup(silent.close)
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            self.addCleanup(filler.close)
            filler.setblocking(False)
            filler.connect_ex(silent.getsockname())
        self.tower.add("gamma", self.plain(silent.getsockname()[1]))
        jane = self.tower.kubeconfig("gamma", "jane")
        self.assert_reason("did not answer the agent", jane, ("api-resources",))

    def test_rejected_agent(self) -> None:
        """502 with the cure if the API server rejects the agent's token, or its right to impersonate."""
        cluster = member()
        cluster.kubectl("-n", "tower-system", "create", "serviceaccount", "weak-agent")
        self.addCleanup(cluster.kubectl, "-n", "tower-system", "delete", "serviceaccount", "weak-agent")
        token = cluster.kubectl("-n", "tower-system", "create", "token", "weak-agent").strip()
        for name, secret, reason in (
            ("alpha", token, "kubectl apply -f deploy/agent-rbac.yaml"),
            ("beta", "wrong", "kubectl -n tower-system create token tower-agent"),
        ):
            kubeconfig = self.folder / f"{name}.kubeconfig"
            kubeconfig.touch(0o600)
            kubeconfig.write_text(cluster.agent.read_text().replace(cluster.least.token, secret))
            self.tower.tower("cluster", "add", name)
            self.tower.agent(name, kubeconfig).program.start()
            jane = self.tower.person(name, "jane", "--group", "dev")
            wait_for("the rejection", partial(self.is_rejected, jane, reason))
            self.assert_reason(reason, jane.kubeconfig, ("get", "pods"), ("apply", "-f", "-"))

    def is_rejected(self, user: Person, reason: str) -> bool:
        """Return whether the user gets a 502 with *reason*."""
        answer = user.get("/api")
        return answer.status == 502 and reason in json.loads(answer.body)["message"]

    def plain(self, port: int) -> Path:
        """Return the kubeconfig of an agent whose API server listens on *port* without TLS."""
        path = self.folder / f"plain-{port}.kubeconfig"
        cluster = {"name": "c", "cluster": {"server": f"http://{LOOPBACK}:{port}"}}
        user: dict[str, object] = {"name": "u", "user": {}}
        context = {"name": "x", "context": {"cluster": "c", "user": "u"}}
        parts = {"clusters": [cluster], "users": [user], "contexts": [context], "current-context": "x"}
        path.touch(0o600)
        path.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", **parts}))
        return path

    def test_frozen_and_absent_agent(self) -> None:
        """Commands fail within 8 s while the agent is stopped, work later, and fail once it is killed."""
        agent = self.tower.add("alpha", member().agent)
        jane = self.tower.kubeconfig("alpha", "jane", "--group", "dev")
        pods = ("get", "pods")
        warm = str(self.folder / "warm")
        newest = kubectls()[-1]
        with_cache = [str(newest), f"--kubeconfig={jane}", f"--cache-dir={warm}", *pods]
        self.assertEqual(run(with_cache).returncode, 0)
        reason = "its agent is connected but does not answer"
        agent.program.pause()
        try:
            self.assert_reason(reason, jane, pods, ("api-resources",), within=SOON)
            began = time.monotonic()
            done = run(with_cache)
            self.assertEqual(done.stderr.decode().count(reason), 1, done.stderr)
            self.assertLess(time.monotonic() - began, SOON)
        finally:
            agent.program.resume()
        wait_for("an answer", lambda: not run(with_cache).returncode)
        output, _ = self.kubectl(newest, jane, *pods)
        self.assertIn("NAME", output)
        agent.program.kill()
        self.assert_reason("no agent of cluster alpha is connected", jane, pods, within=SOON)


class Nonsense(ThreadedServer):
    """An API server that does not speak HTTP."""

    def serve(self, connection: socket.socket) -> None:
        """See `ThreadedServer.serve`."""
        with connection, contextlib.suppress(OSError):
            while connection.recv(65536):
                connection.sendall(b"220 mail.example.org ESMTP\r\n\r\n")

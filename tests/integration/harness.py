"""A whole Tower of real processes on loopback: proxy, agents, and users with their kubeconfigs."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import tempfile
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.integration.person import Person
from tests.integration.ports import free_port, free_ports
from tests.integration.programs import LOOPBACK, PATIENCE, Program, is_ready, run, script, wait_for

KEEPALIVE = 2.0  # s; short, so that losses show soon
PATIENT = "--keepalive=60s"  # for tests that are not about silence: a slow peer is kept


class Tower:
    """One proxy with its state, and the agents that were started for it.

    :param host: address of the proxy.
    :ivar state: the proxy's state directory.
    :ivar node_files: the directory of the files that clusters may name.
    :ivar port: the plain port.
    :ivar secure_port: the front door.
    :ivar cluster_ports: the ports that clusters get.
    """

    def __init__(self, folder: Path, host: str = LOOPBACK) -> None:
        self.folder = folder
        self.host = host
        self.state = folder / "proxy"
        self.node_files = folder / "fleet"
        self.cluster_ports = free_ports(4)
        self.port = free_port()
        self.secure_port = free_port()
        self.proxy = self.proxy_program()
        self.agents: list[Agent] = []

    def proxy_program(self, *extra: str, name: str = "tower-proxy") -> Program:
        """Return the proxy's program; nothing is started."""
        first, last = self.cluster_ports[0], self.cluster_ports[-1]
        options = [
            f"--state-dir={self.state}",
            f"--node-files={self.node_files}",
            f"--host={self.host}",
            f"--port={self.port}",
            f"--secure-port={self.secure_port}",
            f"--cluster-ports={first}-{last}",
            f"--keepalive={KEEPALIVE:g}s",
        ]
        argv = [script("tower-proxy"), *options, *extra]
        return Program(name, argv, self.folder)

    def start(self) -> None:
        """Start the proxy and wait until it answers."""
        self.proxy.start()
        wait_for("the proxy's health page", self.healthy)

    def healthy(self) -> bool:
        """Return whether the proxy answers on its plain port."""
        if not self.proxy.running():
            raise AssertionError(f"the proxy ended: {self.proxy.tail()}")
        return is_ready(self.port, "/health", self.host)

    def stop(self) -> None:
        """End everything that was started here, all at the same time."""
        programs = [*(each.program for each in self.agents), self.proxy]
        for each in programs:
            each.ask_to_end()
        for each in programs:
            each.stop()

    def try_tower(self, *arguments: str, timeout: float = PATIENCE) -> tuple[int, str, str]:
        """Run the ``tower`` command; return its exit code and both outputs."""
        argv = [script("tower"), "--state-dir", str(self.state), *arguments]
        done = run(argv, timeout=timeout, folder=self.folder)
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    def tower(self, *arguments: str) -> str:
        """Run the ``tower`` command, which must succeed; return its output."""
        code, out, error = self.try_tower(*arguments)
        if code:
            raise AssertionError(f"tower {' '.join(arguments)}: exit code {code}: {error}{self.proxy.tail()}")
        return out

    def add(self, cluster: str, kubeconfig: Path, *extra: str, via: int | None = None) -> Agent:
        """Add a cluster and start an agent for it; return when requests get through.

        :param via: the port of a relay to the front door, to dial instead of it.
        """
        self.tower("cluster", "add", cluster)
        agent = self.agent(cluster, kubeconfig, *extra, via=via)
        agent.program.start()
        agent.wait_until_ready()
        return agent

    def agent(self, cluster: str, kubeconfig: Path, *extra: str, via: int | None = None) -> Agent:
        """Return a new agent for a cluster by its join line; it is not started."""
        line = self.tower("join", cluster, "--format", "env")
        words = shlex.split(line)
        assert words[0] == "env" and line.count("\n") == 1, line  # noqa: PT018
        environment = dict(word.split("=", 1) for word in words[1:] if word.startswith("TOWER_"))
        argv = words[words.index("tower-agent") :]
        if via is not None:
            argv = [word.replace(f":{self.secure_port}", f":{via}") for word in argv]
        number = len(self.agents)
        made = Agent(
            self, f"agent-{cluster}-{number}", argv, environment, ["--kubeconfig", str(kubeconfig), *extra]
        )
        self.agents.append(made)
        return made

    def kubeconfig(self, cluster: str, user: str, *options: str) -> Path:
        """Issue a kubeconfig; return its path."""
        text = self.tower("kubeconfig", cluster, "--user", user, *options)
        descriptor, name = tempfile.mkstemp(
            suffix=".kubeconfig", prefix=f"{user}-{cluster}-", dir=self.folder
        )
        os.write(descriptor, text.encode())
        os.close(descriptor)
        return Path(name)

    def person(self, cluster: str, user: str, *options: str) -> Person:
        """Return a user with their own kubeconfig for a cluster."""
        return Person(self.kubeconfig(cluster, user, *options))

    def admin(self) -> Person:
        """Return the administrator, with the kubeconfig in the state directory."""
        (path,) = self.state.glob("admin*.kubeconfig")
        return Person(path)

    @property
    def ca(self) -> str:
        """Tower's own CA, PEM, without its key."""
        content = (self.state / "serving-ca.pem").read_text()
        return content[content.index("-----BEGIN CERTIFICATE") :]

    def status(self, cluster: str) -> dict[str, Any]:
        """Return the object of a cluster."""
        path = f"/apis/cluster.kubesphere.io/v1alpha1/clusters/{cluster}"
        answer: dict[str, Any] = json.loads(self.admin().get(path).body)
        return answer

    def cluster_port(self, cluster: str) -> int:
        """Return the cluster's own port."""
        port: int = self.status(cluster)["spec"]["connection"]["kubernetesAPIServerPort"]
        return port


class Agent:
    """One agent of a `Tower`.

    :ivar environment: variables of the join line.
    :ivar health_port: port of its health page.
    """

    def __init__(
        self, tower: Tower, name: str, argv: list[str], environment: dict[str, str], options: list[str]
    ) -> None:
        self.environment = environment
        self.name = name
        self.health_port = free_port()
        self.state = tower.folder / f"{name}-state"
        self.argv = [
            script("tower-agent"),
            *argv[1:],
            f"--state-dir={self.state}",
            f"--keepalive={KEEPALIVE:g}s",
            f"--health-address={LOOPBACK}:{self.health_port}",
            *options,
        ]
        self._folder = tower.folder
        self.program = Program(name, self.argv, tower.folder, environment)

    def forget_token(self) -> None:
        """From the next start on, run without the join token, as after a reboot."""
        self.program = Program(self.name, self.argv, self._folder)

    def ready(self) -> bool:
        """Return whether the agent's health page reports that its tunnel is up."""
        if not self.program.running():
            raise AssertionError(f"{self.name} ended: {self.program.tail()}")
        return is_ready(self.health_port)

    def wait_until_ready(self, timeout: float = PATIENCE) -> None:
        """Return once the tunnel is up."""
        wait_for(f"the tunnel of {self.name}", self.ready, timeout)


class TowerTestCase(SynchronousTestCase):
    """A test with a temporary folder and a running `Tower` in it."""

    def setUp(self) -> None:
        """Start a proxy with an empty state."""
        self.folder = Path(tempfile.mkdtemp(prefix="tower-test-"))
        self.addCleanup(shutil.rmtree, self.folder, True)
        self.tower = self.new_tower()
        self.addCleanup(self.tower.stop)
        self.tower.start()

    def new_tower(self) -> Tower:
        """Return the Tower, with a proxy that is not started yet."""
        return Tower(self.folder)

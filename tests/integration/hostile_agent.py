"""A proxy with a hostile agent, and users of another cluster on the same proxy."""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import re
import shlex
import shutil
import tempfile
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.integration import harness
from tests.integration.backends import Backend
from tests.integration.neighbours import Neighbour, Pings
from tests.integration.programs import wait_for
from tests.integration.raw_peer import (
    Gone,
    RawPeer,
    agent_peer,
)
from tower.conch.transport.keys import KeyPair


class Bench:
    """One proxy for many of these tests: they must not depend on each other.

    :param options: of the proxy, in addition to the usual.
    :ivar neighbour: has a credential for the cluster `good`, whose agent behaves.
    :ivar victim: has one for `evil`, whose agent is the test.
    """

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        self.tower = harness.Tower(folder)
        self.tower.proxy = self.tower.proxy_program(*options)
        self.backend = Backend(folder, "good")
        self.key = KeyPair.generate()

    def start(self) -> None:
        """Start all of it, and enrol the key of the test."""
        tower = self.tower
        tower.start()
        self.backend.start()
        self.good = tower.add("good", self.backend.kubeconfig("good"), harness.PATIENT)
        self.neighbour = tower.person("good", "jane")
        tower.tower("cluster", "add", "evil")
        words = shlex.split(tower.tower("join", "evil", "--format", "env"))
        token = next(word.partition("=")[2] for word in words if word.startswith("TOWER_TOKEN="))
        self.host_key = words[words.index("--host-key") + 1]
        self.peer("evil", token).close()
        self.victim = tower.person("evil", "joe")

    def peer(self, cluster: str = "evil", token: str | None = None, key: KeyPair | None = None) -> RawPeer:
        """Return an agent that is authenticated."""
        peer = agent_peer(self.tower.port, cluster, key or self.key, self.host_key, token)
        peer.authenticate()
        return peer

    def stop(self) -> None:
        """End all of it."""
        self.tower.stop()
        self.backend.program.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


@functools.cache
def bench(*options: str) -> Bench:
    """Return this run's bench with these options of the proxy; it ends with the process."""
    made = Bench(Path(tempfile.mkdtemp(prefix="tower-hostile-")), *options)
    owner = os.getpid()
    atexit.register(lambda: made.stop() if os.getpid() == owner else None)
    made.start()
    return made


class HostileAgentTestCase(SynchronousTestCase):
    """Base of the tests with a hostile agent.

    :cvar options: of the proxy.  Its keepalive is long, so that it drops an agent only because of the agent's
    messages, not because this process or the proxy was slow for a while.
    """

    options: tuple[str, ...] = (harness.PATIENT,)

    def setUp(self) -> None:
        """Start to watch: other users must not notice, and the proxy must not grow."""
        self.bench = bench(*self.options)
        self.proxy = self.bench.tower.proxy
        self.before = len(self.proxy.output())
        self.tunnel = self.tunnel_of_good()
        watching = Neighbour(Pings(self.bench.neighbour), self.proxy)
        watching.__enter__()
        self.addCleanup(self._judge, watching)

    def _judge(self, watching: Neighbour) -> None:
        watching.__exit__(None, None, None)
        self.assertTrue(self.proxy.running(), self.proxy.tail())
        self.assertEqual(self.tunnel_of_good(), self.tunnel)
        self.assertNotIn("Traceback", self.logged())

    def tunnel_of_good(self) -> str:
        """Return the address and the start time of the tunnel of the good agent."""
        path = "/apis/cluster.kubesphere.io/v1alpha1/clusters/good/agents"
        (agent,) = json.loads(self.bench.tower.admin().request("GET", path).body)["items"]
        (tunnel,) = agent["status"]["tunnels"]
        return f"{tunnel['address']} {tunnel['since']}"

    def logged(self) -> str:
        """Return the proxy's log since the test began."""
        return self.proxy.output()[self.before :]

    def assertDropped(self, peer: RawPeer, reason: str, what: str = "", *, known: bool = True) -> None:
        """The proxy closes the connection, and its log line about it matches *reason*, a pattern."""
        host, port = peer.socket.getsockname()
        with contextlib.suppress(Gone):
            peer.end()
        peer.close()
        line = f"agent of evil at {host}:{port} disconnected: " if known else f"{host}:{port} was rejected: "
        wait_for(f"the line {line!r}{reason}", lambda: line in self.logged())
        logged = re.findall(re.escape(line) + ".*", self.logged())[0]
        self.assertRegex(logged, reason, what)

"""A tunneler whose nodes, lists, keys and clouds are in the test's hands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.node_tunnels import FakeFleet
from tower.clusters.node import Node
from tower.errors import ConfigurationError
from tower.nodes.keypair import KeyPairFiles
from tower.nodes.tunneler import SSHTunneler
from tower.nodes.tunnels.tunnels import NodeTunnels

LINE = b"ssh-ed25519 AAAA\n"


class FakeKeys:
    """A key pair.

    :ivar problem: why it cannot be used; empty while it can.
    :ivar is_new: whether it differs from the last one.
    """

    path = "/keys/id"

    def __init__(self) -> None:
        self.problem = ""
        self.is_new = False
        self.ensured = 0

    def ensure(self) -> None:
        """Make it."""
        self.ensured += 1
        if self.problem:
            raise ConfigurationError(self.problem)

    def public_line(self) -> bytes:
        """Read it."""
        self.is_new = False
        if self.problem:
            raise ConfigurationError(self.problem)
        return LINE

    def changed(self) -> bool:
        """Tell."""
        return self.is_new


class TunnelerCase(SynchronousTestCase):
    """:ivar nodes: what is listed; an exception is raised, a Deferred waited for."""

    def setUp(self) -> None:
        """Create a tunneler for a fleet of fakes, at some time of day."""
        self.clock = Clock()
        self.day = 1_000_000.0
        self.fleet = FakeFleet()
        self.keys = FakeKeys()
        self.nodes: Sequence[Node] | Exception | Deferred[Any] = [Node("a"), Node("b")]
        self.listed: list[float] = []
        self.installed: list[tuple[float, str, bytes]] = []
        self.install_result: Exception | Deferred[Any] | None = None
        self.checked: list[float] = []
        self.tunneler = self.make()

    def make(self, user: str = "joe", *, install: bool = True) -> SSHTunneler:
        """Make one."""
        tunnels = NodeTunnels(
            self.clock,
            self.fleet.create,
            user=user,
            health=self.look,
            epoch=self.epoch,
            choose=lambda p: p[0],
            name="beta",
        )
        return SSHTunneler(
            self.clock,
            user,
            cast(KeyPairFiles, self.keys),
            tunnels,
            lister=self.list,
            install=self.install if install else None,
            epoch=self.epoch,
            name="beta",
        )

    def epoch(self) -> float:
        """Return the time of day."""
        return self.day + self.clock.seconds()

    async def list(self) -> Sequence[Node]:
        """List the nodes."""
        self.listed.append(self.clock.seconds())
        if isinstance(self.nodes, Exception):
            raise self.nodes
        if isinstance(self.nodes, Deferred):
            found: Sequence[Node] = await self.nodes
            return found
        return self.nodes

    async def install(self, user: str, line: bytes) -> None:
        """Install a key."""
        self.installed.append((self.clock.seconds(), user, line))
        if isinstance(self.install_result, Exception):
            raise self.install_result
        if isinstance(self.install_result, Deferred):
            await self.install_result

    async def look(self, _: Any) -> str:
        """Find a tunnel well."""
        self.checked.append(self.clock.seconds())
        return ""

    def run_up(self) -> None:
        """Run, and open all tunnels."""
        self.tunneler.run()
        self.fleet.let_all_in()

    def pass_time(self, seconds: float, step: float = 1.0) -> None:
        """Let time pass, and open the tunnels that the tunneler dials."""
        for _ in range(round(seconds / step)):
            self.clock.advance(step)
            self.fleet.let_all_in()

    def hosts(self) -> Sequence[str]:
        """Return the hosts with an open tunnel."""
        return [status.name for status in self.tunneler.status().nodes if status.state == "open"]

    def tearDown(self) -> None:
        """Nothing is left after a close."""
        self.successResultOf(Deferred.fromCoroutine(self.tunneler.close()))
        self.assertEqual(self.clock.getDelayedCalls(), [])

"""Cost of a tunneler with two hundred nodes (`tests.integration.conch_nodes`).

Run as ``python -m … PORT``; prints its findings as one JSON object.  The tunneler's clock runs faster than
real time, so that its minutes pass; the waits of SSH and of health checks are in real time.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater, react

from tests.fakes.tunnelers import FakeKeys
from tests.integration.conch_nodes import address
from tower.clusters.node import Node
from tower.net.budget import Budget
from tower.nodes.health import kubelet_health
from tower.nodes.keypair import KeyPairFiles
from tower.nodes.ssh.client_key import ClientKey
from tower.nodes.ssh.host_keys import AnyHostKey
from tower.nodes.tunneler import SSHTunneler
from tower.nodes.tunnels.tunnel import NodeLogin, NodeTunnel
from tower.nodes.tunnels.tunnels import CHECK_TIMEOUT, HEALTH_PERIOD, NodeTunnels
from tower.reactor.poller import Poller
from tower.reactor.process import raise_file_limit, settle_memory
from tower.reactor.timers import Wheel

FEW, ALL, CHANGED = 50, 200, 50
ROUNDS = 2
FASTER = 6.0
PATIENCE = 300.0  # s


class FastClock:
    """A clock that runs faster than real time."""

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor

    def seconds(self) -> float:
        """Return monotonic time, in shorter seconds."""
        return float(self._reactor.seconds()) * FASTER

    def callLater(self, delay: float, callable: Callable[..., Any], *args: Any, **kw: Any) -> Any:  # noqa: A002
        """Call *callable* in *delay* of those seconds."""
        return self._reactor.callLater(delay / FASTER, callable, *args, **kw)


class Fleet:
    """The listed nodes and the results of their health checks.

    :ivar nodes: the listed nodes.
    :ivar checks: good answers of kubelets, by the address of the node.
    """

    def __init__(self, reactor: Any, port: int) -> None:
        self._reactor = reactor
        self._port = port
        self.nodes: list[Node] = []
        self.checks: Counter[str] = Counter()
        clock = cast(IReactorTime, FastClock(reactor))
        poller, wheel, budget = Poller(reactor), Wheel(reactor), Budget(64 << 20)
        key = ClientKey(Ed25519PrivateKey.generate())
        login = NodeLogin("joe", lambda: key, AnyHostKey())
        self._look = kubelet_health("http://127.0.0.1:10255/healthz", reactor)
        self.tunnels = NodeTunnels(
            clock,
            lambda node: NodeTunnel(poller, wheel, node, login, budget, epoch=time.time),
            user="joe",
            health=self._check,
            epoch=time.time,
            check_timeout=CHECK_TIMEOUT * FASTER,
        )
        self.tunneler = SSHTunneler(
            clock,
            "joe",
            cast(KeyPairFiles, FakeKeys()),
            self.tunnels,
            lister=self._list,
            install=None,
            epoch=time.time,
        )

    async def _check(self, tunnel: Any) -> str:
        trouble = await self._look(tunnel)
        self.checks[tunnel.node.address] += not trouble
        return trouble

    async def _list(self) -> Sequence[Node]:
        return self.nodes

    def have(self, numbers: range) -> None:
        """List these nodes from now on."""
        self.nodes = [Node(address(number), self._port) for number in numbers]

    def is_settled(self) -> bool:
        """Whether the tunnels are open and those of the list."""
        states = self.tunnels.states()
        wanted = {node.address for node in self.nodes}
        return {state.address for state in states if state.state == "open"} == wanted and len(states) == len(
            wanted
        )

    async def settled(self) -> float:
        """Return the time until they were, s."""
        began = time.monotonic()
        while not self.is_settled():
            if time.monotonic() - began > PATIENCE:
                raise AssertionError(f"they do not settle: {self.tunnels.states()}")
            await self.pause(0.02)
        return time.monotonic() - began

    async def checked(self, rounds: int) -> None:
        """Return when each node of the list was looked at so many times."""
        began = time.monotonic()
        while min(self.checks[node.address] for node in self.nodes) < rounds:
            if time.monotonic() - began > PATIENCE:
                raise AssertionError(f"they are not looked at: {self.checks}")
            await self.pause(0.05)

    async def pause(self, seconds: float) -> None:
        """Wait."""
        await deferLater(self._reactor, seconds)

    async def memory(self) -> int:
        """Return the unshared memory of this process, after garbage collection, B."""
        await self.pause(2)
        gc.collect()
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("no such value in /proc/self/status")


async def scenario(reactor: Any, port: int) -> None:
    """Run all steps."""
    fleet = Fleet(reactor, port)
    found: dict[str, float] = {}
    fleet.have(range(FEW))
    began = time.monotonic()
    fleet.tunneler.run()
    found["few_s"] = await fleet.settled()
    before = await fleet.memory()
    used = time.process_time()
    fleet.have(range(ALL))
    fleet.tunneler.list_soon()
    found["opened_s"] = await fleet.settled()
    found["open_cpu_s"] = time.process_time() - used
    found["memory_per_node"] = (await fleet.memory() - before) / (ALL - FEW)

    await fleet.pause(HEALTH_PERIOD / FASTER - (time.monotonic() - began))  # the first round found no kubelet
    fleet.checks.clear()
    used, began = time.process_time(), time.monotonic()
    await fleet.checked(ROUNDS)
    found["rounds_s"], found["rounds_cpu_s"] = time.monotonic() - began, time.process_time() - used
    found["checks_most"] = max(fleet.checks.values())

    kept = [fleet.tunnels.at(node) for node in fleet.nodes[CHANGED:]]
    fleet.have(range(CHANGED, ALL + CHANGED))
    found["change_s"] = await fleet.settled()
    found["disturbed"] = sum(
        tunnel is not fleet.tunnels.at(node)
        for tunnel, node in zip(kept, fleet.nodes[: ALL - CHANGED], strict=True)
    )
    counters = fleet.tunnels.counters
    found["opens"], found["failures"] = counters.open_count, counters.open_fail_count
    await fleet.tunneler.close()
    print(json.dumps(found), flush=True)


def main() -> None:
    """Run."""
    raise_file_limit()
    settle_memory()
    react(lambda reactor: Deferred.fromCoroutine(scenario(reactor, int(sys.argv[1]))))


if __name__ == "__main__":
    main()

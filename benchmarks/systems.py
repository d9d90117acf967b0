"""What is measured: ways to one backend.  All that a run needs are up at the same time.

| system | what |
|---|---|
| direct | the backend itself |
| forward, forward-wss | ``gopeer forward``: SSH in a WebSocket in Go, for raw streams |
| openssh | ``ssh -R`` and ``sshd`` |
| local, local-gcm | ``ssh -L`` to a ``sshd`` beside the backend, with both sides' defaults, and aes128-gcm |
| node, node-gcm | Tower's node tunnel to the same ``sshd``, with nothing around it |
| idle-100, idle-2 | ``gopeer v1-proxy`` and ``v1-agent``, with so many idle connections kept |
| tunnel, tunnel-wss | Tower's tunnel alone: users without TLS and without a credential, as the peers' |
| tower, tower-wss | the product: users' TLS, authentication, the agent's checks, its TLS to the API server |
| link, tower-far | the backend 100 ms and 1 Gbit/s away, and the product with an agent as far away |
| old-100, old-2 | ``gopeer`` as idle-100 and idle-2, with the libraries of deployed proxies and agents |
| tower-old, tower-old-far | the product with such an agent, near by and far away |
| old-2-ours | such a proxy with our agent |
| …-kube | the same with a real kube-apiserver behind instead of the backend |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path

from benchmarks import gopeer, openssh, wan
from benchmarks.member import Member
from benchmarks.processes import NotHere
from benchmarks.product import Product, on_old_proxy, tunnel
from benchmarks.setting import Ground, System, http_way, https_way, stream_way


class Systems:
    """Everything that runs, started when it is asked for.

    :param folder: an empty directory.
    :param stack: ends what was started.
    :ivar missing: why a system is not here, by its name.
    :ivar idle: resident memory of the parts before any load, MiB, by system.
    """

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self._stack = stack
        self._running: dict[str, System] = {}
        self.missing: dict[str, str] = {}
        self.idle: dict[str, dict[str, float]] = {}

    @cached_property
    def ground(self) -> Ground:
        """The backend and what else is shared."""
        return Ground(self.folder, self._stack)

    @cached_property
    def product(self) -> Product:
        """The proxy of all clusters."""
        return Product(self.ground)

    @cached_property
    def member(self) -> Member:
        """The real API server."""
        return Member(self.ground)

    @cached_property
    def node(self) -> openssh.Server:
        """An ``sshd`` as it is installed."""
        return openssh.Server(self.ground, "sshd-node")

    @cached_property
    def gcm_node(self) -> openssh.Server:
        """One with the cipher of Tower's other tunnels."""
        return openssh.Server(self.ground, "sshd-node-gcm", openssh.GCM)

    def start(self, names: Iterable[str]) -> None:
        """Start systems; what is not installed is noted in `missing`.

        :raise BenchmarkFailed: one does not run.
        """
        for name in names:
            if name in self._running or name in self.missing:
                continue
            try:
                system = _CATALOGUE[name](self)
            except NotHere as e:
                self.missing[name] = str(e)
                continue
            self._running[name] = system
            self.idle[name] = {part: program.memory for part, program in system.parts.items()}

    def __getitem__(self, name: str) -> System:
        return self._running[name]

    def memory(self) -> dict[str, dict[str, float]]:
        """Return the resident memory of the parts now, MiB, by system."""
        return {
            name: {part: program.memory for part, program in system.parts.items()}
            for name, system in self._running.items()
        }


def _direct(ground: Ground) -> System:
    ways = (
        stream_way(ground.stream) | http_way(ground.http) | https_way(ground.backend.port, ground.authority)
    )
    return System("direct", ways)


def _v1_kube(systems: Systems, idle: int) -> System:
    peer = gopeer.v1(systems.ground, f"idle-{idle}-kube", idle, systems.member.mighty, systems.ground.peer)
    return systems.member.behind(peer)


def _idle(systems: Systems, idle: int) -> System:
    return gopeer.v1(systems.ground, f"idle-{idle}", idle, systems.ground.backend, systems.ground.peer)


def _old(systems: Systems, idle: int) -> System:
    return gopeer.v1(systems.ground, f"old-{idle}", idle, systems.ground.backend, systems.ground.deployed)


def _tower_kube(systems: Systems) -> System:
    return systems.member.behind(systems.product.cluster("tower-kube", "gamma", systems.member.own))


_CATALOGUE: dict[str, Callable[[Systems], System]] = {
    "direct": lambda systems: _direct(systems.ground),
    "forward": lambda systems: gopeer.forward(systems.ground, "forward", "stream"),
    "forward-http": lambda systems: gopeer.forward(systems.ground, "forward-http", "http"),
    "forward-wss": lambda systems: gopeer.forward(systems.ground, "forward-wss", "stream", secure=True),
    "openssh": lambda systems: openssh.remote_forward(systems.ground),
    "local": lambda systems: openssh.local_forward(systems.ground, "local", systems.node),
    "local-gcm": lambda systems: openssh.local_forward(systems.ground, "local-gcm", systems.gcm_node),
    "node": lambda systems: openssh.node_tunnel(systems.ground, "node", systems.node),
    "node-gcm": lambda systems: openssh.node_tunnel(systems.ground, "node-gcm", systems.gcm_node),
    "idle-100": lambda systems: _idle(systems, 100),
    "idle-2": lambda systems: _idle(systems, 2),
    "old-100": lambda systems: _old(systems, 100),
    "old-2": lambda systems: _old(systems, 2),
    "old-2-ours": lambda systems: on_old_proxy(systems.ground, "old-2-ours", 2),
    "tower-old": lambda systems: systems.product.old_cluster("tower-old", "epsilon", systems.ground.backend),
    "tower-old-far": lambda systems: wan.old_agent(systems.ground, systems.product),
    "tunnel": lambda systems: tunnel(systems.ground, "tunnel"),
    "tunnel-wss": lambda systems: tunnel(systems.ground, "tunnel-wss", secure=True),
    "tower": lambda systems: systems.product.cluster("tower", "alpha", systems.ground.backend),
    "tower-wss": lambda systems: systems.product.cluster(
        "tower-wss", "beta", systems.ground.backend, secure=True
    ),
    "link": lambda systems: wan.direct(systems.ground),
    "tower-far": lambda systems: wan.tower(systems.ground, systems.product),
    "direct-kube": lambda systems: systems.member.direct(),
    "idle-100-kube": lambda systems: _v1_kube(systems, 100),
    "idle-2-kube": lambda systems: _v1_kube(systems, 2),
    "tower-kube": _tower_kube,
}

"""The measured systems: paths to one backend.  All systems of a run are up at the same time.

| system | description |
|---|---|
| direct | the backend itself |
| forward, forward-wss | ``gopeer forward``: SSH in a WebSocket in Go, for raw streams |
| openssh | ``ssh -R`` and ``sshd`` |
| local, local-gcm | ``ssh -L`` to an ``sshd`` next to the backend, with default ciphers, and aes128-gcm |
| node, node-gcm | Tower's node tunnel alone, to the same ``sshd`` |
| idle-100, idle-2 | ``gopeer v1-proxy`` and ``v1-agent``, with a pool of 100 or 2 idle connections |
| tunnel, tunnel-wss | Tower's tunnel alone: users without TLS and credentials, as in the peers |
| tower-unobserved | the product without measurements of requests |
| tower, tower-wss | the product: users' TLS, authentication, the agent's checks, TLS to the API server |
| tower-native, tower-pure | the product with compiled modules, and with all modules in Python |
| tower-old-native, tower-old-pure | the same with an old agent |
| node-native, node-pure | node with compiled modules, and with all modules in Python |
| tower-access | the product with an access log |
| tower-door | the product with users' certificates, an OIDC provider and one access policy |
| tower-policies | the same with 1,000 access policies |
| tower-rules, tower-audited | the same, and with 10,000 bindings of RBAC; and with an audit log |
| tower-audited-once | the same without the stage ``RequestReceived`` |
| tower-audited-pipe | the same, with the log on standard output, a pipe |
| tower-host | the product with its records in a host cluster, a real kube-apiserver |
| link, tower-far | the backend, and the product's agent, behind 100 ms RTT and 1 Gbit/s |
| old-100, old-2 | ``gopeer`` as idle-100 and idle-2, with the libraries of deployed proxies and agents |
| tower-old, tower-old-far | the product with an old agent, without and with the link |
| old-2-ours | an old proxy with Tower's agent |
| …-kube | the same with a real kube-apiserver as the backend |
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path

from benchmarks import gopeer, openssh, wan
from benchmarks.directory import POLICIES, Directory
from benchmarks.member import Member
from benchmarks.processes import ROOT, NotHere
from benchmarks.product import TWISTD, Product, on_old_proxy, tunnel
from benchmarks.setting import Ground, System, http_way, https_way, stream_way
from tower.native import NotNative, load


class Systems:
    """The running systems, started on demand.

    :param folder: an empty directory.
    :param stack: stops the systems.
    :ivar missing: reasons why systems are not available, by name.
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
        """The shared environment with the backend."""
        return Ground(self.folder, self._stack)

    @cached_property
    def product(self) -> Product:
        """The product with its one proxy."""
        return Product(self.ground)

    @cached_property
    def unobserved(self) -> Product:
        """The product, with a proxy that does not measure requests."""
        program = (sys.executable, "-m", "benchmarks.unobserved")
        return Product(self.ground, "tower-unobserved", program)

    def version(self, name: str, native: str) -> System:
        """Return the product with the modules that ``TOWER_NATIVE``, set to *native*, selects.

        :raise NotHere: they are not compiled.
        """
        return self._version(name, native).cluster(name, name, self.ground.backend)

    def old_version(self, name: str, native: str) -> System:
        """Return the same with an old agent."""
        return self._version(name, native).old_cluster(name, name, self.ground.backend)

    def node_version(self, name: str, native: str) -> System:
        """Return the node tunnel alone with the modules that ``TOWER_NATIVE`` selects."""
        _check_compiled()
        return openssh.node_tunnel(self.ground, name, self.node, native)

    def _version(self, name: str, native: str) -> Product:
        _check_compiled()
        return Product(self.ground, f"{name}-proxy", native=native)

    @cached_property
    def logging_product(self) -> Product:
        """The product with an access log."""
        options = (f"--access-log={self.folder / 'access.log'}",)
        return Product(self.ground, "tower-proxy-access", options=options)

    @cached_property
    def directory(self) -> Directory:
        """The users of an organization, and its rules."""
        return Directory(self.ground)

    def door(
        self, name: str, policies: int = POLICIES, *options: str, program: tuple[str, ...] = (TWISTD,)
    ) -> System:
        """Return the product with the directory's users, and *options*; *program* runs ``twistd``."""
        product = Product(self.ground, f"{name}-proxy", program, (*self.directory.options, *options))
        system = product.cluster(name, name, self.ground.backend)
        return product.open_to(system, name, self.directory, policies)

    @cached_property
    def hosted_product(self) -> Product:
        """The product with its records in a host cluster."""
        return Product(self.ground, "tower-proxy-host", options=self.member.host())

    @cached_property
    def member(self) -> Member:
        """The real API server."""
        return Member(self.ground)

    @cached_property
    def node(self) -> openssh.Server:
        """An ``sshd`` with default ciphers."""
        return openssh.Server(self.ground, "sshd-node")

    @cached_property
    def gcm_node(self) -> openssh.Server:
        """An ``sshd`` with the cipher of Tower's agent tunnels."""
        return openssh.Server(self.ground, "sshd-node-gcm", openssh.GCM)

    def start(self, names: Iterable[str]) -> None:
        """Start systems; those that are not installed are added to `missing`.

        :raise BenchmarkFailed: a system does not run.
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
        """Return the current resident memory of the parts, MiB, by system."""
        return {
            name: {part: program.memory for part, program in system.parts.items()}
            for name, system in self._running.items()
        }


def _check_compiled() -> None:
    """Check that the compiled modules are there.

    :raise NotHere: they are not.
    """
    try:
        load(ROOT)
    except NotNative as e:
        raise NotHere(f"{e}; run make native") from e


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


def _audited(systems: Systems, name: str, *options: str) -> System:
    log = f"--audit-log-path={systems.folder / f'{name}.log'}"
    return systems.door(name, POLICIES, *systems.directory.rules, log, *options)


def _audited_once(systems: Systems, name: str) -> System:
    """Return the product with one event for each request: its policy omits ``RequestReceived``."""
    policy = systems.folder / "audit-policy.yaml"
    rules = "omitStages: [RequestReceived]\nrules: [{level: Metadata}]\n"
    policy.write_text(f"apiVersion: audit.k8s.io/v1\nkind: Policy\n{rules}")
    return _audited(systems, name, f"--audit-policy-file={policy}")


def _audited_pipe(systems: Systems, name: str) -> System:
    """Return the product with its log in a pipe that another program reads."""
    pipe = systems.folder / f"{name}.pipe"
    os.mkfifo(pipe)
    systems.ground.start(f"{name}-reader", "dd", f"if={pipe}", "of=/dev/null", "bs=64K")
    program = ("/bin/sh", "-c", 'exec "$0" "$@" > ' + shlex.quote(str(pipe)), TWISTD)
    return systems.door(name, POLICIES, *systems.directory.rules, "--audit-log-path=-", program=program)


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
    "tower-unobserved": lambda systems: systems.unobserved.cluster(
        "tower-unobserved", "zeta", systems.ground.backend
    ),
    "tower-native": lambda systems: systems.version("tower-native", "1"),
    "tower-pure": lambda systems: systems.version("tower-pure", "0"),
    "tower-old-native": lambda systems: systems.old_version("tower-old-native", "1"),
    "tower-old-pure": lambda systems: systems.old_version("tower-old-pure", "0"),
    "node-native": lambda systems: systems.node_version("node-native", "1"),
    "node-pure": lambda systems: systems.node_version("node-pure", "0"),
    "tower-wss": lambda systems: systems.product.cluster(
        "tower-wss", "beta", systems.ground.backend, secure=True
    ),
    "tower-access": lambda systems: systems.logging_product.cluster(
        "tower-access", "delta", systems.ground.backend
    ),
    "tower-door": lambda systems: systems.door("tower-door", 1),
    "tower-policies": lambda systems: systems.door("tower-policies"),
    "tower-rules": lambda systems: systems.door("tower-rules", POLICIES, *systems.directory.rules),
    "tower-audited": lambda systems: _audited(systems, "tower-audited"),
    "tower-audited-once": lambda systems: _audited_once(systems, "tower-audited-once"),
    "tower-audited-pipe": lambda systems: _audited_pipe(systems, "tower-audited-pipe"),
    "tower-host": lambda systems: systems.hosted_product.cluster(
        "tower-host", "theta", systems.ground.backend
    ),
    "link": lambda systems: wan.direct(systems.ground),
    "tower-far": lambda systems: wan.tower(systems.ground, systems.product),
    "direct-kube": lambda systems: systems.member.direct(),
    "idle-100-kube": lambda systems: _v1_kube(systems, 100),
    "idle-2-kube": lambda systems: _v1_kube(systems, 2),
    "tower-kube": _tower_kube,
}

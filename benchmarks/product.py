"""Tower: the product, and its tunnel alone."""

from __future__ import annotations

import base64
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import yaml

from benchmarks import gopeer
from benchmarks.directory import Directory, admit
from benchmarks.processes import LOOPBACK, BenchmarkFailed, Process, free_port, free_ports, listens, run
from benchmarks.setting import Ground, System, Upstream, http_way, https_way, stream_way
from tower.native import VARIABLE

#: The program that runs proxy and agent.
TWISTD = str(Path(sys.executable).parent / "twistd")
_FOREGROUND = ("-n", "--pidfile=", "--reactor=tower")
_TOWER = [sys.executable, "-c", "from tower.cli import main; main()"]

#: Number of cluster ports of the proxy.
_CLUSTERS = 6


def _agent(
    ground: Ground,
    name: str,
    arguments: list[str],
    token: str,
    upstream: Upstream,
    *,
    targets: bool = True,
    extra: dict[str, str] | None = None,
) -> Process:
    """Start an agent with *upstream* as its API server; return when its tunnel is up.

    :param targets: whether the agent also has targets for the backend's raw streams and HTTP.
    :param extra: environment variables.
    """
    others = [f"--target=stream={LOOPBACK}:{ground.stream}", f"--target=http={LOOPBACK}:{ground.http}"]
    server = {
        "server": f"https://{LOOPBACK}:{upstream.port}",
        "certificate-authority": str(upstream.authority),
    }
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "member", "cluster": server}],
        "users": [{"name": "agent", "user": {"token": upstream.token}}],
        "contexts": [{"name": "member", "context": {"cluster": "member", "user": "agent"}}],
        "current-context": "member",
    }
    agent = ground.start(
        name,
        TWISTD,
        *_FOREGROUND,
        "tower-agent",
        *arguments,
        f"--state-dir={ground.folder / name}",
        f"--kubeconfig={ground.write(f'{name}.kubeconfig', yaml.safe_dump(config).encode())}",
        *(others if targets else ()),
        extra={"TOWER_TOKEN": token, **(extra or {})},
    )
    agent.wait_until(lambda: "connected to" in agent.said(), "its tunnel")
    return agent


def tunnel(ground: Ground, name: str, *, secure: bool = False) -> System:
    """Return Tower's tunnel alone; see `benchmarks.tunnel`.

    :param secure: the agent dials ``wss``.
    """
    agents, stream, http = free_port(), free_port(), free_port()
    proxy = ground.start(
        f"{name}-proxy",
        *(sys.executable, "-m", "benchmarks.tunnel", f"--agents={agents}"),
        *(ground.pair("--cert=", "--key=") if secure else ()),
        f"stream={stream}",
        f"http={http}",
    )
    proxy.wait_until(lambda: all(map(listens, (agents, stream, http))), "its ports")
    proxy.wait_until(lambda: len(proxy.said().split()) == 2, "its join token")
    token, fingerprint = proxy.said().split()
    arguments = [
        "--name=alpha",
        f"--proxy-server={'wss' if secure else 'ws'}://{LOOPBACK}:{agents}",
        f"--host-key={fingerprint}",
        *([f"--ca-cert={ground.authority}"] if secure else ()),
    ]
    agent = _agent(ground, f"{name}-agent", arguments, token, ground.backend)
    return System(name, stream_way(stream) | http_way(http), {"proxy": proxy, "agent": agent})


def on_old_proxy(ground: Ground, name: str, idle: int) -> System:
    """Return Tower's agent at ``gopeer v1-proxy`` with a pool of *idle* connections."""
    proxy, agents, front = gopeer.v1_proxy(ground, name, idle, ground.deployed)
    arguments = [
        "--name=alpha",
        f"--proxy-server=ws://{LOOPBACK}:{agents}",
        "--protocol=v1",
        "--insecure-v1-any-host-key",
    ]
    agent = _agent(ground, f"{name}-agent", arguments, gopeer.V1_TOKEN, ground.backend, targets=False)
    return System(name, https_way(front, ground.authority), {"proxy": proxy, "agent": agent})


class Product:
    """Tower's proxy as users run it; clusters are added to it.

    :param name: of the proxy's program, state and files.
    :param program: runs ``twistd``.
    :param options: further options of the proxy.
    :param native: value of ``TOWER_NATIVE`` for the proxy and its agents; empty: that of this process.
    """

    def __init__(
        self,
        ground: Ground,
        name: str = "tower-proxy",
        program: tuple[str, ...] = (TWISTD,),
        options: tuple[str, ...] = (),
        native: str = "",
    ) -> None:
        self._ground = ground
        self._name = name
        self._extra = {VARIABLE: native} if native else {}
        self._state = ground.folder / f"{name}-state"
        self._plain, front = free_port(), free_port()
        self._ports = list(free_ports(_CLUSTERS))
        self._proxy = ground.start(
            name,
            *program,
            *_FOREGROUND,
            "tower-proxy",
            f"--state-dir={self._state}",
            f"--host={LOOPBACK}",
            f"--port={self._plain}",
            f"--secure-port={front}",
            f"--cluster-ports={self._ports[0]}-{self._ports[-1]}",
            *options,
            extra=self._extra,
        )
        self._proxy.wait_until(lambda: listens(front), "its ports")

    def cluster(
        self,
        system: str,
        name: str,
        upstream: Upstream,
        *,
        secure: bool = False,
        far: Callable[[int], int] = lambda port: port,
    ) -> System:
        """Return the product with a new cluster and its agent, for a user of the group dev.

        :param secure: the agent dials ``wss``.
        :param far: maps the proxy's port to the port that an agent without TLS dials.
        """
        self._ask("cluster", "add", name)
        port = self._ports.pop(0)
        words = shlex.split(self._ask("join", name, "--format=env"))
        token = words[1].partition("=")[2]
        arguments = words[words.index("tower-agent") + 1 :]
        if not secure:
            given = dict(zip(arguments[::2], arguments[1::2], strict=True))
            del given["--ca-hash"]
            given["--proxy-server"] = f"ws://{LOOPBACK}:{far(self._plain)}"
            arguments = [word for pair in given.items() for word in pair]
        agent = _agent(self._ground, f"{system}-agent", arguments, token, upstream, extra=self._extra)
        return System(system, self._ways(name, port), {"proxy": self._proxy, "agent": agent})

    def open_to(self, system: System, name: str, directory: Directory, policies: int) -> System:
        """Return *system*, the cluster *name*, for users of a directory, too, as access policies admit them.

        :param policies: number of access policies.
        """
        admit(self._state / "admin.kubeconfig", name, policies)
        credential = system.ways["https"][1]
        front = system.ways["https"][0]
        system.ways["oidc"] = [front, credential, f"-bearer-file={directory.bearer}"]
        certificate, key = directory.pair
        system.ways["x509"] = [front, credential, f"-cert={certificate}", f"-key={key}"]
        return system

    def old_cluster(
        self, system: str, name: str, upstream: Upstream, *, far: Callable[[int], int] = lambda port: port
    ) -> System:
        """Return the product with an old agent; see `cluster`."""
        self._ask("cluster", "add", name)
        port = self._ports.pop(0)
        words = shlex.split(self._ask("join", name, "--protocol=v1"))
        token = words[words.index("--token") + 1]
        ground = self._ground
        agent = gopeer.v1_agent(ground, system, far(self._plain), name, token, upstream, ground.deployed)
        return System(system, self._ways(name, port), {"proxy": self._proxy, "agent": agent})

    def _ways(self, name: str, port: int) -> dict[str, list[str]]:
        """Return load generator arguments for a user of the group dev; *port* is the cluster's own."""
        front, credential = self.user(name, "jane")
        return {
            "stream": [f"-stream={front}/targets/stream", *credential],
            "http": [f"-stream={front}/targets/http", *credential],
            "https": [f"-url={front}/", *credential],
            "port": [f"-url=https://{LOOPBACK}:{port}/", *credential],
        }

    def user(self, cluster: str, user: str) -> tuple[str, list[str]]:
        """Return a cluster's URL and load generator arguments for a user of the group dev."""
        options = (f"--user={user}", "--group=dev", "--auth=token")
        config = yaml.safe_load(self._ask("kubeconfig", cluster, *options))
        name = f"{self._name}-{cluster}-{user}"
        bearer = self._ground.write(f"{name}.bearer", config["users"][0]["user"]["token"].encode())
        shown = base64.b64decode(config["clusters"][0]["cluster"]["certificate-authority-data"])
        authority = self._ground.write(f"{name}.front.crt", shown)
        front: str = config["clusters"][0]["cluster"]["server"]
        return front, [f"-ca={authority}", f"-bearer-file={bearer}"]

    def _ask(self, *words: str) -> str:
        done = run([*_TOWER, f"--state-dir={self._state}", *words])
        if done.returncode:
            raise BenchmarkFailed(f"tower {' '.join(words)}: {done.stderr.strip()}")
        return done.stdout

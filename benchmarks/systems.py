"""What is measured: ways to one backend.  All of them are up at the same time.

| system | what |
|---|---|
| direct | the backend itself |
| peer | ``gopeer``: SSH in a WebSocket in Go; `forward` for raw streams, `v1-proxy` and `v1-agent` for HTTP |
| tunnel | Tower's tunnel alone: users' streams come without TLS and without a credential, as the peer's do |
| tower | the product: users' TLS, authentication, the agent's checks and its TLS to the API server |
"""

from __future__ import annotations

import base64
import os
import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.x509.oid import NameOID

from benchmarks.processes import (
    LOOPBACK,
    BenchmarkFailed,
    Process,
    build,
    free_port,
    free_ports,
    listens,
    run,
)
from tower.pki import self_signed

CLUSTER = "alpha"
SECURE_CLUSTER = "beta"

_TWISTD = [str(Path(sys.executable).parent / "twistd"), "-n", "--pidfile="]
_TOWER = [sys.executable, "-c", "from tower.cli import main; main()"]
_TOKEN = "the-backend-takes-any-token"


@dataclass
class System:
    """One way to the backend.

    :ivar ways: what the load generator needs to use it, by kind: ``stream``, ``http``, ``https``, ``port``.
    :ivar proxy: the program in the middle, if there is one.
    :ivar agent: the program beside the backend, if there is one.
    """

    name: str
    ways: dict[str, list[str]]
    proxy: Process | None = None
    agent: Process | None = None


@dataclass
class Setting:
    """Everything that runs.

    :ivar load: path of the load generator.
    :ivar idle: resident memory of proxy and agent before any load, MiB, by system.
    """

    load: Path
    systems: dict[str, System] = field(default_factory=dict)
    idle: dict[str, tuple[float, float]] = field(default_factory=dict)


class _Builder:
    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self.load = build("load")
        self._peer = build("peers/gopeer", "-modfile=latest.mod")
        self._certify()
        self._stream, self._http, self._https = free_port(), free_port(), free_port()
        backend = self._start(
            "backend",
            str(self.load),
            "backend",
            f"-stream={LOOPBACK}:{self._stream}",
            f"-http={LOOPBACK}:{self._http}",
            f"-https={LOOPBACK}:{self._https}",
            *self._pair("-cert=", "-key="),
        )
        backend.wait_until(lambda: all(map(listens, (self._stream, self._http, self._https))), "its ports")

    def _start(self, name: str, *argv: str, extra: dict[str, str] | None = None) -> Process:
        process = Process(name, argv, self._folder, extra)
        self._stack.callback(process.stop)
        return process

    def _certify(self) -> None:
        """Make an authority, and a certificate that the backend and the peer's front share."""
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "benchmarks")])
        authority = self_signed(name, 86400.0, time.time())
        issued = authority.server_certificate([LOOPBACK, "localhost"], 86400.0, time.time())
        self._authority = self._write("ca.crt", authority.pem)
        self._write("server.crt", issued.certificate_pem)
        self._write("server.key", issued.key_pem)

    def _write(self, name: str, content: bytes) -> Path:
        path = self._folder / name
        path.touch(0o600)
        path.write_bytes(content)
        return path

    def _pair(self, certificate: str, key: str) -> list[str]:
        return [f"{certificate}{self._folder / 'server.crt'}", f"{key}{self._folder / 'server.key'}"]

    def direct(self) -> System:
        """Return the backend itself."""
        return System("direct", self._plain_ways(self._stream, self._http) | self._secure_way(self._https))

    def _plain_ways(self, stream: int, http: int) -> dict[str, list[str]]:
        return {
            "stream": [f"-address={LOOPBACK}:{stream}"],
            "http": [f"-url=http://{LOOPBACK}:{http}/"],
        }

    def _secure_way(self, port: int) -> dict[str, list[str]]:
        return {"https": [f"-url=https://{LOOPBACK}:{port}/", f"-ca={self._authority}"]}

    def forward(self, name: str, kind: str, *, secure: bool = False) -> System:
        """Return ``gopeer forward`` to the backend's port for *kind*, ``stream`` or ``http``."""
        agents, remote = free_port(), free_port()
        local = self._stream if kind == "stream" else self._http
        server = self._start(
            f"{name}-server",
            str(self._peer),
            "forward-server",
            f"-listen={LOOPBACK}:{agents}",
            *(self._pair("-cert=", "-key=") if secure else ()),
        )
        server.wait_until(lambda: listens(agents), "its port")
        client = self._start(
            f"{name}-client",
            str(self._peer),
            "forward-client",
            f"-server={'wss' if secure else 'ws'}://{LOOPBACK}:{agents}",
            f"-remote={LOOPBACK}:{remote}",
            f"-local={LOOPBACK}:{local}",
            extra={"SSL_CERT_FILE": str(self._authority)},
        )
        client.wait_until(lambda: "forwarding" in client.said(), "its tunnel")
        return System(name, {kind: self._plain_ways(remote, remote)[kind]}, server, client)

    def v1(self, name: str, idle: int) -> System:
        """Return ``gopeer v1-proxy`` with a pool of *idle* connections, and its agent."""
        agents, front = free_port(), free_port()
        proxy = self._start(
            f"{name}-proxy",
            str(self._peer),
            "v1-proxy",
            f"-listen={LOOPBACK}:{agents}",
            f"-kubernetes-port={front}",
            f"-kubesphere-port={free_port()}",
            "-name=alpha",
            "-token=token",
            f"-idle={idle}",
            *self._pair("-cert=", "-key="),
        )
        proxy.wait_until(lambda: listens(agents) and listens(front), "its ports")
        agent = self._start(
            f"{name}-agent",
            str(self._peer),
            "v1-agent",
            f"-proxy-server=http://{LOOPBACK}:{agents}",
            "-name=alpha",
            "-token=token",
            f"-kubernetes-service={LOOPBACK}:{self._https}",
            f"-ca-file={self._authority}",
            f"-bearer-token-file={self._write('token', _TOKEN.encode())}",
        )
        agent.wait_until(lambda: "connected to" in agent.said(), "its tunnel")
        return System(name, self._secure_way(front), proxy, agent)

    def _member(self) -> Path:
        """Return a kubeconfig with which an agent reaches the backend as if it were an API server."""
        server = {
            "server": f"https://{LOOPBACK}:{self._https}",
            "certificate-authority": str(self._authority),
        }
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "backend", "cluster": server}],
            "users": [{"name": "agent", "user": {"token": _TOKEN}}],
            "contexts": [{"name": "backend", "context": {"cluster": "backend", "user": "agent"}}],
            "current-context": "backend",
        }
        return self._write("member.kubeconfig", yaml.safe_dump(config).encode())

    def _agent(self, name: str, arguments: list[str], token: str) -> Process:
        agent = self._start(
            name,
            *_TWISTD,
            "tower-agent",
            *arguments,
            f"--state-dir={self._folder / name}",
            f"--kubeconfig={self._member()}",
            f"--target=stream={LOOPBACK}:{self._stream}",
            f"--target=http={LOOPBACK}:{self._http}",
            extra={"TOWER_TOKEN": token},
        )
        agent.wait_until(lambda: "connected to" in agent.said(), "its tunnel")
        return agent

    def tunnel(self) -> System:
        """Return Tower's tunnel with nothing around it; see `benchmarks.tunnel`."""
        agents, stream, http = free_port(), free_port(), free_port()
        ports = [f"stream={stream}", f"http={http}"]
        proxy = self._start("tunnel-proxy", sys.executable, "-m", "benchmarks.tunnel", str(agents), *ports)
        proxy.wait_until(lambda: all(map(listens, (agents, stream, http))), "its ports")
        proxy.wait_until(lambda: len(proxy.said().split()) == 2, "its join token")
        token, fingerprint = proxy.said().split()
        server = f"--proxy-server=ws://{LOOPBACK}:{agents}"
        agent = self._agent("tunnel-agent", [f"--name={CLUSTER}", server, f"--host-key={fingerprint}"], token)
        return System("tunnel", self._plain_ways(stream, http), proxy, agent)

    def tower(self) -> tuple[System, System]:
        """Return the product, with an agent that dials without TLS and another that dials with it."""
        self._state = self._folder / "state"
        self._plain, self._secure = free_port(), free_port()
        clusters = free_ports(2)
        proxy = self._start(
            "tower-proxy",
            *_TWISTD,
            "tower-proxy",
            f"--state-dir={self._state}",
            f"--host={LOOPBACK}",
            f"--port={self._plain}",
            f"--secure-port={self._secure}",
            f"--cluster-ports={clusters[0]}-{clusters[-1]}",
        )
        proxy.wait_until(lambda: listens(self._secure), "its ports")
        return (
            self._cluster("tower", CLUSTER, proxy, clusters[0], secure=False),
            self._cluster("tower-wss", SECURE_CLUSTER, proxy, clusters[1], secure=True),
        )

    def _cluster(self, system: str, name: str, proxy: Process, port: int, *, secure: bool) -> System:
        self._ask("cluster", "add", name)
        words = shlex.split(self._ask("join", name))
        token = words[1].partition("=")[2]
        arguments = words[words.index("tower-agent") + 1 :]
        if not secure:
            given = dict(zip(arguments[::2], arguments[1::2], strict=True))
            del given["--ca-hash"]
            given["--proxy-server"] = f"ws://{LOOPBACK}:{self._plain}"
            arguments = [word for pair in given.items() for word in pair]
        agent = self._agent(f"{system}-agent", arguments, token)
        config = yaml.safe_load(self._ask("kubeconfig", name, "--user=jane", "--group=dev", "--auth=token"))
        bearer = self._write(f"{name}.token", config["users"][0]["user"]["token"].encode())
        shown = base64.b64decode(config["clusters"][0]["cluster"]["certificate-authority-data"])
        credential = [f"-ca={self._write('front.crt', shown)}", f"-bearer-file={bearer}"]
        front = config["clusters"][0]["cluster"]["server"]
        ways = {
            "stream": [f"-stream={front}/targets/stream", *credential],
            "http": [f"-stream={front}/targets/http", *credential],
            "https": [f"-url={front}/", *credential],
            "port": [f"-url=https://{LOOPBACK}:{port}/", *credential],
        }
        return System(system, ways, proxy, agent)

    def _ask(self, *words: str) -> str:
        done = run([*_TOWER, f"--state-dir={self._state}", *words])
        if done.returncode:
            raise BenchmarkFailed(f"tower {' '.join(words)}: {done.stderr.strip()}")
        return done.stdout


@contextmanager
def running(folder: Path) -> Iterator[Setting]:
    """Start everything in *folder*, and end it afterwards.

    :raise BenchmarkFailed: something does not run.
    """
    os.umask(0o077)
    with ExitStack() as stack:
        builder = _Builder(folder, stack)
        setting = Setting(builder.load)
        tower, tower_wss = builder.tower()
        for system in (
            builder.direct(),
            builder.forward("peer", "stream"),
            builder.forward("peer-http", "http"),
            builder.forward("peer-wss", "stream", secure=True),
            builder.v1("peer-100", 100),
            builder.v1("peer-2", 2),
            builder.tunnel(),
            tower,
            tower_wss,
        ):
            setting.systems[system.name] = system
            if system.proxy is not None and system.agent is not None:
                setting.idle[system.name] = (system.proxy.memory, system.agent.memory)
        yield setting

"""A thousand agents that connect at once, and the memory of each while idle: Tower and the Go peer.

``python -m benchmarks.storm`` prints one line of JSON for each round and proxy.  The same Go program
simulates all agents: tower-v2 agents with a cluster and an enrolled key each, as after a restart of the
proxy, and kubesphere-v1 agents of the one cluster that the peer's proxy has.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from threading import Timer

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from benchmarks.processes import (
    LOOPBACK,
    BenchmarkFailed,
    Process,
    build,
    environment,
    free_port,
    listens,
)
from tower.clusters import Clusters
from tower.clusters.condition_types import AGENT_AVAILABLE
from tower.clusters.join_tokens import JoinTokens
from tower.conch.transport.keys import KeyPair, load_or_create
from tower.rotation.serving_ca import load_serving_ca
from tower.store import MemoryStore
from tower.store.records import Create
from tower.store.sqlite_file import SQLiteFile
from tower.trust.statedir import StateDir

#: Connected agents when memory is read first; by then, one-time allocations are done.
FIRST = 200

#: Wait before memory and connections are measured, s.
SETTLE = 1.0

#: Time limit of one storm, s.
_PATIENCE = 60.0

_TWISTD = (str(Path(sys.executable).parent / "twistd"), "-n", "--pidfile=", "--reactor=tower")
_CLUSTER, _TOKEN = "storm", "token"


@dataclass(frozen=True)
class Storm:
    """Measurements of one round.

    :ivar rate: connects per second, from the first to the last.
    :ivar p99: 99th percentile of the duration of a connect, ms.
    :ivar cpu: CPU of the proxy per connect, ms.
    :ivar memory: KiB per idle agent: slope of the proxy's resident memory from `FIRST` agents to all.
    :ivar resident: resident memory of the proxy with all agents, MiB.
    """

    rate: float
    p99: float
    cpu: float
    memory: float
    resident: float


@dataclass(frozen=True)
class Enrolled:
    """A state directory with enrolled agents.

    :ivar state: the directory.
    :ivar agents: file with a line for each agent: its cluster, and the seed of its key in hexadecimal.
    :ivar host_key: fingerprint of the proxy's host key.
    """

    state: Path
    agents: Path
    host_key: str


def enrol(folder: Path, count: int) -> Enrolled:
    """Create a state directory in *folder* with *count* clusters, each with one enrolled agent."""
    state = StateDir(folder / "state")
    host_key = load_or_create(state, "ssh_host_ed25519_key").fingerprint
    clock = Clock()
    clock.advance(time.time())
    load_serving_ca(state, clock.seconds())
    state.close()
    store = MemoryStore()
    clusters, tokens = Clusters(store, None, clock), JoinTokens(store, clock)
    lines = []

    async def enrol_one(name: str) -> None:
        private = Ed25519PrivateKey.generate()
        key = KeyPair(private)
        await clusters.add(name)
        await tokens.enrol(name, await tokens.mint(name), key.fingerprint, key.blob)
        await clusters.set_condition(name, AGENT_AVAILABLE, "True", "AgentConnected", "Connected earlier.")
        lines.append(f"{name} {private.private_bytes_raw().hex()}\n")

    for number in range(count):
        Deferred.fromCoroutine(enrol_one(f"{_CLUSTER}-{number}"))
    if len(lines) < count:
        raise BenchmarkFailed("the agents could not be enrolled")
    file = SQLiteFile(str(state.path / "tower.db"), 1 << 30)
    file.load()
    records = [record for kind in ("clusters", "agentkeys") for record in store.snapshot(kind).values()]
    outcome = file.write([Create(record.kind, record.name, record.value) for record in records])
    file.close()
    if outcome.error is not None:
        raise outcome.error
    agents = folder / "agents"
    agents.touch(0o600)
    agents.write_text("".join(lines))
    return Enrolled(state.path, agents, host_key)


class Stage:
    """Runs storms against proxies of both kinds, one at a time.

    :param folder: an empty directory.
    :param count: number of agents.
    :param concurrency: number of agents that connect in parallel.
    """

    def __init__(self, folder: Path, count: int = 1000, concurrency: int = 64) -> None:
        self._folder = folder
        self._count = count
        self._concurrency = concurrency
        self._peer = build("tests/integration/gopeer", "-modfile=latest.mod")
        self._enrolled = enrol(folder, count)

    def tower(self, *, secure: bool = False) -> Storm:
        """Connect the agents to Tower, at its unencrypted port or its TLS port."""
        port, front = free_port(), free_port()
        enrolled = self._enrolled
        proxy = Process(
            "tower",
            [
                *_TWISTD,
                "tower-proxy",
                f"--state-dir={enrolled.state}",
                f"--host={LOOPBACK}",
                f"--port={port}",
                f"--secure-port={front}",
                "--cluster-ports=none",
            ],
            self._folder,
        )
        url = f"wss://{LOOPBACK}:{front}" if secure else f"ws://{LOOPBACK}:{port}"
        who = [f"-enrolled={enrolled.agents}", f"-host-key={enrolled.host_key}"]
        try:
            proxy.wait_until(lambda: listens(front), "its ports")
            return self._measure(proxy, url, who)
        finally:
            proxy.stop()

    def peer(self) -> Storm:
        """Connect the agents to ``gopeer v1-proxy``."""
        port = free_port()
        proxy = Process(
            "peer",
            [
                *(str(self._peer), "v1-proxy", f"-listen={LOOPBACK}:{port}"),
                *(f"-kubernetes-port={free_port()}", f"-kubesphere-port={free_port()}"),
                *(f"-name={_CLUSTER}", f"-token={_TOKEN}"),
            ],
            self._folder,
        )
        try:
            proxy.wait_until(lambda: listens(port), "its port")
            return self._measure(proxy, f"ws://{LOOPBACK}:{port}", [f"-name={_CLUSTER}", f"-token={_TOKEN}"])
        finally:
            proxy.stop()

    def _measure(self, proxy: Process, url: str, who: list[str]) -> Storm:
        """Measure the memory of *proxy* with few and with all agents, then a storm."""
        with ExitStack() as stack:
            stack.enter_context(self._agents(url, who, FIRST))
            time.sleep(SETTLE)
            few = proxy.memory
            stack.enter_context(self._agents(url, who, self._count - FIRST, FIRST))
            time.sleep(SETTLE)
            all_of_them = proxy.memory
        time.sleep(SETTLE)
        before = proxy.cpu
        with self._agents(url, who, self._count) as said:
            cpu = proxy.cpu - before
        return Storm(
            said["per_second"],
            said["p99_ms"],
            1e3 * cpu / self._count,
            1024 * (all_of_them - few) / (self._count - FIRST),
            all_of_them,
        )

    @contextmanager
    def _agents(self, url: str, who: list[str], count: int, skip: int = 0) -> Iterator[dict[str, float]]:
        """Connect agents, and keep them connected during the body of the ``with`` statement.

        :raise BenchmarkFailed: not all of them connect.
        """
        argv = [str(self._peer), "storm", f"-url={url}", *who, f"-n={count}", "-hold=0"]
        argv += [f"-concurrency={self._concurrency}"]
        if skip:
            argv.append(f"-skip={skip}")
        with subprocess.Popen(
            argv,
            env=environment({"SSL_CERT_FILE": str(self._enrolled.state / "serving-ca.pem")}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as storm:
            assert storm.stdin is not None
            assert storm.stdout is not None
            assert storm.stderr is not None
            ended = Timer(_PATIENCE, storm.kill)
            ended.start()
            try:
                line = storm.stdout.readline()
                if not line:
                    raise BenchmarkFailed(f"gopeer storm failed: {storm.stderr.read()[-300:]}")
                said: dict[str, float] = json.loads(line)
                if said["failed"]:
                    raise BenchmarkFailed(f"{said['failed']} of {count} agents did not connect")
                ended.cancel()
                yield said
            finally:
                ended.cancel()
                storm.stdin.close()
                storm.wait()


def main() -> None:
    """Run interleaved rounds and print each."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.storm", description=__doc__)
    parser.add_argument("--agents", type=int, default=1000)
    parser.add_argument("--at-once", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=("tower", "tower-wss", "peer"))
    given = parser.parse_args()
    os.umask(0o077)
    with tempfile.TemporaryDirectory(prefix="tower-storm-") as folder:
        stage = Stage(Path(folder), given.agents, given.at_once)
        rounds: dict[str, Callable[[], Storm]] = {
            "peer": stage.peer,
            "tower": stage.tower,
            "tower-wss": partial(stage.tower, secure=True),
        }
        for _ in range(given.rounds):
            for name, measure in rounds.items():
                if given.only in {None, name}:
                    sys.stdout.write(json.dumps({"proxy": name, **asdict(measure())}) + "\n")
                    sys.stdout.flush()


if __name__ == "__main__":
    main()

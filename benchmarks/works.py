"""The workloads and the numbers that they measure."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from threading import Timer
from typing import Protocol

from benchmarks.processes import BenchmarkFailed, environment, run
from benchmarks.setting import System
from benchmarks.storm import Stage
from benchmarks.systems import Systems

GIB = float(2**30)

#: Time limit of a run of the load generator beyond its planned duration, s.
SLACK = 120.0

#: How long a background download runs before the first request and after the last one, s.
HEAD_START = 0.3

#: Results of one run, by name: ``rate``, ``p99``, CPU of ``proxy``, ``agent`` and ``server``, ...
Numbers = Mapping[str, float]


@dataclass(frozen=True)
class Size:
    """Size of each run.

    :ivar seconds: duration of requests, s.
    :ivar octets: size of bulk transfers, B.
    :ivar watching: duration of watches, s.
    :ivar agents: number of agents that connect at once.
    """

    seconds: float
    octets: int
    watching: float
    agents: int


@dataclass(frozen=True)
class Column:
    """One column of a table: a system and a path through it.

    :ivar system: name of the system; empty if the workload starts its own.
    :ivar kind: the key of `System.ways`.
    """

    label: str
    system: str
    kind: str


class Work(Protocol):
    """A workload that runs on several systems."""

    @property
    def units(self) -> Mapping[str, str]:
        """Units of its numbers, the most important number first."""

    def run(self, systems: Systems, column: Column, size: Size) -> Numbers:
        """Run once and return the numbers.

        :raise BenchmarkFailed: the run failed.
        """


@dataclass(frozen=True)
class Load:
    """One run of the load generator; CPU is per unit of work.

    :ivar arguments: with the placeholders ``{octets}`` and ``{seconds}`` for the size, and ``{far}`` for
        four times as many bytes, for transfers with a long ramp-up.
    """

    arguments: tuple[str, ...]

    @property
    def units(self) -> Mapping[str, str]:
        """See `Work.units`."""
        cost = "s/GiB" if self._is_bulk else "µs/request"
        rate = {"rate": "MB/s"} if self._is_bulk else {"rate": "requests/s", "p50": "µs", "p99": "µs"}
        return {**rate, "proxy": cost, "agent": cost, "server": cost}

    @property
    def _is_bulk(self) -> bool:
        return self.arguments[0] != "requests"

    def run(self, systems: Systems, column: Column, size: Size) -> Numbers:
        """See `Work.run`."""
        system = systems[column.system]
        before = _cpu(system)
        said = _load(systems, [*_filled(self.arguments, size), *system.ways[column.kind]])
        done = said["bytes"] / GIB if self._is_bulk else said["requests"] / 1e6
        return {**said, **{part: (now - before[part]) / done for part, now in _cpu(system).items()}}


@dataclass(frozen=True)
class Steady:
    """Requests on connections that are open, so without the cost of their handshakes."""

    arguments: tuple[str, ...]

    @property
    def units(self) -> Mapping[str, str]:
        """See `Work.units`."""
        costs = dict.fromkeys(("proxy", "agent", "server"), "µs/request")
        return {"rate": "requests/s", "p50": "µs", "p99": "µs", **costs}

    def run(self, systems: Systems, column: Column, size: Size) -> Numbers:
        """See `Work.run`."""
        system = systems[column.system]
        argv = ["requests", "-steady", *_filled(self.arguments, size), *system.ways[column.kind]]
        with _started(systems, argv) as client:
            _next_line(client)
            before = _cpu(system)
            said = _next_line(client)
            after = _cpu(system)
        done = said["requests"] / 1e6
        return {**said, **{part: (now - before[part]) / done for part, now in after.items()}}


@dataclass(frozen=True)
class Behind:
    """Requests on one connection during a download on the same path."""

    @property
    def units(self) -> Mapping[str, str]:
        """See `Work.units`."""
        return {"p99": "µs", "p50": "µs", "download": "MB/s"}

    def run(self, systems: Systems, column: Column, size: Size) -> Numbers:
        """See `Work.run`."""
        way = systems[column.system].ways[column.kind]
        with _download(systems, way, size.seconds + 2 * HEAD_START) as download:
            said = _load(systems, ["requests", "-connections=1", f"-for={size.seconds}s", *way])
        return {**said, "download": download["rate"]}


@dataclass(frozen=True)
class Watches:
    """Open watches with one 1 KiB event per second each; CPU is in percent of one core."""

    count: int

    @property
    def units(self) -> Mapping[str, str]:
        """See `Work.units`."""
        return {"proxy": "% of a core", "agent": "% of a core", "p50": "µs", "p99": "µs"}

    def run(self, systems: Systems, column: Column, size: Size) -> Numbers:
        """See `Work.run`."""
        system = systems[column.system]
        argv = ["watches", f"-connections={self.count}", f"-for={size.watching}s", *system.ways[column.kind]]
        with _started(systems, argv) as client:
            _next_line(client)
            before, began = _cpu(system), time.monotonic()
            said = _next_line(client)
            after, took = _cpu(system), time.monotonic() - began
        return {**said, **{part: 100 * (now - before[part]) / took for part, now in after.items()}}


@dataclass(frozen=True)
class Storms:
    """All agents connect at once; see `benchmarks.storm`."""

    @property
    def units(self) -> Mapping[str, str]:
        """See `Work.units`."""
        return {
            "rate": "connects/s",
            "p99": "ms",
            "cpu": "ms/connect",
            "memory": "KiB/agent",
            "resident": "MiB",
        }

    def run(self, systems: Systems, column: Column, size: Size) -> Numbers:
        """See `Work.run`."""
        stage = _stage(systems.folder / "storm", size.agents)
        return vars(stage.peer() if column.kind == "peer" else stage.tower())


@cache
def _stage(folder: Path, agents: int) -> Stage:
    folder.mkdir()
    return Stage(folder, agents)


def _filled(arguments: tuple[str, ...], size: Size) -> list[str]:
    return [text.format(octets=size.octets, far=4 * size.octets, seconds=size.seconds) for text in arguments]


def _cpu(system: System) -> dict[str, float]:
    return {part: program.cpu for part, program in system.parts.items()}


def _load(systems: Systems, arguments: list[str]) -> Numbers:
    done = run([str(systems.ground.load), *arguments], timeout=SLACK)
    if done.returncode:
        raise BenchmarkFailed(done.stderr.strip()[-300:])
    said: dict[str, float] = json.loads(done.stdout)
    return said


@contextmanager
def _started(systems: Systems, arguments: list[str]) -> Iterator[subprocess.Popen[str]]:
    """Run the load generator during the body of the ``with`` statement, for at most `SLACK` s."""
    argv = [str(systems.ground.load), *arguments]
    with subprocess.Popen(
        argv, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as client:
        too_long = Timer(SLACK, client.kill)
        too_long.start()
        try:
            yield client
        finally:
            too_long.cancel()
            client.kill()


def _next_line(client: subprocess.Popen[str]) -> Numbers:
    assert client.stdout is not None
    assert client.stderr is not None
    line = client.stdout.readline()
    if not line:
        raise BenchmarkFailed(
            client.stderr.read().strip()[-300:] or "the load generator exceeded its time limit"
        )
    said: dict[str, float] = json.loads(line)
    return said


@contextmanager
def _download(systems: Systems, way: list[str], seconds: float) -> Iterator[dict[str, float]]:
    """Download during the body of the ``with`` statement; afterwards the dict has the rate.

    :raise BenchmarkFailed: the download failed.
    """
    said: dict[str, float] = {}
    with _started(systems, ["transfer", f"-bytes={1 << 40}", f"-for={seconds}s", *way]) as client:
        time.sleep(HEAD_START)
        yield said
        said.update(_next_line(client))

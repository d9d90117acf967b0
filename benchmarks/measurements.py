"""What is done to each system, and what is read off."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median

from benchmarks.processes import BenchmarkFailed, environment, run
from benchmarks.systems import Setting, System

GIB = float(2**30)

#: How much longer than planned one run of the load generator may take, s.
SLACK = 120.0

#: How long a download in the background goes on before the requests begin, and after they end, s.
HEAD_START = 0.3


@dataclass(frozen=True)
class Size:
    """How much is done in each run.

    :ivar seconds: of requests.
    :ivar octets: of bulk, B.
    """

    seconds: float
    octets: int


@dataclass(frozen=True)
class Column:
    """One way of a system.

    :ivar kind: the key of `System.ways`.
    """

    label: str
    system: str
    kind: str


@dataclass(frozen=True)
class Sample:
    """One run.

    :ivar value: what the row is about, in the row's unit.
    :ivar proxy: CPU of the proxy for each unit of work: s for a GiB, µs for a request.
    :ivar agent: the same of the agent.
    :ivar behind: rate of the download that went on at the same time, MB/s.
    """

    value: float
    proxy: float
    agent: float
    behind: float = 0.0


@dataclass(frozen=True)
class Work:
    """One row of the table.

    :ivar arguments: of the load generator; ``{octets}`` and ``{seconds}`` stand for the size.
    :ivar unit: of the value.
    :ivar field: which number of what the load generator prints is the value.
    :ivar behind: a download goes on at the same time, by the same way.
    """

    name: str
    title: str
    unit: str
    arguments: tuple[str, ...]
    field: str = "rate"
    behind: bool = False

    @property
    def is_bulk(self) -> bool:
        """Whether work is counted in bytes rather than in requests."""
        return self.arguments[0] != "requests"

    def run(self, setting: Setting, column: Column, size: Size) -> Sample:
        """Do it once.

        :raise BenchmarkFailed: the load generator says what went wrong.
        """
        system = setting.systems[column.system]
        way = system.ways[column.kind]
        filled = [text.format(octets=size.octets, seconds=size.seconds) for text in self.arguments]
        if self.behind:
            with _download(setting, way, size.seconds + 2 * HEAD_START) as download:
                said = _load(setting, [*filled, *way])
            return Sample(said[self.field], 0.0, 0.0, download["rate"])
        before = _cpu(system)
        said = _load(setting, [*filled, *way])
        proxy, agent = (now - then for now, then in zip(_cpu(system), before, strict=True))
        done = said["bytes"] / GIB if self.is_bulk else said["requests"] / 1e6
        return Sample(said[self.field], proxy / done, agent / done)


def _load(setting: Setting, arguments: list[str]) -> dict[str, float]:
    done = run([str(setting.load), *arguments], timeout=SLACK)
    if done.returncode:
        raise BenchmarkFailed(done.stderr.strip()[-300:])
    said: dict[str, float] = json.loads(done.stdout)
    return said


@contextmanager
def _download(setting: Setting, way: list[str], seconds: float) -> Iterator[dict[str, float]]:
    """Download by *way* while the body of the ``with`` statement runs; afterwards it is known how fast.

    :raise BenchmarkFailed: the download failed.
    """
    argv = [str(setting.load), "transfer", f"-bytes={1 << 40}", f"-for={seconds}s", *way]
    said: dict[str, float] = {}
    with subprocess.Popen(
        argv, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as download:
        try:
            time.sleep(HEAD_START)
            yield said
            output, errors = download.communicate(timeout=SLACK)
        finally:
            download.kill()
    if download.returncode:
        raise BenchmarkFailed(f"the download in the background: {errors.strip()[-300:]}")
    said.update(json.loads(output))


def _cpu(system: System) -> tuple[float, float]:
    return tuple(0.0 if program is None else program.cpu for program in (system.proxy, system.agent))  # type: ignore[return-value]


@dataclass(frozen=True)
class Group:
    """Rows that are done to the same columns.

    :ivar ours: label of the column that is compared.
    :ivar against: labels of the columns that it is compared with.
    """

    title: str
    columns: tuple[Column, ...]
    ours: tuple[str, ...]
    against: tuple[str, ...]
    works: tuple[Work, ...]


def _bulk(direction: str, streams: int) -> Work:
    title = f"bulk {direction}, {streams} stream{'s' if streams > 1 else ''}"
    arguments = ("bulk", f"-direction={direction}", f"-streams={streams}", "-bytes={octets}")
    return Work(f"bulk-{direction}-{streams}", title, "MB/s", arguments)


def _requests(name: str, title: str, connections: int, *more: str) -> Work:
    arguments = ("requests", f"-connections={connections}", "-for={seconds}s", *more)
    return Work(name, title, "requests/s", arguments)


def _transfer(direction: str) -> Work:
    title = "one upload" if direction == "up" else "one download"
    return Work(f"l7-{direction}", title, "MB/s", ("transfer", f"-direction={direction}", "-bytes={octets}"))


GROUPS = (
    Group(
        "Raw streams",
        (
            Column("direct", "direct", "stream"),
            Column("gopeer forward", "peer", "stream"),
            Column("Tower's tunnel", "tunnel", "stream"),
            Column("Tower", "tower", "stream"),
        ),
        ("Tower's tunnel", "Tower"),
        ("gopeer forward", "direct"),
        (_bulk("down", 1), _bulk("down", 8), _bulk("up", 1), _bulk("up", 8)),
    ),
    Group(
        "Raw streams, the agent dials wss",
        (Column("gopeer forward", "peer-wss", "stream"), Column("Tower", "tower-wss", "stream")),
        ("Tower",),
        ("gopeer forward",),
        tuple(
            Work(f"wss-{work.name}", work.title, work.unit, work.arguments)
            for work in (_bulk("down", 1), _bulk("up", 1))
        ),
    ),
    Group(
        "Small HTTP requests over raw streams",
        (
            Column("direct", "direct", "http"),
            Column("gopeer forward", "peer-http", "http"),
            Column("Tower's tunnel", "tunnel", "http"),
            Column("Tower", "tower", "http"),
        ),
        ("Tower's tunnel", "Tower"),
        ("gopeer forward", "direct"),
        (_requests("raw-1", "1 connection", 1), _requests("raw-32", "32 connections", 32)),
    ),
    Group(
        "HTTP with users' TLS, to a backend with TLS",
        (
            Column("direct", "direct", "https"),
            Column("gopeer, 100 idle", "peer-100", "https"),
            Column("gopeer, 2 idle", "peer-2", "https"),
            Column("Tower, front door", "tower", "https"),
            Column("Tower, cluster's port", "tower", "port"),
        ),
        ("Tower, front door", "Tower, cluster's port"),
        ("gopeer, 100 idle", "gopeer, 2 idle", "direct"),
        (
            _requests("l7-1", "1 KiB, 1 connection", 1),
            _requests("l7-32", "1 KiB, 32 connections", 32),
            _requests("l7-new", "a new connection for each, 32 at once", 32, "-new"),
            _transfer("down"),
            _transfer("up"),
            Work(
                "l7-behind",
                "p99 of 1 KiB behind a download (and its MB/s)",
                "µs",
                ("requests", "-connections=1", "-for={seconds}s"),
                field="p99",
                behind=True,
            ),
        ),
    ),
)


def middle(samples: list[Sample]) -> Sample:
    """Return the median of each number."""
    return Sample(
        median(sample.value for sample in samples),
        median(sample.proxy for sample in samples),
        median(sample.agent for sample in samples),
        median(sample.behind for sample in samples),
    )

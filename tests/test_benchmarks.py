"""Tests of the benchmarks' calculations and files; nothing is measured here."""

from __future__ import annotations

import base64
import time
from contextlib import ExitStack
from pathlib import Path
from subprocess import CompletedProcess
from typing import cast
from unittest.mock import Mock

import yaml
from twisted.internet.interfaces import IReactorFromThreads
from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase

from benchmarks import gate, product, results, tenants
from benchmarks.claims import CLAIMS, Claim, Samples
from benchmarks.processes import BenchmarkFailed, Process
from benchmarks.rounds import chosen
from benchmarks.rows import GROUPS, IDLE_100, PURE, TOWER, Row
from benchmarks.setting import Ground
from benchmarks.storm import enrol
from benchmarks.table import Done, claims, details
from tower.control.state_files import DATABASE, check_database, check_keys
from tower.store.kinds import AGENT_KEYS
from tower.store.sqlite import SQLiteStore
from tower.trust.statedir import StateDir

ROWS = {row.name: row for group in GROUPS for row in group.rows}


def claim(name: str) -> Claim:
    """Return the claim of that name."""
    (found,) = [each for each in CLAIMS if each.name == name]
    return found


def samples(number: str, ours: list[float], theirs: list[float], **more: tuple[float, float]) -> Samples:
    """Return samples of Tower and of the Go peer, with *more* numbers, ours and theirs."""
    return {
        TOWER: [{number: value, **{name: pair[0] for name, pair in more.items()}} for value in ours],
        IDLE_100: [{number: value, **{name: pair[1] for name, pair in more.items()}} for value in theirs],
    }


def line(done: Done, work: str) -> str:
    """Return the one line of the table of claims that begins with *work*."""
    (found,) = [each for each in claims(done) if each.startswith(f"| {work} |")]
    return found


class ClaimTests(SynchronousTestCase):
    """Ratios, and what they are held against."""

    def test_ratio_of_medians(self) -> None:
        """One disturbed round moves the spread and not the ratio."""
        seen = claim("l7-1").measured(samples("rate", [90, 10, 100], [50, 45, 50]), TOWER)
        assert seen is not None
        self.assertEqual((seen.value, seen.low, seen.high), (90 / 50, 10 / 45, 2.0))

    def test_nothing_to_compare(self) -> None:
        """A number that is missing, or zero, does not have a ratio."""
        for theirs in ([], [0.0]):
            self.assertIsNone(claim("l7-1").measured(samples("rate", [1.0], theirs), TOWER))

    def test_absolute(self) -> None:
        """Memory for an agent is compared with a size and not with another program."""
        seen = claim("storm-memory").measured({TOWER: [{"memory": 11.5}]}, TOWER)
        assert seen is not None
        self.assertEqual(seen.value, 11.5)

    def test_direction(self) -> None:
        """Of rates more is better, of CPU and latency less."""
        self.assertTrue(claim("l7-32").reaches(1.5, 1.4))
        self.assertFalse(claim("l7-32").reaches(1.3, 1.4))
        self.assertTrue(claim("l7-32-proxy").reaches(0.3, 0.45))
        self.assertFalse(claim("l7-32-proxy").reaches(0.5, 0.45))

    def test_rows(self) -> None:
        """Each claim is about columns and numbers of its row, under its own name."""
        self.assertEqual(len({each.name for each in CLAIMS}), len(CLAIMS))
        for each in CLAIMS:
            row = ROWS[each.row]
            labels = {column.label for column in row.columns}
            self.assertIn(row.ours, labels)
            self.assertIn(each.number, row.work.units)
            if not each.absolute:
                self.assertIn(each.against, labels)


class TableTests(SynchronousTestCase):
    """The printed tables."""

    def done(self, name: str, numbers: Samples) -> dict[Row, Samples]:
        """Return one row's samples as all there are."""
        return {ROWS[name]: numbers}

    def test_marks(self) -> None:
        """Each bar has a mark that it was reached or missed."""
        printed = line(self.done("l7-1", samples("rate", [120], [100])), "L7, 1 connection")
        self.assertIn("| ≥ 1.1x ✓ | ≥ 1.3x ✗ | **1.20x** |", printed)

    def test_condition(self) -> None:
        """A latency that was bought with a slow download does not count."""
        work = "small requests while a download runs: p99"
        for download, mark in ((300.0, "✓"), (100.0, "✗")):
            numbers = samples("p99", [1.0], [10.0], download=(download, 150.0))
            self.assertIn(f"≤ 0.2x {mark}", line(self.done("l7-behind", numbers), work))

    def test_not_measured(self) -> None:
        """A row without one of its sides has no mark."""
        printed = line(self.done("l7-1", {TOWER: [{"rate": 1.0}], IDLE_100: []}), "L7, 1 connection")
        self.assertIn("not measured", printed)
        self.assertNotIn("✓", printed)

    def test_details(self) -> None:
        """The medians that are behind it, in the row's units; columns without samples stay empty."""
        row = ROWS["l7-1"]
        nothing: Samples = {column.label: [] for column in row.columns}
        numbers = {**nothing, **samples("rate", [1, 300, 200], [7])}
        (group,) = [each for each in GROUPS if row in each.rows]
        printed = "\n".join(details(group, {row: numbers}))
        self.assertIn("| L7, 1 connection: rate, requests/s |  | 7.00 | 200 |", printed)


class GateTests(SynchronousTestCase):
    """Floors."""

    def test_shortfalls(self) -> None:
        """Numbers below their floor, above their ceiling, or missing are reported; the rest is ignored."""
        done = {
            ROWS["l7-32"]: samples("rate", [100], [100], proxy=(50, 100), agent=(50, 10)),
            ROWS["l7-1"]: {TOWER: [], IDLE_100: []},
        }
        bars = {"l7-32": 1.0, "l7-32-proxy": 0.4, "l7-1": 0.5}
        self.assertEqual(
            gate.shortfalls(done, bars),
            {"l7-1: not measured": ROWS["l7-1"], "l7-32-proxy: 0.50, the ceiling is 0.4": ROWS["l7-32"]},
        )

    def test_guarded(self) -> None:
        """Rows with a floor are measured once, however many of their numbers have one."""
        self.assertEqual(gate.guarded({"l7-32": 1, "l7-32-proxy": 0.4, "raw-1": 0.1}), ["l7-32", "raw-1"])

    def test_lowered(self) -> None:
        """A short test may gain less, but compiled modules must not be slower than Python."""
        bars = {
            "l7-32": 2.0,
            "l7-32-proxy": 0.6,
            "native-32": 1.2,
            "native-32-proxy": 0.8,
            "native-1-agent": 0.3,
        }
        self.patch(gate, "floors", lambda: bars)
        self.assertEqual(
            gate.lowered(0.75),
            {
                "l7-32": 1.5,
                "l7-32-proxy": 0.6 / 0.75,
                "native-32": 1.0,
                "native-32-proxy": 1.0,
                "native-1-agent": 0.3 / 0.75,
            },
        )

    def test_compiled(self) -> None:
        """Compiled modules that are slower than Python, or use more CPU, miss a floor, also a lowered one."""
        claims_of = [each for each in CLAIMS if each.against == PURE]
        for bars in (gate.floors(), gate.lowered(0.5)):
            held = [each for each in claims_of if each.name in bars]
            self.assertLessEqual({"native-32", "native-32-proxy", "native-32-agent"}, {e.name for e in held})
            for each in held:
                self.assertFalse(each.reaches(1.01 if each.less else 0.99, bars[each.name]), each.name)

    def test_floors(self) -> None:
        """Each floor in the file is for a claim, and lets more through than what must be."""
        for name, bar in gate.floors().items():
            self.assertTrue(claim(name).reaches(claim(name).must, bar), name)


class TenantsTests(SynchronousTestCase):
    """Two users of one proxy."""

    def test_shortfalls(self) -> None:
        """A case fails if the median of p99 is more than twice as long as alone."""

        def found(*beside: float) -> tenants.Samples:
            return tenants.Samples([{"p99": 1000.0}], [{"p99": each} for each in beside])

        cases = {
            ("alpha", "beta", 1): found(2000.0),
            ("alpha", "beta", 32): found(9000.0, 1900.0, 1000.0),
            ("alpha", "alpha", 1): found(2100.0),
        }
        self.assertEqual(
            tenants.shortfalls(cases),
            ["clusters: one, connections: 1: the ratio of p99 is 2.10, the ceiling is 2"],
        )


class ResultsTests(SynchronousTestCase):
    """Files of samples."""

    def test_round_trip(self) -> None:
        """Files of parts of the table, and of rounds of one part, are read as one."""
        paths = []
        for name in ("l7-1", "watches", "l7-1"):
            paths.append(Path(self.mktemp()))
            results.write(paths[-1], f"machine {len(paths)}", {ROWS[name]: samples("rate", [2], [1])})
        on, done = results.read(paths)
        self.assertEqual(on, "machine 3")
        self.assertEqual(
            done, {ROWS["l7-1"]: samples("rate", [2, 2], [1, 1]), ROWS["watches"]: samples("rate", [2], [1])}
        )


class ChosenTests(SynchronousTestCase):
    """Names on the command line."""

    def test_beginnings(self) -> None:
        """A name is the beginning of a row's; groups without a row are left out."""
        self.assertEqual(
            [[row.name for row in group.rows] for group in chosen(["l7-n", "raw"])],
            [["raw-32", "raw-1"], ["l7-new"]],
        )

    def test_everything(self) -> None:
        """Without names it is everything."""
        self.assertEqual(sum(len(group.rows) for group in chosen([])), len(ROWS))

    def test_unknown(self) -> None:
        """A name without any match is an error that lists the names."""
        with self.assertRaisesRegex(BenchmarkFailed, "there is no 'l8'; there are .*l7-32"):
            chosen(["l8"])


class EnrolTests(SynchronousTestCase):
    """The state directory of the benchmark of 1,000 agents."""

    def test_complete(self) -> None:
        """The proxy's checks accept the state directory with enrolled agents: no key or CA is missing."""
        folder = Path(self.mktemp())
        folder.mkdir()
        enrolled = enrol(folder, 2)
        state = StateDir(enrolled.state)
        self.addCleanup(state.close)
        store = SQLiteStore(cast(IReactorFromThreads, MemoryReactorClock()), enrolled.state / DATABASE)
        self.assertEqual(len(store.snapshot(AGENT_KEYS)), 2)
        check_database(state)
        check_keys(state, store, time.time(), new_host_key=False, new_ca=False, is_given=False)


class IdleGround(Ground):
    """A folder for files; programs are not started."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stack = ExitStack()

    def start(self, name: str, *argv: str, extra: dict[str, str] | None = None) -> Mock:
        """Return a program that is ready."""
        return Mock(spec=Process)


class ProductTests(SynchronousTestCase):
    """Several proxies in one run."""

    def credential(self, started: product.Product, content: str) -> list[str]:
        """Return arguments for jane at the cluster zeta of a proxy whose CA and token are *content*."""
        server = {"server": "https://127.0.0.1:1/clusters/zeta"}
        authority = {"certificate-authority-data": base64.b64encode(content.encode()).decode()}
        config = yaml.safe_dump(
            {"clusters": [{"cluster": server | authority}], "users": [{"user": {"token": content}}]}
        )
        self.patch(product, "run", lambda _: CompletedProcess([], 0, config, ""))
        return started.user("zeta", "jane")[1]

    def test_same_cluster(self) -> None:
        """Clusters with the same name at two proxies do not share the files of CA and token."""
        self.patch(product, "free_port", lambda: 1)
        self.patch(product, "free_ports", lambda count: range(1, 1 + count))
        folder = Path(self.mktemp())
        folder.mkdir()
        ground = IdleGround(folder)
        names = ("tower-proxy", "tower-unobserved")
        given = {name: self.credential(product.Product(ground, name), name) for name in names}
        for name, arguments in given.items():
            for argument in arguments:
                self.assertEqual(Path(argument.partition("=")[2]).read_text(), name)

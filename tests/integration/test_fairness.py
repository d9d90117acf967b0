"""Slow readers and slow writers do not slow down other streams of the same tunnel."""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.integration import harness
from tests.integration.backends import Backend
from tests.integration.person import Person
from tests.integration.programs import clean_environment, die_with_parent, wait_for

PROGRAM = Path(__file__).resolve().parent / "streamload.py"
COUNT = 50  # streams of each kind
ROUNDS = 3  # of four measurements: without, with, with, without
MOST_ROUNDS = 12  # on a machine with other load, whose median needs more measurements
SECONDS = 1.0  # of one measurement
FACTOR = 2.0  # by which the 95th percentile may be longer with the slow streams
FLOOR = 0.004  # s below which differences are the machine's
RESTING = 16 * 2**20  # most B a second to and from slow ones, when all buffers of the path are full
LOOK = 0.25  # s


class Load:
    """A program of `tests.integration.streamload`."""

    def __init__(self, person: Person, *, raw: bool, slow: bool) -> None:
        settings = {
            "host": person.host,
            "port": person.port,
            "ca": person.ca,
            "token": person.token,
            "prefix": person.prefix,
            "raw": raw,
            "slow": slow,
            "count": COUNT,
        }
        self._process = subprocess.Popen(
            [sys.executable, str(PROGRAM), json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=clean_environment(),
            text=True,
            preexec_fn=die_with_parent,  # noqa: PLW1509 (one system call)
        )

    def __call__(self, command: str) -> Any:
        """Send a command; return its answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise AssertionError(f"the load has ended at {command!r}")
        return json.loads(line)

    def stop(self) -> None:
        """End it."""
        self._process.kill()
        self._process.communicate()


class FairnessTests(SynchronousTestCase):
    """One tunnel with a hundred streams in it."""

    def setUp(self) -> None:
        """Start proxy, agent and backend."""
        self.folder = Path(tempfile.mkdtemp(prefix="tower-test-"))
        self.addCleanup(shutil.rmtree, self.folder, True)
        self.tower = harness.Tower(self.folder)
        self.addCleanup(self.tower.stop)
        self.tower.start()
        self.backend = Backend(self.folder, "alpha")
        self.addCleanup(self.backend.program.stop)
        self.backend.start()
        targets = [self.backend.target("alpha", kind) for kind in ("ping", "slow")]
        self.tower.add("alpha", self.backend.kubeconfig("alpha"), *targets)
        self.jane = self.tower.person("alpha", "jane", "--auth", "token")

    def is_full(self, slow: Load) -> bool:
        """Return whether every buffer of the path is full: then the input is as slow as the readers."""

        def moved() -> int:
            return int(self.backend.report()["flooded"] + slow("pushed"))

        before = moved()
        time.sleep(LOOK)
        return moved() - before < LOOK * RESTING

    def check(self, *, raw: bool) -> None:
        """Measure with and without slow streams, in turns."""
        quick, slow = Load(self.jane, raw=raw, slow=False), Load(self.jane, raw=raw, slow=True)
        for each in (quick, slow):
            self.addCleanup(each.stop)
        self.assertEqual(quick("open"), COUNT)
        quick(f"measure {SECONDS}")
        seen: list[tuple[dict[str, float], dict[str, float]]] = []
        for number in range(1, MOST_ROUNDS + 1):
            before = quick(f"measure {SECONDS}")
            self.assertEqual(slow("open"), COUNT)
            for _ in range(2):
                wait_for("the slow streams to be full", lambda: self.is_full(slow), 20, 0)
            during = [quick(f"measure {SECONDS}") for _ in range(2)]
            self.assertEqual(slow("close"), 0)
            after = quick(f"measure {SECONDS}")
            seen += zip((before, after), during, strict=True)
            ratio = statistics.median(busy["p95"] / max(calm["p95"], FLOOR) for calm, busy in seen)
            if number >= ROUNDS and ratio < FACTOR:
                return
        self.fail(f"the 95th percentile is {ratio:.2f} times longer: {seen}")

    def test_raw_streams(self) -> None:
        """Fifty raw streams, each of which reads and is read slowly, are not noticed by fifty others."""
        self.check(raw=True)

    def test_requests(self) -> None:
        """Fifty requests with slow readers and slow writers are not noticed by fifty others."""
        self.check(raw=False)

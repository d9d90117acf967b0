"""A large loss of speed is noticed: Tower compared with the Go program, by ratios alone.

The compared programs run in turns, within seconds, on the same machine, so other load slows both.
The floors are those of ``python -m benchmarks --check``, lowered once more: here a run is short, and
other tests may use the other core.  Compiled modules must not be slower than those in Python even so.
"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from benchmarks import gate
from benchmarks.rounds import QUICK, Rounds, chosen
from benchmarks.systems import Systems

#: Fraction of a floor that applies here.
PART = 0.75

#: How often what falls short is measured again, with one round more each time.
TRIES = 3

#: The best cases for their time: bulk in each direction, small requests and their cost, also with old
#: agents; and compiled modules compared with those in Python.
NAMES = (
    "bulk-down-1",
    "bulk-up-1",
    "raw-32",
    "l7-32",
    "l7-32-idle-2",
    "l7-32-proxy",
    "l7-down",
    "native-32",
    "native-32-agent",
    "native-32-proxy",
    "old-32",
    "old-32-proxy",
)


class SpeedTests(SynchronousTestCase):
    """Tower and ``gopeer``, both up at once."""

    def test_ratios(self) -> None:
        """No ratio is far below what the documentation shows."""
        folder = Path(tempfile.mkdtemp(prefix="tower-speed-"))
        self.addCleanup(shutil.rmtree, folder, True)
        bars = gate.lowered(PART)
        held = {name: bars[name] for name in NAMES}
        with ExitStack() as stack:
            rounds = Rounds(Systems(folder, stack), chosen(gate.guarded(held)))
            below = gate.hold(rounds, held, 1, QUICK)
            for more in range(TRIES):
                if below:
                    rounds.repeat(set(below.values()), 1 + more, QUICK)
                    below = gate.shortfalls(rounds.done, held)
        self.assertEqual(rounds.failures, [])
        self.assertEqual(list(below), [])

"""``docs/holes.md``: the tests that it names exist, with each number."""

from __future__ import annotations

import re
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

TESTS = Path(__file__).resolve().parent
PAGE = TESTS.parent / "docs" / "holes.md"
HOST = "## In a host cluster"

#: Defects for which the proxy's controller in a host cluster has additional tests.
IN_HOST = {7, 8, 15, 20, 21, 24, 25, 26, 27, 29, 30}

_NAME = re.compile(r"def test_hole((?:_and_[0-9]+|_[0-9]+)+)_")
_DOCSTRING = re.compile(r'^        """.*\b[Hh]oles? ([0-9]+(?:(?:, | and )[0-9]+)*)', re.MULTILINE)
_ROW = re.compile(r"\| ([0-9, ]+) \|.*\| ([^|]+) \|")


def numbers_of(module: Path) -> set[int]:
    """Return the numbers of the defects that have a test in a module, by the tests' names and docstrings."""
    text = module.read_text()
    parts = [*_NAME.findall(text), *_DOCSTRING.findall(text)]
    return {int(number) for part in parts for number in re.findall("[0-9]+", part)}


class HolesPageTests(SynchronousTestCase):
    """The tables of the page."""

    def test_all_numbers(self) -> None:
        """Each defect has a row, and a test with its number in each module of that row."""
        text = PAGE.read_text().partition("## With an old peer")[0]
        rows = [match for line in text.splitlines() if (match := _ROW.fullmatch(line))]
        self.assertEqual([int(row[1]) for row in rows], list(range(1, 33)))
        for row in rows:
            for word in row[2].split(", "):
                folder = "holes" if word.startswith("**") else "integration"
                module = TESTS / folder / f"test_{word.strip('*')}.py"
                self.assertIn(int(row[1]), numbers_of(module), f"{module}: hole {row[1]}")

    def test_host_cluster(self) -> None:
        """The section about the host cluster has the defects of its tests."""
        text = PAGE.read_text().partition(HOST)[2]
        rows = [match for line in text.splitlines() if (match := re.match(r"\| ([0-9, ]+) \|", line))]
        found = {int(number) for row in rows for number in row[1].split(", ")}
        self.assertEqual(found, IN_HOST)
        self.assertEqual(found, numbers_of(TESTS / "holes" / "test_host_cluster.py"))

"""Tests of the fuzzer itself, and what it found once."""

from __future__ import annotations

import random
import sys
from contextlib import redirect_stdout
from io import StringIO

from twisted.logger import Logger
from twisted.trial.unittest import SynchronousTestCase

from tests.fuzz import __main__ as program
from tests.fuzz.engine import Broken, Target, attempt, fuzz
from tests.fuzz.mutation import LONGEST, cuts, mutated
from tests.fuzz.targets import TARGETS
from tower import BUILD

#: Inputs that broke something, by target.
FOUND = {
    # blanks before a chunk's extension, which Go does not accept
    "chunks": (b"ff\t;\r\n" + bytes(255) + b"\r\n0\r\n\r\n", b"1 ;a\r\na\r\n0\r\n\r\n"),
    # empty lines before a request were forgiven once for each piece in which they came
    "user": (b"\r\n\r\nGET /clusters/alpha/x HTTP/1.1\r\nHost:a\r\n\r\n", b"\n\r\n\r\n"),
    # a number that Python cannot read
    "objects": (b'{"metadata":{"name":"alpha","resourceVersion":"' + b"9" * 5000 + b'"}}',),
    # a refusal repeated control characters
    "agent-head": (b"GET / HTTP/1.1\r\nImpersonate-User:system:node\x1b[2J\r\nHost: a\r\n\r\n",),
}


class FoundTests(SynchronousTestCase):
    """Former findings."""

    def test_found(self) -> None:
        """Nothing of it breaks any more, however it is cut."""
        for name, inputs in FOUND.items():
            for data in inputs:
                for chance in range(30):
                    self.assertIsNone(attempt(TARGETS[name], data, str(chance)), (name, data, chance))


class CorpusTests(SynchronousTestCase):
    """Every target."""

    def test_corpus(self) -> None:
        """Good inputs and a few of their mutations break nothing."""
        for target in TARGETS.values():
            for number, data in enumerate(target.corpus):
                self.assertIsNone(attempt(target, data, str(number)), (target.name, data))
        counts, findings = fuzz(list(TARGETS.values()), 2, 1)
        self.assertEqual([str(finding) for finding in findings], [])
        self.assertTrue(all(counts.values()), counts)


class MutationTests(SynchronousTestCase):
    """Making inputs."""

    def test_same_again(self) -> None:
        """An input follows from its seed, and is not too long."""
        corpus = (b"one good input", b"another" * 1000)
        made = [mutated(random.Random(seed), corpus, (b"word",)) for seed in range(300)]
        self.assertEqual(made, [mutated(random.Random(seed), corpus, (b"word",)) for seed in range(300)])
        self.assertLessEqual(max(map(len, made)), LONGEST)
        self.assertGreater(len(set(made)), 200)

    def test_cuts(self) -> None:
        """Pieces are all of it, and none is empty."""
        for size in (0, 1, 2, 50, 1000):
            for seed in range(50):
                pieces = cuts(random.Random(seed), bytes(size))
                self.assertEqual(b"".join(pieces), bytes(size))
                self.assertTrue(all(pieces))


def _read(data: bytes, chance: random.Random) -> None:
    """Break on an X behind an A, complain in the log about a Y, and take much for a Z."""
    if b"X" in data.partition(b"A")[2]:
        raise Broken("an X behind an A")
    if b"Y" in data:
        try:
            raise ValueError("a Y")
        except ValueError:
            Logger().failure("what is this?")


class EngineTests(SynchronousTestCase):
    """Finding things."""

    def test_finding(self) -> None:
        """A finding is made small, and can be replayed by its output."""
        target = Target("letters", (b"some input with an A in it",), (b"X",), _read)
        counts, findings = fuzz([target], 5, 7)
        (finding,) = findings
        self.assertEqual(finding.data, b"AX")
        self.assertIn("--target letters --replay 4158", str(finding))
        self.assertIsInstance(attempt(target, b"AX", finding.chance), Broken)
        self.assertIsNone(attempt(target, b"XA", finding.chance))
        self.assertGreater(counts["letters"], 0)

    def test_logged(self) -> None:
        """A failure that is only logged is a finding."""
        target = Target("letters", (b"",), (), _read)
        self.assertIn("a Y", str(attempt(target, b"Y", "0")))
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)


class ProgramTests(SynchronousTestCase):
    """``python -m tests.fuzz``."""

    def test_build(self) -> None:
        """The first line of the output names the seed and the build that is tested."""
        self.patch(sys, "argv", ["fuzz", "--seed", "7"])
        self.patch(program, "fuzz", lambda *_: ({}, []))
        output = StringIO()
        with redirect_stdout(output):
            self.assertEqual(program.main(), 0)
        self.assertRegex(output.getvalue(), rf"\A.* --seed 7; .*\bTower {BUILD}, Python .*\n")

"""A real kube-apiserver and Tower have the same errors for the same wrong options and files.

The tables are in `tests.integration.differential`.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.integration.apiserver_errors import StartErrors, program
from tests.integration.differential import STARTING
from tests.integration.differential.rows import STARTS, Row, Start
from tests.integration.differential.starts import TowerStarts, difference, write_files
from tests.integration.programs import run, script
from tower.options.upstream_names import hint
from tower.options.variables import OPTIONS

#: Processes of kube-apiserver at the same time: one that accepts its options waits for etcd.
ACCEPTING, REJECTING = 16, 2


_NO_CA = "data does not contain any valid RSA or ECDSA certificates: give the CA's certificate in PEM format"


class BadOptionsTests(SynchronousTestCase):
    """All errors."""

    timeout = 300

    def setUp(self) -> None:
        """Write the files of all rows."""
        self.folder = Path(tempfile.mkdtemp(prefix="tower-test-"))
        self.addCleanup(shutil.rmtree, self.folder, True)
        write_files(self.folder)
        self.rows = [row for table in STARTING for row in table.rows]

    def options(self, row: Row[Start]) -> list[str]:
        """Return the options of a row, whose files exist."""
        place = self.folder / str(self.rows.index(row))
        place.mkdir(exist_ok=True)
        for name, content in row.case.files.items():
            (place / name).write_text(content)
        return [each.replace("{d}", str(place)).replace("{f}", str(self.folder)) for each in row.case.options]

    def errors(self) -> list[str]:
        """Return kube-apiserver's errors for all rows; empty: it starts."""
        errors = StartErrors(self.folder)
        accepted = [row.other is not None and row.other.theirs == STARTS for row in self.rows]
        found: dict[int, str] = {}
        for kind, count in ((True, ACCEPTING), (False, REJECTING)):
            numbers = [number for number, each in enumerate(accepted) if each is kind]
            with ThreadPoolExecutor(count) as pool:
                options = [self.options(self.rows[number]) for number in numbers]
                found.update(zip(numbers, pool.map(lambda each: errors.of(*each), options), strict=True))
        return [found[number] for number in range(len(self.rows))]

    def problem(self, row: Row[Start], theirs: str, ours: Sequence[str]) -> str:
        """Return why the errors are other ones than those of the row."""
        if row.other is None and not ours and not theirs:
            return ""
        if row.other is None:
            return difference(theirs, ours) if ours and theirs else f"{theirs or STARTS} and {ours or STARTS}"
        if theirs and ours and not difference(theirs, ours):
            return "the errors are equal"
        for expected, found in ((row.other.theirs, theirs), (row.other.ours, "\n".join(ours))):
            if expected not in (found or STARTS):
                return f"{expected!r} is not in {found or STARTS!r}"
        return ""

    def test_errors(self) -> None:
        """The errors of all rows are equal or differ as the rows state."""
        errors, tower = self.errors(), TowerStarts(self.folder)
        wrong = []
        for row, theirs in zip(self.rows, errors, strict=True):
            ours = tower.of(self.options(row))
            problem = self.problem(row, theirs, ours)
            if problem:
                wrong.append(f"{row.name}: {problem}\n   {theirs!r}\n   {ours!r}")
        self.assertEqual(wrong, [], "\n".join(wrong))

    def test_names(self) -> None:
        """Each option in kube-apiserver's help is one of Tower, or has a hint."""
        text = run([str(program()), "--help"]).stdout.decode()
        names = re.findall(r"^ +(?:-\w, )?--([a-z0-9-]+)", text, re.MULTILINE)
        self.assertGreater(len(names), 100)
        self.assertEqual(
            [name for name in names if name not in OPTIONS | {"help", "version"} and not hint(name)], []
        )

    def test_program(self) -> None:
        """The program ends with these lines and exit code 1."""
        folder = self.folder / "state"
        for options, lines in (
            (
                ("--max-requests-inflight=-1", "--request-timeout=-1s"),
                [
                    "--max-requests-inflight '-1' can not be negative value: give 0 or more",
                    "--request-timeout '-1s' can not be negative value: give a duration such as 1m",
                ],
            ),
            (
                (f"--client-ca-file={self.folder}/ca.key", "--port=none", "--cluster-ports=none"),
                [f"--client-ca-file {self.folder}/ca.key: {_NO_CA}"],
            ),
        ):
            done = run([script("tower-proxy"), f"--state-dir={folder}", "--host=127.0.0.1", *options])
            self.assertEqual(done.returncode, 1)
            expected = [f"tower-proxy: {line}" for line in lines]
            self.assertEqual(sorted(done.stderr.decode().splitlines()[-len(lines) :]), expected)

"""The commands of a page of the documentation, run unchanged."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from tests.integration.programs import ShellProgram, run

DOCS = Path(__file__).resolve().parent.parent.parent / "docs"
PATIENCE = 200.0  # s for the commands below one heading

# A command that must fail.  ``sh -e`` ignores its result, unless it is the last one.
_NEGATED = re.compile(r"^! ((?:.*\\\n)*.*)$", re.MULTILINE)


class Guide:
    """One page.  Its indented blocks are commands for ``sh``; those above its first heading run first.
    Fenced blocks are not run: they are files, or outputs.

    :param folder: where the commands run.
    :param environment: of the commands, in addition to the variables that the page sets.
    :param names: replacements in the commands; longer names are replaced first.
    :ivar blocks: the commands below each heading that has some.
    :ivar fenced: the fenced blocks below each heading that has some.
    :ivar errors: what the last block wrote to standard error.
    """

    def __init__(
        self, page: str, folder: Path, environment: Mapping[str, str], names: Mapping[str, str]
    ) -> None:
        self._folder = folder
        self._environment = environment
        self._names = sorted(names.items(), key=lambda item: -len(item[0]))
        self.blocks: dict[str, list[str]] = {}
        self.fenced: dict[str, list[str]] = {}
        self.errors = ""
        heading, inside, fenced = "", False, False
        for line in (DOCS / page).read_text().splitlines():
            if line.startswith("```"):
                fenced, inside = not fenced, False
                if fenced:
                    self.fenced.setdefault(heading, []).append("")
                continue
            if fenced:
                self.fenced[heading][-1] += f"{line}\n"
                continue
            if line.startswith("#"):
                heading = "" if line.startswith("# ") else line.lstrip("# ")
            if line.startswith("    "):
                blocks = self.blocks.setdefault(heading, [])
                if not inside:
                    blocks.append("")
                blocks[-1] += f"{line[4:]}\n"
            elif inside and not line:
                blocks[-1] += "\n"  # within a block, or just behind it
            inside = line.startswith("    ") or (inside and not line)
        self._prelude = "".join(self.blocks.pop("", []))

    def command(self, heading: str, number: int = 0) -> str:
        """Return a block below a heading, with the names replaced."""
        text = self.blocks[heading][number]
        for name, value in self._names:
            text = text.replace(name, value)
        return text

    def run(self, heading: str, number: int = 0) -> str:
        """Run a block; return what it writes to standard output.

        :raise AssertionError: it fails, or a command with ``!`` does not; the text includes its output.
        """
        text = _NEGATED.sub(r"if \1; then exit 1; fi", self.command(heading, number))
        argv = ["sh", "-e", "-c", self._prelude_here() + text]
        done = run(argv, timeout=PATIENCE, environment=self._environment, folder=self._folder)
        self.errors = done.stderr.decode(errors="replace")
        if done.returncode:
            raise AssertionError(f"{heading}: {text}: {self.errors}")
        return done.stdout.decode()

    def program(self, name: str, heading: str, number: int = 0) -> ShellProgram:
        """Return a block that runs until it is ended as a program; it is not started."""
        argv = ["sh", "-c", f"{self._prelude_here()}exec {self.command(heading, number)}"]
        return ShellProgram(name, argv, self._folder, self._environment)

    def _prelude_here(self) -> str:
        text = self._prelude
        for name, value in self._names:
            text = text.replace(name, value)
        return text


def path_with(folder: Path, *programs: Path) -> str:
    """Return a PATH with these programs first, under their names in the documentation.

    :param folder: gets links to them; ``kubectl.1.27`` is linked as ``kubectl``.
    """
    folder.mkdir()
    for each in programs:
        (folder / each.name.partition(".")[0]).symlink_to(each)
    return f"{folder}:{os.environ['PATH']}"

"""Completion of `tower` in real shells: bash, and zsh and fish if they are installed."""

from __future__ import annotations

import os
import re
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.integration import harness
from tests.integration.programs import PATIENCE, clean_environment, script

#: Typed beginnings of a command line, and the rest that the shell adds.
TABLE = (
    ("tower clus", "ter"),
    ("tower cluster show ber", "lin"),
    ("tower kubeconfig berlin --us", "er"),
    ("tower credential list --cluster al", "pha"),
    ("tower cluster list -o js", "on"),
    ("tower cluster add ber", ""),
    ("tower backup {folder}/sav", "ed-file"),
)

#: Time in which a shell that has nothing to add stays silent, s.
SILENCE = 3.0


#: Control sequences of a terminal, carriage returns and bells.
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]|\x1b\][^\x07]*\x07|[\r\x07\b]")


class Terminal:
    """An interactive shell on a new terminal."""

    def __init__(self, argv: list[str], environment: dict[str, str], folder: Path) -> None:
        self._master, terminal = os.openpty()
        self._shell = subprocess.Popen(
            argv,
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            env=environment,
            cwd=folder,
            start_new_session=True,
        )
        os.close(terminal)

    def run(self, line: str) -> None:
        """Run a command line that prints ``done`` at its end."""
        self.type(f"{line}; printf 'do%s\\n' ne\n")
        self.read_until(lambda text: "done\r\n" in text)

    def type(self, text: str) -> None:
        """Press keys."""
        os.write(self._master, text.encode())

    def read_until(self, is_complete: Callable[[str], bool], patience: float = PATIENCE) -> str:
        """Return the output since the last call, once it is complete or *patience*, s, is over."""
        text, end = "", time.monotonic() + patience
        while not is_complete(text) and time.monotonic() < end:
            if select.select([self._master], [], [], 0.1)[0]:
                text += os.read(self._master, 65536).decode(errors="replace")
        return text

    def close(self) -> None:
        """End the shell."""
        self._shell.kill()
        self._shell.wait()
        os.close(self._master)


class ShellTests(harness.TowerTestCase):
    """Each shell completes commands, options, values, names of clusters, and files."""

    def setUp(self) -> None:
        """Add clusters, write a file, and put the command in the path."""
        super().setUp()
        for name in ("alpha", "berlin"):
            self.tower.tower("cluster", "add", name)
        (self.folder / "saved-file").touch()
        programs = self.folder / "programs"
        programs.mkdir()
        (programs / "tower").symlink_to(script("tower"))
        python = str(Path(sys.executable).parent)
        more = {
            "PATH": os.pathsep.join([str(programs), python, os.environ["PATH"]]),
            "TOWER_STATE_DIR": str(self.tower.state),
            "HOME": str(self.folder),
            "TERM": "xterm",
            "PS1": "$ ",
        }
        self.environment = clean_environment(more)

    def check(self, argv: list[str], setup: str) -> None:
        """Type each line of the table and press Tab; the shell adds the rest."""
        shell = Terminal(argv, self.environment, self.folder)
        self.addCleanup(shell.close)
        shell.run(setup)
        for line, rest in TABLE:
            typed = line.format(folder=self.folder)
            shell.type(typed + "\t")
            if rest:
                shown = shell.read_until(lambda text, full=typed + rest: full in _plain(text))  # type: ignore[misc]
                self.assertIn(typed + rest, _plain(shown))
            else:
                self.assertTrue(_plain(shell.read_until(lambda _: False, SILENCE)).rstrip().endswith(typed))
            shell.type("\x15")  # Ctrl-U: empty the line
            shell.run("true")

    def test_bash(self) -> None:
        """In bash."""
        self.check(["bash", "--norc", "-i"], "source <(tower completion bash)")

    def test_zsh(self) -> None:
        """In zsh, whose completion system is not loaded yet."""
        if shutil.which("zsh") is None:
            self.skipTest("zsh is not installed")
        self.check(["zsh", "-f", "-i"], "PROMPT='$ '; source <(tower completion zsh)")

    def test_fish(self) -> None:
        """In fish, by the command that prints the completions."""
        if shutil.which("fish") is None:
            self.skipTest("fish is not installed")
        for line, rest in TABLE:
            typed = line.format(folder=self.folder)
            done = self.fish(f"complete -C {typed!r}")
            found = [each.partition("\t")[0] for each in done.splitlines()]
            self.assertEqual(found, [typed.split()[-1] + rest] if rest else [])
        self.assertIn("cluster\tadd, change", self.fish("complete -C 'tower '"))

    def fish(self, command: str) -> str:
        """Return the output of a command of fish after the script was loaded."""
        argv: list[Any] = ["fish", "--no-config", "-c", f"tower completion fish | source; {command}"]
        return subprocess.run(
            argv,
            check=True,
            capture_output=True,
            text=True,
            env=self.environment,
            cwd=self.folder,
            timeout=PATIENCE,
        ).stdout


def _plain(text: str) -> str:
    """Return terminal output without line breaks and control sequences of the shell's editor."""
    return _CONTROL.sub("", text)

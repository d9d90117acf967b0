"""Item 15: a join token is only with the agent that spends it, and does not exist once it is spent."""

from __future__ import annotations

import os
import pty
import re
import resource
import shlex
import subprocess
from pathlib import Path

import yaml

from tests.integration.backends import Backend
from tests.integration.harness import TowerTestCase
from tests.integration.ports import free_port
from tests.integration.programs import (
    LOOPBACK,
    PATIENCE,
    ShellProgram,
    clean_environment,
    holds,
    is_ready,
    run,
    script,
    wait_for,
)

CLUSTER = "alpha"
TOKEN = re.compile(r"tower-[A-Za-z0-9_-]{43}")


class AgentCase(TowerTestCase):
    """One cluster, the line that ``tower join`` prints, and agents that shells start with it."""

    def setUp(self) -> None:
        """Make a cluster, and a line for its agent."""
        super().setUp()
        backend = Backend(self.folder, CLUSTER)
        self.addCleanup(backend.program.stop)
        backend.start()
        self.kubeconfig = backend.kubeconfig(CLUSTER)
        self.tower.tower("cluster", "add", CLUSTER)
        self.health = free_port()
        self.options = (
            f"--kubeconfig={self.kubeconfig}",
            f"--state-dir={self.folder / 'agent'}",
            f"--health-address={LOOPBACK}:{self.health}",
        )

    def line(self, *options: str) -> tuple[str, str]:
        """Return a new line, with the test's options, and its token."""
        line = self.tower.tower("join", CLUSTER, *options)
        self.assertEqual(line.count("\n"), 1)
        (token,) = TOKEN.findall(line)
        return f"{line.strip()} {shlex.join(self.options)}", token

    def started(self, line: str, name: str = "agent") -> int:
        """Run a line in a shell; return the agent's pid once it has joined."""
        path = f"{Path(script('tower-agent')).parent}:{os.environ['PATH']}"
        self.shell = ShellProgram(name, ["sh", "-c", line], self.folder, {"PATH": path})
        self.wait_until_joined(self.shell)
        pid = self.shell.inner_pid
        self.assertIn(b"/tower-agent\0", Path(f"/proc/{pid}/cmdline").read_bytes())
        return pid

    def wait_until_joined(self, shell: ShellProgram) -> None:
        """Start an agent, and wait for its tunnel."""
        shell.start()
        self.addCleanup(shell.stop)

        def ready() -> bool:
            if not shell.running():
                raise AssertionError(f"the agent ended: {shell.tail()}")
            return is_ready(self.health)

        wait_for("the agent to join", ready)


class TokenTests(AgentCase):
    """Searches for the token."""

    def refused(self, name: str, *options: str, stdin: int = subprocess.DEVNULL) -> str:
        """Return the line of an agent that ends at once."""
        words = shlex.split(self.tower.tower("join", CLUSTER, "--format", "env"))
        argv = [script("tower-agent"), *words[words.index("tower-agent") + 1 :], *self.options, *options]
        with (self.folder / name).open("wb") as output:
            done = subprocess.run(
                argv,
                check=False,
                stdin=stdin,
                stdout=output,
                stderr=output,
                env=clean_environment(),
                timeout=PATIENCE,
                cwd=self.folder,
            )
        error = (self.folder / name).read_text()
        self.assertEqual((done.returncode, error.count("\n")), (1, 1), error)
        return error

    def nowhere(self, pid: int, token: str) -> None:
        """Check that a process does not show a token in its environment, its arguments or its log."""
        for name in ("environ", "cmdline"):
            self.assertNotIn(token.encode(), Path(f"/proc/{pid}/{name}").read_bytes())
        self.assertNotIn(token, self.shell.output())

    def kubeconfig_token(self) -> bytes:
        """Return a secret that the agent always needs."""
        config = yaml.safe_load(self.kubeconfig.read_text())
        token: str = config["users"][0]["user"]["token"]
        return token.encode()

    def test_printed_line(self) -> None:
        """The line works in a shell unchanged, and afterwards no part of the agent has the token."""
        line, token = self.line()
        self.assertTrue(line.startswith(f"printf %s {token} | tower-agent "), line)
        pid = self.started(line)
        self.nowhere(pid, token)
        wait_for("the token to be forgotten", lambda: not holds(pid, token.encode()))
        self.assertTrue(holds(pid, self.kubeconfig_token()))  # so the search works

    def test_no_program_gets_the_token(self) -> None:
        """Programs in the line do not get the token: the shell itself prints it."""
        line, token = self.line()
        spy = self.folder / "bin"
        spy.mkdir()
        for name in ("printf", "tower-agent"):
            (spy / name).write_text(
                f'#!/bin/sh\necho "$0" "$@" >> {self.folder}/seen\nenv >> {self.folder}/seen\n'
            )
            (spy / name).chmod(0o755)
        path = f"{spy}:{os.environ['PATH']}"
        run(["sh", "-c", line], environment={"PATH": path}, folder=self.folder)
        seen = (self.folder / "seen").read_text()
        self.assertIn("tower-agent", seen)
        self.assertNotIn(token, seen)

    def test_environment_line(self) -> None:
        """``--format env`` gives the former line; the agent removes the token from its environment."""
        line, token = self.line("--format", "env")
        self.assertTrue(line.startswith(f"env TOWER_TOKEN={token} tower-agent "), line)
        pid = self.started(line)
        self.nowhere(pid, token)
        self.assertIn(b"TOWER_TOKEN=\0", Path(f"/proc/{pid}/environ").read_bytes())
        wait_for("the token to be forgotten", lambda: not holds(pid, token.encode()))
        self.assertTrue(holds(pid, self.kubeconfig_token()))  # so the search works

    def test_started_again(self) -> None:
        """Once it has joined, the same command works with nothing at standard input, open or closed."""
        line, _ = self.line()
        self.started(line)
        self.shell.stop()
        again = line.partition("| ")[2]
        for number, end in enumerate(("< /dev/null", "<&-")):
            self.started(f"{again} {end}", f"again-{number}")
            self.shell.stop()

    def test_nothing_at_standard_input(self) -> None:
        """An agent that never joined, without a token, ends with a line that names the fix."""
        error = self.refused("empty", "--token-file=-")
        self.assertIn("--token-file - : standard input is empty", error)
        self.assertIn("'tower join'", error)

    def test_terminal(self) -> None:
        """A terminal does not seem to hang."""
        ours, theirs = pty.openpty()
        self.addCleanup(os.close, ours)
        self.addCleanup(os.close, theirs)
        error = self.refused("terminal", "--token-file=-", stdin=theirs)
        self.assertIn("--token-file '-' is a terminal: pipe the secret in", error)

    def test_endless_input(self) -> None:
        """Endless input is read up to the longest token."""
        with open("/dev/zero", "rb") as endless:
            error = self.refused("endless", "--token-file=-", stdin=endless.fileno())
        self.assertIn("--token-file '-' is empty or too large", error)


class DumpTests(AgentCase):
    """Memory is private: no core file, no access for programs of the same user."""

    def program(self, words: str, name: str) -> ShellProgram:
        """Return a program that runs with its own group, if we may give it one."""
        other = "setpriv --regid=65534 --clear-groups " if os.geteuid() == 0 else ""
        path = f"{Path(script('tower-agent')).parent}:{os.environ['PATH']}"
        return ShellProgram(name, ["sh", "-c", f"exec {other}{words}"], self.folder, {"PATH": path})

    def shown(self, pid: int) -> tuple[list[str], bool]:
        """Return a process's limits for core files, and whether the system shows its memory to its user.

        Files below ``/proc/PID`` belong to root's user and group if it does not (proc(5)).
        """
        limits = Path(f"/proc/{pid}/limits").read_text().splitlines()
        (core,) = (line.split()[4:6] for line in limits if line.startswith("Max core"))
        status = os.stat(f"/proc/{pid}/mem")
        return core, (status.st_uid, status.st_gid) != (0, 0)

    def test_agent(self) -> None:
        """The agent forbids both, unless it is configured to allow them."""
        before = [str(each).replace("-1", "unlimited") for each in resource.getrlimit(resource.RLIMIT_CORE)]
        words = self.line("--format", "env")[0]
        for extra, expected in (("", (["0", "0"], False)), ("--allow-core-dumps", (before, True))):
            shell = self.program(f"{words} {extra}", f"agent{extra}")
            self.wait_until_joined(shell)
            self.assertEqual(self.shown(shell.pid), expected)
            self.assertTrue(shell.stop())

    def test_proxy(self) -> None:
        """The same for the proxy, which has keys and credentials."""
        self.tower.proxy.stop()
        for extra, expected in ((), (["0", "0"], False)), (("--allow-core-dumps",), True):
            program = self.tower.proxy_program(*extra)
            self.tower.proxy = self.program(shlex.join(program.argv), f"proxy-{len(extra)}")
            self.tower.start()
            core, is_shown = self.shown(self.tower.proxy.pid)
            self.assertEqual(is_shown if extra else (core, is_shown), expected)
            self.assertTrue(self.tower.proxy.stop())

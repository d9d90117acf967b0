"""Runs tests as ``trial`` does, and ends those that hang: ``python -m tests.watchdog [OPTION...] NAME...``

Trial's own timeouts need a running reactor.  This process watches another one.  If a test hangs, the watchdog
dumps the stacks of all threads, names the test, kills the run with every program that it started, and goes on
with the remaining tests.  The closing line of a killed run has trial's form, with one error for the test that
hung; tests that were not run because the time was over are not counted.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import selectors
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, NoReturn

PR_SET_CHILD_SUBREAPER = 36
SILENCE = 300.0  # s
LIMIT = 45 * 60.0  # s
GRACE = 10.0  # s, for the tests to dump their stacks, or to end properly
MORE = 60.0  # s after a test's own limit
ENDING = 30.0  # s, for the kernel to end killed processes


def say(text: str) -> None:
    """Write a line where trial writes."""
    print(text, flush=True)


def descendants() -> list[int]:
    """Return every process that we or our processes started and that still exists."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            try:
                stat = Path(f"/proc/{entry}/stat").read_text()
            except OSError:  # it ended meanwhile
                continue
            children.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(entry))
    found: list[int] = []
    waiting = [os.getpid()]
    while waiting:
        more = children.get(waiting.pop(), [])
        found += more
        waiting += more
    return found


class Run:
    """One process with tests.

    :ivar failures: texts that trial did not get to write.
    :ivar counts: as in trial's closing line.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = list(names)
        self.loading: str | None = None
        self.plan: list[tuple[str, list[str]]] = []
        self.begun: list[str] = []
        self.test: str | None = None
        self.done = False
        self.patience = 0.0
        self.failures: list[str] = []
        self.counts: dict[str, int] = {}
        self.status: int | None = None
        self.pipe, end = os.pipe()
        os.set_blocking(self.pipe, False)
        os.set_inheritable(end, True)
        argv = [sys.executable, "-u", "-m", "tests.watched", str(end), *names]
        self.pid = os.posix_spawn(sys.executable, argv, os.environ)
        os.close(end)
        self._rest = b""

    def read(self) -> bool:
        """Read its events; return whether there was one."""
        try:
            data = os.read(self.pipe, 1 << 16)
        except BlockingIOError:
            return False
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._heard(json.loads(line))
        return bool(data)

    def _heard(self, what: dict[str, Any]) -> None:
        self.loading = what.get("loading")
        self.plan = what.get("plan", self.plan)
        self.counts = what.get("counts", self.counts)
        self.done = "done" in what
        if "failure" in what:
            self.failures.append(what["failure"])
        if "test" in what:
            self.test = what["test"]
            self.patience = what.get("patience", 0.0)
            if self.test is not None:
                self.begun.append(self.test)

    @property
    def at(self) -> str:
        """The current test."""
        if self.loading is not None:
            return self.loading
        if self.done:
            return "the end of the process"
        if self.test is not None:
            return self.test
        return f"after {self.begun[-1]}" if self.begun else "the beginning"

    def left(self) -> list[str]:
        """Return what to run instead of what this one did not come to."""
        if not self.plan:
            return [name for name in self.names if name != self.loading] if self.loading else []
        begun, left = set(self.begun), []
        for name, tests in self.plan:
            more = [test for test in tests if test not in begun]
            left += [name] if len(more) == len(tests) else more
        return left if begun else []

    def count_left(self) -> int:
        """Return how many tests it did not come to."""
        return sum(len(tests) for _, tests in self.plan) - len(self.begun)


class Watchdog:
    """:param silence: how long a run may be at one test, s, if the test's own timeout is not longer.
    :param limit: how long all may take, s.
    """

    #: Signals that end us.
    _ENDING: ClassVar = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self, silence: float, limit: float) -> None:
        self._silence = silence
        self._limit = limit
        self._deadline = time.monotonic() + limit
        self._asked: int | None = None  # by which signal to end
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)  # orphans of theirs become our children
        self._woken, wake = os.pipe()
        for end in (self._woken, wake):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in self._ENDING:
            signal.signal(number, self._note)

    def _note(self, number: int, frame: object) -> None:
        self._asked = number

    def run(self, names: Sequence[str]) -> int:
        """Run *names*; return the exit code."""
        failed = False
        while names:
            run = Run(names)
            why = self._watch(run)
            if self._asked is not None:
                self._leave(run, self._asked)
            if why:
                self._kill(run, why)
            self._end_all(run)
            os.close(run.pipe)
            failed |= bool(why) or run.status != 0
            names = []
            if why:
                is_over = time.monotonic() >= self._deadline
                names = [] if is_over else run.left()
                self._close(run, why, is_over=is_over)
        return int(failed)

    def _watch(self, run: Run) -> str:
        """Wait until *run* ends; return the error, if trial does not report it itself."""
        heard = time.monotonic()
        with selectors.DefaultSelector() as selector:
            selector.register(run.pipe, selectors.EVENT_READ)
            selector.register(self._woken, selectors.EVENT_READ)
            while run.status is None and self._asked is None:
                patience = max(self._silence, run.patience + MORE if run.patience > self._silence else 0)
                until = min(heard + patience, self._deadline)
                now = time.monotonic()
                if now >= until:
                    if now >= self._deadline:
                        return f"the time of this run, {self._limit:g} s, is over"
                    return f"no sign of life for {patience:g} s"
                for key, _ in selector.select(until - now):
                    if key.fd == self._woken:
                        self._reap(run)
                    elif run.read():
                        heard = time.monotonic()
                    else:
                        selector.unregister(run.pipe)
        if self._asked is not None:
            return ""
        while run.read():
            pass
        if run.done:
            return ""
        ended = f"signal {-run.status}" if run.status and run.status < 0 else f"exit code {run.status}"
        return f"the process of the tests ended, {ended}"

    def _reap(self, run: Run) -> None:
        """Collect ended processes: the run, or its orphans."""
        try:
            while os.read(self._woken, 512):
                pass
        except BlockingIOError:
            pass
        try:
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == run.pid:
                    run.status = os.waitstatus_to_exitcode(ended[1])
        except ChildProcessError:
            pass

    def _kill(self, run: Run, why: str) -> None:
        """Print the current test of *run*, and make it dump its threads."""
        say(f"\n\n*** {run.at}: {why}")
        if run.status is None:
            say("*** stacks of all threads:")
            self._end(run, signal.SIGABRT)

    def _end(self, run: Run, number: int) -> None:
        """Make *run* end, and wait a while for it."""
        os.kill(run.pid, number)
        os.kill(run.pid, signal.SIGCONT)
        deadline = time.monotonic() + GRACE
        while run.status is None and time.monotonic() < deadline:
            time.sleep(0.05)
            self._reap(run)

    def _end_all(self, run: Run) -> None:
        """Kill *run* and every program that it left behind."""
        deadline = time.monotonic() + ENDING
        while left := descendants():
            if time.monotonic() > deadline:
                say(f"*** not ended: {left}")
                return
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except (ProcessLookupError, PermissionError):
                    pass
            time.sleep(0.01)
            self._reap(run)

    def _leave(self, run: Run, number: int) -> NoReturn:
        """End as the signal asks that we got, and everything with us."""
        if run.status is None:
            self._end(run, 0 if number == signal.SIGINT else number)  # a terminal interrupts the tests, too
        self._end_all(run)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        raise AssertionError("we are still here")

    def _close(self, run: Run, why: str, *, is_over: bool) -> None:
        """Write what trial would have at the end of *run*."""
        if run.done:  # trial has written its own, but its process did not end
            run.failures, run.counts = [], {}
        for failure in (*run.failures, f"[ERROR]\n{why}\n{run.at}"):
            say("=" * 79 + "\n" + failure)
        say("-" * 79 + f"\nRan {len(run.begun)} tests" + ", then was killed" * (not is_over))
        if is_over and (left := run.count_left()):
            say(f"not run: {left}")
        counts = {**run.counts, "errors": run.counts.get("errors", 0) + 1}
        order = ("skips", "expectedFailures", "failures", "errors", "unexpectedSuccesses", "successes")
        summary = ", ".join(f"{name}={counts[name]}" for name in order if counts.get(name))
        say(f"\nFAILED ({summary})\n")


def main() -> int:
    """Run."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.watchdog", description="Run tests, and end what hangs."
    )
    parser.add_argument(
        "--silence",
        type=float,
        default=SILENCE,
        metavar="S",
        help="how long one test may take (%(default)g s)",
    )
    parser.add_argument(
        "--limit", type=float, default=LIMIT, metavar="S", help="how long all may take (%(default)g s)"
    )
    parser.add_argument(
        "--group", metavar="GROUP", help="name of these tests, printed when they begin and end, for .ci/run"
    )
    parser.add_argument("names", nargs="+", metavar="NAME", help="a module, a class or a test")
    options = parser.parse_args()
    if options.group:
        say(f"group {options.group} begins")
    code = Watchdog(options.silence, options.limit).run(options.names)
    if options.group:
        say(f"group {options.group} ends")
    return code


if __name__ == "__main__":
    sys.exit(main())

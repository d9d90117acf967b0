"""The tests that a `tests.watchdog` watches: trial's own run, which reports its progress on a pipe.

Each line on the pipe is a JSON object: ``loading`` names what is being imported; ``plan`` has the ids of all
tests, by the name on the command line; ``test`` begins, and may take ``patience`` s, and is over
when it is null.  ``counts`` are those of trial's closing line, and ``failure`` is one that it will describe.
When Python aborts (SIGABRT) it dumps the stacks of all threads.
"""

from __future__ import annotations

import faulthandler
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Iterator
from typing import Any

from twisted.python.failure import Failure
from twisted.trial.reporter import TreeReporter
from twisted.trial.runner import TestLoader, TrialRunner
from twisted.trial.unittest import TestSuite

from tests.integration.programs import LIBC, PR_SET_PDEATHSIG

#: Numbers of trial's closing line.
COUNTED = ("skips", "expectedFailures", "failures", "errors", "unexpectedSuccesses")

#: How many modules whose use is shown at the end, and how long they took at least, s.
SHOWN, LONG = 30, 10.0


class Teller:
    """:param descriptor: of the pipe."""

    def __init__(self, descriptor: int) -> None:
        self._pipe = os.fdopen(descriptor, "w")

    def report(self, **what: Any) -> None:
        """Send it at once."""
        self._pipe.write(json.dumps(what) + "\n")
        self._pipe.flush()

    def close(self) -> None:
        """Close the pipe."""
        self._pipe.close()


class Usage:
    """Time of each module's tests, with that of the programs that they started and waited for."""

    def __init__(self) -> None:
        self._last = self._now()
        self._modules: dict[str, tuple[float, float]] = {}

    def add(self, module: str) -> None:
        """Add the use since the last call."""
        last, self._last = self._last, self._now()
        used = self._modules.get(module, (0.0, 0.0))
        self._modules[module] = used[0] + self._last[0] - last[0], used[1] + self._last[1] - last[1]

    def __str__(self) -> str:
        most = sorted(self._modules.items(), key=lambda each: each[1], reverse=True)[:SHOWN]
        lines = [f"{took:8.1f} {processor:8.1f}  {name}" for name, (took, processor) in most if took >= LONG]
        return "\n".join(["    time processor, s", *lines]) if lines else ""

    def _now(self) -> tuple[float, float]:
        used = [resource.getrusage(each) for each in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return time.monotonic(), sum(each.ru_utime + each.ru_stime for each in used)


class TellingReporter(TreeReporter):
    """Trial's usual reporter, which also reports to a pipe.

    :ivar teller: the pipe; set before the run.
    """

    teller: Teller

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.usage = Usage()

    def startTest(self, test: Any) -> None:
        """See TreeReporter."""
        own = getattr(getattr(test, "_originalTest", test), "timeout", None)  # synchronous ones are wrapped
        patience = own if isinstance(own, float | int) else 0
        self.teller.report(test=test.id(), patience=patience, counts=self._counts())
        super().startTest(test)

    def stopTest(self, test: Any) -> None:
        """See TreeReporter."""
        super().stopTest(test)
        self.usage.add(test.id().rsplit(".", 2)[0])
        self.teller.report(test=None, counts=self._counts())

    def addError(self, test: Any, error: Any) -> None:
        """See TreeReporter."""
        super().addError(test, error)
        self._report_failure("[ERROR]", test, self.errors[-1][1])

    def addFailure(self, test: Any, fail: Any) -> None:
        """See TreeReporter."""
        super().addFailure(test, fail)
        self._report_failure("[FAIL]", test, self.failures[-1][1])

    def _report_failure(self, kind: str, test: Any, error: Any) -> None:
        text = error.getTraceback(elideFrameworkCode=True) if isinstance(error, Failure) else str(error)
        self.teller.report(failure=f"{kind}\n{text}\n{test.id()}", counts=self._counts())

    def _counts(self) -> dict[str, int]:
        counts = {name: len(getattr(self, name)) for name in COUNTED}
        return {**counts, "successes": self.successes}


def ids_in(test: Any) -> Iterator[str]:
    """Return the ids of all tests in a suite, in order."""
    try:
        parts = iter(test)
    except TypeError:
        yield test.id()
    else:
        for part in parts:
            yield from ids_in(part)


def main(descriptor: str, *names: str) -> None:
    """Run *names* as ``trial`` does."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.set_inheritable(int(descriptor), False)
    faulthandler.enable(os.dup(2))
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    TellingReporter.teller = teller = Teller(int(descriptor))
    loader, suite, plan = TestLoader(), TestSuite(), []
    for name in names:
        teller.report(loading=name)
        part = loader.loadByNames([name], recurse=True)
        plan.append((name, list(ids_in(part))))
        suite.addTest(part)
    teller.report(loading=None, plan=plan)
    result: Any = TrialRunner(TellingReporter).run(suite)
    if usage := str(result.usage):
        print(usage, flush=True)
    teller.report(test=None, done=True)
    teller.close()
    sys.exit(not result.wasSuccessful())


if __name__ == "__main__":
    main(*sys.argv[1:])

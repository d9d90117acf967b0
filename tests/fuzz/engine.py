"""Running inputs, and reporting those that break something."""

from __future__ import annotations

import random
import resource
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from twisted.logger import ILogObserver, LogEvent, globalLogPublisher
from zope.interface import provider

from tests.fuzz.mutation import mutated

#: Longest that one input may take, s; a hundred times what the slowest takes on a busy machine.
PATIENCE = 10.0

#: How much one input may make this process larger, KiB.
MOST_MEMORY = 64 * 1024

#: Tries, and time, to make a finding smaller.
SHRINKING_TRIES = 3000
SHRINKING_TIME = 15.0

#: How long each target gets before the next has its turn, s.
STEP = 0.1


class Broken(AssertionError):
    """A parser broke a rule; the text names it."""


@dataclass(frozen=True)
class Target:
    """A reader of untrusted input.

    :ivar corpus: good inputs.
    :ivar words: fragments that may have a meaning within one.
    :ivar check: reads an input; raises `Broken` or anything else if that fails.  Random choices,
    such as the cuts of the input, come from its second argument.
    """

    name: str
    corpus: Sequence[bytes]
    words: Sequence[bytes]
    check: Callable[[bytes, random.Random], None]


@dataclass(frozen=True)
class Finding:
    """An input that breaks something.

    :ivar chance: seed of the second argument of `Target.check`.
    """

    target: str
    data: bytes
    chance: str
    error: BaseException

    def __str__(self) -> str:
        """Return what to do about it."""
        return (
            f"{self.target}: {type(self.error).__name__}: {self.error}\n"
            f"  input: {self.data!r}\n"
            f"  again: python -m tests.fuzz --target {self.target} --replay {self.data.hex() or '-'}"
            f" --chance {self.chance}"
        )


def attempt(target: Target, data: bytes, chance: str) -> BaseException | None:
    """Let *target* read *data*; return the error, if any."""
    failures: list[LogEvent] = []

    @provider(ILogObserver)
    def observe(event: LogEvent) -> None:
        if "log_failure" in event:
            failures.append(event)

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    globalLogPublisher.addObserver(observe)
    try:
        with _alarm():
            target.check(data, random.Random(chance))
        if failures:
            raise Broken(f"logged {failures[0]['log_failure'].value!r}")
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        if grown > MOST_MEMORY:
            raise Broken(f"needed {grown >> 10} MiB")
    except Exception as e:  # noqa: BLE001 - any exception is a finding
        return e
    finally:
        globalLogPublisher.removeObserver(observe)
    return None


class TookTooLong(Exception):
    """An input is still being read after `PATIENCE`."""


@contextmanager
def _alarm() -> Iterator[None]:
    def ring(number: int, frame: FrameType | None) -> None:
        raise TookTooLong(f"not read after {PATIENCE:g} s")

    previous = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def shrunk(target: Target, finding: Finding) -> Finding:
    """Return the finding with the smallest input that still breaks in the same way."""
    until = time.monotonic() + SHRINKING_TIME
    tries = SHRINKING_TRIES
    size = max(1, len(finding.data) // 2)
    while size:
        place, smaller = 0, False
        while place < len(finding.data) and tries and time.monotonic() < until:
            data = finding.data[:place] + finding.data[place + size :]
            error = attempt(target, data, finding.chance)
            tries -= 1
            if error is not None and type(error) is type(finding.error):
                finding, smaller = Finding(target.name, data, finding.chance, error), True
            else:
                place += size
        if not smaller:
            size //= 2
        if not tries or time.monotonic() >= until:
            break
    return finding


def fuzz(targets: Sequence[Target], seconds: float, seed: int) -> tuple[dict[str, int], list[Finding]]:
    """Go round the targets until the time is over; return how many inputs each read, and what was found.

    A target that broke gets no more.
    """
    counts = dict.fromkeys((target.name for target in targets), 0)
    findings: list[Finding] = []
    waiting = list(targets)
    until = time.monotonic() + seconds
    while waiting and time.monotonic() < until:
        for target in list(waiting):
            finding = _step(target, counts, seed)
            if finding is not None:
                waiting.remove(target)
                findings.append(shrunk(target, finding))
    return counts, findings


def _step(target: Target, counts: dict[str, int], seed: int) -> Finding | None:
    until = time.monotonic() + STEP
    while time.monotonic() < until:
        chance = f"{seed}/{target.name}/{counts[target.name]}"
        counts[target.name] += 1
        data = mutated(random.Random(chance), target.corpus, target.words)
        error = attempt(target, data, chance)
        if error is not None:
            return Finding(target.name, data, chance, error)
    return None

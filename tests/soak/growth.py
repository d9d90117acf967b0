"""Whether a program grows: samples of its memory and its descriptors, and a verdict about them."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median

from tests.integration.programs import Program

MIB = 1 << 20

#: The part of the run that is not looked at: buffers and caches fill.
WARM_UP = 0.25

#: Largest allowed growth between the first and the last third of the samples, in the median: a quarter of the
#: budget for buffers, whose use varies at any time.
MOST_MEMORY = 8 * MIB
MOST_DESCRIPTORS = 10


@dataclass
class Samples:
    """Samples of one program, in order.

    :ivar memory: unshared resident memory, B.
    :ivar descriptors: open files.
    """

    name: str
    memory: list[int] = field(default_factory=list)
    descriptors: list[int] = field(default_factory=list)

    def take(self, program: Program) -> None:
        """Look at *program*."""
        self.memory.append(program.memory())
        self.descriptors.append(program.descriptors())

    def now(self) -> str:
        """Return the last sample in words."""
        return f"{self.name} {self.memory[-1] / MIB:.1f} MiB, {self.descriptors[-1]} files"

    def grown(self) -> list[str]:
        """Return what has grown too much, in words."""
        found = []
        memory, files = growth(self.memory), growth(self.descriptors)
        if memory > MOST_MEMORY:
            found.append(f"{self.name} has grown by {memory / MIB:.1f} MiB")
        if files > MOST_DESCRIPTORS:
            found.append(f"{self.name} has {files:g} more files open")
        return found

    def summary(self) -> str:
        """Return begin, end and growth in words."""
        settled = after_warm_up(self.memory)
        return (
            f"{self.name}: {self.memory[0] / MIB:.1f} MiB at the start, {settled[0] / MIB:.1f} when warm,"
            f" {settled[-1] / MIB:.1f} at the end, at most {max(self.memory) / MIB:.1f};"
            f" grown by {growth(self.memory) / MIB:.2f} MiB and {growth(self.descriptors):g} files"
        )


def after_warm_up(samples: list[int]) -> list[int]:
    """Return the samples that count."""
    return samples[int(len(samples) * WARM_UP) :]


def growth(samples: list[int]) -> float:
    """Return by how much the last third is above the first, once warm; medians, since load comes and goes."""
    settled = after_warm_up(samples)
    third = max(1, len(settled) // 3)
    return median(settled[-third:]) - median(settled[:third])

"""Findings of the doctor, and courses of checks that produce them.  No I/O."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Literal, TypeAlias

from attrs import field, frozen

from tower.errors import TowerError, one_line
from tower.escaping import escaped, readable_json

#: `skip`: not checked, because an earlier check of the course failed.
Grade: TypeAlias = Literal["ok", "warn", "FAIL", "skip"]


#: Start of the cure in a message.
_CURE = re.compile(
    r": (?=(?:add|check|chmod|chown|choose|compare|correct|create|delete|free|get|give|install|let|make|mount"
    r"|move|put|remove|renew|repair|replace|restart|restore|run|see|set|start|stop|synchronize|take|upgrade"
    r"|use|write|with [^:]*? run|on the \w+)\b)"
)

#: A quotation of a peer; see `tower.escaping.quoted`.
_QUOTATION = re.compile(r'"(?:[^"\\]|\\.)*"')


@frozen
class Verdict:
    """The result of one check.

    :ivar seen: what the check saw.
    :ivar cure: command or setting that cures it; empty if nothing is wrong.
    """

    grade: Grade
    seen: str = field(converter=escaped)
    cure: str = field(default="", converter=escaped)


def ok(seen: str) -> Verdict:
    """Return the verdict that all is well."""
    return Verdict("ok", seen)


def warn(seen: str, cure: str) -> Verdict:
    """Return the verdict that something works, but should be changed."""
    return Verdict("warn", seen, cure)


def fail(seen: str, cure: str) -> Verdict:
    """Return the verdict that something does not work."""
    return Verdict("FAIL", seen, cure)


def judged(text: str, cure: str) -> Verdict:
    """Return the failure that a message of Tower describes; its cure is an imperative after a colon.

    A quotation in the message has no cure: its text is a peer's.

    :param cure: for a message without one.
    """
    found = _CURE.search(_QUOTATION.sub(lambda quotation: "x" * len(quotation[0]), text))
    return fail(text, cure) if found is None else fail(text[: found.start()], text[found.start() + 2 :])


@frozen
class Finding:
    """The verdict of a named check."""

    check: str
    verdict: Verdict

    @property
    def line(self) -> str:
        """The finding in one line."""
        verdict = self.verdict
        cure = f" -> {verdict.cure}" if verdict.cure else ""
        return f"{verdict.grade:4}  {self.check}: {verdict.seen}{cure}"


@frozen
class Step:
    """One check of a course.

    :ivar look: returns the verdict; a `TowerError` or `OSError` is a failure.
    """

    check: str
    look: Callable[[], Verdict | Awaitable[Verdict]]


@frozen
class Course:
    """Checks that depend on each other: the first failure ends the course.

    :ivar then: courses that depend on this one, but not on each other.
    """

    steps: Sequence[Step]
    then: Sequence[Course] = ()

    async def run(self, failed: str = "") -> list[Finding]:
        """Return the findings of all steps.

        :param failed: name of a failed check that all steps depend on.
        """
        found: list[Finding] = []
        for step in self.steps:
            if failed:
                found.append(Finding(step.check, Verdict("skip", f"not checked, because {failed} failed")))
                continue
            verdict = await _verdict(step)
            found.append(Finding(step.check, verdict))
            if verdict.grade == "FAIL":
                failed = step.check
        for course in self.then:
            found += await course.run(failed)
        return found


async def _verdict(step: Step) -> Verdict:
    try:
        verdict = step.look()
        return verdict if isinstance(verdict, Verdict) else await verdict
    except TowerError as e:
        return judged(one_line(e), "correct this setting or file")
    except OSError as e:
        return fail(f"{e.filename or ''} {e.strerror or e}".strip(), "check the permissions of this user")


async def examine(courses: Iterable[Course]) -> list[Finding]:
    """Return the findings of all *courses*."""
    return [finding for course in courses for finding in await course.run()]


def exit_code(findings: Iterable[Finding]) -> int:
    """Return 1 if a check failed, else 0."""
    return int(any(finding.verdict.grade == "FAIL" for finding in findings))


def as_text(findings: Iterable[Finding]) -> str:
    """Return one line for each finding."""
    return "\n".join(finding.line for finding in findings)


def as_json(findings: Sequence[Finding]) -> str:
    """Return the findings as JSON: ``{"ok": ..., "findings": [{"status", "check", "seen", "cure"}]}``."""
    listed: list[dict[str, Any]] = [
        {
            "status": finding.verdict.grade,
            "check": finding.check,
            "seen": finding.verdict.seen,
            "cure": finding.verdict.cure,
        }
        for finding in findings
    ]
    return readable_json({"ok": exit_code(findings) == 0, "findings": listed})

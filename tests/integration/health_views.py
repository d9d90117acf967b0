"""The conditions, lists, logs and pages with the state of a cluster, compared with the expected state."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tests.integration.harness import Tower
from tests.integration.health_subjects import CLUSTERS, KINDS, NODES, OLD, OurAgent, Subject
from tests.integration.member import kubectls
from tests.integration.own_time import OwnTime
from tests.integration.programs import NotInTimeError, Program, run, wait_for

NOTICED = 30.0  # s until a change shows everywhere
PATIENCE = 120.0  # s for the same on a loaded machine

CONDITION: Final = "condition"
PROXY_LOG: Final = "log of the proxy"
AGENT_LOG: Final = "log of the agent"
READYZ: Final = "/readyz"
LIST: Final = "tower cluster list"
KUBECTL: Final = "kubectl get clusters"
VIEWS = (CONDITION, PROXY_LOG, AGENT_LOG, READYZ, LIST, KUBECTL)

#: Cells of the matrix that cannot exist, with the reason.
ABSENT = {
    **dict.fromkeys([(OLD, READYZ), (OLD, AGENT_LOG)], "old agents do not check their member"),
    **dict.fromkeys([(NODES, READYZ), (NODES, AGENT_LOG)], "the cluster has no agent"),
}


@dataclass(frozen=True, eq=False)
class Fault:
    """A fault of a member, and its signs.

    :ivar condition: the condition that has it, in addition to ``Available``.
    :ivar reason: of both; a regular expression.
    :ivar cures: of each kind of cluster, in the proxy's messages; regular expressions.
    :ivar local: the cure in the messages of a Tower agent; a regular expression.
    :ivar available: whether users' requests succeed: the fault is a warning.
    """

    name: str
    condition: str
    reason: str
    cures: dict[str, str]
    local: str
    available: bool = False


def everywhere(cure: str) -> dict[str, str]:
    """Return the same cure for each kind of cluster."""
    return dict.fromkeys(KINDS, cure)


@dataclass
class Case:
    """A cluster that has a fault, or had it.

    :ivar broken: whether it has the fault now.
    """

    fault: Fault
    subject: Subject
    broken: bool = False
    _starts: dict[str, int] = field(default_factory=dict, init=False)

    @property
    def status(self) -> str:
        """The status that ``Available`` has to have."""
        return str(self.fault.available or not self.broken)

    def begin(self, broken: bool, proxy: Program) -> None:
        """Expect the fault, or its repair, from now on: earlier lines of logs do not count."""
        self.broken = broken
        programs = (proxy, self.subject.program) if isinstance(self.subject, OurAgent) else (proxy,)
        self._starts = {program.name: len(program.output()) for program in programs}

    def since(self, program: Program) -> str:
        """Return what *program* has logged since `begin`."""
        return program.log.read_text(errors="replace")[self._starts.get(program.name, 0) :]

    def has_text(self, reason: str, message: str) -> bool:
        """Return whether this reason and this message are those of the fault."""
        cure = self.fault.cures[self.subject.kind]
        return bool(re.fullmatch(self.fault.reason, reason) and re.search(cure, message))

    def complaint(self, reason: str, message: str) -> str:
        """Return what is wrong with a reason and a message that an operator sees; empty: nothing."""
        if not self.broken:
            return "" if reason in ("<none>", "Ready") else f"{reason}: {message}"
        return "" if self.has_text(reason, message) else f"{reason}: {message}"


class Views:
    """Compares all views with the expected state.

    :ivar checked: cells that were compared: fault, kind, view and direction.
    """

    def __init__(self, tower: Tower) -> None:
        self._tower = tower
        self._kubectl = kubectls()[-1]
        self.checked: set[tuple[str, str, str, str]] = set()

    def change(self, what: str, cases: Sequence[Case], act: Callable[[], None], *, broken: bool) -> None:
        """Break or repair the clusters of *cases*; return when all their views show it, in time."""
        for case in cases:
            case.begin(broken, self._tower.proxy)
        act()
        self.wait(what, cases)

    def wait(self, what: str, cases: Sequence[Case]) -> None:
        """Return when all views of *cases* are right, in time."""
        wrong: list[str] = []
        agents = (case.subject.program for case in cases if isinstance(case.subject, OurAgent))
        own = OwnTime(self._tower.proxy, *agents)

        def is_shown() -> bool:
            passed = own.passed()
            wrong[:] = self._wrong(cases)
            if wrong and passed > NOTICED:
                raise NotInTimeError(f"not within {passed:.0f} s: {what}")
            return not wrong

        try:
            wait_for(what, is_shown, PATIENCE, 0.5)
        except AssertionError as e:
            raise AssertionError("\n".join([str(e), *wrong])) from e

    def _wrong(self, cases: Sequence[Case]) -> list[str]:
        """Return the cells that are wrong; commands run only if everything else is right."""
        objects = self._objects()
        wrong = [
            *self._compare(CONDITION, cases, lambda case: _conditions(case, objects[case.subject.name])),
            *self._compare(PROXY_LOG, cases, self._proxy_log),
            *self._compare(AGENT_LOG, cases, _agent_log),
            *self._compare(READYZ, cases, _readyz),
        ]
        for view, command in () if wrong else ((LIST, self._list), (KUBECTL, self._get)):
            rows = {row["NAME"]: row for row in columns(command())}
            wrong += self._compare(view, cases, lambda case, rows=rows: _row(case, rows[case.subject.name]))  # type: ignore[misc]
        return wrong

    def _compare(self, view: str, cases: Sequence[Case], check: Callable[[Case], str]) -> list[str]:
        wrong = []
        for case in cases:
            kind = case.subject.kind
            if (kind, view) in ABSENT:
                continue
            direction = "fault" if case.broken else "repair"
            self.checked.add((case.fault.name, kind, view, direction))
            complaint = check(case)
            if complaint:
                wrong.append(f"{direction} of {case.fault.name}, {kind}, {view}: {complaint}")
        return wrong

    def _objects(self) -> dict[str, Any]:
        items = json.loads(self._tower.admin().get(CLUSTERS).body)["items"]
        return {item["metadata"]["name"]: item for item in items}

    def _list(self) -> str:
        return self._tower.tower("cluster", "list", "-o", "wide")

    def _get(self) -> str:
        """Return the answer of kubectl to the administrator of Tower."""
        kubeconfig = self._tower.state / "admin.kubeconfig"
        cache = self._tower.folder / "kubectl-cache"
        done = run(
            [
                *(str(self._kubectl), f"--kubeconfig={kubeconfig}", f"--cache-dir={cache}"),
                *("get", "clusters", "-o", "wide"),
            ]
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.decode()

    def _proxy_log(self, case: Case) -> str:
        state = "available" if case.status == "True" else "not available"
        pattern = rf": cluster {case.subject.name} is ((?:not )?available): (\w+): (.*)"
        lines = re.findall(pattern, case.since(self._tower.proxy))
        if not lines:
            return "no line"
        found, reason, message = lines[-1]
        return f"{found}: {reason}" if found != state else case.complaint(reason, message)


def _conditions(case: Case, cluster: dict[str, Any]) -> str:
    conditions = {each["type"]: each for each in cluster["status"].get("conditions", ())}
    for kind in ("Available", case.fault.condition):
        found = conditions.get(kind, {"status": "", "reason": "", "message": ""})
        text = f"{kind} is {found['status']}, {found['reason']}: {found['message']}"
        if found["status"] != case.status:
            return text
        if case.broken and not case.has_text(found["reason"], found["message"]):
            return text
        if not case.broken and kind == "Available" and found["reason"] != "Ready":
            return text
    return ""


def _agent_log(case: Case) -> str:
    assert isinstance(case.subject, OurAgent)
    log = case.since(case.subject.program)
    goods = {
        "APIServerReachable": "Reachable",
        "MemberCredential": "CredentialAccepted",
        "ImpersonationAllowed": "ImpersonationAllowed",
    }
    for line in log.splitlines():
        message, _, reason = line.rpartition(" (")
        if case.broken and re.fullmatch(case.fault.reason, reason.rstrip(")")):
            return "" if re.search(case.fault.local, message) else line
        if not case.broken and line.endswith(f" ({goods[case.fault.condition]})"):
            return ""
    return f"no such line: {log}"


def _readyz(case: Case) -> str:
    assert isinstance(case.subject, OurAgent)
    code, text = case.subject.page()
    has_cure = re.search(case.fault.local, text) is not None
    if not case.broken:
        expected = (code, text) == (200, "ok\n")
    elif case.fault.available:
        expected = code == 200 and text.startswith("ok\nwarning: ") and has_cure
    else:
        expected = code == 503 and text.startswith("not ready: ") and has_cure
    return "" if expected else f"{code} {text}"


def _row(case: Case, row: dict[str, str]) -> str:
    if row["AVAILABLE"] != case.status:
        return f"AVAILABLE is {row['AVAILABLE']}"
    complaint = case.complaint(row["REASON"], row["MESSAGE"])
    if complaint:
        return complaint
    for column, pattern in (
        ("VERSION", r"v1\.[0-9]+\.[0-9]+"),
        ("AGENT VERSION", case.subject.agent_version),
        ("LAST SEEN", "now"),  # its agent is connected, or a node
    ):
        if re.fullmatch(pattern, row[column]) is None:
            return f"{column} is {row[column]!r}"
    return ""


def columns(text: str) -> list[dict[str, str]]:
    """Return the cells of a table of kubectl or `tower` by column."""
    head, *lines = text.splitlines()
    starts = [found.start() for found in re.finditer(r"\S+( \S+)*", head)]
    ends = [*starts[1:], None]
    names = [head[a:b].strip() for a, b in zip(starts, ends, strict=True)]
    return [
        {name: line[a:b].strip() for name, a, b in zip(names, starts, ends, strict=True)} for line in lines
    ]

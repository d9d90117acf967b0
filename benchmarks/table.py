"""The tables that are printed: medians, and what matters, their ratios."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.measurements import Group, Sample, Work, middle
from benchmarks.systems import Setting

#: All samples of a row, by the column's label.
Samples = Mapping[str, list[Sample]]


def number(value: float) -> str:
    """Return *value* with three digits that mean something."""
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def ratio(ours: float, theirs: float) -> str:
    """Return how many times *theirs* *ours* is."""
    return f"{ours / theirs:.2f}x" if theirs else "-"


def lines(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return *rows*, the first of which is the head, as a table in Markdown."""
    head, *body = ["| " + " | ".join(row) + " |" for row in rows]
    return [head, "|" + "---|" * len(rows[0]), *body]


def ratios(group: Group, done: Mapping[Work, Samples]) -> list[str]:
    """Return the table of how many times the others' rate ours is."""
    pairs = [(ours, other) for ours in group.ours for other in group.against]
    rows = [["", *(f"{ours} ÷ {other}" for ours, other in pairs)]]
    for work, samples in done.items():
        values = {label: middle(taken).value for label, taken in samples.items() if taken}
        row = [
            ratio(values[ours], values[other]) if ours in values and other in values else "-"
            for ours, other in pairs
        ]
        rows.append([work.title, *row])
    return lines(rows)


def speeds(group: Group, done: Mapping[Work, Samples]) -> list[str]:
    """Return the table of medians."""
    rows = [["", *(column.label for column in group.columns)]]
    for work, samples in done.items():
        row = [f"{work.title}, {work.unit}"]
        for column in group.columns:
            taken = samples[column.label]
            row.append(_shown(middle(taken)) if taken else "failed")
        rows.append(row)
    return lines(rows)


def _shown(sample: Sample) -> str:
    text = number(sample.value)
    return f"{text} ({number(sample.behind)})" if sample.behind else text


def costs(group: Group, done: Mapping[Work, Samples]) -> list[str]:
    """Return the table of CPU time, proxy and agent, and of its ratios to the first of `Group.against`."""
    peer = group.against[0]
    labels = [column.label for column in group.columns if column.system != "direct"]
    rows = [["CPU, proxy + agent", *labels, *(f"{ours} ÷ {peer}" for ours in group.ours)]]
    for work, samples in done.items():
        if work.behind:
            continue
        used = {label: middle(taken) for label, taken in samples.items() if taken}
        row = [f"{work.title}, {'s/GiB' if work.is_bulk else 'µs/request'}"]
        row += [
            f"{number(used[name].proxy)} + {number(used[name].agent)}" if name in used else "failed"
            for name in labels
        ]
        for ours in group.ours:
            if ours in used and peer in used:
                mine, theirs = used[ours], used[peer]
                row.append(f"{ratio(mine.proxy, theirs.proxy)}, {ratio(mine.agent, theirs.agent)}")
            else:
                row.append("-")
        rows.append(row)
    return lines(rows)


def memory(setting: Setting) -> list[str]:
    """Return the table of resident memory before and after all the work."""
    rows = [["resident memory, MiB", "proxy, idle", "proxy, now", "agent, idle", "agent, now"]]
    for name, (proxy, agent) in setting.idle.items():
        system = setting.systems[name]
        now = [0.0 if program is None else program.memory for program in (system.proxy, system.agent)]
        rows.append([name, number(proxy), number(now[0]), number(agent), number(now[1])])
    return lines(rows)

"""The printed tables: claims with measured ratios, and the medians."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from benchmarks.claims import CLAIMS, Claim, Ratio, Samples
from benchmarks.rows import WITH_TLS, Group, Row

#: The samples of every row that was measured.
Done = Mapping[Row, Samples]


def number(value: float) -> str:
    """Return *value* with about three significant digits."""
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def lines(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return *rows* as a Markdown table; the first row is the header."""
    head, *body = ["| " + " | ".join(row) + " |" for row in rows]
    return [head, "|" + "---|" * len(rows[0]), *body]


def claimed(done: Done) -> list[tuple[Row, Claim]]:
    """Return the claims about measured rows, with their rows."""
    rows = {row.name: row for row in done}
    return [(rows[claim.row], claim) for claim in CLAIMS if claim.row in rows]


def claims(done: Done) -> list[str]:
    """Return the table of claims."""
    table = [["workload", "compared with", "required", "goal", "measured", "per round", "with users' TLS"]]
    for row, claim in claimed(done):
        samples = done[row]
        seen = claim.measured(samples, row.ours)
        unit = " KiB" if claim.absolute else "x"
        besides = claim.besides(samples, row.ours)
        title = f"{row.title}: {claim.what}" if claim.what else row.title
        line = [title, "-" if claim.absolute else claim.against]
        for bar in (claim.must, claim.aim):
            words = f"{'≤' if claim.less else '≥'} {bar:g}{unit}"
            line.append(words if seen is None else f"{words} {_mark(claim, seen, besides, bar)}")
        if seen is None:
            table.append([*line, "not measured", "", ""])
            continue
        shown = f"**{seen.value:.2f}{unit}**"
        if besides is not None:
            assert claim.also is not None
            shown += f" ({claim.also[0]} {besides.value:.2f}x)"
        too = claim.measured(samples, WITH_TLS)
        spread = f"{seen.low:.2f} to {seen.high:.2f}"
        table.append([*line, shown, spread, "" if too is None else f"{too.value:.2f}x"])
    return lines(table)


def _mark(claim: Claim, seen: Ratio, besides: Ratio | None, bar: float) -> str:
    held = claim.also is None or (besides is not None and besides.value >= claim.also[1])
    return "✓" if held and claim.reaches(seen.value, bar) else "✗"


def details(group: Group, done: Done) -> list[str]:
    """Return the medians of a group's rows; rows with the same columns share a table."""
    by_columns: dict[tuple[str, ...], list[Row]] = {}
    for row in group.rows:
        if row in done:
            by_columns.setdefault(tuple(column.label for column in row.columns), []).append(row)
    printed: list[str] = []
    for labels, rows in by_columns.items():
        table = [["", *labels]]
        for row in rows:
            table += _medians(row, labels, done[row])
        printed += [*lines(table), ""]
    return printed


def _medians(row: Row, labels: Iterable[str], samples: Samples) -> list[list[str]]:
    table = []
    for name, unit in row.work.units.items():
        cells = [
            number(median(each[name] for each in samples[label]))
            if samples[label] and name in samples[label][0]
            else ""
            for label in labels
        ]
        if any(cells):
            table.append([f"{row.title}: {_WORDS.get(name, name)}, {unit}", *cells])
    return table


_WORDS = {
    "proxy": "CPU of the proxy",
    "agent": "CPU of the agent",
    "server": "CPU of the API server",
    "cpu": "CPU of the proxy",
    "download": "rate of the download",
    "memory": "memory",
    "resident": "memory of the proxy with all agents",
}


def memory(idle: Mapping[str, Mapping[str, float]], now: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Return the table of resident memory before and after all runs, MiB."""
    rows = [["resident memory, MiB", "proxy, idle", "proxy, now", "agent, idle", "agent, now"]]
    for name, before in idle.items():
        cells = [
            number(when[part])
            for part in ("proxy", "agent")
            if part in before
            for when in (before, now[name])
        ]
        if cells:
            rows.append([name, *cells])
    return lines(rows)

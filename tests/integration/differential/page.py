"""The page of the differences."""

from __future__ import annotations

from tests.integration.differential import TABLES
from tests.integration.differential.rows import STARTS, Difference, Row, Table

PAGE = "docs/kube-apiserver-differences.md"

_BEGIN = """\
# Differences from kube-apiserver

<!-- Made by `python -m tests.integration.differential` from the tables of the tests. -->

Tests give the same mistakes to a real kube-apiserver 1.36 and to Tower: {count} options, files and requests.
{equal} of them have the same answer: status, reason and message of a response, or the text of an error at the
start.  Tower's texts continue with the cure, and errors of options begin with the option and its value:

    --max-requests-inflight '-1' can not be negative value: give 0 or more

The other {different} of these cases are below, with the reasons.  `tests/integration/test_bad_options.py` and
`tests/integration/test_as_kube_apiserver.py` check all {count}, and fail if this page is wrong.

| cases | equal | different |
|---|---|---|
{summary}

Other options and requests may have other answers, too.  These pages have more differences: [Tower's own
API](api.md#differences-from-kubernetes), [limits](limits.md#differences-from-kube-apiserver),
[servers](servers.md#differences-from-kube-apiserver), [authentication](authentication.md),
[acting as another user](authorization.md#acting-as-another-user),
[modes of authorization](authorization-modes.md#differences-from-kube-apiserver),
[audit log](audit-log.md#differences-from-kube-apiserver), [options](kube-apiserver-options.md),
[parts that Tower does not have](not-carried.md).

In the tables, an answer is a part of the text.  "starts" means that the options are accepted; a number alone
is a status: 201 is the answer to an authenticated user.
"""


def page() -> str:
    """Return the page."""
    counts = [(table.title, table.equal, len(table.rows) - table.equal) for table in TABLES]
    summary = [f"| {title} | {equal} | {different} |" for title, equal, different in counts]
    equal, different = sum(each[1] for each in counts), sum(each[2] for each in counts)
    begin = _BEGIN.format(
        count=equal + different, equal=equal, different=different, summary="\n".join(summary)
    )
    return begin + "".join(_section(table) for table in TABLES if table.equal < len(table.rows))


def _section(table: Table[object]) -> str:
    cases: dict[Difference, list[Row[object]]] = {}
    for row in table.rows:
        if row.other is not None:
            cases.setdefault(row.other, []).append(row)
    lines = [f"\n## {table.title}\n", "| case | kube-apiserver | Tower | reason |", "|---|---|---|---|"]
    for other, rows in cases.items():
        names = "; ".join(_cell(row.name) for row in rows)
        answers = (_answer(text) for text in (other.theirs, other.ours))
        lines.append(f"| {names} | {' | '.join(answers)} | {other.why} |")
    return "\n".join(lines) + "\n"


def _answer(text: str) -> str:
    return text if text == STARTS or text.isdigit() else f"`{_cell(text.strip())}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")

"""Lists of objects in the format of ``--output``, selected by ``--selector``."""

from __future__ import annotations

import argparse
import time
from typing import Any, Protocol

from tower.cli import output
from tower.cli.watching import PolledWatch
from tower.web.api.table import TABLES

#: Media types for a table; a proxy without tables answers with a list.
TABLE_ACCEPT = ",".join((*TABLES, "application/json"))


class Fetch(Protocol):
    """Calls the API for a list."""

    def __call__(self, *, query: dict[str, str], accept: str = ...) -> dict[str, Any]:
        """Return the list, or its table."""


def selection(options: argparse.Namespace) -> dict[str, str]:
    """Return the query for ``--selector``."""
    return {"labelSelector": options.selector} if options.selector else {}


def listed(fetch: Fetch, query: dict[str, str], form: str, empty: str) -> str:
    """Return a list in the format *form*; *empty*: text for a table without rows."""
    if form in ("table", "wide"):
        return output.table(fetch(query=query, accept=TABLE_ACCEPT), wide=form == "wide", empty=empty)
    return output.structured(fetch(query=query), form)


def listed_or_watched(fetch: Fetch, query: dict[str, str], options: argparse.Namespace, empty: str) -> str:
    """Return a list; with ``--watch``, print it and each change until Ctrl-C."""
    if options.watch:
        PolledWatch(fetch, query, options.output, time.sleep).run()
    return listed(fetch, query, options.output, empty)

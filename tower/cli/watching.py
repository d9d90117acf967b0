"""``--watch``: print the objects of a list, and then each change, until Ctrl-C."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, TypeAlias

from tower.cli import output
from tower.cli.client import GROUP_PATH, CallFailed, TowerClient
from tower.web.api.table import TABLES

_PATH = f"{GROUP_PATH}/clusters"

#: HTTP status of a watch whose version is too old.
_GONE = 410

#: Interval between lists of objects that the API cannot watch, s.
PERIOD = 2.0

#: Fields that change all the time; a change of nothing else is not printed.
_RESTLESS = frozenset(("lastSeen", "roundTripMilliseconds", "streams"))

Key: TypeAlias = tuple[str, str]


class Printed:
    """Prints objects one by one in an output format.

    :param form: ``table``, ``wide``, ``json``, ``yaml`` or ``name``.
    :ivar is_table: whether it prints tables.
    :ivar accept: the media type that it prints.
    """

    def __init__(self, form: str) -> None:
        self._form = form
        self._rows = output.GrowingTable(wide=form == "wide")
        self.is_table = form in ("table", "wide")
        self.accept = TABLES[0] if self.is_table else "application/json"

    def rows(self, table: dict[str, Any]) -> None:
        """Print the rows of a table; the header precedes the first ones."""
        if text := self._rows.add(table):
            print(text, flush=True)

    def object(self, item: dict[str, Any]) -> None:
        """Print an object."""
        if self._form == "name":
            text = item["metadata"]["name"]
        elif self._form == "yaml":
            text = f"---\n{output.as_yaml(item)}"
        else:
            text = output.as_json(item)
        print(text, flush=True)


class PolledWatch:
    """Lists objects that the API cannot watch every `PERIOD` s, and prints those that changed.

    An object that is removed is printed once more, as kubectl does.

    :param fetch: returns the list or the table; takes ``query`` and ``accept``.
    :param form: see `Printed`.
    :param sleep: waits for a time, s.
    """

    def __init__(
        self,
        fetch: Callable[..., dict[str, Any]],
        query: dict[str, str],
        form: str,
        sleep: Callable[[float], object],
    ) -> None:
        self._fetch = fetch
        self._printed = Printed(form)
        self._query = {**query, **({"includeObject": "Object"} if self._printed.is_table else {})}
        self._sleep = sleep
        self._known: dict[Key, list[dict[str, Any]]] = {}

    def run(self) -> NoReturn:
        """Print until Ctrl-C.

        :raise CommandFailed: the proxy rejected the request, or did not answer.
        """
        while True:
            answer = self._fetch(query=self._query, accept=self._printed.accept)
            self._print_changes(answer)
            self._sleep(PERIOD)

    def _print_changes(self, answer: dict[str, Any]) -> None:
        key = "rows" if self._printed.is_table else "items"
        found: dict[Key, list[dict[str, Any]]] = {}
        for entry in answer.get(key) or ():
            item = self._item(entry)
            name = (item["spec"].get("cluster", ""), item["metadata"]["name"])
            found.setdefault(name, []).append(entry)
        changed = [entries for name, entries in found.items() if self._facts(name) != self._of(entries)]
        removed = [entries for name, entries in self._known.items() if name not in found]
        entries = [entry for group in (*changed, *removed) for entry in group]
        self._known = found
        if self._printed.is_table:
            self._printed.rows({**answer, key: entries})
            return
        for entry in entries:
            self._printed.object(entry)

    def _item(self, entry: dict[str, Any]) -> dict[str, Any]:
        item: dict[str, Any] = entry["object"] if self._printed.is_table else entry
        return item

    def _facts(self, name: Key) -> list[Any]:
        return self._of(self._known.get(name, []))

    def _of(self, entries: list[dict[str, Any]]) -> list[Any]:
        """Return the facts of *entries* whose changes are printed."""
        return [_lasting(self._item(entry)) for entry in entries]


def _lasting(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _lasting(part) for name, part in value.items() if name not in _RESTLESS}
    if isinstance(value, list):
        return [_lasting(part) for part in value]
    return value


class ClusterWatch:
    """Prints clusters in one output format as they change.

    :param query: selectors.
    :param form: see `Printed`.
    """

    def __init__(self, client: TowerClient, query: dict[str, str], form: str) -> None:
        self._client = client
        self._query = query
        self._printed = Printed(form)
        self._version = ""

    def run(self) -> NoReturn:
        """Print until Ctrl-C; an ended watch is resumed.

        :raise CommandFailed: the proxy rejected the request, or did not answer.
        """
        self._list()
        while True:
            try:
                self._follow()
            except CallFailed as e:
                if e.code != _GONE:
                    raise
                self._list()

    def _list(self) -> None:
        """Print the current clusters."""
        answer = self._client.call("GET", _PATH, query=self._query, accept=self._printed.accept)
        if self._printed.is_table:
            self._print_rows(answer)
        else:
            for item in answer["items"]:
                self._printed.object({"apiVersion": answer["apiVersion"], "kind": "Cluster", **item})
        self._version = answer["metadata"]["resourceVersion"]

    def _follow(self) -> None:
        """Print changes until the proxy ends the watch."""
        query = {**self._query, "watch": "true", "resourceVersion": self._version}
        for event in self._client.watch(_PATH, query=query, accept=self._printed.accept):
            changed = event.get("object", {})
            if event.get("type") == "ERROR":
                raise CallFailed(
                    changed.get("code", 500), changed.get("reason", ""), changed.get("message", "")
                )
            if event.get("type") == "BOOKMARK":
                self._version = changed["metadata"]["resourceVersion"]
            elif self._printed.is_table:
                self._print_rows(changed)
            else:
                self._version = changed["metadata"]["resourceVersion"]
                self._printed.object(changed)

    def _print_rows(self, table: dict[str, Any]) -> None:
        for row in table.get("rows") or ():
            if version := row["object"]["metadata"].get("resourceVersion"):
                self._version = version
        self._printed.rows(table)

"""``--watch``: print the clusters, and then each change, until Ctrl-C."""

from __future__ import annotations

from typing import Any

from tower.cli import output
from tower.cli.client import GROUP_PATH, CallFailed, TowerClient
from tower.web.api.table import TABLES

_PATH = f"{GROUP_PATH}/clusters"

#: HTTP status of a watch whose version is too old.
_GONE = 410


class ClusterWatch:
    """Prints clusters in one output format as they change.

    :param query: selectors.
    :param form: ``table``, ``wide``, ``json``, ``yaml`` or ``name``.
    """

    def __init__(self, client: TowerClient, query: dict[str, str], form: str) -> None:
        self._client = client
        self._query = query
        self._form = form
        self._rows = output.GrowingTable(wide=form == "wide")
        self._version = ""

    @property
    def _is_table(self) -> bool:
        return self._form in ("table", "wide")

    def run(self) -> None:
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
        accept = TABLES[0] if self._is_table else "application/json"
        answer = self._client.call("GET", _PATH, query=self._query, accept=accept)
        if self._is_table:
            self._print_rows(answer)
        else:
            for item in answer["items"]:
                self._print_object({"apiVersion": answer["apiVersion"], "kind": "Cluster", **item})
        self._version = answer["metadata"]["resourceVersion"]

    def _follow(self) -> None:
        """Print changes until the proxy ends the watch."""
        query = {**self._query, "watch": "true", "resourceVersion": self._version}
        accept = TABLES[0] if self._is_table else "application/json"
        for event in self._client.watch(_PATH, query=query, accept=accept):
            changed = event.get("object", {})
            if event.get("type") == "ERROR":
                raise CallFailed(
                    changed.get("code", 500), changed.get("reason", ""), changed.get("message", "")
                )
            if event.get("type") == "BOOKMARK":
                self._version = changed["metadata"]["resourceVersion"]
            elif self._is_table:
                self._print_rows(changed)
            else:
                self._version = changed["metadata"]["resourceVersion"]
                self._print_object(changed)

    def _print_rows(self, table: dict[str, Any]) -> None:
        for row in table.get("rows") or ():
            if version := row["object"]["metadata"].get("resourceVersion"):
                self._version = version
        if text := self._rows.add(table):
            print(text, flush=True)

    def _print_object(self, item: dict[str, Any]) -> None:
        if self._form == "name":
            text = item["metadata"]["name"]
        elif self._form == "yaml":
            text = f"---\n{output.as_yaml(item)}"
        else:
            text = output.as_json(item)
        print(text, flush=True)

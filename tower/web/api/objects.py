"""What the resources of Tower's own API have in common: reading and writing their objects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tower.clusters import API_VERSION
from tower.errors import Invalid
from tower.kube.status import StatusError
from tower.web.api import discovery
from tower.web.api.dispatch import Call
from tower.web.api.table import Column, Object, table
from tower.web.outcome import Response


def listed(
    call: Call,
    kind: str,
    items: list[Object],
    columns: tuple[Column, ...],
    now: float,
    rows: Callable[[list[Object]], list[Object]] | None = None,
) -> Response:
    """Return the list of *items*, or the table of it that *call* wants.

    :param rows: makes of the items what stands in the table's rows.
    """
    if call.table:
        shown = rows(items) if rows is not None else items
        return Response.of_json(table(columns, shown, now, media=call.table, include=call.include))
    return Response.of_json(
        {"apiVersion": API_VERSION, "kind": f"{kind}List", "metadata": {}, "items": items}
    )


async def posted(call: Call, below: tuple[str, ...], kind: str, known: set[str]) -> dict[str, Any]:
    """Return the spec of the posted object.

    :raise TowerError: it is none, or not of this kind.
    """
    if below:
        raise StatusError(404, "the server could not find the requested resource")
    if call.method != "POST":
        raise StatusError(405, f"{call.method} is not for these: they are made with POST and shown once")
    if call.dry_run:
        raise StatusError(400, f"there is no dry run of making a {kind}")
    value = await call.read()
    for key, right in (("apiVersion", API_VERSION), ("kind", kind)):
        if value.get(key, right) != right:
            raise StatusError(400, f"{key} {value[key]!r}: objects here have {key} {right}")
    spec = value.get("spec") or {}
    if not isinstance(spec, dict):
        raise Invalid("spec: must be an object")
    if unknown := sorted(set(spec) - known):
        raise Invalid(f"spec.{unknown[0]}: unknown: there are {', '.join(sorted(known))}")
    return spec


def created(kind: str, cluster: str, status: dict[str, Any]) -> Response:
    """Return the answer that shows, this once, what was made."""
    answer = Response.of_json(
        {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": cluster}, "status": status}, 201
    )
    return Response(
        201, answer.body, ((b"Content-Type", b"application/json"), (b"Cache-Control", b"no-store"))
    )


def gone(kind: str, name: str) -> Response:
    """Return the answer to a delete."""
    details = {"name": name, "group": discovery.GROUP, "kind": kind}
    return Response.of_json(
        {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
    )

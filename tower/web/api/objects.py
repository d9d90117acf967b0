"""Requests and answers that the resources of Tower's own API have in common."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from tower.clusters import API_VERSION
from tower.errors import Conflict, Invalid
from tower.kube.status import StatusError
from tower.web.api import discovery
from tower.web.api.calls.call import Call, not_found
from tower.web.api.selectors import NAME_FIELD, Fields, Selection
from tower.web.api.table import Column, Object, table
from tower.web.api.writes.requests import read_delete_options
from tower.web.outcome import JSON_TYPE, Response


def list_response(
    call: Call,
    kind: str,
    items: list[Object],
    columns: tuple[Column, ...],
    now: float,
    rows: Callable[[list[Object]], list[Object]] | None = None,
) -> Response:
    """Return the list of *items*, or a table if *call* requests one; *rows* makes its rows from the items."""
    if call.table:
        shown = rows(items) if rows is not None else items
        return Response.of_json(table(columns, shown, now, media=call.table, include=call.include))
    return Response.of_json(
        {"apiVersion": API_VERSION, "kind": f"{kind}List", "metadata": {}, "items": items}
    )


def selected(call: Call, items: list[Object], fields: Fields) -> list[Object]:
    """Return the items that the selectors of *call* match; *fields* are supported in addition to the name.

    :raise StatusError: *call* is a watch, which these objects do not have.
    """
    if call.flag("watch"):
        raise StatusError(405, "these objects cannot be watched: list them again")
    selection = Selection(call.query, NAME_FIELD | fields)
    return [item for item in items if selection.matches(item)]


async def read_spec(
    call: Call, below: tuple[str, ...], kind: str, known: set[str], *, dry_run: bool = False
) -> dict[str, Any]:
    """Return the spec of the object of a POST.

    :param dry_run: whether the caller supports ``dryRun``.

    :raise TowerError: the object is invalid or of another kind.
    """
    if below:
        raise not_found()
    if call.method != "POST":
        raise StatusError(405, f"{call.method} is not supported on this path: use POST")
    if call.dry_run and not dry_run:
        raise StatusError(400, f"dryRun: not supported for {kind}")
    value = await call.read()
    for key, right in (("apiVersion", API_VERSION), ("kind", kind)):
        if value.get(key, right) != right:
            raise StatusError(400, f"{key} {value[key]!r}: must be {right}")
    spec = value.get("spec") or {}
    if not isinstance(spec, dict):
        raise Invalid("spec: must be an object")
    if unknown := sorted(set(spec) - known):
        raise Invalid(f"spec.{unknown[0]}: unknown; the fields are {', '.join(sorted(known))}")
    return spec


def created_response(kind: str, cluster: str, status: dict[str, Any]) -> Response:
    """Return the only answer that contains the created secret."""
    answer = Response.of_json(
        {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": cluster}, "status": status}, 201
    )
    return Response(201, answer.body, (JSON_TYPE, (b"Cache-Control", b"no-store")))


async def delete(call: Call, kind: str, name: str, remove: Callable[[], Awaitable[object]]) -> Response:
    """Delete an object that exists and has neither a uid nor a resource version; return the answer.

    :param remove: removes the object; not called in a dry run.
    :raise TowerError: the options are invalid, or the object is not removed.
    """
    options = read_delete_options(call, await call.read())
    if options.uid is not None or options.version is not None:
        raise Conflict(f"{kind} {name}: has no uid and no resourceVersion: omit the preconditions")
    if not options.dry_run:
        await remove()
    return delete_response(kind, name)


def delete_response(kind: str, name: str, **more: str) -> Response:
    """Return the answer to a delete."""
    details = {"name": name, "group": discovery.GROUP, "kind": kind, **more}
    return Response.of_json(
        {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
    )

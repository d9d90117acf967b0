"""Dispatch of requests to Tower's own API, which kubectl and the `tower` command use.

`Api` parses a request, finds the resource, and answers; the filter chain has authorized the request before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from twisted.internet.defer import Deferred

from tower.errors import AlreadyExists, Conflict, Invalid, NotFound, TowerError
from tower.escaping import json_text
from tower.kube.status import StatusError
from tower.store.records import Expired, StoreFailed
from tower.web.access.audit.changes import by_author
from tower.web.api import discovery, openapi
from tower.web.api.calls.call import Call, call_of, method_not_allowed, not_found
from tower.web.api.selectors import BadSelector
from tower.web.gateway.request import Request
from tower.web.outcome import Outcome, Response


class ResourceHandler(Protocol):
    """Handles one plural name of the API."""

    async def answer(self, call: Call, below: tuple[str, ...]) -> Outcome:
        """Return the answer to *call*; *below* are the path segments after the plural name.

        :raise TowerError: the request is rejected.
        """


class Api:
    """Tower's own API, with the resources' handlers by plural name.

    :param groups: handlers of other groups; `below` are the path segments after the version.
    """

    def __init__(
        self, resources: Mapping[str, ResourceHandler], groups: Mapping[str, ResourceHandler] | None = None
    ) -> None:
        self._resources = resources
        self._groups = groups or {}

    def __call__(self, request: Request) -> Deferred[Outcome]:
        """Return the answer to *request*, which is the author of its changes."""
        return by_author(request, self.answer(call_of(request)))

    async def answer(self, call: Call) -> Outcome:
        """Return the answer to *call*.

        :raise StatusError: the request is rejected; other errors of resources are converted.
        """
        match call.segments:
            case ("apis", discovery.GROUP, discovery.VERSION, plural, *below) if plural in self._resources:
                return await self._resource(self._resources[plural], plural, call, tuple(below))
            case ("api", version, *below) if below and discovery.group_version("", version):
                return await self._resource(self._groups[""], below[0], call, tuple(below))
            case ("apis", group, version, *below) if (
                below and group in self._groups and discovery.group_version(group, version)
            ):
                return await self._resource(self._groups[group], below[0], call, tuple(below))
        document = _document(call)
        if call.method not in ("GET", "HEAD"):
            raise method_not_allowed(call)
        return document

    async def _resource(
        self, handler: ResourceHandler, plural: str, call: Call, below: tuple[str, ...]
    ) -> Outcome:
        try:
            return await handler.answer(call, below)
        except TowerError as e:
            group = call.segments[1] if call.segments[0] == "apis" else ""
            if group != discovery.GROUP:  # there, *below* includes the plural name, perhaps with a namespace
                below = below[2:] if below[0] == "namespaces" else below
                plural, below = (below[0], below[1:]) if below else (plural, ())
            if isinstance(e, Invalid) or (isinstance(e, StatusError) and e.reason == "Invalid"):
                kind = discovery.kind_of("/".join((plural, *below[1:2])))
                raise _invalid(e, {"name": call.object_name(below), "group": group, "kind": kind}) from e
            name, kind = below[0] if below else "", below[1] if len(below) > 2 else plural
            raise _refusal(e, {"name": name, "group": group, "kind": kind}) from e


def _invalid(error: TowerError, details: dict[str, str]) -> StatusError:
    """Return *error* as an Invalid Status, whose details have the kind instead of the resource."""
    return StatusError(422, str(error), details=details | getattr(error, "details", {}))


def _refusal(error: TowerError, details: dict[str, str]) -> TowerError:
    """Return *error* as a Status with the details that Kubernetes clients expect."""
    match error:
        case StatusError():
            return error
        case BadSelector():
            return StatusError(400, str(error))
        case Expired():
            return StatusError(410, str(error), reason="Expired")
        case StoreFailed():
            return StatusError(503, str(error), details=details)
        case NotFound():
            return StatusError(404, str(error), details=details)
        case AlreadyExists():
            return StatusError(409, str(error), reason="AlreadyExists", details=details)
        case Conflict():
            return StatusError(409, str(error), details=details)
    return error


def _document(call: Call) -> Response:
    """Return a discovery document."""
    match call.segments:
        case ("api",):
            return _negotiated(*discovery.api_versions(call.accept))
        case ("apis",):
            return _negotiated(*discovery.api_groups(call.accept))
        case ("apis", group) if (found := discovery.api_group(group)) is not None:
            return Response.of_json(found)
        case ("api", version) if (one := discovery.group_version("", version)) is not None:
            return Response.of_json(discovery.api_resources(one))
        case ("apis", group, version) if (one := discovery.group_version(group, version)) is not None:
            return Response.of_json(discovery.api_resources(one))
        case ("openapi", "v2"):
            media, body = openapi.version_two(call.accept)
            return Response(200, body, ((b"Content-Type", media.encode("ascii")),))
        case ("openapi", "v3"):
            return Response.of_json(openapi.index())
        case ("openapi", "v3", *path) if (text := openapi.document("/".join(path))) is not None:
            return Response.of_json(text)
    raise not_found()


def _negotiated(media: str, value: dict[str, Any]) -> Response:
    body = json_text(value, separators=(",", ":")).encode()
    return Response(200, body, ((b"Content-Type", media.encode("ascii")), (b"Vary", b"Accept")))

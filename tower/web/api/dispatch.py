"""Dispatch of requests to Tower's own API, which kubectl and the `tower` command use.

`Api` parses a request, finds the resource, and answers; the filter chain has authorized the request before.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Protocol
from urllib.parse import parse_qsl

from attrs import field, frozen
from twisted.internet.defer import Deferred, succeed
from yaml import AliasEvent, SafeLoader, YAMLError, load

from tower.errors import AlreadyExists, Conflict, Invalid, NotFound, TowerError
from tower.escaping import json_text, shortened
from tower.kube.accept import choose
from tower.kube.status import StatusError
from tower.store.records import Expired, StoreFailed
from tower.web.api import discovery, openapi
from tower.web.api.selectors import BadSelector
from tower.web.api.table import TABLES
from tower.web.gateway.request import Request
from tower.web.outcome import Outcome, Response

#: Longest YAML body, B: parsing takes a hundred times as long as JSON.
YAML_LIMIT = 64 * 1024

#: Maximum number of query parameters.
PARAMETER_LIMIT = 64


#: Longest name of a field manager, characters.
MANAGER_LIMIT = 128

#: Longest name of an object in an error, characters.
NAME_LIMIT = 253

_JSON = ("application/json", "application/merge-patch+json")
_YAML = ("application/yaml", "text/yaml", "application/x-yaml")


def _no_body() -> Deferred[bytes]:
    return succeed(b"")


@frozen
class Call:
    """A parsed request to the API.

    :ivar segments: of the path.
    :ivar body: reads the body.
    :ivar objects: those that were read from the body, for errors.
    :ivar user: the authenticated user.
    :ivar agent: the client's program (`User-Agent`).
    """

    method: str
    segments: tuple[str, ...]
    query: Mapping[str, str] = field(factory=dict)
    accept: str = ""
    content_type: str = ""
    body: Callable[[], Deferred[bytes]] = field(default=_no_body, repr=False)
    user: str = ""
    groups: tuple[str, ...] = ()
    agent: str = ""
    objects: list[dict[str, Any]] = field(factory=list, eq=False, repr=False)

    @property
    def table(self) -> str:
        """The media type of the requested table, or empty for plain objects."""
        media = choose(self.accept, [discovery.JSON, *TABLES])
        return media if media in TABLES else ""

    @property
    def include(self) -> str:
        """The part of the object that a table's rows include."""
        return self.query.get("includeObject", "Metadata")

    def flag(self, name: str) -> bool:
        """Return a boolean parameter; without a value it is true."""
        value = self.query.get(name)
        return value is not None and value.lower() not in ("false", "0")

    @property
    def dry_run(self) -> bool:
        """Whether nothing must be changed.

        :raise StatusError: the parameter has an invalid value.
        """
        value = self.query.get("dryRun", "")
        if value not in ("", "All"):
            raise StatusError(422, f"dryRun: {value!r}: must be All or empty")
        return value == "All"

    @property
    def media(self) -> str:
        """The media type of the body, without parameters."""
        return self.content_type.partition(";")[0].strip().lower()

    @property
    def manager(self) -> str:
        """Name of the field manager; by default that of the client's program.

        :raise StatusError: it is too long or not printable.
        """
        name = self.query.get("fieldManager", "")
        if len(name) > MANAGER_LIMIT or not name.isprintable():
            raise StatusError(
                422, f"fieldManager: {name!r}: must be at most {MANAGER_LIMIT} printable characters"
            )
        return name or self.agent.partition("/")[0][:MANAGER_LIMIT] or "unknown"

    async def read(self, *more: str) -> dict[str, Any]:
        """Return the object in the body; an empty body is an empty object.

        :param more: further supported media types.
        :raise StatusError: it is not an object, or its media type is not supported.
        """
        raw = await self.body()
        if not raw.strip():
            return {}
        if self.media not in (*_YAML, *_JSON, *more):
            # browsers send other types, or none, cross-site, with the user's certificate
            raise StatusError(
                415,
                f"media type {self.media or 'none'} is not supported: "
                "send application/json or application/yaml",
            )
        value = parse(raw, yaml="yaml" in self.media and not raw.lstrip().startswith(b"{"))
        if not isinstance(value, dict):
            raise StatusError(400, "the body is not an object")
        self.objects.append(value)
        return value

    def object_name(self, below: tuple[str, ...]) -> str:
        """Return the name in the path segments *below* the resource, or else in the body; may be empty."""
        if below:
            return below[0]
        metadata = self.objects[-1].get("metadata") if self.objects else None
        name = metadata.get("name") if isinstance(metadata, dict) else None
        return shortened(name, NAME_LIMIT) if isinstance(name, str) else ""


def parse(raw: bytes, *, yaml: bool = False) -> Any:
    """Return the JSON or YAML value *raw*.

    :raise StatusError: it is invalid or, as YAML, too long.
    """
    if yaml and len(raw) > YAML_LIMIT:
        raise StatusError(413, f"the YAML body is longer than {YAML_LIMIT} B: send JSON")
    try:
        if yaml:
            raw = json.dumps(load(raw, _Loader)).encode()  # noqa: S506 - a safe loader
        return json.loads(raw, parse_constant=_no_constant)
    except (ValueError, TypeError, YAMLError, RecursionError) as e:
        raise StatusError(400, "the body is not a valid JSON or YAML object") from e


class _Loader(SafeLoader):
    """Loads the YAML that has a JSON form: no aliases, whose expansion is unlimited, and no dates."""

    yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
        for first, resolvers in SafeLoader.yaml_implicit_resolvers.items()
    }

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Return the next node; reject aliases."""
        if self.check_event(AliasEvent):
            raise YAMLError("aliases are not supported")
        return super().compose_node(parent, index)


def _no_constant(name: str) -> None:
    raise ValueError(name)


def not_found() -> StatusError:
    """Return kube-apiserver's answer to an unknown path."""
    return StatusError(404, "the server could not find the requested resource")


def method_not_allowed(call: Call) -> StatusError:
    """Return the answer to a method that the path does not support."""
    return StatusError(405, f"{call.method} is not supported on this path")


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
        """Return the answer to *request*."""
        return Deferred.fromCoroutine(self.answer(call_of(request)))

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
            if isinstance(e, Invalid) or (isinstance(e, StatusError) and e.reason == "Invalid"):
                raise _invalid(e, plural, call.object_name(below), below) from e
            raise _refusal(e, below[1] if len(below) > 2 else plural, below[0] if below else "") from e


def _invalid(error: TowerError, plural: str, name: str, below: tuple[str, ...]) -> StatusError:
    """Return *error* as an Invalid Status, whose details have the kind instead of the resource."""
    kind = discovery.kind_of("/".join((plural, *below[1:2])))
    details = {"name": name, "group": discovery.GROUP, "kind": kind}
    return StatusError(422, str(error), details=details | getattr(error, "details", {}))


def _refusal(error: TowerError, kind: str, name: str) -> TowerError:
    """Return *error* as a Status with the details that Kubernetes clients expect."""
    details = {"name": name, "group": discovery.GROUP, "kind": kind}
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


def call_of(request: Request) -> Call:
    """Parse *request*, whose path has no escapes.

    :raise StatusError: its query is invalid.
    """
    path = request.path.decode("ascii").removesuffix("/")
    try:
        pairs = parse_qsl(
            request.query.decode("ascii"),
            keep_blank_values=True,
            max_num_fields=PARAMETER_LIMIT,
            errors="strict",
        )
    except ValueError as e:
        raise StatusError(400, f"the query is invalid: {e}") from e

    def header(name: bytes) -> str:
        return (request.fields.get(name) or b"").decode("latin-1")

    return Call(
        request.method.decode("ascii"),
        tuple(path.split("/")[1:]),
        dict(reversed(pairs)),  # the first of several values counts, as in Go
        header(b"accept"),
        header(b"content-type"),
        request.body,
        request.identity.user if request.identity is not None else "",
        request.identity.groups if request.identity is not None else (),
        header(b"user-agent"),
    )


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

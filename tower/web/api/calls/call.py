"""A parsed request to Tower's own API: path, query, header fields, and the object in its body."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl

from attrs import field, frozen
from twisted.internet.defer import Deferred, succeed

from tower.escaping import quoted, shortened
from tower.kube.accept import choose
from tower.kube.access.field_problems import FieldProblem, check_problems, unsupported_value
from tower.kube.access.protobuf import PROTOBUF, read_protobuf
from tower.kube.status import StatusError
from tower.web.access.authentication.identity import Extra, UserInfo, known_user
from tower.web.api.calls.bodies import parse
from tower.web.api.calls.media_types import JSON, MERGE_PATCH, YAML
from tower.web.api.table import TABLES
from tower.web.gateway.request import Request

#: Maximum number of query parameters.
PARAMETER_LIMIT = 64

#: Longest name of a field manager, characters.
MANAGER_LIMIT = 128

#: Longest name of an object in an error, characters.
NAME_LIMIT = 253

# Values of `fieldValidation`, and the names of options in kube-apiserver's errors.
_VALIDATIONS = ("", "Ignore", "Strict", "Warn")
_OPTIONS = {"POST": "Create", "PUT": "Update", "PATCH": "Patch", "DELETE": "Delete"}


def _no_body() -> Deferred[bytes]:
    return succeed(b"")


@frozen
class Call:
    """A parsed request to the API.

    :ivar segments: of the path.
    :ivar query: the parameters; the first of several values counts, as in Go.
    :ivar repeated: the other values of parameters that occur several times.
    :ivar body: reads the body.
    :ivar objects: those that were read from the body, for errors.
    :ivar user: the authenticated user; also *groups*, *uid* and *extra*.
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
    uid: str = ""
    extra: Extra = ()
    repeated: Mapping[str, Sequence[str]] = field(factory=dict)
    objects: list[dict[str, Any]] = field(factory=list, eq=False, repr=False)

    @property
    def as_user(self) -> UserInfo:
        """The authenticated user, with the group that all have."""
        return known_user(self.user, self.groups, self.uid, self.extra)

    @property
    def table(self) -> str:
        """The media type of the requested table, or empty for plain objects."""
        media = choose(self.accept, [JSON, *TABLES])
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
        first = self.query.get("dryRun")
        if first is None:
            return False
        values = (first, *self.repeated.get("dryRun", ()))
        if set(values) != {"All"}:
            given = json.dumps(values, separators=(",", ":"))
            self._reject(unsupported_value("dryRun", given, "All"))
        return True

    @property
    def field_validation(self) -> str:
        """The treatment of unknown fields: ``Ignore``, ``Warn`` (the default) or ``Strict``.

        :raise StatusError: the parameter has an invalid value.
        """
        wanted = self.query.get("fieldValidation", "")
        if wanted not in _VALIDATIONS:
            self._reject(unsupported_value("fieldValidation", quoted(wanted), *_VALIDATIONS))
        return wanted or "Warn"

    def check_write_options(self) -> None:
        """Check the parameters of a create, an update or a patch.

        :raise StatusError: one has an invalid value.
        """
        _ = self.dry_run, self.field_validation

    def _reject(self, problem: FieldProblem) -> None:
        check_problems(f"{_OPTIONS.get(self.method, 'Update')}Options.meta.k8s.io", "", [problem])

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
        if self.media not in (JSON, MERGE_PATCH, *YAML, *more):
            # browsers send other types, or none, cross-site, with the user's certificate
            raise StatusError(
                415,
                f"media type {self.media or 'none'} is not supported: send {JSON} or {YAML[0]}",
            )
        if self.media == PROTOBUF:
            value = read_protobuf(raw)
        else:
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

    query: dict[str, str] = {}
    repeated: dict[str, list[str]] = {}
    for name, value in pairs:
        if name in query:
            repeated.setdefault(name, []).append(value)
        else:
            query[name] = value

    def header(name: bytes) -> str:
        return (request.fields.get(name) or b"").decode("latin-1")

    return Call(
        request.method.decode("ascii"),
        tuple(path.split("/")[1:]),
        query,
        header(b"accept"),
        header(b"content-type"),
        request.body,
        request.identity.user if request.identity is not None else "",
        request.identity.groups if request.identity is not None else (),
        header(b"user-agent"),
        getattr(request.identity, "uid", ""),
        getattr(request.identity, "extra", ()),
        repeated,
    )


def not_found() -> StatusError:
    """Return kube-apiserver's answer to an unknown path."""
    return StatusError(404, "the server could not find the requested resource")


def method_not_allowed(call: Call) -> StatusError:
    """Return the answer to a method that the path does not support."""
    return StatusError(405, f"{call.method} is not supported on this path")

"""Bodies and options of writes: field validation, patches, delete options, and the answers' warnings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from attrs import frozen

from tower.errors import Conflict, Invalid
from tower.escaping import json_text, shortened
from tower.kube.flatten import warnings_of
from tower.kube.kubeconfig import KubeAccess
from tower.kube.status import StatusError, warning_value
from tower.web.api.calls.bodies import check_depth, parse, too_deep
from tower.web.api.calls.call import Call
from tower.web.api.calls.media_types import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH
from tower.web.api.fields.json_patch import apply_json_patch
from tower.web.api.fields.kinds import CLUSTER
from tower.web.api.fields.schema import pruned
from tower.web.api.table import Object
from tower.web.api.writes.cluster_object import is_version, merge
from tower.web.outcome import JSON_TYPE, Response

#: Most entries of a map or a list in the metadata and the status.
ENTRY_LIMIT = 1000

#: Most warnings of an answer, and the longest, characters: proxies limit the size of a head.
WARNING_COUNT = 10
WARNING_LENGTH = 256

#: Checks an object; returns it without unknown fields, and warnings.
Check: TypeAlias = Callable[[Call, dict[str, Any]], tuple[dict[str, Any], list[str]]]

_PROPAGATIONS = ("", "Background", "Foreground", "Orphan")


def checked(call: Call, value: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return *value* without unknown fields, and warnings about them; see Kubernetes' field validation.

    :raise StatusError: there are unknown fields, and the client requests strict validation.
    """
    wanted = call.field_validation
    known, unknown = pruned(value, CLUSTER)
    _check_number(known)
    texts = [f'unknown field "{path}"' for path in unknown]
    if texts and wanted == "Strict":
        raise StatusError(400, f"strict decoding error: {', '.join(texts)}")
    return known, [] if wanted == "Ignore" else texts


def _check_number(value: dict[str, Any]) -> None:
    """Check the number of entries of each map and list in the metadata and the status.

    Each one is a field with an owner, and the reactor waits while the owners are computed.

    :raise Invalid: with the path and the limit.
    """
    for key in ("metadata", "status"):
        part = value.get(key)
        for name, items in part.items() if isinstance(part, dict) else ():
            if isinstance(items, dict | list) and len(items) > ENTRY_LIMIT:
                raise Invalid(f"{key}.{name}: {len(items)} entries: at most {ENTRY_LIMIT} are allowed")


@frozen
class Patch:
    """A merge patch or a JSON patch.

    :ivar version: resource version that the object must have, or None.
    """

    version: int | None
    _call: Call
    _apply: Callable[[Object], Any]
    _check: Check
    _changed: Callable[[str], Conflict]

    def result(self, value: Object) -> tuple[dict[str, Any], list[str]]:
        """Return the object *value* with the patch applied, and warnings.

        :raise TowerError: it cannot be applied.
        """
        try:
            patched = self._apply(value)
        except RecursionError as e:
            raise too_deep("the patched object") from e
        check_depth(patched, "the patched object")
        if not isinstance(patched, dict):
            raise StatusError(422, "the JSON patch replaces the object by another value")
        known, warnings = self._check(self._call, patched)
        version = version_in(known)
        if version is not None and str(version) != value["metadata"]["resourceVersion"]:
            raise self._changed(value["metadata"]["name"])
        return known, warnings


def changed_meanwhile(name: str, what: str = "cluster") -> Conflict:
    """Return the error for a write to an old version."""
    return Conflict(f"{what} {name} was changed concurrently: read it again and retry")


async def read_patch(
    call: Call,
    check: Check = checked,
    changed: Callable[[str], Conflict] = changed_meanwhile,
    *,
    has_strategic: bool = False,
) -> Patch:
    """Return the patch in the body.

    :param check: checks the patched object.
    :param changed: returns the error for a write to an old version.
    :param has_strategic: whether strategic merge patches are accepted; those with directives are rejected.
    :raise StatusError: its type is not supported, or it is malformed.
    """
    if call.media == JSON_PATCH:
        operations = parse(await call.body())
        return Patch(None, call, lambda value: apply_json_patch(value, operations), check, changed)
    kinds = (MERGE_PATCH, STRATEGIC_PATCH) if has_strategic else (MERGE_PATCH,)
    if call.media not in kinds:
        supported = ", ".join((JSON_PATCH, *kinds, APPLY_PATCH))
        raise StatusError(
            415,
            f"the body of the request was in an unknown format - accepted media types include: {supported}",
        )
    changes = await call.read(*kinds)
    if call.media == STRATEGIC_PATCH:
        _check_directives(changes)
    return Patch(version_in(changes), call, lambda value: merge(value, changes), check, changed)


def _check_directives(patch: Any) -> None:
    """Reject directives of strategic merge patches, which begin with a dollar sign."""
    if isinstance(patch, list):
        for each in patch:
            _check_directives(each)
    elif isinstance(patch, dict):
        for key, part in patch.items():
            if key.startswith("$"):
                raise StatusError(400, f"{key}: directives of strategic merge patches are not supported")
            _check_directives(part)


def version_in(value: dict[str, Any]) -> int | None:
    """Return the resource version in an object or a patch, or None.

    :raise StatusError: it is invalid.
    """
    metadata = value.get("metadata")
    version = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
    if version is None or version == "":
        return None
    if not is_version(version):
        raise StatusError(422, f"metadata.resourceVersion: {version!r}: must be one that this API returned")
    return int(version)


def require_name(value: dict[str, Any], name: str) -> None:
    """Check that the object *value* has the name of the URL, which is also its default.

    :raise StatusError: it has another one.
    """
    metadata = value.setdefault("metadata", {})
    if not isinstance(metadata, dict):
        raise StatusError(422, "metadata: must be an object")
    if metadata.setdefault("name", name) != name:
        raise StatusError(
            400, f"the name of the object ({metadata['name']}) does not match the name on the URL ({name})"
        )


@frozen
class DeleteOptions:
    """The options of a delete, with its preconditions."""

    dry_run: bool
    uid: str | None
    version: str | None

    def check(self, name: str, uid: str, version: int, what: str = "cluster") -> None:
        """Check the preconditions.

        :raise Conflict: one is not met.
        """
        if self.uid not in (None, uid):
            raise Conflict(f"{what} {name} has uid {uid}, not {self.uid}: it was removed and added again")
        if self.version not in (None, str(version)):
            raise changed_meanwhile(name, what)


def read_delete_options(call: Call, options: dict[str, Any]) -> DeleteOptions:
    """Return the options in the body and the query of a delete.

    :raise StatusError: one is invalid.
    """
    conditions = options.get("preconditions") or {}
    if not isinstance(conditions, dict):
        raise StatusError(400, "preconditions: must be an object")
    dry_run = options.get("dryRun")
    if dry_run not in (None, [], ["All"]):
        raise StatusError(422, f'dryRun: {dry_run!r}: must be ["All"], or be omitted')
    policy = options.get("propagationPolicy") or call.query.get("propagationPolicy", "")
    if policy not in _PROPAGATIONS:
        raise StatusError(
            422,
            f"propagationPolicy: {policy!r}: must be Background, Foreground or Orphan",
        )
    return DeleteOptions(
        call.dry_run or bool(dry_run), conditions.get("uid"), conditions.get("resourceVersion")
    )


def kubeconfig_warnings(access: KubeAccess | None) -> list[str]:
    """Return warnings about the credential for a member."""
    return [f"spec.connection.kubeconfig: {text}" for text in (warnings_of(access) if access else ())]


def write_response(item: Object, code: int, warnings: list[str]) -> Response:
    """Return the answer to a write of *item*, with *warnings*."""
    body = json_text(item, separators=(",", ":")).encode()
    notes = tuple(
        (b"Warning", warning_value(shortened(text, WARNING_LENGTH))) for text in warnings[:WARNING_COUNT]
    )
    return Response(code, body, (JSON_TYPE, *notes))

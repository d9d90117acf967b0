"""The metadata of a cluster: name, annotations for Tower, and fields that other programs maintain."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from attrs import asdict, frozen

from tower.errors import Invalid
from tower.store.records import Value

Objects: TypeAlias = Sequence[Mapping[str, Any]]

#: Annotation: which clients may use tokens of the cluster's own service accounts.
MEMBER_TOKENS = "tower.kubesphere.io/allow-member-tokens"

#: Its value for trusted callers.  Affects old agents; others have the option ``--allow-member-tokens``.
ALLOW_TOKENS = "true"

#: Its value for all clients of the cluster's own port, without another credential, and trusted callers.
ALLOW_LONE_TOKENS = "alone"

#: Annotation: how long requests may continue when the cluster is disabled, such as ``30s``.
DRAIN = "tower.kubesphere.io/drain"

#: Longest drain, s.
LONGEST_DRAIN = 600.0

#: Most finalizers, owner references and conditions; longest finalizer, characters.
COUNT_LIMIT = 32
FINALIZER_LIMIT = 316

#: Largest total size of owner references and conditions, characters of JSON.
SIZE_LIMIT = 64 * 1024


_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def check_name(name: str) -> str:
    """Return *name* if it is valid for a cluster: a DNS label (RFC 1123).

    :raise Invalid: with the allowed form.
    """
    if not _LABEL.fullmatch(name):
        raise Invalid(
            f"cluster name {name!r}: must be 1 to 63 lower case letters, digits and '-', "
            "beginning and ending with a letter or digit, such as 'alpha' or 'berlin-2'"
        )
    return name


@frozen
class ObjectMeta:
    """Metadata and status of a cluster that Tower stores for other programs.

    :ivar generation: increases with each change of the spec.
    :ivar deleted: when its deletion was requested, s since the epoch; it is removed with its last finalizer.
    :ivar owners: ``ownerReferences``; not interpreted.
    :ivar managed: ``managedFields``.
    :ivar conditions: those of other programs, as in the status.
    """

    generation: int = 1
    deleted: float | None = None
    finalizers: tuple[str, ...] = ()
    owners: Objects = ()
    managed: Objects = ()
    conditions: Objects = ()

    @property
    def is_released(self) -> bool:
        """Whether its deletion was requested, and no finalizer prevents it."""
        return self.deleted is not None and not self.finalizers


#: The values of new clusters.
NEW = ObjectMeta()


def check_object_meta(meta: ObjectMeta) -> None:
    """Check the limits.

    :raise Invalid: with the field and its limit.
    """
    for name, items in (
        ("metadata.finalizers", meta.finalizers),
        ("metadata.ownerReferences", meta.owners),
        ("status.conditions", meta.conditions),
    ):
        if len(items) > COUNT_LIMIT:
            raise Invalid(f"{name}: {len(items)} items: at most {COUNT_LIMIT} are allowed")
    if any(len(each) > FINALIZER_LIMIT for each in meta.finalizers):
        raise Invalid(f"metadata.finalizers: at most {FINALIZER_LIMIT} characters each are allowed")
    for name, objects in (("metadata.ownerReferences", meta.owners), ("status.conditions", meta.conditions)):
        if len(json.dumps(objects)) > SIZE_LIMIT:
            raise Invalid(f"{name}: larger than {SIZE_LIMIT} B")


def encode_object_meta(meta: ObjectMeta) -> Value:
    """Return *meta* for the record, without the values of a new cluster."""
    value = asdict(meta)
    return {name: part for name, part in value.items() if part != getattr(NEW, name)}


def decode_object_meta(value: Mapping[str, Any]) -> ObjectMeta:
    """Return what `encode_object_meta` wrote."""
    parts: dict[str, Any] = {
        name: tuple(part) if isinstance(part, list) else part for name, part in value.items()
    }
    return ObjectMeta(**parts)

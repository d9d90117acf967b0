"""Transactions of several changes, as objects of the host cluster.  Sans-IO."""

from __future__ import annotations

import json
import secrets
import zlib
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import asdict, frozen

from tower.errors import Invalid
from tower.kube.rest.host_api import Object
from tower.store.kubernetes.host_change import RecordChange
from tower.store.kubernetes.host_kinds import TRANSACTIONS
from tower.store.kubernetes.object_codec import TRANSACTION, ObjectCodec

#: Largest transaction, B compressed; etcd accepts requests of 1.5 MiB.
SIZE_LIMIT = 1024 * 1024


@frozen
class HostTransaction:
    """A transaction.

    :ivar id: also the object's name.
    :ivar changes: at most one for each record; those of shared objects first.
    :ivar has_decider: whether the first change decides: it is of an object that other programs write, too.
    :ivar was_terminating: whether that object was being deleted before.
    """

    id: str
    changes: Sequence[RecordChange]
    has_decider: bool
    was_terminating: bool = False

    @classmethod
    def of(
        cls, changes: Sequence[RecordChange], codecs: Mapping[str, ObjectCodec], *, was_terminating: bool
    ) -> HostTransaction:
        """Return a new transaction of *changes*, those of shared objects first."""
        is_shared = codecs[changes[0].kind].is_shared
        return cls(f"t-{secrets.token_hex(10)}", changes, is_shared, was_terminating)

    def to_object(self) -> Object:
        """Return the object.

        :raise Invalid: it is too large.
        """
        content = {
            "changes": [asdict(change) for change in self.changes],
            "has_decider": self.has_decider,
            "was_terminating": self.was_terminating,
        }
        data = b64encode(zlib.compress(json.dumps(content).encode("ascii"))).decode("ascii")
        if len(data) > SIZE_LIMIT:
            raise Invalid(
                f"the transaction of {len(self.changes)} records has {len(data)} B, more than the limit of "
                f"{SIZE_LIMIT} B: change fewer records at a time"
            )
        return {
            "apiVersion": TRANSACTIONS.api_version,
            "kind": TRANSACTIONS.kind,
            "metadata": {"name": self.id},
            "spec": {"count": len(self.changes), "data": data},
        }

    @classmethod
    def from_object(cls, obj: Object) -> HostTransaction:
        """Return the transaction in an object.

        :raise Invalid: it is malformed.
        """
        name = obj["metadata"]["name"]
        try:
            content: dict[str, Any] = json.loads(zlib.decompress(b64decode(obj["spec"]["data"])))
            changes = [RecordChange(**change) for change in content["changes"]]
            return cls(name, changes, content["has_decider"], content["was_terminating"])
        except (LookupError, TypeError, ValueError, zlib.error):
            raise Invalid(f"{TRANSACTIONS.name} {name} is malformed: delete it") from None

    def is_decided(self, obj: Object | None) -> bool:
        """Return whether the first change was made.

        :param obj: its object, as it is now.
        """
        change = self.changes[0]
        if change.value is not None:
            return obj is not None and obj["metadata"].get("annotations", {}).get(TRANSACTION) == self.id
        if obj is None or obj["metadata"]["uid"] != change.uid:
            return True
        return "deletionTimestamp" in obj["metadata"] and not self.was_terminating

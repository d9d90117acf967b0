"""The access policies in a store: reading, writing and watching them."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import define, evolve, field
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from tower.clusters.policies.access_policy import AccessPolicy
from tower.clusters.policies.policy_object import read_spec
from tower.errors import AlreadyExists, Conflict, Invalid, NotFound
from tower.store import IStore
from tower.store.kinds import ACCESS_POLICIES
from tower.store.records import (
    Event,
    EventType,
    Record,
    RecordChanged,
    RecordExists,
    RecordMissing,
    Value,
    Watch,
)

#: Most policies, and most subjects of all of them.
POLICY_LIMIT = 10_000
SUBJECTS_LIMIT = 100_000

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")

# Fields of the value of a record with their types.
_FIELDS: dict[str, type | tuple[type, ...]] = {
    "uid": str,
    "created": (int, float),
    "generation": int,
    "labels": dict,
    "annotations": dict,
    "managed": list,
    "spec": dict,
}

_ATTEMPTS = 10


def policy_not_found(name: str) -> NotFound:
    """Return the error for an unknown policy, with the cure."""
    return NotFound(f"access policy {name} not found: 'tower access list' shows all")


def changed_meanwhile(name: str) -> Conflict:
    """Return the error for a write to an old version."""
    return Conflict(f"access policy {name} was changed concurrently: read it again and retry")


@define(eq=False, repr=False)
class AccessPolicies:
    """The policies in a store; a record that cannot be read admits no user, and is logged.

    :param clock: its ``seconds()`` are since the epoch.
    """

    _log = Logger()

    _store: IStore
    _clock: IReactorTime
    _decoded: dict[str, AccessPolicy] = field(factory=dict, init=False)
    _problems: dict[str, int] = field(factory=dict, init=False)  # versions of records that cannot be read

    def get(self, name: str) -> AccessPolicy | None:
        """Return the policy of that name, or None."""
        record = self._store.get(ACCESS_POLICIES, name)
        return None if record is None else self._of(record)

    def require(self, name: str) -> AccessPolicy:
        """Return the policy of that name.

        :raise NotFound: with the cure.
        """
        policy = self.get(name)
        if policy is None:
            raise policy_not_found(name)
        return policy

    def list(self) -> list[AccessPolicy]:
        """Return all policies, by name."""
        records = self._store.snapshot(ACCESS_POLICIES)
        found = [self._of(records[name]) for name in sorted(records)]
        return [policy for policy in found if policy is not None]

    def watch(self, callback: Callable[[EventType, AccessPolicy], None]) -> Watch:
        """Call *callback* for each policy ADDED, MODIFIED or DELETED from now on.

        A policy that can no longer be read is DELETED.
        """

        def changed(event: Event) -> None:
            before = self._decoded.get(event.record.name)
            if event.type == "DELETED":
                self._decoded.pop(event.record.name, None)
                self._problems.pop(event.record.name, None)
            policy = self._of(event.record, keep=event.type != "DELETED")
            if policy is not None:
                callback(event.type, policy)
            elif before is not None:
                callback("DELETED", before)

        return self._store.watch(ACCESS_POLICIES, changed)

    def changes(self, since: int) -> Sequence[tuple[EventType, AccessPolicy]]:
        """Return the changes after a resource version; see `IStore.changes`."""
        events = self._store.changes(ACCESS_POLICIES, since)
        found = [(event.type, self._of(event.record, keep=False)) for event in events]
        return [(kind, policy) for kind, policy in found if policy is not None]

    def check(self, since: int) -> None:
        """Check that the changes after a resource version are known.

        :raise Expired: they are not.
        """
        self._store.changes(ACCESS_POLICIES, since)

    def new(self, name: str, given: Mapping[str, Any]) -> AccessPolicy:
        """Return a policy that is not stored yet.

        :raise Invalid: the name or the spec is invalid.
        """
        if not _NAME.fullmatch(name):
            raise Invalid(
                f"metadata.name: {name[:100]!r}: must be lower case letters, digits, '-' and '.', beginning "
                "and ending with a letter or digit, such as 'developers'"
            )
        uid = str(uuid.uuid4())
        return AccessPolicy(name, uid, 0, self._clock.seconds(), read_spec(given), given)

    def changed_meanwhile(self, name: str) -> Conflict:
        """Return the error for a write to an old version."""
        return changed_meanwhile(name)

    def not_found(self, name: str) -> NotFound:
        """Return the error for an unknown policy."""
        return policy_not_found(name)

    def exists(self, name: str) -> AlreadyExists:
        """Return the error for a second policy of a name."""
        return AlreadyExists(f"access policy {name} already exists")

    async def add(self, policy: AccessPolicy) -> AccessPolicy:
        """Store a new policy.

        :raise AlreadyExists: there is one with this name.
        """
        if len(self._store.snapshot(ACCESS_POLICIES)) >= POLICY_LIMIT:
            raise Conflict(f"the limit of {POLICY_LIMIT} access policies is reached: remove some")
        self._check_subjects(policy)
        try:
            record = await self._store.create(ACCESS_POLICIES, policy.name, encode_policy(policy))
        except RecordExists as e:
            raise self.exists(policy.name) from e
        return evolve(policy, resource_version=record.version)

    async def change(
        self, name: str, edit: Callable[[AccessPolicy], AccessPolicy], version: int | None = None
    ) -> AccessPolicy:
        """Change a policy.

        :param edit: a pure function; called again after a conflict.
        :param version: required resource version, or None.
        :raise NotFound: there is none with this name.
        :raise Conflict: it has another version, or changes all the time.
        """
        for _ in range(_ATTEMPTS):
            old = self.require(name)
            if version not in (None, old.resource_version):
                raise changed_meanwhile(name)
            policy = settled(old, edit(old))
            self._check_subjects(policy)
            try:
                record = await self._store.update(
                    ACCESS_POLICIES, name, encode_policy(policy), old.resource_version
                )
            except RecordMissing as e:
                raise policy_not_found(name) from e
            except RecordChanged:
                continue
            return evolve(policy, resource_version=record.version)
        raise changed_meanwhile(name)

    async def remove(self, name: str, check: Callable[[AccessPolicy], None]) -> AccessPolicy | None:
        """Remove a policy; return it, or None if it could not be read.

        :param check: raises if it must not be removed.
        :raise NotFound: there is none with this name.
        """
        for _ in range(_ATTEMPTS):
            record = self._store.get(ACCESS_POLICIES, name)
            if record is None:
                raise policy_not_found(name)
            policy = self._of(record)
            if policy is not None:
                check(policy)
            try:
                await self._store.delete(ACCESS_POLICIES, name, record.version)
            except RecordMissing as e:
                raise policy_not_found(name) from e
            except RecordChanged:
                continue
            return policy
        raise changed_meanwhile(name)

    def _check_subjects(self, new: AccessPolicy) -> None:
        others = sum(len(each.spec.subjects) for each in self._decoded.values() if each.name != new.name)
        if others + len(new.spec.subjects) > SUBJECTS_LIMIT:
            raise Conflict(
                f"the limit of {SUBJECTS_LIMIT} subjects of all access policies is reached: use groups"
            )

    def _of(self, record: Record, *, keep: bool = True) -> AccessPolicy | None:
        policy = self._decoded.get(record.name)
        if policy is not None and policy.resource_version == record.version:
            return policy
        try:
            policy = decode_policy(record)
        except Invalid as e:
            self._decoded.pop(record.name, None)
            if self._problems.get(record.name) != record.version:
                self._problems[record.name] = record.version
                self._log.error("{reason}", reason=str(e))
            return None
        if keep:
            self._decoded[record.name] = policy
        return policy


def settled(old: AccessPolicy, policy: AccessPolicy) -> AccessPolicy:
    """Return *policy*, a change of *old*, with the next generation if its spec differs."""
    if policy.given == old.given:
        return policy
    return evolve(policy, generation=old.generation + 1)


def encode_policy(policy: AccessPolicy) -> Value:
    """Return the value of the record."""
    value = {
        "uid": policy.uid,
        "created": policy.created,
        "generation": policy.generation,
        "labels": dict(policy.labels),
        "annotations": dict(policy.annotations),
        "managed": [dict(each) for each in policy.managed],
        "spec": dict(policy.given),
    }
    return {key: part for key, part in value.items() if part not in ([], {})}


def decode_policy(record: Record) -> AccessPolicy:
    """Return the policy in a record.

    :raise Invalid: it cannot be read: an unknown field may limit it.
    """
    value: dict[str, Any] = dict(record.value)
    try:
        if unknown := sorted(set(value) - set(_FIELDS)):
            raise Invalid(f"{unknown[0]}: unknown")
        if wrong := [key for key, part in value.items() if not isinstance(part, _FIELDS[key])]:
            raise Invalid(f"{wrong[0]}: has a wrong type")
        spec = read_spec(value["spec"])
        return AccessPolicy(
            record.name,
            value["uid"],
            record.version,
            value["created"],
            spec,
            value["spec"],
            value.get("generation", 1),
            value.get("labels", {}),
            value.get("annotations", {}),
            tuple(value.get("managed", ())),
        )
    except (Invalid, LookupError, TypeError) as e:
        raise Invalid(
            f"access policy {record.name} admits no user, because this Tower cannot read it ({e}): if a "
            "newer one wrote it, upgrade this one; else apply the policy again"
        ) from None

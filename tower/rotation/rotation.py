"""A rotation: its record, what it waits for, and the interface of the procedures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from attrs import asdict, field, frozen

from tower.clusters.join_tokens import UnspentToken
from tower.rotation.dependents import Dependents, LackingAgent, OldKubeconfig
from tower.store.records import Record, Value

#: Prefix of the records' names.
PREFIX = "rotation-"

#: Targets of rotations, in the order of lists.
TARGETS = ("host-key", "serving-ca", "tls-cert-file", "users-ca", "secrets-key")


@frozen
class Rotation:
    """A rotation in progress, or the last finished one of its target.

    :ivar started: s since the epoch.
    :ivar until: when it ends even if something still lacks the new key, s since the epoch; None: never.
    :ivar old: fingerprint, hash or ID of the key that is replaced.
    :ivar new: the same of the new key.
    :ivar finished: s since the epoch; None: in progress.
    :ivar stranded: what depended on the old key when the new one came into use.
    """

    target: str
    started: float
    until: float | None
    old: str
    new: str
    finished: float | None = None
    stranded: Dependents = field(factory=Dependents)

    def encode(self) -> Value:
        """Return the value of its record."""
        return asdict(self, recurse=False) | {"stranded": self.stranded.encode()}

    @classmethod
    def decode(cls, record: Record) -> Rotation:
        """Return the rotation in a record."""
        value = record.value
        known = {name: value[name] for name in ("target", "started", "until", "old", "new", "finished")}
        stranded = value.get("stranded")  # records of earlier versions have none
        return cls(**known, stranded=Dependents() if stranded is None else Dependents.decode(stranded))


@frozen
class Remaining:
    """Agents, tokens, credentials and records that a rotation waits for.

    :ivar agents: those that have not confirmed the new key.
    :ivar ready: number of agents that have.
    :ivar join_tokens: valid join tokens, whose join lines have the old key only.
    :ivar credentials: valid credentials of users that depend on the old key.
    :ivar secrets: number of records that are sealed with the old key.
    """

    agents: Sequence[LackingAgent] = ()
    ready: int = 0
    join_tokens: Sequence[UnspentToken] = ()
    credentials: Sequence[OldKubeconfig] = ()
    secrets: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether everything has the new key."""
        return not (self.agents or self.join_tokens or self.credentials or self.secrets)

    @property
    def dependents(self) -> Dependents:
        """The objects that the old key's end affects."""
        return Dependents.of(self.agents, self.join_tokens, self.credentials)


class Procedure(Protocol):
    """How one target is rotated."""

    def pending(self) -> str:
        """Return the identity of the next key if the files show a rotation in progress; empty otherwise."""

    def current(self) -> str:
        """Return the identity of the key in use."""

    async def begin(self) -> tuple[str, str]:
        """Create the next key, if it does not exist, and begin the overlap; return both identities.

        :raise TowerError: it cannot begin; nothing has changed.
        """

    async def begun(self) -> None:
        """Continue after the record was written, and after a restart."""

    def remaining(self, rotation: Rotation) -> Remaining:
        """Return what the rotation waits for."""

    async def finish(self, rotation: Rotation) -> None:
        """End the overlap: from now on, only the new key counts.

        :raise TowerError: it cannot end now; the overlap goes on.
        """

    async def cancel(self) -> None:
        """Return to the old key.

        :raise Conflict: the new key is in use already.
        """

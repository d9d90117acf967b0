"""How agents are let in: join tokens, which are spent on a key, and the keys enrolled so.

The store has only the token's SHA-256.  Spending a use and storing the key are one transaction, and the same
token with the same key succeeds again, so that an agent whose answer was lost on the way just asks again.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Sequence
from typing import Any

from attrs import field, frozen
from twisted.internet.defer import Deferred, DeferredLock
from twisted.internet.interfaces import IReactorTime

from tower.errors import Conflict, Invalid, NotFound, Unauthorized
from tower.store import IStore
from tower.store.records import (
    Create,
    Delete,
    Operation,
    Record,
    RecordChanged,
    RecordExists,
    RecordMissing,
    Require,
    Update,
)

#: What every join token begins with, so that scanners for leaked secrets can know it.
PREFIX = "tower-"

#: Longest life of a token, s, and most uses.
MAX_TTL = 30 * 86400.0
MAX_USES = 1000

#: Most tokens and most keys that one cluster may have at a time.
TOKEN_LIMIT = 1000
KEY_LIMIT = 1000

#: How long a spent or expired token is remembered, for agents whose answer was lost, s.
REMEMBERED = 86400.0

#: How far the clock may have gone back since a token was minted, s.
_SKEW = 300.0

_ATTEMPTS = 10


@frozen
class AgentKey:
    """A key that may serve a cluster.

    :ivar fingerprint: ``SHA256:…`` as OpenSSH prints it.
    :ivar blob: the public key in SSH's wire format.
    :ivar enrolled: when, s since the epoch.
    """

    cluster: str
    fingerprint: str
    blob: bytes = field(repr=False)
    enrolled: float


class JoinTokens:
    """Join tokens and agents' keys in a store.

    :param clock: its ``seconds()`` count from the epoch, as the reactor's do.
    """

    def __init__(self, store: IStore, clock: IReactorTime) -> None:
        self._store = store
        self._clock = clock
        # Many agents with one token would else be in each other's way.
        self._enrolling = DeferredLock()

    def mint(self, cluster: str, ttl: float = 3600.0, uses: int = 1) -> Deferred[str]:
        """Make a token, which is nowhere but in the answer.

        Fails with `NotFound`, `Invalid`, or `Conflict` when the cluster has too many tokens.

        :param ttl: how long it can be spent, s.
        :param uses: on how many keys it can be spent.
        """
        return Deferred.fromCoroutine(self._mint(cluster, ttl, uses))

    def enrol(self, cluster: str, token: str, fingerprint: str, blob: bytes) -> Deferred[None]:
        """Spend a use of *token* on a key, which from then on may serve the cluster.

        Fails with `Unauthorized`, alike for every reason; its ``reason`` is for the log.

        :param fingerprint: of *blob*.
        :param blob: the public key in SSH's wire format, possession of which was proven.
        """
        return Deferred.fromCoroutine(self._enrol(cluster, token, fingerprint, blob))

    def is_enrolled(self, cluster: str, fingerprint: str) -> bool:
        """Return whether that key may serve that cluster now."""
        return self.refusal(cluster, fingerprint) is None

    def refusal(self, cluster: str, fingerprint: str) -> str | None:
        """Return why that key may not serve that cluster, for the log, or None when it may."""
        owner = self._store.get("clusters", cluster)
        if owner is None:
            return "unknown cluster"
        if self._store.get("agentkeys", _key_name(owner, fingerprint)) is None:
            return "the key is not enrolled"
        return None if owner.value["enabled"] else "the cluster is disabled"

    def agent_keys(self, cluster: str) -> Sequence[AgentKey]:
        """Return the keys that may serve a cluster, the oldest first."""
        owner = self._store.get("clusters", cluster)
        if owner is None:
            return []
        keys = [
            AgentKey(
                cluster,
                record.value["fingerprint"],
                base64.b64decode(record.value["blob"]),
                record.value["enrolled"],
            )
            for record in self._of("agentkeys", owner)
        ]
        return sorted(keys, key=lambda key: (key.enrolled, key.fingerprint))

    def revoke(self, cluster: str, fingerprint: str) -> Deferred[None]:
        """Let a key serve the cluster no more; the token it came by, which its holder may know, ends with it.

        Fails with `NotFound`.
        """
        return Deferred.fromCoroutine(self._revoke(cluster, fingerprint))

    def purge(self) -> Deferred[int]:
        """End the tokens that have expired, so that no clock set back revives them, and forget the old ones.

        :return: how many were changed or forgotten.
        """
        return Deferred.fromCoroutine(self._purge())

    async def _mint(self, cluster: str, ttl: float, uses: int) -> str:
        if not 0 < ttl <= MAX_TTL:
            raise Invalid(f"ttl {ttl:g} s: must be more than 0 and at most {MAX_TTL / 86400:g} days")
        if not 0 < uses <= MAX_USES:
            raise Invalid(f"uses {uses}: must be 1 to {MAX_USES}")
        owner = self._store.get("clusters", cluster)
        if owner is None:
            raise _no_cluster(cluster)
        if len(self._of("jointokens", owner)) >= TOKEN_LIMIT:
            raise Conflict(
                f"cluster {cluster} has {TOKEN_LIMIT} join tokens, the most allowed: "
                "use those, or wait until they expire"
            )
        token = PREFIX + secrets.token_urlsafe(32)
        now = self._clock.seconds()
        value = {
            "cluster": cluster,
            "cluster_uid": owner.value["uid"],
            "minted": now,
            "expires": now + ttl,
            "uses": uses,
            "enrolled": [],
        }
        try:
            await self._store.transact(
                [
                    # Updated meanwhile is fine, removed is not; a new one of that name has another uid.
                    Require("clusters", cluster),
                    Create("jointokens", _digest(token), value),
                ]
            )
        except RecordMissing as e:
            raise _no_cluster(cluster) from e
        return token

    async def _enrol(self, cluster: str, token: str, fingerprint: str, blob: bytes) -> None:
        # Who has nothing to spend is sent away before he can keep others waiting.
        self._enrolment(cluster, token, fingerprint, blob)
        async with self._enrolling:
            for _ in range(_ATTEMPTS):
                operations = self._enrolment(cluster, token, fingerprint, blob)
                if not operations:
                    return
                try:
                    await self._store.transact(operations)
                except (RecordChanged, RecordExists, RecordMissing):
                    continue
                return
        raise Unauthorized(reason="the token or the key changes too often")

    def _enrolment(self, cluster: str, token: str, fingerprint: str, blob: bytes) -> list[Operation]:
        """Return what enrols the key; nothing when it is enrolled by this token already."""
        digest = _digest(token)
        owner = self._store.get("clusters", cluster)
        record = self._store.get("jointokens", digest)
        if owner is None:
            raise Unauthorized(reason="unknown cluster")
        if record is None:
            raise Unauthorized(reason="unknown token")
        ticket = record.value
        if ticket["cluster_uid"] != owner.value["uid"]:
            raise Unauthorized(reason="the token is for another cluster")
        if not owner.value["enabled"]:
            raise Unauthorized(reason="the cluster is disabled")
        name = _key_name(owner, fingerprint)
        known = self._store.get("agentkeys", name)
        if known is not None and fingerprint in ticket["enrolled"]:
            return []
        if not self._is_current(ticket):
            raise Unauthorized(reason="the token has expired")
        if ticket["uses"] < 1:
            raise Unauthorized(reason="the token is spent")
        if len(self._of("agentkeys", owner)) >= KEY_LIMIT:
            raise Unauthorized(reason=f"the cluster has {KEY_LIMIT} keys, the most allowed: revoke some")
        spent = {**ticket, "uses": ticket["uses"] - 1, "enrolled": [*ticket["enrolled"], fingerprint]}
        key = {
            "cluster": cluster,
            "cluster_uid": owner.value["uid"],
            "fingerprint": fingerprint,
            "blob": base64.b64encode(blob).decode(),
            "enrolled": self._clock.seconds(),
            "token": digest,
        }
        stored: Operation = Create("agentkeys", name, key)
        if known is not None:
            stored = Update("agentkeys", name, key, known.version)
        return [
            Require("clusters", cluster, owner.version),
            Update("jointokens", digest, spent, record.version),
            stored,
        ]

    def _is_current(self, ticket: Any) -> bool:
        return bool(ticket["minted"] - _SKEW <= self._clock.seconds() < ticket["expires"])

    async def _revoke(self, cluster: str, fingerprint: str) -> None:
        for _ in range(_ATTEMPTS):
            owner = self._store.get("clusters", cluster)
            if owner is None:
                raise _no_cluster(cluster)
            name = _key_name(owner, fingerprint)
            key = self._store.get("agentkeys", name)
            if key is None:
                raise NotFound(
                    f"cluster {cluster} has no agent key {fingerprint}: "
                    f"'tower cluster agents {cluster}' shows those it has"
                )
            operations: list[Operation] = [Delete("agentkeys", name, key.version)]
            token = self._store.get("jointokens", key.value["token"])
            if token is not None:
                operations.append(Delete("jointokens", token.name))
            try:
                await self._store.transact(operations)
            except (RecordChanged, RecordMissing):
                continue
            return
        raise Conflict(f"the key {fingerprint} of cluster {cluster} changes too often: try again")

    async def _purge(self) -> int:
        now = self._clock.seconds()
        operations: list[Operation] = []
        for record in self._store.snapshot("jointokens").values():
            ticket = record.value
            if now >= ticket["expires"] + REMEMBERED:
                operations.append(Delete("jointokens", record.name, record.version))
            elif now >= ticket["expires"] and ticket["uses"] > 0:
                operations.append(Update("jointokens", record.name, {**ticket, "uses": 0}, record.version))
        if operations:
            try:
                await self._store.transact(operations)
            except (RecordChanged, RecordMissing):
                return 0  # The next round comes soon enough.
        return len(operations)

    def _of(self, kind: str, owner: Record) -> list[Record]:
        uid = owner.value["uid"]
        return [r for r in self._store.snapshot(kind).values() if r.value["cluster_uid"] == uid]


def _no_cluster(name: str) -> NotFound:
    return NotFound(f"cluster {name} not found: 'tower cluster add {name}' adds it")


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def _key_name(owner: Record, fingerprint: str) -> str:
    return f"{owner.value['uid']}/{fingerprint}"

"""Join tokens, and the agent keys that are enrolled with them.

The store has only the token's SHA-256.  One transaction spends a use and stores the key.  The same token with
the same key succeeds again, so an agent that did not receive the answer can retry.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Sequence

from attrs import define, field, frozen
from twisted.internet.defer import DeferredLock
from twisted.internet.interfaces import IReactorTime

from tower.clusters.agent_rejection import (
    DISABLED,
    INVALID,
    REVOKED,
    UNKNOWN_CLUSTER,
    UNKNOWN_KEY,
    AgentRejected,
)
from tower.clusters.cluster import cluster_record, create_owned
from tower.errors import Conflict, Invalid, NotFound
from tower.reactor.coroutines import deferred
from tower.store import IStore
from tower.store.kinds import AGENT_KEYS, CLUSTERS, JOIN_TOKENS, REVOKED_KEYS
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
    Value,
)

#: Prefix of all join tokens, which scanners for leaked secrets can detect.
PREFIX = "tower-"

#: Prefix of their IDs.
PENDING_PREFIX = "j-"

#: Longest lifetime of a join token, s, and most uses.
MAX_TTL = 30 * 86400.0
MAX_USES = 1000

#: Most join tokens and most agent keys of one cluster at a time.
TOKEN_LIMIT = 1000
KEY_LIMIT = 1000

#: Most revoked keys of one cluster that are remembered: the oldest are forgotten.
REVOKED_LIMIT = 1000

#: How long a used up or expired token is kept, for agents that did not receive the answer, s.
REMEMBERED = 86400.0

#: Tolerance for a clock that was set back since a token was minted, s.
CLOCK_TOLERANCE = 300.0

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


@frozen
class UnspentToken:
    """A valid join token, or a token of kubesphere-v1 that no agent has used.

    :ivar expires: s since the epoch.
    :ivar v1_token: ID of the token of kubesphere-v1; empty for a join token.
    """

    cluster: str
    expires: float
    v1_token: str = ""


@frozen
class PendingToken:
    """A join token, or an import URL, with which agents can still join.

    :ivar id: part of the digest; not a secret.
    :ivar uses: number of agents that can still join.
    :ivar is_url: whether it is the URL of a manifest, which gets its token when it is fetched.
    """

    id: str
    cluster: str
    minted: float
    expires: float
    uses: int
    is_url: bool


@define(eq=False)
class JoinTokens:
    """The join tokens and agent keys in a store.

    :param clock: its ``seconds()`` are since the epoch, like the reactor's.
    """

    _store: IStore
    _clock: IReactorTime
    # Avoids conflicts between many agents with one token.
    _enrolling: DeferredLock = field(factory=DeferredLock, init=False)

    @deferred
    async def mint(self, cluster: str, ttl: float = 3600.0, uses: int = 1) -> str:
        """Create a join token; only the result contains it.

        Fails with `NotFound`, `Invalid`, or `Conflict` if the cluster has too many join tokens.

        :param ttl: lifetime, s.
        :param uses: number of keys that it can enrol.
        """
        if not 0 < ttl <= MAX_TTL:
            raise Invalid(f"ttl {ttl:g} s: must be more than 0 and at most {MAX_TTL / 86400:g} days")
        if not 0 < uses <= MAX_USES:
            raise Invalid(f"uses {uses}: must be 1 to {MAX_USES}")
        owner = cluster_record(self._store, cluster)
        if len(self._records(JOIN_TOKENS, owner)) >= TOKEN_LIMIT:
            raise Conflict(
                f"cluster {cluster} has reached the limit of {TOKEN_LIMIT} join tokens: "
                "use those, or wait until they expire"
            )
        token = PREFIX + secrets.token_urlsafe(32)
        now = self._clock.seconds()
        value = {"minted": now, "expires": now + ttl, "uses": uses, "enrolled": []}
        await create_owned(self._store, owner, JOIN_TOKENS, digest_of(token), value)
        return token

    @deferred
    async def enrol(self, cluster: str, token: str, fingerprint: str, blob: bytes) -> None:
        """Spend a use of *token* to allow a key to serve the cluster.

        Fails with `AgentRejected`, with the same text for every cause; its ``reason`` is for the log.

        :param blob: the public key in SSH's wire format; its possession must be proven.
        """
        # Reject invalid tokens before they can delay others.
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
        raise AgentRejected(INVALID, "too many concurrent changes of the join token or the key")

    def is_enrolled(self, cluster: str, fingerprint: str) -> bool:
        """Return whether the key may serve the cluster now."""
        return self.refusal(cluster, fingerprint) is None

    def refusal(self, cluster: str, fingerprint: str) -> AgentRejected | None:
        """Return why the key is rejected for the cluster, or None if it is accepted.

        Looks up as much for every result, so that its duration reveals none.
        """
        owner = self._store.get(CLUSTERS, cluster)
        name = f"{'' if owner is None else owner.value['uid']}/{fingerprint}"
        key, revoked = self._store.get(AGENT_KEYS, name), self._store.get(REVOKED_KEYS, name)
        if owner is None:
            return AgentRejected(UNKNOWN_CLUSTER, "unknown cluster")
        if key is None and revoked is not None:
            return AgentRejected(REVOKED, f"the key {fingerprint} was revoked")
        if key is None:
            return AgentRejected(UNKNOWN_KEY, f"the key {fingerprint} is not enrolled")
        return None if owner.value["enabled"] else AgentRejected(DISABLED, "the cluster is disabled")

    def agent_keys(self, cluster: str) -> Sequence[AgentKey]:
        """Return the keys that may serve a cluster, oldest first."""
        owner = self._store.get(CLUSTERS, cluster)
        if owner is None:
            return []
        keys = [
            AgentKey(
                cluster,
                record.value["fingerprint"],
                base64.b64decode(record.value["blob"]),
                record.value["enrolled"],
            )
            for record in self._records(AGENT_KEYS, owner)
        ]
        return sorted(keys, key=lambda key: (key.enrolled, key.fingerprint))

    @deferred
    async def revoke(self, cluster: str, fingerprint: str) -> None:
        """Revoke a key, and the join token that enrolled it, which the key's holder may know.

        Fails with `NotFound`.
        """
        for _ in range(_ATTEMPTS):
            owner = cluster_record(self._store, cluster)
            name = _key_name(owner, fingerprint)
            key = self._store.get(AGENT_KEYS, name)
            if key is None:
                raise NotFound(
                    f"cluster {cluster} has no agent key {fingerprint}: "
                    f"'tower cluster agents {cluster}' shows those it has"
                )
            operations: list[Operation] = [Delete(AGENT_KEYS, name, key.version)]
            operations += self._remembered(owner, name, fingerprint)
            token = self._store.get(JOIN_TOKENS, key.value["token"])
            if token is not None:
                operations.append(Delete(JOIN_TOKENS, token.name))
            try:
                await self._store.transact(operations)
            except (RecordChanged, RecordExists, RecordMissing):
                continue
            return
        raise Conflict(f"key {fingerprint} of cluster {cluster}: too many concurrent changes: retry")

    def unspent(self, before: float) -> Sequence[UnspentToken]:
        """Return the valid join tokens minted earlier than *before*, s since the epoch, by cluster."""
        values = [record.value for record in self._store.snapshot(JOIN_TOKENS).values()]
        found = [
            UnspentToken(value["cluster"], float(value["expires"]))
            for value in values
            if value["minted"] < before and value["uses"] > 0 and self._is_current(value)
        ]
        return sorted(found, key=lambda token: (token.cluster, token.expires))

    def pending(self) -> Sequence[PendingToken]:
        """Return the tokens and import URLs that can still be used, the oldest first."""
        found = [
            PendingToken(
                pending_id(record.name),
                record.value["cluster"],
                record.value["minted"],
                record.value["expires"],
                _uses(record.value),
                "import" in record.value,
            )
            for record in self._store.snapshot(JOIN_TOKENS).values()
            if _uses(record.value) > 0 and self._is_current(record.value)
        ]
        return sorted(found, key=lambda token: (token.minted, token.id))

    @deferred
    async def revoke_pending(self, identity: str) -> None:
        """Remove a token or an import URL; keys that were enrolled with it stay.

        Fails with `NotFound`.

        :param identity: see `PendingToken.id`.
        """
        names = [name for name in self._store.snapshot(JOIN_TOKENS) if pending_id(name) == identity]
        if not names:
            raise NotFound(f"there is no join token {identity}: 'tower join-token list' shows all")
        try:
            await self._store.transact([Delete(JOIN_TOKENS, name) for name in names])
        except RecordMissing:
            return  # it has just expired, or its cluster was removed

    @deferred
    async def purge(self) -> int:
        """Invalidate expired tokens, so that they stay so if the clock is set back; remove old ones.

        :return: number of changed and removed tokens.
        """
        now = self._clock.seconds()
        operations: list[Operation] = []
        for record in self._store.snapshot(JOIN_TOKENS).values():
            value = record.value
            if now >= value["expires"] + REMEMBERED:
                operations.append(Delete(JOIN_TOKENS, record.name, record.version))
            elif now >= value["expires"] and value["uses"] > 0:
                operations.append(Update(JOIN_TOKENS, record.name, {**value, "uses": 0}, record.version))
        if operations:
            try:
                await self._store.transact(operations)
            except (RecordChanged, RecordMissing):
                return 0  # the next purge retries
        return len(operations)

    def _enrolment(self, cluster: str, token: str, fingerprint: str, blob: bytes) -> list[Operation]:
        """Return the operations that enrol the key; none if this token has enrolled it already."""
        digest = digest_of(token)
        owner = self._store.get(CLUSTERS, cluster)
        record = self._store.get(JOIN_TOKENS, digest)
        if owner is None:
            raise AgentRejected(UNKNOWN_CLUSTER, "unknown cluster")
        if record is None:
            raise AgentRejected(INVALID, "unknown join token")
        value = record.value
        if value["cluster_uid"] != owner.value["uid"]:
            raise AgentRejected(INVALID, "the join token is for another cluster")
        if not owner.value["enabled"]:
            raise AgentRejected(DISABLED, "the cluster is disabled")
        name = _key_name(owner, fingerprint)
        known = self._store.get(AGENT_KEYS, name)
        if known is not None and fingerprint in value["enrolled"]:
            return []
        if not self._is_current(value):
            raise AgentRejected(INVALID, "the join token has expired")
        if value["uses"] < 1:
            raise AgentRejected(INVALID, "the join token is used up")
        if len(self._records(AGENT_KEYS, owner)) >= KEY_LIMIT:
            raise AgentRejected(
                INVALID, f"the cluster has reached the limit of {KEY_LIMIT} keys: revoke some"
            )
        spent = {**value, "uses": value["uses"] - 1, "enrolled": [*value["enrolled"], fingerprint]}
        key = {
            "cluster": cluster,
            "cluster_uid": owner.value["uid"],
            "fingerprint": fingerprint,
            "blob": base64.b64encode(blob).decode(),
            "enrolled": self._clock.seconds(),
            "token": digest,
            "connected": known is not None and known.value.get("connected", True),
        }
        stored: Operation = Create(AGENT_KEYS, name, key)
        if known is not None:
            stored = Update(AGENT_KEYS, name, key, known.version)
        revoked = self._store.get(REVOKED_KEYS, name)
        return [
            Require(CLUSTERS, cluster, owner.version),
            Update(JOIN_TOKENS, digest, spent, record.version),
            stored,
            *([] if revoked is None else [Delete(REVOKED_KEYS, name, revoked.version)]),
        ]

    def _remembered(self, owner: Record, name: str, fingerprint: str) -> list[Operation]:
        """Return the operations that remember a revoked key, so that its agent can learn the reason."""
        earlier = sorted(self._records(REVOKED_KEYS, owner), key=lambda each: each.version)
        value = {
            "cluster": owner.name,
            "cluster_uid": owner.value["uid"],
            "fingerprint": fingerprint,
            "revoked": self._clock.seconds(),
        }
        return [
            *(Delete(REVOKED_KEYS, old.name) for old in earlier[: -(REVOKED_LIMIT - 1)]),
            Create(REVOKED_KEYS, name, value),
        ]

    def _is_current(self, value: Value) -> bool:
        return bool(value["minted"] - CLOCK_TOLERANCE <= self._clock.seconds() < value["expires"])

    def _records(self, kind: str, owner: Record) -> list[Record]:
        uid = owner.value["uid"]
        return [r for r in self._store.snapshot(kind).values() if r.value["cluster_uid"] == uid]


def digest_of(token: str) -> str:
    """Return the name of the record of a token."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def pending_id(name: str) -> str:
    """Return the ID of the token in the record *name*, which users see."""
    return f"{PENDING_PREFIX}{name[:16]}"


def _uses(value: Value) -> int:
    """Return the number of agents that can still join."""
    order = value.get("import")
    if order is None:
        return int(value["uses"])
    return 0 if order["fetched"] else int(order["uses"])


def _key_name(owner: Record, fingerprint: str) -> str:
    return f"{owner.value['uid']}/{fingerprint}"

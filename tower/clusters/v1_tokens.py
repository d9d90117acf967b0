"""Tokens of ``kubesphere-v1`` agents.

Such an agent has no key: it sends the same token with each connection.  So these tokens do not expire and
have unlimited uses; they are valid until they are revoked or their cluster is removed.  The store has only a
token's SHA-256.  A KubeSphere Tower token can be imported, so that its agents connect unchanged.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Sequence

from attrs import frozen
from twisted.internet.interfaces import IReactorTime

from tower.clusters.agent_rejection import DISABLED, INVALID, REVOKED, UNKNOWN_CLUSTER, AgentRejected
from tower.clusters.cluster import cluster_record, create_owned
from tower.errors import Conflict, Invalid, NotFound
from tower.reactor.coroutines import deferred
from tower.store import IStore
from tower.store.kinds import CLUSTERS, V1_TOKENS
from tower.store.records import (
    Delete,
    Event,
    Record,
    RecordChanged,
    RecordExists,
    RecordMissing,
    StoreFailed,
    Update,
)

#: Prefix of created tokens, which scanners for leaked secrets can detect.
PREFIX = "tower-v1-"

#: Prefix of token IDs, which distinguishes them from fingerprints of keys.
ID_PREFIX = "v1:"

#: Most tokens of one cluster at a time.
TOKEN_LIMIT = 100

#: Shortest and longest token that can be imported, characters.
SHORTEST, LONGEST = 16, 1024

#: Length of the SHA-256 prefix in a token's ID, hex digits.
_ID_DIGITS = 12

_WORD = re.compile(r"[!-~]+")


@frozen
class V1Token:
    """A token of ``kubesphere-v1`` agents of a cluster.

    :ivar id: ``v1:`` and the first digits of its SHA-256.
    :ivar minted: when it was created, s since the epoch.
    :ivar connected: whether an agent has ever connected with it; True for tokens of earlier versions.
    """

    cluster: str
    id: str
    minted: float
    connected: bool


class V1Tokens:
    """The tokens in a store.

    :param clock: its ``seconds()`` are since the epoch, like the reactor's.
    """

    def __init__(self, store: IStore, clock: IReactorTime) -> None:
        self._store = store
        self._clock = clock
        # Index, so that listing the tokens of every cluster is not quadratic.
        self._by_cluster: dict[str, set[str]] = {}
        for record in store.snapshot(V1_TOKENS).values():
            self._by_cluster.setdefault(record.value["cluster_uid"], set()).add(record.name)
        self._watch = store.watch(V1_TOKENS, self._changed)

    @deferred
    async def mint(self, cluster: str, token: str | None = None) -> str:
        """Create a token for *cluster*; only the result contains it.

        Fails with `NotFound`, `Invalid`, or `Conflict` if the cluster has too many tokens.

        :param token: existing token to import.  Importing it again, or for several clusters, is allowed: a
            token is valid only together with the cluster's name.
        """
        if token is None:
            token = PREFIX + secrets.token_urlsafe(32)
        elif _WORD.fullmatch(token) is None or not SHORTEST <= len(token) <= LONGEST:
            raise Invalid(
                f"the token to import, of {len(token)} characters: must be one word of {SHORTEST} to "
                f"{LONGEST} printable ASCII characters"
            )
        owner = cluster_record(self._store, cluster)
        digest = _digest(token)
        if self._is_known(owner, digest):
            return token
        if len(self._of(owner)) >= TOKEN_LIMIT:
            raise Conflict(
                f"cluster {cluster} has reached the limit of {TOKEN_LIMIT} tokens for kubesphere-v1: "
                f"'tower cluster revoke {cluster} v1:...' revokes one"
            )
        value = {"digest": digest, "minted": self._clock.seconds(), "connected": False}
        try:
            await create_owned(self._store, owner, V1_TOKENS, _name(owner.value["uid"], digest), value)
        except RecordExists as e:
            if not self._is_known(owner, digest):
                raise Conflict(
                    f"cluster {cluster} has another token with ID {id_of(digest)}: use a different token"
                ) from e
        return token

    def check(self, cluster: str, token: str) -> str:
        """Return the ID of *token* if it is valid for *cluster* now.

        Compares digests in constant time, and as many for every result.

        :raise AgentRejected: with the same text for every cause; its ``reason`` is for the log.
        """
        digest = _digest(token)
        owner = self._store.get(CLUSTERS, cluster)
        uid = owner.value["uid"] if owner is not None else ""
        record = self._store.get(V1_TOKENS, _name(uid, digest))
        stored = record.value["digest"] if record is not None else "0" * len(digest)
        is_good = hmac.compare_digest(stored, digest)
        if owner is None:
            raise AgentRejected(UNKNOWN_CLUSTER, "unknown cluster")
        if not is_good:
            raise AgentRejected(INVALID, "unknown token")
        if not owner.value["enabled"]:
            raise AgentRejected(DISABLED, "the cluster is disabled")
        return id_of(digest)

    def refusal(self, cluster: str, token_id: str) -> AgentRejected | None:
        """Return why the token with *token_id* is not valid for *cluster*, or None if it is."""
        owner = self._store.get(CLUSTERS, cluster)
        if owner is None:
            return AgentRejected(UNKNOWN_CLUSTER, "unknown cluster")
        if self._find(owner, token_id) is None:
            return AgentRejected(REVOKED, "the token was revoked")
        return None if owner.value["enabled"] else AgentRejected(DISABLED, "the cluster is disabled")

    def tokens(self, cluster: str) -> Sequence[V1Token]:
        """Return the tokens of *cluster*, oldest first."""
        owner = self._store.get(CLUSTERS, cluster)
        if owner is None:
            return []
        tokens = [_decode(record) for record in self._of(owner)]
        return sorted(tokens, key=lambda token: (token.minted, token.id))

    def are_used(self, cluster: str) -> bool:
        """Return whether an agent has ever connected with a current token of *cluster*."""
        return any(token.connected for token in self.tokens(cluster))

    def all(self) -> Sequence[V1Token]:
        """Return the tokens of all clusters, in the order of the clusters' names."""
        tokens = [_decode(record) for record in self._store.snapshot(V1_TOKENS).values()]
        return sorted(tokens, key=lambda token: (token.cluster, token.minted, token.id))

    def connected(self, cluster: str, token_id: str) -> None:
        """Record that an agent has connected with a token; only the first time is written."""
        owner = self._store.get(CLUSTERS, cluster)
        record = None if owner is None else self._find(owner, token_id)
        if record is None or record.value.get("connected", True):
            return
        value = {**record.value, "connected": True}
        writing = self._store.transact([Update(V1_TOKENS, record.name, value, record.version)])
        # Another agent wrote it, or the token was revoked; after a failure, the next connection writes it.
        writing.addErrback(lambda failure: failure.trap(RecordChanged, RecordMissing, StoreFailed))

    @deferred
    async def revoke(self, cluster: str, token_id: str) -> None:
        """Revoke a token; fails with `NotFound`."""
        owner = cluster_record(self._store, cluster)
        record = self._find(owner, token_id)
        try:
            if record is None:
                raise RecordMissing(V1_TOKENS, token_id)
            await self._store.transact([Delete(V1_TOKENS, record.name)])
        except RecordMissing as e:
            raise NotFound(
                f"cluster {cluster} has no token {token_id}: "
                f"'tower cluster agents {cluster}' shows those it has"
            ) from e

    def stop(self) -> None:
        """Stop watching the store."""
        self._watch.stop()

    def _is_known(self, owner: Record, digest: str) -> bool:
        record = self._store.get(V1_TOKENS, _name(owner.value["uid"], digest))
        return record is not None and record.value["digest"] == digest

    def _find(self, owner: Record, token_id: str) -> Record | None:
        if not token_id.startswith(ID_PREFIX):
            return None
        return self._store.get(V1_TOKENS, f"{owner.value['uid']}/{token_id.removeprefix(ID_PREFIX)}")

    def _of(self, owner: Record) -> list[Record]:
        names = self._by_cluster.get(owner.value["uid"], ())
        return [
            record for record in (self._store.get(V1_TOKENS, name) for name in names) if record is not None
        ]

    def _changed(self, event: Event) -> None:
        uid, name = event.record.value["cluster_uid"], event.record.name
        names = self._by_cluster.setdefault(uid, set())
        if event.type != "DELETED":
            names.add(name)
            return
        names.discard(name)
        if not names:
            del self._by_cluster[uid]


def _decode(record: Record) -> V1Token:
    value = record.value
    connected = bool(value.get("connected", True))
    return V1Token(value["cluster"], id_of(value["digest"]), value["minted"], connected)


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def id_of(digest: str) -> str:
    """Return the ID of the token with that SHA-256."""
    return ID_PREFIX + digest[:_ID_DIGITS]


def id_of_token(token: str) -> str:
    """Return the ID of *token*."""
    return id_of(_digest(token))


def _name(uid: str, digest: str) -> str:
    return f"{uid}/{digest[:_ID_DIGITS]}"

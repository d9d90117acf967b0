"""The tokens by which agents of ``kubesphere-v1`` are let in.

Such an agent has no key: it sends the same token each time it connects, for as long as it lives.  So these
tokens neither expire nor are spent; they end when they are revoked or their cluster is removed.  The store
has only a token's SHA-256.  A token of an installation of KubeSphere Tower can be imported, so that its
agents come to us unchanged.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Sequence

from attrs import frozen
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from tower.errors import Conflict, Invalid, NotFound, Unauthorized
from tower.store import IStore
from tower.store.records import Create, Delete, Event, Record, RecordExists, RecordMissing, Require

#: What the tokens that we make begin with, so that scanners for leaked secrets can know them.
PREFIX = "tower-v1-"

#: What the id of every token begins with; fingerprints of keys, which stand beside it, begin otherwise.
ID_PREFIX = "v1:"

#: The kind of the records.
KIND = "v1tokens"

#: Most tokens that one cluster may have at a time.
TOKEN_LIMIT = 100

#: Shortest and longest token that can be imported, characters.
SHORTEST, LONGEST = 16, 1024

#: How much of a token's SHA-256 names it, hex digits.
_NAMED_BY = 12

_WORD = re.compile(r"[!-~]+")


@frozen
class V1Token:
    """A token that lets agents of ``kubesphere-v1`` into a cluster.

    :ivar id: names it: ``v1:`` and the first digits of its SHA-256.
    :ivar minted: when, s since the epoch.
    """

    cluster: str
    id: str
    minted: float


class V1Tokens:
    """Those tokens, in a store.

    :param clock: its ``seconds()`` count from the epoch, as the reactor's do.
    """

    def __init__(self, store: IStore, clock: IReactorTime) -> None:
        self._store = store
        self._clock = clock
        # Whoever asks about each of many clusters in turn must not go through all tokens each time.
        self._by_cluster: dict[str, set[str]] = {}
        for record in store.snapshot(KIND).values():
            self._by_cluster.setdefault(record.value["cluster_uid"], set()).add(record.name)
        self._watch = store.watch(KIND, self._changed)

    def mint(self, cluster: str, token: str | None = None) -> Deferred[str]:
        """Let the agents that send a new token into *cluster*; the token is nowhere but in the answer.

        Fails with `NotFound`, `Invalid`, or `Conflict` when the cluster has too many tokens.

        :param token: one that agents have already, which is imported; again is fine, and so is one that lets
            agents into another cluster too, as a token counts only together with the cluster's name.
        """
        return Deferred.fromCoroutine(self._mint(cluster, token))

    def check(self, cluster: str, token: str) -> str:
        """Return the id of *token*, which lets agents into *cluster* now.

        What is compared are digests, in constant time, and as many for every outcome.

        :raise Unauthorized: alike for every reason; its ``reason`` is for the log.
        """
        digest = _digest(token)
        owner = self._store.get("clusters", cluster)
        uid = owner.value["uid"] if owner is not None else ""
        record = self._store.get(KIND, _name(uid, digest))
        stored = record.value["digest"] if record is not None else "0" * len(digest)
        is_good = hmac.compare_digest(stored, digest)
        if owner is None:
            raise Unauthorized(reason="unknown cluster")
        if not is_good:
            raise Unauthorized(reason="unknown token")
        if not owner.value["enabled"]:
            raise Unauthorized(reason="the cluster is disabled")
        return id_of(digest)

    def refusal(self, cluster: str, token_id: str) -> str | None:
        """Return why the token of that *id* does not let agents into *cluster*, for the log, or None."""
        owner = self._store.get("clusters", cluster)
        if owner is None:
            return "unknown cluster"
        if self._find(owner, token_id) is None:
            return "the token was revoked"
        return None if owner.value["enabled"] else "the cluster is disabled"

    def tokens(self, cluster: str) -> Sequence[V1Token]:
        """Return the tokens that let agents into *cluster*, the oldest first."""
        owner = self._store.get("clusters", cluster)
        if owner is None:
            return []
        tokens = [
            V1Token(cluster, id_of(record.value["digest"]), record.value["minted"])
            for record in self._of(owner)
        ]
        return sorted(tokens, key=lambda token: (token.minted, token.id))

    def revoke(self, cluster: str, token_id: str) -> Deferred[None]:
        """Let nobody in by the token of that *id* any more.

        Fails with `NotFound`.
        """
        return Deferred.fromCoroutine(self._revoke(cluster, token_id))

    def stop(self) -> None:
        """Follow the store no longer."""
        self._watch.stop()

    async def _mint(self, cluster: str, token: str | None) -> str:
        if token is None:
            token = PREFIX + secrets.token_urlsafe(32)
        elif _WORD.fullmatch(token) is None or not SHORTEST <= len(token) <= LONGEST:
            raise Invalid(
                f"the token to import, of {len(token)} characters: must be one word of {SHORTEST} to "
                f"{LONGEST} printable ASCII characters"
            )
        owner = self._store.get("clusters", cluster)
        if owner is None:
            raise _no_cluster(cluster)
        digest = _digest(token)
        if self._is_known(owner, digest):
            return token
        if len(self._of(owner)) >= TOKEN_LIMIT:
            raise Conflict(
                f"cluster {cluster} has {TOKEN_LIMIT} tokens for kubesphere-v1, the most allowed: "
                f"'tower cluster revoke {cluster} v1:...' ends one"
            )
        value = {
            "cluster": cluster,
            "cluster_uid": owner.value["uid"],
            "digest": digest,
            "minted": self._clock.seconds(),
        }
        try:
            await self._store.transact(
                [
                    # Updated meanwhile is fine, removed is not; a new one of that name has another uid.
                    Require("clusters", cluster),
                    Create(KIND, _name(owner.value["uid"], digest), value),
                ]
            )
        except RecordMissing as e:
            raise _no_cluster(cluster) from e
        except RecordExists as e:
            if not self._is_known(owner, digest):
                raise Conflict(
                    f"cluster {cluster} has another token with the id {id_of(digest)}: take another token"
                ) from e
        return token

    async def _revoke(self, cluster: str, token_id: str) -> None:
        owner = self._store.get("clusters", cluster)
        if owner is None:
            raise _no_cluster(cluster)
        record = self._find(owner, token_id)
        try:
            if record is None:
                raise RecordMissing(KIND, token_id)
            await self._store.transact([Delete(KIND, record.name)])
        except RecordMissing as e:
            raise NotFound(
                f"cluster {cluster} has no token {token_id}: "
                f"'tower cluster agents {cluster}' shows those it has"
            ) from e

    def _is_known(self, owner: Record, digest: str) -> bool:
        record = self._store.get(KIND, _name(owner.value["uid"], digest))
        return record is not None and record.value["digest"] == digest

    def _find(self, owner: Record, token_id: str) -> Record | None:
        if not token_id.startswith(ID_PREFIX):
            return None
        return self._store.get(KIND, f"{owner.value['uid']}/{token_id.removeprefix(ID_PREFIX)}")

    def _of(self, owner: Record) -> list[Record]:
        names = self._by_cluster.get(owner.value["uid"], ())
        return [record for record in (self._store.get(KIND, name) for name in names) if record is not None]

    def _changed(self, event: Event) -> None:
        uid, name = event.record.value["cluster_uid"], event.record.name
        names = self._by_cluster.setdefault(uid, set())
        if event.type != "DELETED":
            names.add(name)
            return
        names.discard(name)
        if not names:
            del self._by_cluster[uid]


def _no_cluster(name: str) -> NotFound:
    return NotFound(f"cluster {name} not found: 'tower cluster add {name}' adds it")


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def id_of(digest: str) -> str:
    """Return the id of the token with that SHA-256."""
    return ID_PREFIX + digest[:_NAMED_BY]


def id_of_token(token: str) -> str:
    """Return the id of *token*."""
    return id_of(_digest(token))


def _name(uid: str, digest: str) -> str:
    return f"{uid}/{digest[:_NAMED_BY]}"

"""Import URLs of agents' manifests: each can be fetched once, and is valid as long as its join token.

The store has only the SHA-256 of a URL's secret, in a record of kind `JOIN_TOKENS` that no agent can use.
The fetch creates the join token of the manifest, in the transaction that marks the record as fetched.  So no
secret is stored, and a URL that was used is worthless.
"""

from __future__ import annotations

import secrets
from typing import Any

from attrs import define, field, frozen
from twisted.internet.interfaces import IReactorTime

from tower.clusters.cluster import cluster_record, create_owned
from tower.clusters.join_tokens import (
    CLOCK_TOLERANCE,
    MAX_TTL,
    MAX_USES,
    PREFIX,
    TOKEN_LIMIT,
    digest_of,
)
from tower.errors import Conflict, Invalid, NotFound, TowerError
from tower.reactor.coroutines import deferred
from tower.store import IStore
from tower.store.kinds import CLUSTERS, JOIN_TOKENS
from tower.store.records import Create, Record, RecordChanged, RecordExists, RecordMissing, Require, Update

#: Length of a URL's secret, characters.
SECRET_LENGTH = 43

_ATTEMPTS = 10


class ImportEnded(TowerError):
    """The URL existed, but was fetched or has expired.

    :ivar was_fetched: whether it was fetched.
    """

    def __init__(self, cluster: str, *, was_fetched: bool) -> None:
        reason = "was already fetched, which is possible only once" if was_fetched else "has expired"
        super().__init__(
            f"this import URL for cluster {cluster} {reason}: get a new one with "
            f"'tower join {cluster} --output-url'"
        )
        self.cluster, self.was_fetched = cluster, was_fetched


@frozen
class FetchedImport:
    """A join token, and the settings of its manifest."""

    cluster: str
    token: str = field(repr=False)
    settings: dict[str, Any]


@define(eq=False)
class ManifestImports:
    """The import URLs in a store.

    :param clock: its ``seconds()`` are since the epoch, like the reactor's.
    """

    _store: IStore
    _clock: IReactorTime

    @deferred
    async def create(self, cluster: str, ttl: float, uses: int, settings: dict[str, Any]) -> str:
        """Return the secret of a new URL.

        Fails with `NotFound`, `Invalid`, or `Conflict` if the cluster has too many join tokens.

        :param ttl: lifetime of the URL and of its join token, s.
        :param uses: of the join token.
        :param settings: JSON; returned by `fetch`.
        """
        if not 0 < ttl <= MAX_TTL:
            raise Invalid(f"ttl {ttl:g} s: must be more than 0 and at most {MAX_TTL / 86400:g} days")
        if not 0 < uses <= MAX_USES:
            raise Invalid(f"uses {uses}: must be 1 to {MAX_USES}")
        owner = cluster_record(self._store, cluster)
        uid = owner.value["uid"]
        tokens = self._store.snapshot(JOIN_TOKENS).values()
        # its join token is a second record
        if sum(record.value["cluster_uid"] == uid for record in tokens) + 2 > TOKEN_LIMIT:
            raise Conflict(
                f"cluster {cluster} has reached the limit of {TOKEN_LIMIT} join tokens: "
                "use those, or wait until they expire"
            )
        secret = secrets.token_urlsafe(32)
        now = self._clock.seconds()
        value = {
            "minted": now,
            "expires": now + ttl,
            "uses": 0,
            "enrolled": [],
            "import": {"uses": uses, "settings": settings, "fetched": False},
        }
        await create_owned(self._store, owner, JOIN_TOKENS, digest_of(secret), value)
        return secret

    def check(self, secret: str) -> str:
        """Return the name of the cluster whose manifest can be fetched with *secret*.

        :raise NotFound: there is no such URL.
        :raise ImportEnded: it can no longer be fetched.
        """
        return self._find(secret)[0].name

    @deferred
    async def fetch(self, secret: str) -> FetchedImport:
        """Create the join token of a URL, and end the URL.  Fails like `check`."""
        for _ in range(_ATTEMPTS):
            owner, record = self._find(secret)
            value, order = record.value, record.value["import"]
            token = PREFIX + secrets.token_urlsafe(32)
            minted = {
                "cluster": owner.name,
                "cluster_uid": owner.value["uid"],
                "minted": self._clock.seconds(),
                "expires": value["expires"],
                "uses": order["uses"],
                "enrolled": [],
            }
            spent = {**value, "import": {**order, "fetched": True}}
            try:
                await self._store.transact(
                    [
                        Require(CLUSTERS, owner.name, owner.version),
                        Update(JOIN_TOKENS, record.name, spent, record.version),
                        Create(JOIN_TOKENS, digest_of(token), minted),
                    ]
                )
            except (RecordChanged, RecordExists, RecordMissing):
                continue
            return FetchedImport(owner.name, token, order["settings"])
        raise Conflict("too many concurrent changes of the import URL or its cluster: retry")

    def _find(self, secret: str) -> tuple[Record, Record]:
        """Return the records of the cluster and of the URL."""
        record = self._store.get(JOIN_TOKENS, digest_of(secret))
        order = None if record is None else record.value.get("import")
        owner = None if record is None else self._store.get(CLUSTERS, record.value["cluster"])
        if record is None or order is None or owner is None:
            raise NotFound("there is no such import URL: get a new one with 'tower join NAME --output-url'")
        value = record.value
        if owner.value["uid"] != value["cluster_uid"]:
            raise NotFound(f"this import URL is for an earlier cluster {owner.name}, which was removed")
        if order["fetched"]:
            raise ImportEnded(owner.name, was_fetched=True)
        if not value["minted"] - CLOCK_TOLERANCE <= self._clock.seconds() < value["expires"]:
            raise ImportEnded(owner.name, was_fetched=False)
        return owner, record

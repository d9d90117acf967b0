"""The credentials that Tower issued to users: user, cluster, and expiry.

The store has only the SHA-256 of a token, or of a certificate's DER.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, TypeAlias

from attrs import asdict, evolve, field, frozen
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from tower.clusters.cluster import cluster_not_found, cluster_record
from tower.errors import Conflict, Invalid, NotFound
from tower.reactor.coroutines import deferred
from tower.store import IStore
from tower.store.kinds import CREDENTIALS
from tower.store.records import (
    Create,
    Delete,
    Event,
    Operation,
    Record,
    RecordChanged,
    RecordMissing,
    Require,
    Update,
    check_fields,
)
from tower.trust.session_tokens import BEARER_PREFIX

#: The group whose members may use Tower's own API.
ADMINS = "tower:admins"

#: Prefix of all bearer tokens, which scanners for leaked secrets can detect.
PREFIX = BEARER_PREFIX

#: Most credentials at a time.
CREDENTIAL_LIMIT = 100_000

#: How long an expired credential is still listed, s.
REMEMBERED = 86400.0

#: Tolerance for a clock that was set back since a credential was issued, s.
_SKEW = 300.0

#: Most operations in one transaction of `Credentials.purge`.
_PURGE_BATCH = 500

_ATTEMPTS = 10

CredentialKind: TypeAlias = Literal["cert", "token"]

#: ``trusted-caller``: may act as other users of its cluster; see docs/security-model.md.
CredentialRole: TypeAlias = Literal["user", "trusted-caller"]


@frozen
class Credential:
    """An issued credential.

    :ivar id: not secret.
    :ivar cluster: empty for Tower's own API.
    :ivar cluster_uid: that cluster's uid; empty for Tower's own API.
    :ivar digest: SHA-256 of the token, or of the certificate's DER, hexadecimal.
    :ivar issued: s since the epoch.
    :ivar expires: s since the epoch.
    :ivar revoked_at: when it was revoked, s since the epoch.
    :ivar role: of its holder.
    :ivar ended: it has expired; stays so even if the clock is set back.
    """

    id: str
    cluster: str
    cluster_uid: str
    user: str
    groups: tuple[str, ...]
    kind: CredentialKind
    digest: str = field(repr=False)
    issued: float
    expires: float
    revoked_at: float | None = None
    ended: bool = False
    role: CredentialRole = "user"

    @property
    def is_trusted_caller(self) -> bool:
        """Whether its holder may act as other users of the cluster."""
        return self.role == "trusted-caller"

    @property
    def revoked(self) -> bool:
        """Whether it was revoked."""
        return self.revoked_at is not None

    @property
    def term(self) -> tuple[float, float]:
        """Begin and end of its validity, s since the epoch; unless revoked or ended."""
        return self.issued - _SKEW, self.expires

    def valid(self, now: float) -> bool:
        """Return whether it is valid at *now*, s since the epoch."""
        since, until = self.term
        return not self.revoked and not self.ended and since <= now < until


class Credentials:
    """The credentials in a store.

    :param clock: its ``seconds()`` are since the epoch, like the reactor's.
    :param max_ttl: longest lifetime, s (``--max-credential-ttl``).
    """

    _log = Logger()

    def __init__(self, store: IStore, clock: IReactorTime, max_ttl: float) -> None:
        self.max_ttl = max_ttl
        self._store = store
        self._clock = clock
        self._by_digest: dict[str, Credential] = {}
        self._watchers: list[Callable[[Credential], None]] = []
        for record in store.snapshot(CREDENTIALS).values():
            self._add(record)
        self._watch = store.watch(CREDENTIALS, self._changed)

    def find(self, digest: str) -> Credential | None:
        """Return the credential whose token, or certificate in DER, has this SHA-256 (hexadecimal).

        One dictionary lookup.  Ended credentials are not found; others may have expired or been revoked: see
        `Credential.valid`.
        """
        credential = self._by_digest.get(digest)
        return None if credential is None or credential.ended else credential

    def get(self, credential_id: str) -> Credential | None:
        """Return the credential of that id."""
        record = self._store.get(CREDENTIALS, credential_id)
        try:
            return None if record is None else _decode(record)
        except Invalid:
            return None  # see `_add`

    def list(self, cluster: str) -> Sequence[Credential]:
        """Return the credentials for a cluster, or for Tower's own API if it is empty, oldest first."""
        found = (credential for credential in self._by_digest.values() if credential.cluster == cluster)
        return sorted(found, key=lambda credential: (credential.issued, credential.id))

    def issued_before(self, moment: float) -> Sequence[Credential]:
        """Return the valid credentials that were issued earlier than *moment*, s since the epoch."""
        now = self._clock.seconds()
        return [each for each in self._by_digest.values() if each.issued < moment and each.valid(now)]

    @deferred
    async def issue_token(
        self, cluster: str, user: str, groups: Iterable[str], ttl: float, role: CredentialRole = "user"
    ) -> tuple[Credential, str]:
        """Issue a bearer token; only the result contains it.

        Fails with `NotFound`, `Invalid`, or `Conflict` if there are too many credentials.

        :param cluster: the cluster's name; empty for Tower's own API.
        :param ttl: lifetime, s.
        """
        token = PREFIX + secrets.token_urlsafe(32)
        digest = hashlib.sha256(token.encode()).hexdigest()
        return await self._register(cluster, user, groups, ttl, "token", digest, role), token

    def register_certificate(
        self,
        cluster: str,
        user: str,
        groups: Iterable[str],
        ttl: float,
        digest: str,
        role: CredentialRole = "user",
    ) -> Deferred[Credential]:
        """Register a newly signed certificate as a credential.

        Fails with `NotFound`, `Invalid`, or `Conflict` if there are too many credentials.

        :param cluster: the cluster's name; empty for Tower's own API.
        :param ttl: lifetime, s.
        :param digest: SHA-256 of the certificate's DER, hexadecimal.
        """
        return Deferred.fromCoroutine(self._register(cluster, user, groups, ttl, "cert", digest, role))

    @deferred
    async def revoke(self, credential_id: str, cluster: str | None = None) -> Credential:
        """Revoke a credential; no-op if it is revoked already.

        Fails with `NotFound`.

        :param cluster: required cluster of the credential; None: any.
        """
        for _ in range(_ATTEMPTS):
            record = self._store.get(CREDENTIALS, credential_id)
            if record is None or cluster not in (None, record.value["cluster"]):
                owner = f"cluster {cluster} has" if cluster else "there is"
                raise NotFound(f"{owner} no credential {credential_id}")
            credential = _decode(record)
            if credential.revoked:
                return credential
            credential = evolve(credential, revoked_at=self._clock.seconds())
            try:
                await self._store.update("credentials", credential_id, _encode(credential), record.version)
            except (RecordChanged, RecordMissing):
                continue
            return credential
        raise Conflict(f"credential {credential_id}: too many concurrent changes: retry")

    @deferred
    async def purge(self) -> int:
        """Mark expired credentials as ended, so that they stay so if the clock is set back; remove old ones.

        :return: number of changed and removed credentials.
        """
        now = self._clock.seconds()
        operations: list[Operation] = []
        for record in self._store.snapshot(CREDENTIALS).values():
            value = record.value
            if now >= value["expires"] + REMEMBERED:
                operations.append(Delete(CREDENTIALS, record.name, record.version))
            elif now >= value["expires"] and not value["ended"]:
                operations.append(Update(CREDENTIALS, record.name, {**value, "ended": True}, record.version))
            if len(operations) >= _PURGE_BATCH:
                break
        if operations:
            try:
                await self._store.transact(operations)
            except (RecordChanged, RecordMissing):
                return 0  # the next purge retries
        return len(operations)

    def watch_ends(self, callback: Callable[[Credential], None]) -> None:
        """Call *callback* with each credential that is revoked, ended, or removed with its cluster."""
        self._watchers.append(callback)

    def stop(self) -> None:
        """Stop watching the store."""
        self._watch.stop()
        self._watchers.clear()

    async def _register(
        self,
        cluster: str,
        user: str,
        groups: Iterable[str],
        ttl: float,
        kind: CredentialKind,
        digest: str,
        role: CredentialRole,
    ) -> Credential:
        names = tuple(dict.fromkeys(groups))
        _check_names(user, names)
        if not 0 < ttl <= self.max_ttl:
            raise Invalid(
                f"ttl {ttl:g} s: must be more than 0 and at most {self.max_ttl:g} s, "
                "the proxy's --max-credential-ttl"
            )
        if len(self._by_digest) >= CREDENTIAL_LIMIT:
            raise Conflict(f"the limit of {CREDENTIAL_LIMIT} credentials is reached: wait until some expire")
        operations: list[Operation] = []
        uid = ""
        if cluster:
            uid = cluster_record(self._store, cluster).value["uid"]
            operations.append(Require("clusters", cluster))
        now = self._clock.seconds()
        credential = Credential(
            "c-" + secrets.token_hex(8), cluster, uid, user, names, kind, digest, now, now + ttl, role=role
        )
        operations.append(Create(CREDENTIALS, credential.id, _encode(credential)))
        if digest in self._by_digest:
            raise Conflict("the certificate is already registered")
        try:
            await self._store.transact(operations)
        except RecordMissing as e:
            raise cluster_not_found(cluster) from e
        return credential

    def _changed(self, event: Event) -> None:
        credential = None
        before = self._by_digest.pop(str(event.record.value.get("digest")), None)
        if event.type != "DELETED":
            credential = self._add(event.record)
        ended = before if credential is None else credential
        if ended is not None and (credential is None or ended.revoked or ended.ended):
            for watcher in self._watchers:
                watcher(ended)

    def _add(self, record: Record) -> Credential | None:
        """Let a credential be found; one that cannot be read is logged, and rejected when it is used."""
        try:
            credential = _decode(record)
        except Invalid as e:
            self._log.error("{reason}", reason=str(e))
            return None
        self._by_digest[credential.digest] = credential
        return credential


def _check_names(user: str, groups: Iterable[str]) -> None:
    for what, name in (("user", user), *(("group", group) for group in groups)):
        if not (0 < len(name) <= 253 and name.isascii() and name.isprintable() and name == name.strip()):
            raise Invalid(
                f"{what} {name!r}: must be 1 to 253 printable ASCII characters, without blanks at the ends"
            )


def _encode(credential: Credential) -> dict[str, Any]:
    value = asdict(credential, filter=lambda attribute, _: attribute.name != "id")
    if credential.role == "user":
        del value["role"]  # as in earlier versions
    return value


def _decode(record: Record) -> Credential:
    """Return the credential in a record.

    :raise Invalid: it has unknown fields, which may limit it.
    """
    value: dict[str, Any] = {**record.value, "id": record.name}
    try:
        check_fields(Credential, value)
    except Invalid as e:
        raise Invalid(
            f"credential {record.name} is rejected: its record has {e}, as written by a newer Tower: upgrade "
            "this one, or issue another credential"
        ) from None
    return Credential(**{**value, "groups": tuple(value["groups"])})

"""The login sessions in a store."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeAlias

from attrs import evolve
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from tower.clusters.login.login_session import ID_PREFIX, LoginSession, decode_session, encode_session
from tower.errors import Conflict, Invalid, NotFound
from tower.store import IStore
from tower.store.kinds import LOGIN_SESSIONS
from tower.store.records import Delete, Event, Record, RecordChanged, RecordMissing
from tower.store.sealed_records import SealedRecords
from tower.trust.vault import Vault

#: Most sessions, and most of one user.  This is for pipelines, which are one user each: users who log in have
#: fewer (`tower.web.login.session_requests.PERSON_LIMIT`).
SESSIONS_LIMIT = 20_000
USER_LIMIT = 1000

#: Most that are removed in one transaction.
_PURGE_BATCH = 500

#: Called with a session, and whether it has ended; else its user changed.
SessionChange: TypeAlias = Callable[[LoginSession, bool], None]


class LoginSessions:
    """The sessions.

    :param clock: its ``seconds()`` are since the epoch.
    :param vault: seals refresh tokens.
    """

    _log = Logger()

    def __init__(self, store: IStore, clock: IReactorTime, vault: Vault) -> None:
        self.sealed = SealedRecords(store, LOGIN_SESSIONS, vault)
        self._store = store
        self._clock = clock
        self._vault = vault
        self._sessions: dict[str, LoginSession] = {}
        self._of_user: Counter[str] = Counter()
        self._being_added: Counter[str] = Counter()  # by user, until they are stored
        self._watchers: list[SessionChange] = []
        for record in store.snapshot(LOGIN_SESSIONS).values():
            self._add(record)
        self._watch = store.watch(LOGIN_SESSIONS, self._changed)

    def __len__(self) -> int:
        return len(self._sessions)

    def find(self, session_id: str) -> LoginSession | None:
        """Return the session of that ID, if it has not expired; a look-up in a dictionary."""
        session = self._sessions.get(session_id)
        return None if session is None or session.expires <= self._clock.seconds() else session

    def list(self) -> Sequence[LoginSession]:
        """Return the sessions that have not expired, oldest first."""
        now = self._clock.seconds()
        found = (each for each in self._sessions.values() if each.expires > now)
        return sorted(found, key=lambda each: (each.created, each.id))

    def of_user(self, user: str) -> Sequence[LoginSession]:
        """Return the sessions of a user that have not expired."""
        if not self._of_user[user]:
            return []
        now = self._clock.seconds()
        return [each for each in self._sessions.values() if each.user == user and each.expires > now]

    async def add(self, session: LoginSession, refresh_token: str) -> LoginSession:
        """Store a new session, whose ID is chosen here.

        :param refresh_token: of the provider; empty: there is none.
        :raise Conflict: there are too many.
        :raise VaultError: the token cannot be sealed.
        """
        user, adding = session.user, self._being_added
        if len(self._sessions) + adding.total() >= SESSIONS_LIMIT:
            raise Conflict(
                f"the limit of {SESSIONS_LIMIT} login sessions is reached: an administrator can end some "
                "('tower session end')"
            )
        if self._of_user[user] + adding[user] >= USER_LIMIT:
            raise Conflict(
                f"the limit of {USER_LIMIT} login sessions of {user} is reached: log out ('tower "
                "logout'), or wait until some expire"
            )
        session_id = ID_PREFIX + secrets.token_hex(12)
        session = evolve(session, id=session_id, sealed=self._seal(session_id, refresh_token))
        adding[user] += 1
        try:
            await self._store.create(LOGIN_SESSIONS, session_id, encode_session(session))
        finally:
            adding[user] -= 1
            self._being_added += Counter()  # drops zeros
        return session

    def refresh_token(self, session: LoginSession) -> str:
        """Return the provider's refresh token.

        :raise VaultError: it cannot be opened.
        """
        return self._vault.open(session.sealed, session.id).decode()

    async def confirm(self, session: LoginSession, refresh_token: str) -> None:
        """Store *session* as the provider confirmed it, with another refresh token; empty: the same one.

        :raise NotFound: it has ended meanwhile.
        :raise VaultError: the token cannot be sealed.
        """
        record = self._store.get(LOGIN_SESSIONS, session.id)
        if record is None:
            raise _not_found(session.id)
        sealed = self._seal(session.id, refresh_token) if refresh_token else record.value["sealed"]
        try:
            await self._store.update(
                LOGIN_SESSIONS, session.id, encode_session(evolve(session, sealed=sealed)), record.version
            )
        except (RecordMissing, RecordChanged):
            raise _not_found(session.id) from None

    async def end(self, session_id: str) -> LoginSession:
        """End a session; return its last state, with the refresh token that was stored last.

        :raise NotFound: there is none with this ID.
        """
        try:
            return decode_session(await self._store.delete(LOGIN_SESSIONS, session_id))
        except RecordMissing:
            raise _not_found(session_id) from None

    async def purge(self) -> int:
        """Remove expired sessions; return their number."""
        now = self._clock.seconds()
        expired = [
            record
            for record in self._store.snapshot(LOGIN_SESSIONS).values()
            if record.value.get("expires", now) <= now
        ]
        operations = [Delete(LOGIN_SESSIONS, each.name, each.version) for each in expired[:_PURGE_BATCH]]
        if operations:
            try:
                await self._store.transact(operations)
            except (RecordChanged, RecordMissing):
                return 0  # the next purge retries
        return len(operations)

    def watch(self, callback: SessionChange) -> None:
        """Call *callback* with each session whose user changes, or which ends."""
        self._watchers.append(callback)

    def stop(self) -> None:
        """Stop watching the store."""
        self._watch.stop()
        self._watchers.clear()

    def _seal(self, session_id: str, refresh_token: str) -> str:
        return self._vault.seal(refresh_token.encode(), session_id) if refresh_token else ""

    def _changed(self, event: Event) -> None:
        before = self._sessions.pop(event.record.name, None)
        if before is not None:
            self._of_user[before.user] -= 1
            self._of_user += Counter()  # drops zeros
        session = None if event.type == "DELETED" else self._add(event.record)
        if before is not None and not (session is not None and _has_same_user(before, session)):
            for watcher in list(self._watchers):
                watcher(before if session is None else session, session is None)

    def _add(self, record: Record) -> LoginSession | None:
        """Let a session be found; one that cannot be read is logged, and does not exist for users."""
        try:
            session = decode_session(record)
        except Invalid as e:
            self._log.error("{reason}", reason=str(e))
            return None
        self._sessions[session.id] = session
        self._of_user[session.user] += 1
        return session


def _has_same_user(before: LoginSession, session: LoginSession) -> bool:
    return evolve(before, sealed=session.sealed, confirmed=session.confirmed) == session


def _not_found(session_id: str) -> NotFound:
    return NotFound(f"there is no login session {session_id[:100]}: 'tower session list' shows all")

"""Sessions: connections in use, by credential and by cluster, so that they end when either becomes invalid.

A connection enters with the first request of a user to a cluster and leaves when it closes or another session
begins.  The revocation of a credential and the removal of a cluster call `Sessions.cut`; a timer calls
`Sessions.sweep`, which ends sessions of expired credentials.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeAlias

from twisted.logger import Logger

from tower.errors import Unauthorized
from tower.web.access.authentication.identity import AnyIdentity, Identity
from tower.web.access.authentication.presented import Stale
from tower.web.access.authentication.union import AuthenticatorUnion

#: Interval of `Sessions.sweep`, s: requests in progress end this long after their credential at the latest.
SWEEP_PERIOD = 2.0


#: Ends a connection, given a reason for the user, and perhaps an HTTP status in place of 401.
Abort: TypeAlias = Callable[..., None]


class Session:
    """The use of one connection by *identity*; `abort` ends it.

    :ivar cluster: name of the cluster in use; empty for Tower's own API.
    :ivar age: how often `tower.web.access.authorization.entry_sweep` has seen it.
    :ivar entry: how access policies admit the user, as it last found; None: not by policies.
    """

    __slots__ = ("abort", "age", "cluster", "entry", "identity")

    def __init__(self, identity: AnyIdentity, cluster: str, abort: Abort) -> None:
        self.identity = identity
        self.cluster = cluster
        self.abort = abort
        self.age = 0
        self.entry = identity.entry if isinstance(identity, Identity) else None

    @property
    def credential(self) -> str:
        """The ID of the credential, or of the identity without one; empty: anonymous."""
        return self.identity.session


class Sessions:
    """All sessions; the cost of entering and leaving does not depend on their number."""

    _log = Logger()

    def __init__(self, authenticator: AuthenticatorUnion) -> None:
        self._authenticator = authenticator
        self._by_credential: dict[str, set[Session]] = {}  # without anonymous ones
        self._by_cluster: dict[str, set[Session]] = {}
        self._admitted: set[Session] = set()

    def __len__(self) -> int:
        return sum(map(len, self._by_cluster.values()))

    @property
    def admitted(self) -> Collection[Session]:
        """The sessions of users that access policies admitted; copy it before sessions end."""
        return self._admitted

    @property
    def credentials(self) -> Collection[str]:
        """The IDs of the credentials, or of the other identities, that are in use."""
        return self._by_credential.keys()

    def enter(self, identity: AnyIdentity, cluster: str, abort: Abort) -> Session:
        """Begin a session of *identity*, which was admitted to *cluster*."""
        session = Session(identity, cluster, abort)
        if session.credential:
            self._by_credential.setdefault(session.credential, set()).add(session)
        self._by_cluster.setdefault(cluster, set()).add(session)
        if session.entry is not None:
            self._admitted.add(session)
        return session

    def leave(self, session: Session) -> bool:
        """End *session*; return False if it was cut before."""
        found = False
        self._admitted.discard(session)
        for sessions, key in ((self._by_credential, session.credential), (self._by_cluster, session.cluster)):
            members = sessions.get(key)
            if members is not None and session in members:
                found = True
                members.remove(session)
                if not members:
                    del sessions[key]
        return found

    def cut(self, reason: str, *, credential: str | None = None, cluster: str | None = None) -> int:
        """Abort all sessions with this credential (its ID) or this cluster (with both: either); count them.

        :param reason: for users.
        """
        doomed: set[Session] = set()
        if credential is not None:
            doomed |= self._by_credential.get(credential, set())
        if cluster is not None:
            doomed |= self._by_cluster.get(cluster, set())
        # aborting one may end another, which is then not counted
        return sum(self._end(session, reason) for session in doomed)

    def end(self, session: Session, reason: str, code: int) -> bool:
        """Abort one session with the HTTP status *code*; return False if it had ended."""
        return self._end(session, reason, code)

    def sweep(self) -> None:
        """Abort the sessions of credentials that have expired; never raises."""
        for sessions in list(self._by_credential.values()):
            session = next(iter(sessions), None)
            if session is None or not isinstance(session.identity, Identity):
                continue
            try:
                self._authenticator.check_lasting(session.identity)
            except Stale:
                continue
            except Unauthorized as e:
                self.cut(str(e), credential=session.credential)

    def _end(self, session: Session, reason: str, *code: int) -> bool:
        if not self.leave(session):
            return False
        try:
            session.abort(reason, *code)
        except Exception:  # noqa: BLE001 - the other sessions must still be aborted
            self._log.failure("cannot end a session of {user}", user=session.identity.user)
        return True

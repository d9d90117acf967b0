"""Sessions: connections in use, by credential and by cluster, so that they end when either becomes invalid.

A connection enters with the first request of a user to a cluster and leaves when it closes or another session
begins.  The revocation of a credential and the removal of a cluster call `Sessions.cut`; a timer calls
`Sessions.sweep`, which ends sessions of expired credentials.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.logger import Logger

from tower.errors import Unauthorized
from tower.web.access.authentication.identity import AnyIdentity, Identity
from tower.web.access.authentication.union import AuthenticatorUnion

#: Interval of `Sessions.sweep`, s: requests in progress end this long after their credential at the latest.
SWEEP_PERIOD = 2.0


class Session:
    """The use of one connection by *identity*; `abort` ends it, given a reason for the user.

    :ivar cluster: name of the cluster in use; empty for Tower's own API.
    """

    __slots__ = ("abort", "cluster", "identity")

    def __init__(self, identity: AnyIdentity, cluster: str, abort: Callable[[str], None]) -> None:
        self.identity = identity
        self.cluster = cluster
        self.abort = abort

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

    def __len__(self) -> int:
        return sum(map(len, self._by_cluster.values()))

    def enter(self, identity: AnyIdentity, cluster: str, abort: Callable[[str], None]) -> Session:
        """Begin a session of *identity*, which was admitted to *cluster*."""
        session = Session(identity, cluster, abort)
        if session.credential:
            self._by_credential.setdefault(session.credential, set()).add(session)
        self._by_cluster.setdefault(cluster, set()).add(session)
        return session

    def leave(self, session: Session) -> bool:
        """End *session*; return False if it was cut before."""
        found = False
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

    def sweep(self) -> None:
        """Abort the sessions of credentials that have expired; never raises."""
        for sessions in list(self._by_credential.values()):
            session = next(iter(sessions), None)
            if session is None or not isinstance(session.identity, Identity):
                continue
            try:
                self._authenticator.check(session.identity)
            except Unauthorized as e:
                self.cut(str(e), credential=session.credential)

    def _end(self, session: Session, reason: str) -> bool:
        if not self.leave(session):
            return False
        try:
            session.abort(reason)
        except Exception:  # noqa: BLE001 - the other sessions must still be aborted
            self._log.failure("cannot end a session of {user}", user=session.identity.user)
        return True

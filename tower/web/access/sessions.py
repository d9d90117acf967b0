"""What is going on in whose name, so that it can be ended when the credential ends.

An exchange (one request and its answer, a watch, an upgraded stream) enters when it is let in and leaves when
it is over.  Whoever revokes a credential or removes a cluster calls `Sessions.cut`; a timer calls
`Sessions.sweep`, which ends what has expired.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from twisted.logger import Logger

from tower.errors import Unauthorized
from tower.web.access.authentication import Anybody, Identity

#: How often to sweep, s; an expired credential works no longer than this in what runs already.
SWEEP_PERIOD = 2.0


class Checks(Protocol):
    """Knows whether an identity still holds; see `tower.web.access.authentication.Authenticator`."""

    def check(self, identity: Identity) -> None:
        """Raise `Unauthorized` unless *identity* still holds."""


class Session:
    """Something that goes on in the name of *identity*.

    :ivar cluster: the name of the cluster it goes to; empty for Tower's own API.
    :ivar abort: ends it, given a reason for people.
    """

    __slots__ = ("abort", "cluster", "identity")

    def __init__(self, identity: Identity | Anybody, cluster: str, abort: Callable[[str], None]) -> None:
        self.identity = identity
        self.cluster = cluster
        self.abort = abort

    @property
    def credential(self) -> str:
        """The id of the credential that was shown; empty if none was."""
        return "" if self.identity.credential is None else self.identity.credential.id


class Sessions:
    """All sessions; entering and leaving cost the same however many there are."""

    _log = Logger()

    def __init__(self, authenticator: Checks) -> None:
        self._authenticator = authenticator
        self._by_credential: dict[str, set[Session]] = {}  # without those who showed none
        self._by_cluster: dict[str, set[Session]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._by_cluster.values()))

    def enter(self, identity: Identity | Anybody, cluster: str, abort: Callable[[str], None]) -> Session:
        """Note that something begins, after *identity* was let in."""
        session = Session(identity, cluster, abort)
        if session.credential:
            self._by_credential.setdefault(session.credential, set()).add(session)
        self._by_cluster.setdefault(cluster, set()).add(session)
        return session

    def leave(self, session: Session) -> bool:
        """Note that it is over; tell whether it was still going on, which it was not if it has been cut."""
        was_there = False
        for sessions, key in (
            (self._by_credential, session.credential),
            (self._by_cluster, session.cluster),
        ):
            members = sessions.get(key)
            if members is not None and session in members:
                was_there = True
                members.remove(session)
                if not members:
                    del sessions[key]
        return was_there

    def cut(self, reason: str, *, credential: str | None = None, cluster: str | None = None) -> int:
        """End at once what goes on with this credential (its id), or to this cluster; with both: either.

        :param reason: for people.
        :return: how many were ended.
        """
        doomed: set[Session] = set()
        if credential is not None:
            doomed |= self._by_credential.get(credential, set())
        if cluster is not None:
            doomed |= self._by_cluster.get(cluster, set())
        # Ending one may end another, which is then not ended twice.
        return sum(self._end(session, reason) for session in doomed)

    def sweep(self) -> None:
        """End what goes on with credentials that hold no longer; a timer's body, never raises."""
        for sessions in list(self._by_credential.values()):
            session = next(iter(sessions), None)
            if session is None or isinstance(session.identity, Anybody):
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
        except Exception:  # noqa: BLE001 - one that cannot be ended must not keep the others alive
            self._log.failure("cannot end a session of {user}", user=session.identity.user)
        return True

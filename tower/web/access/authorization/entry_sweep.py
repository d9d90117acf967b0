"""Ends the connections of users that access policies no longer admit: watches, commands and idle ones.

New requests on kept-alive connections are decided at once, see `tower.web.access.admission_cache`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from functools import partial

from attrs import define, field
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from tower.clusters.policies.access_levels import FULL
from tower.clusters.policies.access_policy import SubjectKey
from tower.errors import Forbidden
from tower.options.values import format_duration
from tower.reactor.cooperate import map_cooperatively
from tower.store import IStore
from tower.store.kinds import CLUSTERS
from tower.store.records import Watch
from tower.web.access.authentication.identity import Identity, PolicyEntry
from tower.web.access.authorization.cluster_entry import Asked, ClusterEntry, FindCluster, subjects_of
from tower.web.access.sessions import Session, Sessions

#: Interval of `EntrySweep.check`, s.
PERIOD = 1.0

#: Sessions that are checked at a time; each takes a fraction of a millisecond.
PIECE = 25


@define(eq=False, repr=False)
class EntrySweep:
    """Checks all sessions of admitted users.

    :param clock: runs long checks in pieces.
    :param seconds: returns the time, s since the epoch.
    """

    _log = Logger()

    _store: IStore
    _sessions: Sessions
    _entry: ClusterEntry
    _find: FindCluster
    _clock: IReactorTime
    _seconds: Callable[[], float]
    _changed: set[str] = field(factory=set, init=False)  # names of changed clusters
    _watch: Watch = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._entry.take_concerned()
        self._watch = self._store.watch(CLUSTERS, lambda event: self._changed.add(event.record.name))

    def stop(self) -> None:
        """Stop to follow the store."""
        self._watch.stop()

    async def check(self) -> None:
        """End the sessions that policies no longer permit; call it every `PERIOD`."""
        changed, self._changed = self._changed, set()
        ended: Counter[tuple[str, str, str]] = Counter()
        check = partial(self._check, set(self._entry.take_concerned()), changed, {}, ended)
        await map_cooperatively(self._clock, list(self._sessions.admitted), check, PIECE)
        for (user, cluster, reason), count in ended.items():
            self._log.info(
                "closed {count} connections of {user} to cluster {cluster}: {reason}",
                count=count,
                user=user,
                cluster=cluster,
                reason=reason,
            )

    def _check(
        self,
        concerned: AbstractSet[SubjectKey],
        changed: AbstractSet[str],
        decisions: dict[int, tuple[Identity, str, PolicyEntry | None]],
        ended: Counter[tuple[str, str, str]],
        session: Session,
    ) -> None:
        """Check one session.

        :param concerned: by changed policies.
        :param changed: names of changed clusters.
        :param decisions: see `_decide`, by the number of the identity's object, which stays in use.
        """
        session.age += 1
        identity, entry = session.identity, session.entry
        assert isinstance(identity, Identity)
        assert entry is not None
        reason, code = "", 403
        if (
            session.age == 1  # the last change may have been between its decision and its begin
            or entry.cluster in changed
            or not entry.since <= self._seconds() < entry.until
            or (concerned and not concerned.isdisjoint(subjects_of(identity.sender)))
        ):
            if id(identity) not in decisions:
                decisions[id(identity)] = identity, *self._decide(identity)
            _, reason, current = decisions[id(identity)]
            session.entry = entry = current or entry
        if not reason and session.age * PERIOD > entry.ttl:
            code = 503
            reason = (
                f"connections to cluster {entry.cluster} end after {format_duration(entry.ttl)} (access "
                f"policy {', '.join(entry.policies)}): connect again"
            )
        if reason and self._sessions.end(session, reason, code):
            ended[identity.user, entry.cluster, reason] += 1

    def _decide(self, identity: Identity) -> tuple[str, PolicyEntry | None]:
        """Return why a session of *identity* must end, or how policies admit the user now."""
        entry = identity.entry
        assert entry is not None
        asked = Asked(entry.levels or FULL, entry.target)
        try:
            current = self._entry.admit(identity.at_door, self._find(entry.cluster), entry.cluster, asked)
        except Forbidden as e:
            return str(e), None
        before, now = identity.sender.in_member, current.in_member
        if (
            before.name != now.name
            or not set(before.groups) <= set(now.groups)
            or before.uid not in ("", now.uid)
            or not set(before.extra) <= set(now.extra)
        ):
            return (
                f"the names of {identity.user} in cluster {entry.cluster} have changed: connect again",
                None,
            )
        return "", current.entry  # more groups are for new requests

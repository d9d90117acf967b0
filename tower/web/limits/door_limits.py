"""Limits of requests to clusters and to Tower's own API: each is admitted at once, waits, or gets 429."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any, Final

from tower.kube.status import StatusError
from tower.web.limits.active_users import ActiveUsers
from tower.web.limits.admissions import Place, StreamPlace
from tower.web.limits.caps import Cap, too_many
from tower.web.limits.seat_pool import SeatPool, Ticket

#: Methods of requests that change nothing.  Upstream decides by verb (``get``, ``list``, ``watch``), so there
#: OPTIONS and some HEAD are mutating; see the differences in docs/limits.md.
_READS: Final = frozenset((b"GET", b"HEAD", b"OPTIONS"))


class DoorLimits:
    """The limits of all ports together.

    :ivar reading: seats of requests that change nothing; None: no limit.
    :ivar mutating: seats of the others, likewise.
    :ivar by_cluster: requests of one cluster that are not long-running.
    :ivar by_user: requests of one user that are not long-running.
    :ivar streams: long-running requests, upgrades and raw streams of one user.
    :ivar timed_out: requests that waited too long.
    """

    def __init__(
        self,
        reading: SeatPool | None = None,
        mutating: SeatPool | None = None,
        by_cluster: Cap | None = None,
        by_user: Cap | None = None,
        streams: Cap | None = None,
    ) -> None:
        self.reading = reading
        self.mutating = mutating
        self.by_cluster = by_cluster
        self.by_user = by_user
        self.streams = streams
        self.timed_out = 0

    @classmethod
    def of(cls, options: Mapping[str, Any], active: ActiveUsers | None = None) -> DoorLimits:
        """Return the limits that *options* set; *active*: see `SeatPool`."""

        def cap(kind: str, option: str) -> Cap | None:
            return Cap(options[option], kind, option) if options[option] else None

        def pool(option: str) -> SeatPool | None:
            return SeatPool(options[option], active) if options[option] else None

        return cls(
            pool("max-requests-inflight"),
            pool("max-mutating-requests-inflight"),
            cap("cluster", "max-requests-inflight-per-cluster"),
            cap("user", "max-requests-inflight-per-user"),
            cap("user", "max-streams-per-user"),
        )

    def enter(self, user: str, cluster: str, method: bytes) -> Place | None:
        """Admit a request that is not long-running; None: there is no limit.

        :param cluster: empty for Tower's own API, which has the fair share of a cluster.
        :raise StatusError: 429: a cap is reached, or too many requests wait.
        """
        pool = self.reading if method in _READS else self.mutating
        by_cluster = self.by_cluster if cluster else None
        if by_cluster is None and self.by_user is None:
            return None if pool is None else Place([], self._ticket(pool, user, cluster))
        place = Place(self._count((by_cluster, cluster), (self.by_user, user)))
        if pool is not None:
            try:
                place.ticket = self._ticket(pool, user, cluster)
            except StatusError:
                place.leave()
                raise
        return place

    def enter_stream(
        self, user: str, cluster: str, method: bytes, *, is_long_running: bool = True, patience: float = inf
    ) -> StreamPlace:
        """Admit a long-running request, or an upgrade.

        :param cluster: as in `enter`.
        :param is_long_running: whether verb and subresource make it one; else the caps of other requests
            count it, too, until a 101.
        :param patience: see `StreamPlace`.
        :raise StatusError: 429: a cap is reached, or too many requests wait.
        """
        stream = next(iter(self._count((self.streams, user))), None)
        place = StreamPlace(stream, is_long_running=is_long_running, patience=patience)
        pool = self.reading if method in _READS else self.mutating
        try:
            if not is_long_running:
                place.counts = self._count(
                    (self.by_cluster if cluster else None, cluster), (self.by_user, user)
                )
            if pool is not None:
                place.ticket = self._ticket(pool, user, cluster)
        except StatusError:
            place.leave()
            raise
        return place

    def timeout(self, waited: float) -> StatusError:
        """Return the refusal of a request that has waited for its seat for too long, *waited* s."""
        self.timed_out += 1
        return too_many(
            "no seat of --max-requests-inflight or --max-mutating-requests-inflight was free within "
            f"{waited:g} s"
        )

    def _ticket(self, pool: SeatPool, user: str, cluster: str) -> Ticket:
        ticket = pool.enter(user, cluster)
        if ticket is None:
            where = f"cluster {cluster}" if cluster else "Tower's API"
            raise too_many(f"the queues of user {user} for {where} are full")
        return ticket

    def _count(self, *wanted: tuple[Cap | None, str]) -> list[tuple[Cap, str]]:
        counts: list[tuple[Cap, str]] = []
        try:
            for cap, name in wanted:
                if cap is not None:
                    cap.enter(name)
                    counts.append((cap, name))
        except StatusError:
            for cap, name in counts:
                cap.leave(name)
            raise
        return counts

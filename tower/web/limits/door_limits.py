"""Limits of requests to clusters and to Tower's own API: each is admitted at once, waits, or gets 429."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import define, field

from tower.kube.status import StatusError
from tower.web.limits.active_users import ActiveUsers
from tower.web.limits.caps import Cap, too_many
from tower.web.limits.seat_pool import SeatPool, Ticket

#: Methods of requests that change nothing; as upstream, all others are mutating.
_READS = frozenset((b"GET", b"HEAD", b"OPTIONS"))


@define(eq=False, slots=True)
class Place:
    """The admission of one request; `leave` is idempotent.

    :ivar ticket: the seat, or a position in a queue; None: the request needs none.
    """

    _counts: list[tuple[Cap, str]]
    ticket: Ticket | None = None

    def leave(self) -> None:
        """Give up all that the request has."""
        counts, self._counts = self._counts, []
        for cap, name in counts:
            cap.leave(name)
        ticket, self.ticket = self.ticket, None
        if ticket is not None:
            ticket.leave()


@define(eq=False)
class DoorLimits:
    """The limits of all ports together.

    :ivar reading: seats of requests that change nothing; None: no limit.
    :ivar mutating: seats of the others, likewise.
    :ivar by_cluster: requests of one cluster that are not long-running.
    :ivar by_user: requests of one user that are not long-running.
    :ivar streams: watches, logs, upgrades and raw streams of one user.
    :ivar timed_out: requests that waited too long.
    """

    reading: SeatPool | None = None
    mutating: SeatPool | None = None
    by_cluster: Cap | None = None
    by_user: Cap | None = None
    streams: Cap | None = None
    timed_out: int = field(default=0, init=False)

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

    def enter_stream(self, user: str) -> Place | None:
        """Admit a long-running request; None: there is no limit.

        :raise StatusError: 429: the cap is reached.
        """
        return None if self.streams is None else Place(self._count((self.streams, user)))

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

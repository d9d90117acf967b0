"""Limits of requests to clusters and to Tower's own API: each is admitted at once, waits, or gets 429."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any, Final

from tower.kube.status import StatusError
from tower.web.limits.active_users import ActiveUsers
from tower.web.limits.admissions import ClusterShare, Place, StreamPlace
from tower.web.limits.caps import Cap, ClusterCap, too_many
from tower.web.limits.seat_pool import SeatPool, Ticket

#: Methods of requests that change nothing.  Upstream decides by verb (``get``, ``list``, ``watch``), so there
#: OPTIONS and some HEAD are mutating; see the differences in docs/limits.md.
_READS: Final = frozenset((b"GET", b"HEAD", b"OPTIONS"))


class DoorLimits:
    """The limits of all ports together.

    :ivar reading: seats of requests that change nothing; None: no limit.
    :ivar mutating: seats of the others, likewise.
    :ivar by_cluster: requests of one cluster that are not long-running and do not wait for a seat.
    :ivar by_user: requests of one user that are not long-running.
    :ivar streams: long-running requests, upgrades and raw streams of one user.
    :ivar timed_out: requests that waited too long.
    """

    def __init__(
        self,
        reading: SeatPool | None = None,
        mutating: SeatPool | None = None,
        by_cluster: ClusterCap | None = None,
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

        def cap(option: str) -> Cap | None:
            return Cap(options[option], "user", option) if options[option] else None

        def pool(option: str) -> SeatPool | None:
            return SeatPool(options[option], active) if options[option] else None

        per_cluster = options["max-requests-inflight-per-cluster"]
        return cls(
            pool("max-requests-inflight"),
            pool("max-mutating-requests-inflight"),
            ClusterCap(per_cluster) if per_cluster else None,
            cap("max-requests-inflight-per-user"),
            cap("max-streams-per-user"),
        )

    def enter(self, user: str, cluster: str, method: bytes) -> Place | None:
        """Admit a request that is not long-running; None: there is no limit.

        :param cluster: empty for Tower's own API, which has the fair share of a cluster.
        :raise StatusError: 429: a cap is reached, or too many requests wait.
        """
        pool = self.reading if method in _READS else self.mutating
        if self.by_user is None and (self.by_cluster is None or not cluster):
            return None if pool is None else Place(self._ticket(pool, user, cluster))
        place = Place()
        self._admit(place, pool, user, cluster, is_counted=True)
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
        stream = _counted(self.streams, user)
        place = StreamPlace(stream, is_long_running=is_long_running, patience=patience)
        pool = self.reading if method in _READS else self.mutating
        self._admit(place, pool, user, cluster, is_counted=not is_long_running)
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

    def _admit(
        self, place: Place, pool: SeatPool | None, user: str, cluster: str, *, is_counted: bool
    ) -> None:
        """Count a request, and give it a seat or a position in a queue; on an error, undo all of this.

        :param is_counted: whether the caps of requests that are not long-running count it.
        """
        try:
            share: ClusterShare | None = None
            if is_counted:
                by_cluster = self.by_cluster
                if by_cluster is not None and cluster:
                    share = place.share = ClusterShare(by_cluster, cluster, user)
                    share.enter()
                place.count = _counted(self.by_user, user)
            if pool is not None:
                ticket = place.ticket = self._ticket(pool, user, cluster)
                if share is not None and ticket.waits:
                    share.leave()  # until `Place.seated`
        except StatusError:
            place.leave()
            raise


def _counted(cap: Cap | None, name: str) -> tuple[Cap, str] | None:
    """Count one more of *name* if there is a *cap*."""
    if cap is None:
        return None
    cap.enter(name)
    return cap, name

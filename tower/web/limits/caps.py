"""Caps: maximum number of requests, or streams, of one user or cluster at a time."""

from __future__ import annotations

from typing import Final, TypeVar

from tower.kube.status import StatusError

#: Upstream's text of an answer with 429.
TOO_MANY: Final = "Too many requests, please try again later."

#: Requested delay of a retry, s; upstream's.
RETRY_AFTER: Final = 1

#: Sets the limit of `ClusterCap`.
_PER_CLUSTER: Final = "max-requests-inflight-per-cluster"

_Name = TypeVar("_Name")


def too_many(cause: str) -> StatusError:
    """Return the refusal of a request above a limit; *cause* names the limit."""
    return StatusError(429, f"{TOO_MANY} ({cause})", details={"retryAfterSeconds": RETRY_AFTER})


def count_down(counts: dict[_Name, int], name: _Name) -> None:
    """Count one less of *name*, which is removed at 0."""
    left = counts[name] - 1
    if left:
        counts[name] = left
    else:
        del counts[name]


class Cap:
    """Counts the requests in progress of each name, up to *limit*.

    :param kind: of the names, such as ``user``.
    :param option: that sets the limit.
    :ivar counts: by name; without those that have nothing in progress.
    :ivar refused: number of refusals.
    """

    def __init__(self, limit: int, kind: str, option: str) -> None:
        self.limit = limit
        self._kind = kind
        self._option = option
        self.counts: dict[str, int] = {}
        self.refused = 0

    def enter(self, name: str) -> None:
        """Count one more until `leave`.

        :raise StatusError: 429 with upstream's text, if the limit is reached.
        """
        count = self.counts.get(name, 0)
        if count >= self.limit:
            self.refused += 1
            raise too_many(
                f"--{self._option} is {self.limit}, and {self._kind} {name} has as many in progress"
            )
        self.counts[name] = count + 1

    def leave(self, name: str) -> None:
        """Count one less."""
        count_down(self.counts, name)


class ClusterCap:
    """Counts the requests in progress of each cluster, up to *limit*, with fair shares for users.

    A user gets a further one only while it has fewer than are free, as with the seats of
    `tower.web.limits.seat_pool`.  So one user alone has at most half of them, rounded up, and there is room
    for another unless *limit* is 1.

    :ivar total: the requests of all users.
    """

    def __init__(self, limit: int) -> None:
        self.total = Cap(limit, "cluster", _PER_CLUSTER)
        self._shares: dict[tuple[str, str], int] = {}  # of users in clusters

    def enter(self, cluster: str, user: str) -> None:
        """Count one more until `leave`.

        :raise StatusError: 429 with upstream's text, if the limit, or the user's share of it, is reached.
        """
        total = self.total
        share = self._shares.get((cluster, user), 0)
        free = total.limit - total.counts.get(cluster, 0)
        if 0 < free <= share:
            total.refused += 1
            raise too_many(
                f"--{_PER_CLUSTER} is {total.limit}, and user {user} has {share} "
                f"request{'' if share == 1 else 's'} in progress to cluster {cluster}; the remaining {free} "
                f"{'is' if free == 1 else 'are'} reserved for other users"
            )
        total.enter(cluster)
        self._shares[cluster, user] = share + 1

    def leave(self, cluster: str, user: str) -> None:
        """Count one less."""
        self.total.leave(cluster)
        count_down(self._shares, (cluster, user))

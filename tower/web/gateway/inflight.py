"""Limit of concurrent requests for each cluster: kube-apiserver's ``--max-requests-inflight``."""

from __future__ import annotations

from tower.kube.status import StatusError


class InFlight:
    """Counts each cluster's requests in flight.

    :param limit: the largest number for each cluster; long-running requests do not count.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._counts: dict[str, int] = {}

    def enter(self, cluster: str) -> None:
        """Count one request until `leave`.

        :raise StatusError: 429 with upstream's text, if the limit is reached.
        """
        count = self._counts.get(cluster, 0)
        if count >= self._limit:
            raise StatusError(
                429, "Too many requests, please try again later.", details={"retryAfterSeconds": 1}
            )
        self._counts[cluster] = count + 1

    def leave(self, cluster: str) -> None:
        """Count one request less."""
        left = self._counts[cluster] - 1
        if left:
            self._counts[cluster] = left
        else:
            del self._counts[cluster]

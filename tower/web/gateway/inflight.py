"""Limit of concurrent requests for each cluster: kube-apiserver's ``--max-requests-inflight``."""

from __future__ import annotations

from tower.kube.status import StatusError


class InFlight:
    """Counts each cluster's requests in flight, up to *limit*; long-running requests do not count."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.counts: dict[str, int] = {}

    def enter(self, cluster: str) -> None:
        """Count one request until `leave`.

        :raise StatusError: 429 with upstream's text, if the limit is reached.
        """
        count = self.counts.get(cluster, 0)
        if count >= self._limit:
            raise StatusError(
                429, "Too many requests, please try again later.", details={"retryAfterSeconds": 1}
            )
        self.counts[cluster] = count + 1

    def leave(self, cluster: str) -> None:
        """Count one request less."""
        left = self.counts[cluster] - 1
        if left:
            self.counts[cluster] = left
        else:
            del self.counts[cluster]

"""How many requests each cluster may have under way: kube-apiserver's ``--max-requests-inflight``."""

from __future__ import annotations

from tower.kube.status import StatusError


class InFlight:
    """Counts, for each cluster apart: one cluster's crowd takes no places of another's.

    :param limit: how many of one cluster there may be; those that may rightly take for ever do not count.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._counts: dict[str, int] = {}

    def enter(self, cluster: str) -> None:
        """Count one more, until `leave`.

        :raise Refusal: there are as many as there may be; with upstream's text.
        """
        count = self._counts.get(cluster, 0)
        if count >= self._limit:
            raise StatusError(
                429, "Too many requests, please try again later.", details={"retryAfterSeconds": 1}
            )
        self._counts[cluster] = count + 1

    def leave(self, cluster: str) -> None:
        """Count one less."""
        left = self._counts[cluster] - 1
        if left:
            self._counts[cluster] = left
        else:
            del self._counts[cluster]

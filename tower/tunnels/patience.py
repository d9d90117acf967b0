"""The time that clients wait for a cluster without a tunnel.

A client may send many requests in a row, as kubectl does to discover the API.  If each of them waited for the
agent to reconnect, a command would take minutes to fail.
"""

from __future__ import annotations

from collections.abc import Callable

#: Clients that are remembered for one cluster; further ones do not wait.
MOST_CLIENTS = 10_000

#: How long a client is remembered, s: longer than an agent counts as reconnecting.
REMEMBERED = 120.0


class Patience:
    """Grants each client one period of waiting for each cluster, until the cluster is reached again.

    :param limit: length of the period, s.
    :param seconds: returns monotonic time, s.
    """

    def __init__(self, limit: float, seconds: Callable[[], float]) -> None:
        self._limit = limit
        self._seconds = seconds
        self._ends: dict[str, dict[str, float]] = {}

    def left(self, cluster: str, client: str, spent: float = 0.0) -> float:
        """Return how long *client* may still wait, s; the first call begins its period.

        :param spent: how long the client has waited already, s, if this is the first call.
        """
        now = self._seconds()
        ends = self._ends.setdefault(cluster, {})
        end = ends.get(client)
        if end is None:
            if len(ends) >= MOST_CLIENTS:
                return 0.0
            end = ends[client] = now + self._limit - spent
        return max(end - now, 0.0)

    def is_spent(self, cluster: str, client: str) -> bool:
        """Return whether the period of *client* has ended."""
        end = self._ends.get(cluster, {}).get(client)
        return end is not None and end <= self._seconds()

    def spend(self, cluster: str, client: str) -> None:
        """End the period of *client*, which has waited for *cluster* elsewhere."""
        self.left(cluster, client, self._limit)

    def renew(self, cluster: str) -> None:
        """Forget the clients of *cluster*, which was reached."""
        self._ends.pop(cluster, None)

    def sweep(self) -> None:
        """Forget clients of long ago; to be called periodically."""
        oldest = self._seconds() - REMEMBERED
        for cluster, ends in list(self._ends.items()):
            for client in [client for client, end in ends.items() if end < oldest]:
                del ends[client]
            if not ends:
                del self._ends[cluster]

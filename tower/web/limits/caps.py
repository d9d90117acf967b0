"""Caps: maximum number of requests, or streams, of one user or cluster at a time."""

from __future__ import annotations

from typing import Final

from tower.kube.status import StatusError

#: Upstream's text of an answer with 429.
TOO_MANY: Final = "Too many requests, please try again later."

#: Requested delay of a retry, s; upstream's.
RETRY_AFTER: Final = 1


def too_many(cause: str) -> StatusError:
    """Return the refusal of a request above a limit; *cause* names the limit."""
    return StatusError(429, f"{TOO_MANY} ({cause})", details={"retryAfterSeconds": RETRY_AFTER})


class Cap:
    """Counts the requests in progress of each name, up to *limit*.

    :param kind: of the names, such as ``cluster``.
    :param option: that sets the limit.
    :ivar counts: by name; without those that have nothing in progress.
    :ivar refused: number of refusals.
    """

    def __init__(self, limit: int, kind: str, option: str) -> None:
        self._limit = limit
        self._kind = kind
        self._option = option
        self.counts: dict[str, int] = {}
        self.refused = 0

    def enter(self, name: str) -> None:
        """Count one more until `leave`.

        :raise StatusError: 429 with upstream's text, if the limit is reached.
        """
        count = self.counts.get(name, 0)
        if count >= self._limit:
            self.refused += 1
            raise too_many(
                f"--{self._option} is {self._limit}, and {self._kind} {name} has as many in progress"
            )
        self.counts[name] = count + 1

    def leave(self, name: str) -> None:
        """Count one less."""
        left = self.counts[name] - 1
        if left:
            self.counts[name] = left
        else:
            del self.counts[name]

"""Limit of concurrent requests for each cluster: kube-apiserver's ``--max-requests-inflight``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tower.kube.request_info import parse_request_info
from tower.kube.status import StatusError
from tower.web.gateway.proxy_client import relative_target
from tower.web.outcome import Relay

if TYPE_CHECKING:
    from tower.web.gateway.request import Request


class InFlight:
    """Counts each cluster's requests in flight, up to *limit*."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.counts: dict[str, int] = {}

    def enter(self, cluster: str) -> None:
        """Count one request until `leave`.

        :raise StatusError: 429 with upstream's text, if the limit is reached.
        """
        count = self.counts.get(cluster, 0)
        if count >= self._limit:
            details = {"retryAfterSeconds": 1}
            raise StatusError(429, "Too many requests, please try again later.", details=details)
        self.counts[cluster] = count + 1

    def leave(self, cluster: str) -> None:
        """Count one request less."""
        left = self.counts[cluster] - 1
        if left:
            self.counts[cluster] = left
        else:
            del self.counts[cluster]


def count_in_flight(request: Request, relay: Relay, inflight: InFlight) -> None:
    """Count *request* until `uncount`; long-running requests do not count.

    :raise StatusError: as `InFlight.enter`, or as `relative_target`.
    """
    target = relative_target(request.target, relay.prefix)
    if not (request.fields.upgrade or parse_request_info(request.method, target).is_long_running):
        inflight.enter(relay.cluster)
        request.counted = relay.cluster


def uncount(request: Request) -> None:
    """Count one request less, if *request* counts."""
    cluster, request.counted = request.counted, ""
    inflight = request.channel.gateway.inflight
    if cluster and inflight is not None:
        inflight.leave(cluster)

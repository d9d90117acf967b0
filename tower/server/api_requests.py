"""Requests to Tower's own API: their deadline, the filters, and the limits of requests in flight."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import parse_qsl

from attrs import frozen
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from tower.kube.access.go_texts import go_duration
from tower.kube.status import StatusError
from tower.server.chained_server import Answer
from tower.web.access.filters import FilterChain
from tower.web.api.calls.call import PARAMETER_LIMIT
from tower.web.gateway.inflight import take_own_place
from tower.web.gateway.refusals import request_timeout
from tower.web.gateway.request import Request
from tower.web.request_kind import is_long_running

#: kube-apiserver's text.
INVALID_TIMEOUT = "invalid timeout specified in the request URL"


@frozen(eq=False)
class ApiRequests:
    """Applies the deadline, the filters and the limits to requests, and passes them to the API.

    :param chain: the filters.
    :param api: answers requests that pass the filters.
    """

    _chain: FilterChain
    _api: Callable[[Request], Answer]

    def __call__(self, request: Request) -> Answer:
        """Return the answer to *request*.

        :raise TowerError: the request is rejected; the Deferred may also fail with this error.
        """
        timeout = requested_timeout(request)
        answer = self._chain(request, "", partial(self._admitted, request))
        if not isinstance(answer, Deferred) or not 0 < timeout < request.channel.gateway.limits.answer:
            return answer
        return answer.addTimeout(timeout, request.channel.gateway.clock, _expired)

    def _admitted(self, request: Request) -> Answer:
        limits = request.channel.gateway.inflight
        waiting = None if limits is None else take_own_place(request, limits)
        return self._api(request) if waiting is None else waiting.addCallback(lambda _: self._api(request))


def requested_timeout(request: Request) -> float:
    """Return the parameter ``timeout`` of a request that is not long-running, s; 0.0 without one.

    :raise StatusError: it is not a duration.
    """
    query = request.query
    if not (b"timeout" in query or b"%" in query):
        return 0.0
    if is_long_running(request.method, request.target):
        return 0.0
    try:
        pairs = parse_qsl(query.decode("latin-1"), max_num_fields=PARAMETER_LIMIT)
    except ValueError:
        return 0.0  # the API rejects the query
    value = next((value for name, value in pairs if name == "timeout"), "")
    try:
        return go_duration(value) if value else 0.0
    except ValueError as e:
        raise StatusError(400, f"{INVALID_TIMEOUT} - {e}") from None


def _expired(result: Any, timeout: float) -> Any:
    """Return the error for a request whose deadline has passed, or its result if there is one after all."""
    return Failure(request_timeout("Tower", timeout)) if isinstance(result, Failure) else result

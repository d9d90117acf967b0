"""Client of a webhook that a file in kubeconfig format describes, as kube-apiserver's.

It posts JSON to exactly the server's URL, and repeats what a webhook may fail for a moment.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import DeferredSemaphore
from twisted.internet.error import ConnectionLost
from twisted.internet.task import deferLater
from twisted.web.client import RequestTransmissionFailed, ResponseNeverReceived

from tower import __version__
from tower.errors import ConfigurationError
from tower.kube.client import APIClient, APIError, APIResponse, value_of
from tower.kube.head_fields import Upstream
from tower.kube.rest.rest_config import RestConfig
from tower.reactor.interfaces import IReactor

#: Timeout of each request, s.
TIMEOUT = 30.0

#: Requests until a webhook's failure counts, the first delay between them, s, its growth and its variation.
ATTEMPTS = 5
FIRST_DELAY = 0.5
FACTOR = 1.5
JITTER = 0.2

#: Longest delay that the webhook can request, s.
LONGEST_DELAY = 10.0

#: Most requests at a time, and most idle connections that are kept.
PARALLEL = 64
KEPT = 8

#: Largest answer, B.
ANSWER_LIMIT = 1 << 20

_TRANSIENT = (429, 500, 504)
_RESET = (ConnectionLost, RequestTransmissionFailed, ResponseNeverReceived)
_PROGRAM = f"tower-proxy/{__version__}".encode("ascii")


class WebhookClient:
    """A client of the webhook that *config* describes.

    :param path: below the server's URL; empty: exactly that URL, with the timeout.
    :ivar codes: number of answers by status; 0: no answer.
    """

    def __init__(
        self,
        reactor: IReactor,
        config: RestConfig,
        chance: Callable[[], float] = random.random,
        *,
        path: str = "",
    ) -> None:
        self._reactor, self._config, self._chance, self._path = reactor, config, chance, path
        self._api = APIClient(
            reactor,
            config.open,
            config.upstream,
            timeout=TIMEOUT,
            limit=ANSWER_LIMIT,
            kept=KEPT,
            program=_PROGRAM,
        )
        self._slots = DeferredSemaphore(PARALLEL)
        self.codes: Counter[int] = Counter()
        self._last = config.upstream()

    def close(self) -> None:
        """Close idle connections."""
        self._api.close()

    async def post(self, body: Any) -> Any:
        """Post *body* as JSON; return the object that the webhook answers.

        :raise APIError: it does not answer with success, after repetitions of what may be transient.
        """
        data = json.dumps(body).encode()
        delay = FIRST_DELAY
        attempt = 1
        while True:
            try:
                return await self._once(data)
            except APIError as e:
                if attempt == ATTEMPTS or not _is_transient(e):
                    raise
                wait = min(e.retry_after, LONGEST_DELAY) or delay
            await deferLater(self._reactor, wait * (1 + JITTER * self._chance()))
            attempt += 1
            delay *= FACTOR

    async def send(self, data: bytes) -> None:
        """Post *data*, JSON, once; only the status of the answer counts.

        :raise APIError: the webhook does not answer with success.
        """
        answer = await self._attempt(data)
        if not 200 <= answer.code < 300:
            value_of("POST", self._config.address, answer, "the webhook")  # raises its error

    async def _once(self, data: bytes) -> Any:
        return value_of("POST", self._config.address, await self._attempt(data), "the webhook")

    async def _attempt(self, data: bytes) -> APIResponse:
        await self._slots.acquire()
        try:
            await self._config.prepare()
            upstream = self._current()
            answer = await self._request(upstream, data)
            if answer.code == 401 and await self._config.renew(upstream):
                answer = await self._request(self._current(), data)
        except ConfigurationError as e:
            raise self._error(0, str(e), e) from e
        finally:
            self._slots.release()
        return answer

    async def _request(self, upstream: Upstream, data: bytes) -> APIResponse:
        path = self._path or f"{'' if upstream.prefix else '/'}?timeout={TIMEOUT:g}s"
        try:
            answer = await self._api.request("POST", path, data, repeatable=True)
        except APIError as e:
            self.codes[0] += 1
            raise self._error(e.code, e.message, e.cause) from e
        self.codes[answer.code] += 1
        return answer

    def _error(self, code: int, text: str, cause: BaseException | None) -> APIError:
        return APIError("POST", self._config.address, code, text, cause)

    def _current(self) -> Upstream:
        """Return the current credential; if it is new, close idle connections: they have its certificate."""
        upstream = self._config.upstream()
        if upstream is not self._last:
            self._last = upstream
            self._api.close()
        return upstream


def _is_transient(error: APIError) -> bool:
    return error.code in _TRANSIENT or bool(error.retry_after) or isinstance(error.cause, _RESET)

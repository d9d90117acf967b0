"""Requests to clouds, with retries and timeouts; secrets are not logged."""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping
from typing import Any, TypeVar

from attrs import define, evolve, field
from twisted.internet import defer
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.web.iweb import IAgent

from tower.cloud.errors import CloudAnswerError, CloudError, CloudUnreachable
from tower.cloud.http.answer import Answer, error_detail, parse_date
from tower.cloud.http.exchange import BODY_LIMIT, CloudRequest, send
from tower.http.verifying_agent import verifying_agent
from tower.reactor.interfaces import IReactor

__all__ = ["BODY_LIMIT", "Answer", "CloudRequest", "CloudSession", "Sign"]

#: First and longest delay before a retry, s.  The actual delay is random, from 0 up to it: clients do not
#: retry at the same time.
FIRST_WAIT = 0.5
LONGEST_WAIT = 20.0

_PERMANENT = frozenset((501, 505))
_SECRET_HEADER = re.compile(r"auth|token|secret|key|cookie|credential", re.IGNORECASE)

#: Adds the credential to a request; called for each attempt.
Sign = Callable[[CloudRequest], Awaitable[None] | None]

T = TypeVar("T")


@define(eq=False)
class CancellableTasks:
    """Coroutines in progress, with their requests and delays."""

    running: set[Deferred[Any]] = field(factory=set)

    async def run(
        self, work: Coroutine[Deferred[Any], Any, T], timeout: float = 0.0, clock: IReactorTime | None = None
    ) -> T:
        """Return the result of *work*.

        :param timeout: s, of *clock*; without a clock there is none.
        :raise CancelledError: it was cancelled by `stop`.
        :raise twisted.internet.defer.TimeoutError: it took too long.
        """
        task = Deferred.fromCoroutine(work)
        if clock is not None:
            task.addTimeout(timeout, clock)
        self.running.add(task)
        try:
            return await task
        finally:
            self.running.discard(task)

    def stop(self) -> None:
        """Cancel all."""
        for task in list(self.running):
            task.cancel()


class CloudSession:
    """Sends requests to one cloud.

    Redirects are not followed: no API or metadata service needs them, and they would pass credentials on.

    :param reactor: for timers and, without an *agent*, for connections.
    :param agent: sends requests; None: `tower.http.verifying_agent`.
    :param rng: for the delays before retries.
    :param timeout: of one attempt, s.
    :param attempts: maximum for one request.
    :param deadline: of a request with all its attempts and delays, s.
    :param ca_file: CAs of the cloud, PEM; empty: the system's.
    :param environ: may name an HTTP proxy; see `tower.http.proxied_endpoints`.
    :param now: returns s since the epoch.
    :raise ConfigurationError: *ca_file* has no certificates, or the HTTP proxy cannot be used.
    """

    def __init__(
        self,
        reactor: IReactor,
        *,
        agent: IAgent | None = None,
        rng: random.Random | None = None,
        timeout: float = 30.0,
        attempts: int = 5,
        deadline: float = 120.0,
        ca_file: str = "",
        environ: Mapping[str, str] = os.environ,
        now: Callable[[], float] = time.time,
        log: Logger | None = None,
    ) -> None:
        self._reactor = reactor
        self._agent = agent or verifying_agent(reactor, timeout, ca_file, environ)
        self._rng = rng or random.SystemRandom()
        self._timeout = timeout
        self._attempts = attempts
        self._deadline = deadline
        self._now = now
        self._log = log or Logger()
        self.tasks = CancellableTasks()

    async def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | Iterable[tuple[str, str]] = (),
        body: bytes = b"",
        sign: Sign | None = None,
        expect: Collection[int] = (200,),
        retry: bool = True,
        again: Callable[[Answer], bool] | None = None,
        timeout: float | None = None,
        attempts: int | None = None,
    ) -> Answer:
        """Send a request; retry after 429, most of 5xx and failed connections, with growing delays.

        ``Retry-After`` is honored within the deadline.  Requests and the bodies of responses are not logged.

        :param sign: see `Sign`.
        :param expect: expected status codes; others raise.
        :param retry: False: one attempt only, for requests that are not idempotent.
        :param again: returns whether to retry after another response.
        :param timeout: of one attempt, s; None: the session's.
        :param attempts: None: the session's.
        :raise CloudAnswerError: the response has an unexpected status.
        :raise CloudUnreachable: there is no response in time.
        :raise AnswerTooLarge: the response is longer than `BODY_LIMIT`.
        :raise CloudError: raised by *sign*.
        """
        request = CloudRequest(method, url, {k.lower(): v for k, v in dict(headers).items()}, body)
        most = (attempts or self._attempts) if retry else 1
        sending = self._send(request, sign, frozenset(expect), most, again, timeout or self._timeout)
        try:
            return await self.tasks.run(sending, self._deadline, self._reactor)
        except defer.TimeoutError:
            raise CloudUnreachable(
                f"{method} {request.address}: no answer within {self._deadline:g} s"
            ) from None

    def stop(self) -> None:
        """Cancel all requests."""
        self.tasks.stop()

    async def _send(
        self,
        unsigned: CloudRequest,
        sign: Sign | None,
        expect: Collection[int],
        most: int,
        again: Callable[[Answer], bool] | None,
        timeout: float,
    ) -> Answer:
        ends = self._reactor.seconds() + self._deadline
        for attempt in range(1, most + 1):
            request = evolve(unsigned, headers=dict(unsigned.headers))
            if sign is not None:
                signing = sign(request)
                if signing is not None:
                    await signing
            requested = 0.0
            error: CloudError
            try:
                answer = await send(self._reactor, self._agent, request, timeout)
            except CloudUnreachable as e:
                error = e
            else:
                if answer.code in expect:
                    return answer
                requested = _retry_after(answer, self._now)
                error = _unexpected(request, answer, requested)
                if not (_is_temporary(answer.code) or (again is not None and again(answer))):
                    raise error
            wait = max(requested, self._rng.uniform(0.0, min(LONGEST_WAIT, FIRST_WAIT * 2 ** (attempt - 1))))
            if attempt == most or self._reactor.seconds() + wait >= ends:
                raise error
            self._log.info(
                "{error}; attempt {next} of {most} follows in {wait:.1f} s",
                error=str(error),
                next=attempt + 1,
                most=most,
                wait=wait,
            )
            await deferLater(self._reactor, wait)
        raise AssertionError("at least one attempt is made")


def _is_temporary(code: int) -> bool:
    return code == 429 or (500 <= code <= 599 and code not in _PERMANENT)


def _unexpected(request: CloudRequest, answer: Answer, retry_after: float) -> CloudAnswerError:
    detail = error_detail(answer.body, _secrets(request))
    text = f"{request.method} {answer.url} answered {answer.code}"
    if detail:
        text = f"{text}: {detail}"
    return CloudAnswerError(answer.code, text, detail=detail, body=answer.body, retry_after=retry_after)


def _secrets(request: CloudRequest) -> list[str]:
    """Return the words of a request that must not be in errors, the longest first."""
    values = [value for name, value in request.headers.items() if _SECRET_HEADER.search(name)]
    words = {word for value in values for word in (value, *re.split(r"[\s,;]+", value)) if len(word) >= 8}
    return sorted(words, key=len, reverse=True)


def _retry_after(answer: Answer, now: Callable[[], float]) -> float:
    """Return the delay that the cloud requests, s; relative to the cloud's clock if it is a date."""
    text = answer.header("retry-after") or ""
    if re.fullmatch(r"[0-9]{1,9}", text, re.ASCII):
        return float(text)
    until = parse_date(text)
    if until is None:
        return 0.0
    date = answer.date
    return max(0.0, until - (now() if date is None else date))

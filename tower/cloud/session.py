"""Requests to clouds: tried again when that helps, given up in time, and silent about secrets."""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.defer import TimeoutError as TimedOut
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.web.iweb import IAgent

from tower.cloud.errors import CloudAnswerError, CloudError, CloudUnreachable
from tower.cloud.http.answer import Answer, parse_date, what_it_says
from tower.cloud.http.exchange import BODY_LIMIT, CloudRequest, send
from tower.net.verifying_agent import verifying_agent

__all__ = ["BODY_LIMIT", "Answer", "CloudRequest", "CloudSession", "Sign"]

#: First and longest wait before another attempt, s; the real one is anything from 0 on, so that many do not
#: come at once.
FIRST_WAIT = 0.5
LONGEST_WAIT = 20.0

_NOT_MENDED_BY_WAITING = frozenset((501, 505))
_SECRET_HEADER = re.compile(r"auth|token|secret|key|cookie|credential", re.IGNORECASE)


#: Adds what proves who asks; called anew for each attempt.
Sign = Callable[[CloudRequest], Awaitable[None] | None]


class CloudSession:
    """Asks one cloud.

    Redirects are not followed: no API and no metadata service needs them, and they take credentials along.

    :param reactor: for times and, without an *agent*, for connections.
    :param agent: asks; None: one that verifies HTTPS.
    :param rng: has ``uniform``, for the waits between attempts.
    :param timeout: for one attempt, s.
    :param attempts: most of them, for one request.
    :param deadline: for a request with all its attempts and waits, s.
    :param ca_file: authorities in PEM that verify the cloud; empty: the system's.
    :param environ: may name an HTTP proxy on the way to the cloud; see `tower.net.proxied_endpoints`.
    :param now: returns the time of day, s since the epoch.
    :raise ConfigurationError: there are no authorities in *ca_file*, or a proxy that we cannot use.
    """

    def __init__(
        self,
        reactor: Any,
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
        self._under_way: set[Deferred[Answer]] = set()

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
        """Ask, and ask again after 429, most of 5xx and failed connections, with longer and longer waits.

        A ``Retry-After`` is honoured if there is time for it.  Neither what is sent nor the body of what
        comes is ever logged.

        :param sign: see `Sign`.
        :param expect: codes of answers that are wanted; all others raise.
        :param retry: False: one attempt only, for what must not happen twice.
        :param again: tells whether some other answer is worth another attempt.
        :param timeout: for one attempt, s; None: the session's.
        :param attempts: None: the session's.
        :raise CloudAnswerError: another answer came.
        :raise CloudUnreachable: none came, or not in time.
        :raise AnswerTooLarge: the answer is longer than `BODY_LIMIT`.
        :raise CloudError: whatever *sign* raises.
        """
        asked = CloudRequest(method, url, {k.lower(): v for k, v in dict(headers).items()}, body)
        most = (attempts or self._attempts) if retry else 1
        asking = Deferred.fromCoroutine(
            self._ask(asked, sign, frozenset(expect), most, again, timeout or self._timeout)
        )
        asking.addTimeout(self._deadline, self._reactor)
        self._under_way.add(asking)
        try:
            return await asking
        except TimedOut:
            raise CloudUnreachable(
                f"{method} {asked.address}: no answer within {self._deadline:g} s"
            ) from None
        finally:
            self._under_way.discard(asking)

    def stop(self) -> None:
        """Give up whatever is being asked."""
        for asking in list(self._under_way):
            asking.cancel()

    async def _ask(
        self,
        asked: CloudRequest,
        sign: Sign | None,
        expect: Collection[int],
        most: int,
        again: Callable[[Answer], bool] | None,
        timeout: float,
    ) -> Answer:
        ends = self._reactor.seconds() + self._deadline
        for attempt in range(1, most + 1):
            request = CloudRequest(asked.method, asked.url, dict(asked.headers), asked.body)
            if sign is not None:
                signing = sign(request)
                if signing is not None:
                    await signing
            wanted = 0.0
            error: CloudError
            try:
                answer = await send(self._reactor, self._agent, request, timeout)
            except CloudUnreachable as e:
                error = e
            else:
                if answer.code in expect:
                    return answer
                wanted = _retry_after(answer, self._now)
                error = _refused(request, answer, wanted)
                if not (_passes(answer.code) or (again is not None and again(answer))):
                    raise error
            wait = max(wanted, self._rng.uniform(0.0, min(LONGEST_WAIT, FIRST_WAIT * 2 ** (attempt - 1))))
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


def _passes(code: int) -> bool:
    return code == 429 or (500 <= code <= 599 and code not in _NOT_MENDED_BY_WAITING)


def _refused(request: CloudRequest, answer: Answer, retry_after: float) -> CloudAnswerError:
    detail = what_it_says(answer.body, _secrets(request))
    text = f"{request.method} {answer.url} answered {answer.code}"
    if detail:
        text = f"{text}: {detail}"
    return CloudAnswerError(answer.code, text, detail=detail, body=answer.body, retry_after=retry_after)


def _secrets(request: CloudRequest) -> list[str]:
    """Return the words of a request that must not come back in an error, the longest first."""
    values = [value for name, value in request.headers.items() if _SECRET_HEADER.search(name)]
    words = {word for value in values for word in (value, *re.split(r"[\s,;]+", value)) if len(word) >= 8}
    return sorted(words, key=len, reverse=True)


def _retry_after(answer: Answer, now: Callable[[], float]) -> float:
    """Return how long the cloud wants us to wait, s; by its own clock if it gives a date."""
    text = answer.header("retry-after") or ""
    if re.fullmatch(r"[0-9]{1,9}", text, re.ASCII):
        return float(text)
    until = parse_date(text)
    if until is None:
        return 0.0
    date = answer.date
    return max(0.0, until - (now() if date is None else date))

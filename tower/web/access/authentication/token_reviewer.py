"""Authentication of users by an external program that reviews their bearer tokens: a webhook or API server.

Answers are kept for a time, errors are not.  The token of a live connection is reviewed again in the
background, so that a watch ends if its user loses access; a program that fails ends no connection.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol
from weakref import WeakValueDictionary

import attrs
from twisted.internet.defer import Deferred, DeferredSemaphore
from twisted.internet.defer import TimeoutError as DeferredTimeoutError
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from tower.clusters.credentials import PREFIX
from tower.errors import Unauthorized
from tower.kube.access.reviews import WrongReview
from tower.kube.access.token_reviews import ReviewedToken, reviewed_token, token_review
from tower.kube.client import APIError
from tower.web.access.authentication.identity import FOREIGN_TOKEN_LIMIT, Identity, Lease, UserInfo
from tower.web.access.authentication.presented import Presented, Stale
from tower.web.access.authentication.request_header import EXTRA_LIMIT
from tower.web.access.authentication.reserved_names import check_reviewed
from tower.web.access.authentication.token_key import token_key
from tower.web.access.reported_failure import ReportedFailure, without_secret

#: Most users, and most other answers, that are kept.
KEPT = 4096

#: Most reviews of unknown tokens: those that wait, and those that the program has at a time.  Less than
#: `tower.kube.rest.webhook_client.PARALLEL`, so that the tokens of live connections need not wait for them.
WAITING_LIMIT = 500
PARALLEL = 48

#: Longest UID and extra values of a user together, characters.
FACTS_LIMIT = 16 * 1024

#: Shortest interval of reviews for a live connection, s.
AGAIN = 10.0

_OWN_PREFIX = PREFIX.encode()
_ASK = "ask an administrator of Tower"


class ReviewClient(Protocol):
    """A client of the program; see `tower.kube.rest.webhook_client.WebhookClient`."""

    async def post(self, body: Any) -> Any:
        """Return the answer.

        :raise APIError: there is none.
        """


@attrs.frozen
class Reviewing:
    """Questions to a program, and the time for which its answers count.

    :ivar method: name of the method of authentication.
    :ivar program: name of the program in texts.
    :ivar audiences: that tokens must be for; empty: any.
    :ivar ttl: time for which answers are kept; `timeout`: longest time for one, s.
    """

    method: str
    program: str
    version: str = "v1beta1"
    audiences: Sequence[str] = ()
    ttl: float = 120.0
    timeout: float = 30.0


class TokenReviewer:
    """Authenticates users by the answers of *client*.

    :param clock: of timeouts; *seconds* returns the time, s since the epoch.
    :ivar hits: number of tokens whose answer was kept; `misses`: of others.
    :ivar fetches: number of answers by ``ok`` and ``error``.
    """

    _log = Logger()

    def __init__(
        self, client: ReviewClient, reviewing: Reviewing, clock: IReactorTime, seconds: Callable[[], float]
    ) -> None:
        self.method = reviewing.method
        self._client, self._reviewing, self._clock, self._seconds = client, reviewing, clock, seconds
        self._accepted: OrderedDict[bytes, Identity] = OrderedDict()
        self._rejected: OrderedDict[bytes, float] = OrderedDict()
        self._leases: WeakValueDictionary[bytes, Lease] = WeakValueDictionary()
        self._waiting: dict[bytes, list[Deferred[Identity | None]]] = {}
        self._reviews: dict[bytes, Deferred[Identity | None]] = {}
        self._slots = DeferredSemaphore(PARALLEL)
        self._failure = ReportedFailure(clock.seconds)
        self.hits = self.misses = 0
        self.fetches = {"ok": 0, "error": 0}

    def __len__(self) -> int:
        return len(self._accepted) + len(self._rejected)

    @property
    def blocked(self) -> int:
        """Number of requests that wait for an answer."""
        return sum(map(len, self._waiting.values()))

    @property
    def in_flight(self) -> int:
        """Number of reviews without an answer yet."""
        return len(self._waiting)

    def authenticate(self, presented: Presented) -> Identity | Deferred[Identity | None] | None:
        """Return the user of the bearer token; None: the program knows none.

        :raise Unauthorized: see `tower.web.access.authentication.presented.AuthenticationMethod`.
        """
        bearer = presented.bearer
        if bearer is None or len(bearer) > FOREIGN_TOKEN_LIMIT or bearer.startswith(_OWN_PREFIX):
            return None
        digest, now = hashlib.sha256(bearer).digest(), self._seconds()
        identity = self._accepted.get(digest)
        if identity is not None and identity.lease is not None and identity.lease.counts(now):
            self._accepted.move_to_end(digest)
            self.hits += 1
            return identity
        if now < self._rejected.get(digest, now) <= now + self._reviewing.ttl:
            self.hits += 1
            return None
        self.misses += 1
        if len(self._waiting) >= WAITING_LIMIT and not (digest in self._waiting or digest in self._leases):
            raise self._failed(f"{WAITING_LIMIT} unknown tokens wait for an answer already")
        return self._ask(digest, bearer)

    def check(self, identity: Identity) -> None:
        """Check that the last answer about the token still counts.

        :raise Unauthorized: the token has another user now, or none.
        :raise Stale: it is time to ask again; for a live connection, that has begun.
        """
        lease = identity.lease
        assert lease is not None, "another method authenticated the user"
        if lease.refusal is not None:
            raise lease.refusal
        now = self._seconds()
        if lease.counts(now):
            return
        if not lease.asked <= now < lease.asked + max(AGAIN, self._reviewing.ttl):
            lease.asked, lease.until = now, min(lease.until, now)
            again = self._ask(hashlib.sha256(lease.token).digest(), lease.token)
            again.addErrback(lambda failure: failure.trap(Unauthorized) and None)
        raise Stale(f"the token of {identity.user} must be reviewed again: {_ASK}", "its review is old")

    def _ask(self, digest: bytes, bearer: bytes) -> Deferred[Identity | None]:
        """Return the user of a token; requests with the same token wait for the same answer."""
        is_new = digest not in self._waiting
        waiting = self._waiting.setdefault(digest, [])
        result: Deferred[Identity | None] = Deferred(partial(self._leave, digest, waiting))
        waiting.append(result)
        if is_new:
            review = self._reviews[digest] = Deferred.fromCoroutine(self._review(digest, bearer))
            review.addBoth(self._settle, digest)
        return result

    def _leave(
        self, digest: bytes, waiting: list[Deferred[Identity | None]], result: Deferred[Identity | None]
    ) -> None:
        """Cancel the review of a token if no request waits for it any more."""
        waiting.remove(result)
        if not waiting and self._waiting.get(digest) is waiting:
            self._reviews[digest].cancel()

    def _settle(self, answer: Any, digest: bytes) -> None:
        """Give an answer, or a failure, to all requests that wait for it."""
        del self._reviews[digest]
        for each in self._waiting.pop(digest).copy():
            if not each.called:  # an earlier one has canceled it
                each.callback(answer)

    async def _review(self, digest: bytes, bearer: bytes) -> Identity | None:
        try:
            found = await self._answer(bearer, is_known=digest in self._leases)
        except (APIError, WrongReview, DeferredTimeoutError) as e:
            raise self._failed(without_secret(str(e), bearer.decode("latin-1"))) from None
        self.fetches["error" if found.error else "ok"] += 1
        if self._failure.ends():
            self._log.info("{program} answers again", program=self._reviewing.program)
        wanted = self._reviewing.audiences
        if wanted and not set(wanted) & set(found.audiences or wanted):
            found = ReviewedToken(authenticated=False)
        if not found.authenticated:
            self._reject(digest, without_secret(found.error, bearer.decode("latin-1")))
            return None
        try:
            user = _user(found)
        except ValueError as e:
            raise self._lose(
                digest,
                Unauthorized(
                    f"Unauthorized: {self._reviewing.program} gives {e}: {_ASK}",
                    f"{self._reviewing.program} gives {e}",
                ),
            ) from None
        return self._accept(digest, bearer, user)

    async def _answer(self, bearer: bytes, *, is_known: bool) -> ReviewedToken:
        reviewing = self._reviewing
        review = token_review(reviewing.version, bearer.decode("latin-1"), reviewing.audiences)

        def post() -> Deferred[Any]:
            return Deferred.fromCoroutine(self._client.post(review))

        answer = post() if is_known else self._slots.run(post)
        answer.addTimeout(reviewing.timeout, self._clock, _timed_out)
        return reviewed_token(await answer, reviewing.version)

    def _failed(self, problem: str) -> Unauthorized:
        self.fetches["error"] += 1
        if self._failure.is_new(problem):
            self._log.warn(
                "{program} failed: {problem}; tokens that it does not know yet are rejected",
                program=self._reviewing.program,
                problem=problem,
            )
        return Unauthorized(
            f"Unauthorized: {self._reviewing.program} failed, and the proxy's log has the reason: retry, or "
            f"{_ASK}",
            problem,
        )

    def _reject(self, digest: bytes, error: str) -> None:
        program = self._reviewing.program
        text = f"Unauthorized: {program} does not accept the token any more: request another token, or {_ASK}"
        refusal = self._lose(digest, Unauthorized(text, error or f"{program} rejects the token", "revoked"))
        if error:
            text = f"Unauthorized: {program} does not accept the token: request another token, or {_ASK}"
            raise Unauthorized(text, error, refusal.kind)
        if self._reviewing.ttl > 0:
            self._rejected[digest] = self._seconds() + self._reviewing.ttl
            self._rejected.move_to_end(digest)
            if len(self._rejected) > KEPT:
                self._rejected.popitem(last=False)

    def _lose(self, digest: bytes, refusal: Unauthorized) -> Unauthorized:
        """End the connections with the token; return *refusal*."""
        self._accepted.pop(digest, None)
        lease = self._leases.pop(digest, None)
        if lease is not None:
            lease.end(refusal)
        return refusal

    def _accept(self, digest: bytes, bearer: bytes, user: UserInfo) -> Identity:
        now = self._seconds()
        until = now + self._reviewing.ttl
        self._rejected.pop(digest, None)
        lease = self._leases.get(digest)
        if lease is not None and lease.user != user:
            self._lose(
                digest,
                Unauthorized(
                    f"Unauthorized: the user of the token has changed from {lease.user.name}, or has other "
                    "groups: connect again",
                    "the user of the token has changed",
                    "removed",
                ),
            )
            lease = None
        if lease is None:
            lease = self._leases[digest] = Lease(bearer, user, now, until)
        lease.asked, lease.until = now, until
        identity = self._accepted.get(digest)
        if identity is None:
            identity = self._accepted[digest] = Identity(
                user.name,
                user.groups,
                uid=user.uid,
                extra=user.extra,
                method=self.method,
                key=token_key(self.method, digest),
                lease=lease,
            )
            if len(self._accepted) > KEPT:
                self._accepted.popitem(last=False)
        self._accepted.move_to_end(digest)
        return identity


def _timed_out(_result: object, timeout: float) -> None:
    raise DeferredTimeoutError(f"no answer within {timeout:g} s")


def _user(found: ReviewedToken) -> UserInfo:
    """Return the user in an answer.

    :raise ValueError: a name is reserved or malformed.
    """
    groups = check_reviewed(found.name, [each for each in found.groups if each])
    if not found.uid.isprintable():
        raise ValueError(f"UID {found.uid!r}: must be printable characters")
    if sum(len(values) for _, values in found.extra) > EXTRA_LIMIT:
        raise ValueError(f"more than {EXTRA_LIMIT} extra values")
    size = len(found.uid) + sum(len(key) + sum(map(len, values)) for key, values in found.extra)
    if size > FACTS_LIMIT:
        raise ValueError(f"a UID and extra values of {size} characters, and {FACTS_LIMIT} are the limit")
    for key, values in found.extra:
        if not key or not (key + "".join(values)).isprintable():
            raise ValueError(f"extra value {key!r}: must be printable characters")
    return UserInfo(found.name, groups, found.uid, found.extra)

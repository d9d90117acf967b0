"""Webhook: the authorizer of ``--authorization-webhook-config-file``.

A failure counts as no opinion, so another mode may allow the request; answers are kept for a time.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable
from hashlib import sha256
from typing import Any, Protocol

import attrs
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from tower.kube.access.reviews import ReviewStatus, WrongReview, controlled_size, review_of, status_of
from tower.kube.client import APIError
from tower.web.access.authorization.attributes import Attributes
from tower.web.access.authorization.decision import Answer, Decision, Ruling
from tower.web.access.reported_failure import ReportedFailure

#: Most answers that are kept.
KEPT = 8192

#: Reviews with more characters that the request determines are not kept.
CONTROLLED_LIMIT = 10_000


class Webhook(Protocol):
    """A client of a webhook; see `tower.kube.rest.webhook_client.WebhookClient`."""

    async def post(self, body: Any) -> Any:
        """Return the answer.

        :raise APIError: there is none.
        """


@attrs.frozen
class CacheTimes:
    """Times for which answers are kept, s."""

    authorized: float = 300.0
    unauthorized: float = 30.0


class WebhookAuthorizer:
    """Asks a webhook, with reviews of *version*; *seconds* returns a time that only grows, s."""

    _log = Logger()

    def __init__(
        self, webhook: Webhook, version: str, times: CacheTimes, seconds: Callable[[], float]
    ) -> None:
        self._webhook, self._version, self._times, self._seconds = webhook, version, times, seconds
        self._failure = ReportedFailure(seconds)
        self._kept: OrderedDict[bytes, tuple[float, ReviewStatus]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def authorize(self, attributes: Attributes) -> Answer:
        """See `Authorizer`."""
        user = attributes.user
        review = review_of(
            self._version,
            user.name,
            user.uid,
            user.groups,
            user.extra,
            attributes.request,
            attributes.cluster,
        )
        key = sha256(json.dumps(review["spec"]).encode("utf-8", "surrogatepass")).digest()
        kept = self._kept.get(key)
        if kept is not None and self._seconds() < kept[0]:
            self._kept.move_to_end(key)
            return _decision(kept[1])
        may_be_kept = controlled_size(attributes.request) < CONTROLLED_LIMIT
        return Deferred.fromCoroutine(self._ask(review, key if may_be_kept else None))

    async def _ask(self, review: dict[str, Any], key: bytes | None) -> Decision:
        try:
            status = status_of(await self._webhook.post(review), self._version)
        except (APIError, WrongReview) as e:
            if self._failure.is_new(str(e)):
                self._log.warn("the authorization webhook failed: {error}", error=str(e))
            return Decision(
                Ruling.NO_OPINION, error=f"the authorization webhook failed: {e}", may_be_kept=False
            )
        if self._failure.ends():
            self._log.info("the authorization webhook answers again")
        ttl = self._times.authorized if status.allowed else self._times.unauthorized
        if key is not None and ttl > 0:
            self._kept[key] = (self._seconds() + ttl, status)
            self._kept.move_to_end(key)
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return _decision(status)


def _decision(status: ReviewStatus) -> Decision:
    """Return the decision that a status is; only this authorizer keeps it."""
    error = ""
    ruling = Ruling.ALLOW if status.allowed else Ruling.NO_OPINION
    if status.denied:
        ruling = Ruling.DENY
        if status.allowed:
            error = "webhook subject access review returned both allow and deny response"
    return Decision(ruling, status.reason, error, may_be_kept=False)

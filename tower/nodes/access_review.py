"""Asks a member whether a user may use a kubelet, because kubelets do not support impersonation.

A request that reaches a kubelet with the proxy's credential has that credential's rights.  So the proxy first
sends a ``SelfSubjectAccessReview`` to the member's API server, as the user (``Impersonate-User``).
"""

from __future__ import annotations

from typing import Any

from attrs import frozen
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from tower.errors import ClusterUnreachable
from tower.escaping import reported
from tower.kube.client import APIClient, APIError
from tower.kube.status import StatusError

#: Path of the reviews.
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"

#: Lifetime of a cached answer, s, and most cached answers.
HOLDS = 10.0
KEPT = 4096

#: Kubernetes' verbs for methods.
VERBS = {
    b"GET": "get",
    b"HEAD": "get",
    b"POST": "create",
    b"PUT": "update",
    b"PATCH": "patch",
    b"DELETE": "delete",
}

_SUBRESOURCES = {
    b"stats": "stats",
    b"metrics": "metrics",
    b"logs": "log",
    b"spec": "spec",
    b"checkpoint": "checkpoint",
}


@frozen
class AccessReview:
    """One question: may this user do this at this node?"""

    user: str
    groups: tuple[str, ...]
    node: str
    verb: str
    subresource: str

    def denied(self, reason: str) -> StatusError:
        """Return the error for a denied user, worded as by API servers, with the *reason*."""
        return StatusError(
            403,
            f'nodes "{self.node}" is forbidden: User "{self.user}" cannot {self.verb} resource '
            f'"nodes/{self.subresource}" in API group "" at the cluster scope' + (reason and f": {reason}"),
            details={"name": self.node, "kind": "nodes"},
        )


def subresource_of(path: bytes) -> str:
    """Return the subresource of *path*, as kubelets name it (``pkg/kubelet/server/auth.go``)."""
    return _SUBRESOURCES.get(path.lstrip(b"/").partition(b"/")[0], "proxy")


class NodeReview:
    """Access reviews of one cluster, with a cache.

    :param cluster: its name, for errors.
    :ivar answers: expiry and error (None: allowed) of each cached answer, oldest first.
    """

    def __init__(self, clock: IReactorTime, api: APIClient, cluster: str) -> None:
        self._clock = clock
        self._api = api
        self._cluster = cluster
        self.answers: dict[AccessReview, tuple[float, StatusError | None]] = {}

    def __call__(self, question: AccessReview) -> Deferred[None] | None:
        """Return None if access is known to be allowed, else a Deferred that fires when it is.

        :raise StatusError: 403, also through the Deferred: access is denied, or the API server rejects the
            question.
        :raise ClusterUnreachable: through the Deferred: the API server was not reached.
        """
        known = self.answers.get(question)
        if known is None or known[0] <= self._clock.seconds():
            return Deferred.fromCoroutine(self._ask(question))
        if known[1] is not None:
            raise known[1]
        return None

    async def _ask(self, question: AccessReview) -> None:
        attributes = {
            "verb": question.verb,
            "version": "v1",
            "resource": "nodes",
            "subresource": question.subresource,
            "name": question.node,
        }
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        began = self._clock.seconds()
        try:
            answer = await self._api.post(
                REVIEWS, review, user=question.user, groups=question.groups, repeatable=True
            )
        except APIError as e:
            text = f"cluster {self._cluster} did not answer whether {question.user} may use kubelets: {e}"
            raise (StatusError(403, text) if e.code == 403 else ClusterUnreachable(text)) from e
        refusal = _refusal(question, answer)
        self._keep(question, began + HOLDS, refusal)
        if refusal is not None:
            raise refusal

    def _keep(self, question: AccessReview, until: float, refusal: StatusError | None) -> None:
        self.answers.pop(question, None)  # keeps the oldest first
        while len(self.answers) >= KEPT:
            del self.answers[next(iter(self.answers))]
        self.answers[question] = until, refusal


def _refusal(question: AccessReview, answer: Any) -> StatusError | None:
    """Return the error if *answer* denies access; every answer that does not clearly allow it does."""
    status = answer.get("status") if isinstance(answer, dict) else None
    if not isinstance(status, dict):
        return question.denied("the API server's answer to the review has no status")
    if status.get("allowed") is True and not status.get("denied"):
        return None
    reason = status.get("reason") or status.get("evaluationError") or ""
    return question.denied(reported("the API server", str(reason)) if reason else "")

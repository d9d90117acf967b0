"""Asks a member whether a user may use a kubelet, for kubelets take nobody's word for who somebody is.

An API server lets users act for others (``Impersonate-User``), a kubelet does not: what reaches it with the
credential that the proxy keeps is done with that credential's rights.  So before it is lent, the member's
own API server is asked, as the user, by a ``SelfSubjectAccessReview``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from attrs import frozen
from twisted.internet.defer import Deferred

from tower.errors import ClusterUnreachable
from tower.escaping import reported
from tower.kube.client import APIError
from tower.kube.status import StatusError

#: Where is asked.
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"

#: How long an answer holds, s, and how many are kept.
HOLDS = 10.0
KEPT = 4096

#: What Kubernetes calls what is done by a method; a HEAD is a GET without its body.
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


class Posts(Protocol):
    """What is needed of `tower.kube.client.APIClient`."""

    async def post(
        self,
        path: str,
        body: Any,
        *,
        user: str | None = None,
        groups: Sequence[str] = (),
        repeatable: bool = False,
    ) -> Any:
        """Post *body* as *user* and return what comes back."""


@frozen
class AccessReview:
    """Who wants to do what at which node."""

    user: str
    groups: tuple[str, ...]
    node: str
    verb: str
    subresource: str

    def denied(self, reason: str) -> StatusError:
        """Return what somebody is told who may not, as API servers do, with the *reason*."""
        return StatusError(
            403,
            f'nodes "{self.node}" is forbidden: User "{self.user}" cannot {self.verb} resource '
            f'"nodes/{self.subresource}" in API group "" at the cluster scope' + (reason and f": {reason}"),
            details={"name": self.node, "kind": "nodes"},
        )


def subresource_of(path: bytes) -> str:
    """Return what kubelets call the part of them that *path* leads to (``pkg/kubelet/server/auth.go``)."""
    return _SUBRESOURCES.get(path.lstrip(b"/").partition(b"/")[0], "proxy")


class NodeReview:
    """:param clock: has ``seconds``.
    :param api: the member's.
    :param cluster: its name, for errors.
    """

    def __init__(self, clock: Any, api: Posts, cluster: str) -> None:
        self._clock = clock
        self._api = api
        self._cluster = cluster
        self._answers: dict[AccessReview, tuple[float, StatusError | None]] = {}

    def __call__(self, question: AccessReview) -> Deferred[None] | None:
        """Return None if the answer is yes and known already, else what fires when it is yes.

        :raise Refusal: also through the Deferred: he may not, or the API server refuses to say.
        :raise ClusterUnreachable: through the Deferred: it was not reached.
        """
        known = self._answers.get(question)
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
        asked = self._clock.seconds()
        try:
            answer = await self._api.post(
                REVIEWS, review, user=question.user, groups=question.groups, repeatable=True
            )
        except APIError as e:
            text = f"cluster {self._cluster} did not say whether {question.user} may use kubelets: {e}"
            raise (StatusError(403, text) if e.code == 403 else ClusterUnreachable(text)) from e
        refusal = _refusal(question, answer)
        self._keep(question, asked + HOLDS, refusal)
        if refusal is not None:
            raise refusal

    def _keep(self, question: AccessReview, until: float, refusal: StatusError | None) -> None:
        self._answers.pop(question, None)  # so that the oldest are the first
        while len(self._answers) >= KEPT:
            del self._answers[next(iter(self._answers))]
        self._answers[question] = until, refusal


def _refusal(question: AccessReview, answer: Any) -> StatusError | None:
    """Return why *question* is answered with no; what is not plainly a yes is one."""
    status = answer.get("status") if isinstance(answer, dict) else None
    if not isinstance(status, dict):
        return question.denied("the API server's answer to the review has no status")
    if status.get("allowed") is True and not status.get("denied"):
        return None
    reason = status.get("reason") or status.get("evaluationError") or ""
    return question.denied(reported("the API server", str(reason)) if reason else "")

"""SubjectAccessReviews: questions to a webhook whether a user may send a request, and its answers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from attrs import frozen

from tower.escaping import escaped, shortened
from tower.kube.request_info import RequestInfo

#: Versions that webhooks use.
VERSIONS = ("v1", "v1beta1")

#: Key among the additional facts about a user that names the cluster.
CLUSTER_KEY = "tower.kubesphere.io/cluster"

#: Longest reason, characters.
REASON_LIMIT = 1024

_GROUP = "authorization.k8s.io"
_KIND = "SubjectAccessReview"


@frozen
class ReviewStatus:
    """The answer to a review."""

    allowed: bool
    denied: bool = False
    reason: str = ""


class WrongReview(Exception):
    """The answer is not a review, for the reason in the text."""


def review_of(
    version: str,
    user: str,
    uid: str,
    groups: Iterable[str],
    extra: Iterable[tuple[str, Iterable[str]]],
    info: RequestInfo,
    cluster: str,
) -> dict[str, Any]:
    """Return the review of a request to *cluster*."""
    facts = {key: list(values) for key, values in extra}
    facts[CLUSTER_KEY] = [cluster]
    spec: dict[str, Any] = {}
    if info.is_resource:
        attributes = {
            "namespace": info.namespace,
            "verb": info.verb,
            "group": info.group,
            "version": info.version,
            "resource": info.resource,
            "subresource": info.subresource,
            "name": info.name,
        }
        spec["resourceAttributes"] = {key: value for key, value in attributes.items() if value}
    else:
        spec["nonResourceAttributes"] = {"path": info.path, "verb": info.verb}
    spec["user"] = user
    if found := list(groups):
        spec["groups" if version == "v1" else "group"] = found
    spec["extra"] = facts
    if uid:
        spec["uid"] = uid
    return {"kind": _KIND, "apiVersion": f"{_GROUP}/{version}", "spec": spec}


def controlled_size(info: RequestInfo) -> int:
    """Return the number of characters in a review that the request determines."""
    return sum(map(len, info[:8]))


def status_of(value: Any, version: str) -> ReviewStatus:
    """Return the status in the answer *value*.

    :raise WrongReview: it has no valid one, or another version or kind.
    """
    if not isinstance(value, dict) or value.get("kind") != _KIND:
        raise WrongReview(f"the answer is not a {_KIND}")
    if value.get("apiVersion") != f"{_GROUP}/{version}":
        raise WrongReview(f"the answer does not have the version {_GROUP}/{version}")
    status = value.get("status")
    if not isinstance(status, dict):
        raise WrongReview("the answer has no status")
    allowed, denied, reason = (status.get(key) for key in ("allowed", "denied", "reason"))
    if not (isinstance(allowed, bool | None) and isinstance(denied, bool | None)):
        raise WrongReview("status.allowed and status.denied of the answer must be true or false")
    text = reason if isinstance(reason, str) else ""
    return ReviewStatus(bool(allowed), bool(denied), escaped(shortened(text, REASON_LIMIT)))

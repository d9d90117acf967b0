"""TokenReviews: questions to a webhook or an API server about the user of a token, and its answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import field, frozen

from tower.escaping import escaped, shortened
from tower.kube.access.reviews import WrongReview

#: Path of the resource of an API server.
PATH = "/apis/authentication.k8s.io/v1/tokenreviews"

#: Longest error of an answer, characters.
ERROR_LIMIT = 1024

_GROUP = "authentication.k8s.io"
_KIND = "TokenReview"


@frozen
class ReviewedToken:
    """The status of a review.

    :ivar error: why the token is not authenticated; may be empty.
    :ivar audiences: those of the token that the reviewer confirms; empty: it does not check audiences.
    """

    authenticated: bool
    error: str = ""
    audiences: tuple[str, ...] = ()
    name: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = field(default=())


def token_review(version: str, token: str, audiences: Sequence[str]) -> dict[str, Any]:
    """Return the review of *token*, which is for one of *audiences*; empty: for any."""
    spec: dict[str, Any] = {"token": token}
    if audiences:
        spec["audiences"] = list(audiences)
    return {"kind": _KIND, "apiVersion": f"{_GROUP}/{version}", "spec": spec}


def reviewed_token(value: Any, version: str) -> ReviewedToken:
    """Return the status in the answer *value*, which may omit kind and version, as for kube-apiserver.

    :raise WrongReview: it is another object, or a field has another type.
    """
    if not isinstance(value, dict) or value.get("kind", _KIND) not in (_KIND, ""):
        raise WrongReview(f"the answer is not a {_KIND}")
    if value.get("apiVersion", "") not in ("", f"{_GROUP}/{version}"):
        raise WrongReview(f"the answer does not have the version {_GROUP}/{version}")
    status = _object(value, "status", "status")
    user = _object(status, "user", "status.user")
    authenticated = status.get("authenticated")
    if authenticated is not None and not isinstance(authenticated, bool):
        raise WrongReview("status.authenticated of the answer must be true or false")
    extra = _object(user, "extra", "status.user.extra")
    return ReviewedToken(
        bool(authenticated),
        escaped(shortened(_text(status, "error", "status.error"), ERROR_LIMIT)),
        _texts(status.get("audiences"), "status.audiences"),
        _text(user, "username", "status.user.username"),
        _text(user, "uid", "status.user.uid"),
        _texts(user.get("groups"), "status.user.groups"),
        tuple((key, _texts(values, "a value of status.user.extra")) for key, values in extra.items()),
    )


def _object(owner: dict[str, Any], key: str, path: str) -> dict[str, Any]:
    value = owner.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise WrongReview(f"{path} of the answer must be an object")
    return value


def _text(owner: dict[str, Any], key: str, path: str) -> str:
    value = owner.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise WrongReview(f"{path} of the answer must be a text")
    return value


def _texts(value: Any, path: str) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise WrongReview(f"{path} of the answer must be a list of texts")
    return tuple(value)

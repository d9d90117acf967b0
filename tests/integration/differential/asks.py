"""Requests, their credentials as data, and tables of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import field, frozen
from cryptography.x509.oid import ObjectIdentifier

from tests.fakes.client_certificates import CLIENT

#: A review of the own identity, which every authenticated user may make.
WHOAMI = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


@frozen
class At:
    """A time in a token's claim: s from now on, as a number or a *text*."""

    seconds: float
    is_text: bool = False


@frozen
class Token:
    """A token of the service account ``default/robot``, good but for the changes.

    :ivar claims: others than in a good token; None: the claim is missing.
    :ivar header: the same in its header.
    :ivar private: the same in the claim ``kubernetes.io``.
    :ivar key: that signs it: ``accounts``, ``other`` or ``rsa``.
    :ivar form: of the token, with ``{whole}`` and its parts ``{header}``, ``{payload}``, ``{signature}``.
    :ivar content: the payload in place of claims.
    """

    claims: Mapping[str, Any] = field(factory=dict)
    header: Mapping[str, Any] = field(factory=dict)
    private: Mapping[str, Any] = field(factory=dict)
    key: str = "accounts"
    form: str = "{whole}"
    content: Any = None


@frozen
class Certificate:
    """A client certificate.

    :ivar user: its common name; None: there is none.
    :ivar groups: its organizations.
    :ivar more: other parts of its name.
    :ivar by: the CA, of `certificates.Authorities`.
    :ivar days: begin and end, from now on.
    :ivar is_alone: whether it is sent without intermediate CAs.
    """

    user: str | None = "jane"
    groups: Sequence[str] = ("dev",)
    more: Sequence[tuple[ObjectIdentifier, str]] = ()
    by: str = "company"
    days: tuple[float, float] = (-1, 1)
    usages: Sequence[ObjectIdentifier] = (CLIENT,)
    is_alone: bool = False


@frozen
class Hook:
    """An answer of the webhook to a TokenReview.

    :ivar status: of the review, in an answer 200; None: *body* is the whole answer.
    :ivar top: other fields of the review.
    """

    status: Any = None
    top: Mapping[str, Any] = field(factory=dict)
    code: int = 200
    body: bytes | None = None


@frozen
class Ask:
    """A request.

    :ivar user: ``jane`` or ``admin``, whose token is sent; empty: none.
    :ivar token: the bearer token of the service account, or the text of any.
    :ivar fields: ``NAME: VALUE``, in addition.
    :ivar body: JSON, or the text of it.
    :ivar hook: the webhook's answer to the review of the token; None: it is asked nothing special.
    :ivar has_reason: whether Tower's message has the reason that kube-apiserver logs.
    """

    method: str = "POST"
    path: str = WHOAMI
    body: Any = None
    user: str = ""
    token: Token | str = ""
    certificate: Certificate | None = None
    fields: Sequence[str] = ()
    media: str = "application/json"
    hook: Hook | None = None
    has_reason: bool = False

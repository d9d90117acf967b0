"""Authentication of users by client certificates of ``--client-ca-file``, with kube-apiserver's semantics.

The common name is the user, and each organization is a group.  The certificate is verified once for each
connection; `CertificateAuthenticator.check` then compares the time and looks up the CA, so that an expired
certificate and a removed CA also count on kept-alive connections.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Protocol

from cryptography import x509
from cryptography.x509.oid import ExtensionOID, NameOID

from tower.errors import Unauthorized
from tower.trust.client_authorities import (
    MALFORMED,
    ClientAuthorities,
    NotTrusted,
    VerifiedChain,
    fingerprint,
)
from tower.web.access.authentication.identity import Extra, Identity
from tower.web.access.authentication.presented import Presented
from tower.web.access.authentication.reserved_names import check_foreign

#: Longest certificate that is read, B.
CERTIFICATE_LIMIT = 32 * 1024

#: Kubernetes' attribute of a subject for the user's UID.
UID = x509.ObjectIdentifier("1.3.6.1.4.1.57683.2")

#: Key of the extra value that identifies the certificate.
CREDENTIAL_ID = "authentication.kubernetes.io/credential-id"

_CURE = "request another certificate"


class Bundle(Protocol):
    """The current CAs; a `tower.options.followed_file.FollowedFile`."""

    value: ClientAuthorities


class CertificateAuthenticator:
    """Authenticates users by certificates of the CAs in *bundle*.

    :param seconds: returns the time, s since the epoch.
    """

    method = "x509"

    def __init__(self, bundle: Bundle, seconds: Callable[[], float]) -> None:
        self._bundle = bundle
        self._seconds = seconds

    def authenticate(self, presented: Presented) -> Identity | None:
        """Return the user of the certificate; None: there is none of these CAs.

        :raise Unauthorized: see `tower.web.access.authentication.presented.AuthenticationMethod`.
        """
        found = verified(presented, self._bundle.value, self._seconds())
        if found is None:
            return None
        certificate, chain = found
        digest = fingerprint(certificate)
        name = common_name(certificate)
        if not name:
            raise Unauthorized(
                f"the client certificate has no common name: {_CURE} with the user as common name",
                f"{_described(certificate)} has no common name",
            )
        groups = _values(certificate, NameOID.ORGANIZATION_NAME)
        try:
            uid = _uid(certificate)
            groups = check_foreign(name, groups)
        except ValueError as e:
            raise Unauthorized(
                f"the client certificate has {e}: {_CURE}", f"certificate {digest}: {e}"
            ) from None
        extra: Extra = ((CREDENTIAL_ID, (f"X509SHA256={digest}",)),)
        key = f"{chain.anchor}:{digest}"
        return Identity(
            name, groups, uid=uid, extra=extra, method=self.method, key=key, expires=chain.not_after
        )

    def check(self, identity: Identity) -> None:
        """Check that *identity* of this method, cached on a connection, is still valid.

        :raise Unauthorized: its certificate has expired, or its CA was removed.
        """
        check_certificate(identity, self._bundle.value, self._seconds())


def verified(
    presented: Presented, authorities: ClientAuthorities, now: float
) -> tuple[x509.Certificate, VerifiedChain] | None:
    """Return the client's certificate and its chain; None: there is none of these CAs.

    :param now: s since the epoch.
    :raise Unauthorized: the chain is not valid, now or at all.
    """
    shown = presented.certificate
    if shown is None:
        return None
    if len(shown) > CERTIFICATE_LIMIT:
        raise Unauthorized(
            f"the client certificate is longer than {CERTIFICATE_LIMIT} B: {_CURE}",
            f"client certificate of {len(shown)} B",
        )
    try:
        certificate, chain = authorities.verify(shown, presented.chain()[1:])
    except NotTrusted:
        return None  # TLS has verified it with another CA of the port
    except ValueError as e:
        raise Unauthorized(f"the client certificate is not valid ({e}): {_CURE}", str(e)) from None
    if not chain.not_before <= now <= chain.not_after:
        raise _not_now(certificate, chain, now)
    return certificate, chain


def check_certificate(
    identity: Identity, authorities: ClientAuthorities, now: float, holder: str = ""
) -> None:
    """Check that the certificate of *identity* has not expired, and that its CA is still in the file.

    :param holder: of the certificate; empty: the user.
    :raise Unauthorized: else.
    """
    holder = holder or identity.user
    if now > identity.expires:
        raise Unauthorized(
            f"the client certificate of {holder} expired at {_moment(identity.expires)}: {_CURE}",
            f"the certificate of {holder} expired",
            "expired",
        )
    if identity.key.partition(":")[0] not in authorities.anchors:
        raise Unauthorized(
            f"the CA of the client certificate of {holder} is not accepted any more: {_CURE}",
            f"the CA of the certificate of {holder} was removed",
            "removed",
        )


def common_name(certificate: x509.Certificate) -> str:
    """Return the common name of the subject: the last one, as in Go; empty: there is none."""
    names = _values(certificate, NameOID.COMMON_NAME)
    return names[-1] if names else ""


def _values(certificate: x509.Certificate, kind: x509.ObjectIdentifier) -> Sequence[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of names longer than 64 characters
        found = certificate.subject.get_attributes_for_oid(kind)
    return tuple(each.value for each in found if isinstance(each.value, str))


def _uid(certificate: x509.Certificate) -> str:
    """:raise ValueError: there are several, or it is empty."""
    values = _values(certificate, UID)
    if len(values) > 1:
        raise ValueError(f"{len(values)} UIDs, where one is expected")
    if values and not values[0].isprintable():
        raise ValueError(f"UID {values[0]!r}, which has characters that cannot be printed")
    if values == ("",):
        raise ValueError("an empty UID")
    return values[0] if values else ""


def _not_now(certificate: x509.Certificate, chain: VerifiedChain, now: float) -> Unauthorized:
    """Return the rejection for the dates of the chain; its reason is that of kube-apiserver."""
    user = common_name(certificate) or "the user"
    early = now < chain.not_before
    order, bound = ("before", chain.not_before) if early else ("after", chain.not_after)
    reason = (
        f"{_described(certificate)} failed: x509: certificate has expired or is not yet valid: "
        f"current time {_moment(now)} is {order} {_moment(bound)}"
    )
    if early:
        text = (
            f"the client certificate of {user} is not valid before {_moment(bound)}: set the clocks, or wait"
        )
        return Unauthorized(text, reason, "not-yet-valid")
    text = f"the client certificate of {user}, or its CA, expired at {_moment(bound)}: {_CURE}"
    return Unauthorized(text, reason, "expired")


def _described(certificate: x509.Certificate) -> str:
    """Return the certificate as kube-apiserver's log does."""
    keys = []
    for kind in (ExtensionOID.SUBJECT_KEY_IDENTIFIER, ExtensionOID.AUTHORITY_KEY_IDENTIFIER):
        try:
            value = certificate.extensions.get_extension_for_oid(kind).value
        except (x509.ExtensionNotFound, *MALFORMED):
            value = None
        digest = getattr(value, "digest", None) or getattr(value, "key_identifier", None) or b""
        keys.append(digest.hex(":").upper())
    number = certificate.serial_number
    return f"verifying certificate SN={number}, SKID={keys[0]}, AKID={keys[1]}"


def _moment(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"

"""A CA together with its replacement, or with the CA that it has replaced, during a rotation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from tower.trust.pki import Authority, Issued, public_key_hash


class RotatingAuthority:
    """The CA that signs, and another one that clients must trust, too, during a rotation.

    :ivar current: signs.
    :ivar other: certificates of the other CA, its own first; empty: no rotation is in progress.
    :ivar also: a CA that signs the certificate for one name only, and that clients must trust, too; may be
        empty.
    """

    def __init__(self, current: Authority, other: Sequence[x509.Certificate] = ()) -> None:
        self.current = current
        self.other = tuple(other)
        self.also: tuple[x509.Certificate, ...] = ()

    @property
    def pem(self) -> bytes:
        """The certificates of all CAs, which clients need for verification."""
        others = (*self.other, *self.also)
        return self.current.pem + b"".join(each.public_bytes(Encoding.PEM) for each in others)

    @property
    def hash(self) -> str:
        """The hash that pins the CA that signs."""
        return self.current.hash

    @property
    def hashes(self) -> tuple[str, ...]:
        """The hashes that pin the CAs, that of the CA that signs first."""
        others = (*self.other[:1], *self.also)
        return (self.hash, *("sha256:" + public_key_hash(each) for each in others))

    def client_certificate(
        self, user: str, groups: Iterable[str], cluster_name: str, cluster_uid: str, ttl: float, now: float
    ) -> Issued:
        """Return a certificate of the CA that signs; see `Authority.client_certificate`."""
        return self.current.client_certificate(user, groups, cluster_name, cluster_uid, ttl, now)


#: A CA of users' certificates or of the serving certificate.
AnyAuthority: TypeAlias = Authority | RotatingAuthority

"""Keys that verify the tokens of service accounts: from files, or from the issuers of the tokens."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from attrs import frozen
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key
from twisted.internet.defer import Deferred

from tower.web.access.authentication.oidc.key_set import KeySet, key_set_of
from tower.web.access.authentication.oidc.provider import OIDCProvider

#: Most keys of a file that are read.
KEYS_LIMIT = 100

_BLOCK = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----.*?-----END \1-----", re.DOTALL)


class AccountKeys(Protocol):
    """The current keys."""

    def of(self, issuer: str) -> KeySet | None:
        """Return the keys of an issuer; None: they are not known yet."""

    def newer(self, issuer: str) -> Deferred[None] | None:
        """Get the keys again; None: that is not possible."""

    def problem(self, issuer: str) -> str:
        """Return why the last attempt to get the keys has failed; empty: it has not."""

    def has(self, thumbprint: str) -> bool:
        """Return whether a key is still in use."""


class PublicKeys(Protocol):
    """The keys in a file; a `tower.options.followed_file.FollowedFile`."""

    value: KeySet


@frozen
class FileKeys:
    """The keys in files, which sign the tokens of all issuers."""

    _files: Sequence[PublicKeys]

    def of(self, issuer: str) -> KeySet:
        """See `AccountKeys`."""
        return KeySet.union(each.value for each in self._files)

    def newer(self, issuer: str) -> None:
        """See `AccountKeys`."""

    def problem(self, issuer: str) -> str:
        """See `AccountKeys`."""
        return ""

    def has(self, thumbprint: str) -> bool:
        """See `AccountKeys`."""
        return any(thumbprint in each.value.thumbprints for each in self._files)


@frozen
class IssuerKeys:
    """The keys that issuers publish, each of which has a provider."""

    _providers: Mapping[str, OIDCProvider]

    def of(self, issuer: str) -> KeySet | None:
        """See `AccountKeys`."""
        return self._providers[issuer].keys

    def newer(self, issuer: str) -> Deferred[None]:
        """See `AccountKeys`."""
        return self._providers[issuer].newer_keys()

    def problem(self, issuer: str) -> str:
        """See `AccountKeys`."""
        return self._providers[issuer].problem

    def has(self, thumbprint: str) -> bool:
        """See `AccountKeys`."""
        sets = [each.keys for each in self._providers.values()]
        return any(keys is not None and thumbprint in keys.thumbprints for keys in sets)


def read_public_keys(content: bytes) -> KeySet:
    """Return the keys in a PEM file: public keys, those of private keys, and those of certificates.

    As in kube-apiserver, other blocks are ignored.

    :raise ValueError: there is no key, or one that is not safe.
    """
    keys = [key for block in _BLOCK.finditer(content) if (key := _key(block[0])) is not None]
    if not keys:
        raise ValueError(
            "data does not contain any valid RSA or ECDSA public keys: name a PEM file with such a key"
        )
    if len(keys) > KEYS_LIMIT:
        raise ValueError(f"has {len(keys)} keys, and {KEYS_LIMIT} are the limit: remove old ones")
    return key_set_of(keys)


def _key(pem: bytes) -> RSAPublicKey | EllipticCurvePublicKey | None:
    for load in _loaders(pem):
        try:
            key = load()
        except (ValueError, TypeError, x509.UnsupportedGeneralNameType):
            continue
        if isinstance(key, RSAPublicKey | EllipticCurvePublicKey):
            return key
    return None


def _loaders(pem: bytes) -> Iterator[Callable[[], object]]:
    yield lambda: load_pem_public_key(pem)
    yield lambda: load_pem_private_key(pem, None).public_key()
    yield lambda: x509.load_pem_x509_certificate(pem).public_key()

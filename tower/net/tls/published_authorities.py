"""Authorities whose private keys are public, and the refusal of whatever holds one of them."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import ssl
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tower.errors import ConfigurationError
from tower.files import read_plain

#: What to do about a server's CA whose private key is public.
ANOTHER_CA_CURE = "give the server a certificate of another CA, and name that one here"

#: Subject public keys (SHA-256 of the DER) of the authorities whose private keys are public: KubeSphere Tower
#: has carried them as ``certs/ca.key`` in its repository and its images (hole 2), the last one in v0.2.0 to
#: v0.2.2 and since.
PUBLISHED_AUTHORITIES = frozenset(
    {
        "3b532e22309c842ac1af52cdda09dea7029744afc2b71c4a4b5a3eb023ef1500",
        "5385d3f00da5682f10a92ce6463e35c2de76282e1adf9e2c9f080eff83957267",
        "b06348278b7dcb17d4c00172e46ea37af0b2580e4e7297ed1b4735f135dbb5e9",
    }
)

#: Why they are refused.
REASON = "the private key of this CA is public (KubeSphere Tower ships it), so anyone can sign with it"

#: All that OpenSSL reads as certificates; a trusted one is followed by what it is trusted for.
_PEM = re.compile(rb"-----BEGIN (?:X509 |TRUSTED )?CERTIFICATE-----(.*?)-----END ", re.DOTALL)

#: DER's tags of a sequence, and of a certificate's version, which may be missing.
_SEQUENCE, _VERSION = 0x30, 0xA0

#: What comes before the key in a certificate: serial number, signature, issuer, validity, subject.
_BEFORE_THE_KEY = 5

#: Largest file of the system's authorities that is looked at, B.
_FILE_LIMIT = 4 << 20


def is_published(key_hash: str) -> bool:
    """Return whether the private key is public that belongs to the public key of this hash.

    :param key_hash: SHA-256 of the SubjectPublicKeyInfo (DER), hexadecimal, with or without ``sha256:``.
    """
    return key_hash.removeprefix("sha256:") in PUBLISHED_AUTHORITIES


def refuse_published(place: str, pem: bytes, cure: str) -> None:
    """Refuse certificates in PEM if any has one of those keys: as a root, between others, or reissued.

    What is no certificate is passed over: who loads it says so.

    :param place: what holds them, as its owner calls it: the option and the file.
    :raise ConfigurationError: naming *place* and *cure*.
    """
    if any(is_published(digest) for digest in _key_hashes(pem)):
        raise ConfigurationError(f"{place}: {REASON}: {cure}")


def trust_system(context: ssl.SSLContext) -> None:
    """Have *context* trust the authorities of the system, or those of ``SSL_CERT_FILE`` and ``SSL_CERT_DIR``.

    :raise ConfigurationError: one of them has a private key that is public.
    """
    refuse_published_in_system()
    context.load_default_certs()


def refuse_published_in_system() -> None:
    """Refuse the system's authorities if one of them has a private key that is public.

    :raise ConfigurationError: naming the file and the cure.
    """
    paths = ssl.get_default_verify_paths()
    found = _first_published(paths.cafile, paths.capath)
    if found:
        raise ConfigurationError(
            f"{found}, one of the system's CAs: {REASON}: remove it there and restart the program"
        )


@cache
def _first_published(file: str | None, folder: str | None) -> str:
    """Return the path of the first file with such an authority, or nothing; there may be hundreds to read."""
    paths = [] if file is None else [Path(file)]
    try:
        paths += [] if folder is None else sorted(Path(folder).iterdir())
    except OSError:
        pass  # OpenSSL finds nothing there either
    for path in paths:
        try:
            pem = read_plain(path, _FILE_LIMIT)
        except OSError:
            continue
        if any(map(is_published, _key_hashes(pem))):
            return str(path)
    return ""


def _key_hashes(pem: bytes) -> Iterator[str]:
    for block in _PEM.finditer(pem):
        try:
            yield hashlib.sha256(_public_key(base64.b64decode(block[1]))).hexdigest()
        except (binascii.Error, ValueError):
            continue


def _public_key(certificate: bytes) -> bytes:
    """Return the SubjectPublicKeyInfo of a certificate, both in DER.

    Only that is read: OpenSSL takes many a certificate that stricter parsers refuse.

    :raise ValueError: it is no certificate.
    """
    start, _ = _content(certificate, 0, _SEQUENCE)
    at, _ = _content(certificate, start, _SEQUENCE)
    if certificate[at : at + 1] == bytes([_VERSION]):
        _, at = _content(certificate, at)
    for _ in range(_BEFORE_THE_KEY):
        _, at = _content(certificate, at)
    _, end = _content(certificate, at, _SEQUENCE)
    return certificate[at:end]


def _content(der: bytes, at: int, tag: int | None = None) -> tuple[int, int]:
    """Return where the content of the element at *at* begins and ends.

    :raise ValueError: there is no whole element, or it has another tag than *tag*.
    """
    head = der[at : at + 2]
    if len(head) < 2 or tag not in (None, head[0]):
        raise ValueError("not the element that is expected")
    start, size = at + 2, head[1]
    if size > 0x7F:
        start, size = start + size - 0x80, int.from_bytes(der[start : start + size - 0x80], "big")
    if start + size > len(der):
        raise ValueError("not a whole element")
    return start, start + size

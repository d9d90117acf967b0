"""Rejection of CAs whose private keys are public."""

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

#: Cure for a server's CA whose private key is public.
ANOTHER_CA_CURE = "give the server a certificate of another CA, and name that one here"

#: Public keys (SHA-256 of the DER) of CAs whose private keys are public: KubeSphere Tower ships them as
#: ``certs/ca.key`` in its repository and images (hole 2), the last one since v0.2.0.
PUBLISHED_AUTHORITIES = frozenset(
    {
        "3b532e22309c842ac1af52cdda09dea7029744afc2b71c4a4b5a3eb023ef1500",
        "5385d3f00da5682f10a92ce6463e35c2de76282e1adf9e2c9f080eff83957267",
        "b06348278b7dcb17d4c00172e46ea37af0b2580e4e7297ed1b4735f135dbb5e9",
    }
)

#: Reason in errors.
REASON = "the private key of this CA is public (KubeSphere Tower ships it), so anyone can sign with it"

#: All that OpenSSL reads as certificates; a trusted one also contains its uses.
_PEM = re.compile(rb"-----BEGIN (?:X509 |TRUSTED )?CERTIFICATE-----(.*?)-----END ", re.DOTALL)

#: DER tags of a sequence and of a certificate's version, which is optional.
_SEQUENCE, _VERSION = 0x30, 0xA0

#: Fields before the key in a certificate: serial number, signature, issuer, validity, subject.
_BEFORE_THE_KEY = 5

#: Largest file of the system's CAs that is checked, B.
_FILE_LIMIT = 4 << 20


def is_published(key_hash: str) -> bool:
    """Return whether the private key is public to a key with this SHA-256 (SubjectPublicKeyInfo in DER)."""
    return key_hash.removeprefix("sha256:") in PUBLISHED_AUTHORITIES


def refuse_published(source: str, pem: bytes, cure: str) -> None:
    """Reject PEM data if a certificate in it has a published key: root, intermediate, or reissued.

    Other data is ignored; loading it fails.

    :param source: source of the data for the error: the option and the file.
    :raise ConfigurationError: with *source* and *cure*.
    """
    if any(is_published(digest) for digest in _key_hashes(pem)):
        raise ConfigurationError(f"{source}: {REASON}: {cure}")


def trust_system(context: ssl.SSLContext) -> None:
    """Load the system's CAs, or those of ``SSL_CERT_FILE`` and ``SSL_CERT_DIR``, into *context*.

    :raise ConfigurationError: the private key of one is public.
    """
    refuse_published_in_system()
    context.load_default_certs()


def refuse_published_in_system() -> None:
    """Reject the system's CAs if the private key of one is public.

    :raise ConfigurationError: with the file and the cure.
    """
    paths = ssl.get_default_verify_paths()
    found = _first_published(paths.cafile, paths.capath)
    if found:
        raise ConfigurationError(
            f"{found}, one of the system's CAs: {REASON}: remove it there and restart the program"
        )


@cache
def _first_published(file: str | None, folder: str | None) -> str:
    """Return the path of the first file with such a CA, or nothing; there may be hundreds of files."""
    paths = [] if file is None else [Path(file)]
    try:
        paths += [] if folder is None else sorted(Path(folder).iterdir())
    except OSError:
        pass  # OpenSSL finds none there either
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

    No other field is parsed: OpenSSL accepts certificates that stricter parsers reject.

    :raise ValueError: *certificate* is not a certificate.
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
    """Return start and end of the content of the element at *at*.

    :raise ValueError: the element is incomplete, or its tag is not *tag*.
    """
    head = der[at : at + 2]
    if len(head) < 2 or tag not in (None, head[0]):
        raise ValueError("unexpected element")
    start, size = at + 2, head[1]
    if size > 0x7F:
        start, size = start + size - 0x80, int.from_bytes(der[start : start + size - 0x80], "big")
    if start + size > len(der):
        raise ValueError("incomplete element")
    return start, start + size

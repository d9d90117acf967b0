"""Further serving certificates, for clients that request their names (SNI): ``--tls-sni-cert-key``."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Sequence
from pathlib import Path

from attrs import frozen
from cryptography import x509
from cryptography.x509.oid import NameOID

from tower.trust.pki import load_certificates

_LABEL = "[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME = re.compile(rf"(?:\*\.)?{_LABEL}(?:\.{_LABEL})*")


@frozen
class PairFiles:
    """The files of a certificate and its key; *names* are empty if those of the certificate count."""

    certificate: Path
    key: Path
    names: tuple[str, ...] = ()


@frozen
class NamedCertificate:
    """A certificate (PEM, with intermediate CAs), its key, and the names that clients request.

    :ivar is_explicit: whether *names* were given, and are not those of the certificate.
    """

    certificate: bytes
    key: bytes
    names: tuple[str, ...]
    is_explicit: bool


def read_pair(text: str) -> PairFiles:
    """Return the files in ``CERTIFICATE,KEY`` or ``CERTIFICATE,KEY:NAME,NAME``.

    :raise ValueError: *text* has another form; the text is that of kube-apiserver.
    """
    files, colon, listed = text.partition(":")
    names = tuple(each.strip().lower() for each in listed.split(",")) if colon else ()
    if colon and not listed.strip():
        raise ValueError("empty names list is not allowed: give names after the colon, or omit it")
    parts = [each.strip() for each in files.split(",")]
    if len(parts) != 2 or not all(parts):
        raise ValueError(
            "expected comma separated certificate and key file paths: give CERTIFICATE,KEY or "
            "CERTIFICATE,KEY:NAME,NAME"
        )
    for name in names:
        if _is_address(name):
            raise ValueError(f"has the name {name}, but clients do not send addresses: give host names")
        if not _NAME.fullmatch(name):
            raise ValueError(f"has the name {name!r}: give host names such as a.example.org or *.example.org")
    return PairFiles(Path(parts[0]), Path(parts[1]), names)


def names_of(certificate: bytes) -> tuple[str, ...]:
    """Return the host names of the first certificate in PEM data; addresses are omitted.

    :raise ValueError: there is none.
    """
    first = load_certificates(certificate)[0]
    common = first.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    names = [each.value for each in common if isinstance(each.value, str)]
    try:
        alternatives = first.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        names += alternatives.get_values_for_type(x509.DNSName)
    except x509.ExtensionNotFound:
        pass
    lowered = dict.fromkeys(name.lower() for name in names)
    return tuple(name for name in lowered if _NAME.fullmatch(name) and not _is_address(name))


def by_name(
    certificates: Sequence[NamedCertificate], excluded: Collection[str]
) -> dict[str, NamedCertificate]:
    """Return the certificate for each name: given names before those of certificates, earlier ones first.

    :param excluded: names that certificates have, but that another certificate is for.
    """
    found: dict[str, NamedCertificate] = {}
    for is_explicit in (True, False):
        for each in certificates:
            if each.is_explicit is is_explicit:
                for name in each.names:
                    if is_explicit or not is_covered(name, excluded):
                        found.setdefault(name, each)
    return found


def wildcard_of(name: str) -> str:
    """Return the wildcard that covers *name*: with another first label."""
    return f"*.{name.partition('.')[2]}"


def is_covered(pattern: str, names: Collection[str]) -> bool:
    """Return whether *pattern*, a name or a wildcard, covers one of *names*."""
    return any(pattern in (name.lower(), wildcard_of(name.lower())) for name in names)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True

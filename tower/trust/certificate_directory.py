"""The serving certificate that the proxy makes in ``--cert-dir`` if there is none, as kube-apiserver does."""

from __future__ import annotations

from pathlib import Path

from cryptography import x509
from cryptography.x509.oid import NameOID

from tower.drafts import draft_of
from tower.errors import ConfigurationError
from tower.trust.pki import self_signed

#: Lifetime of the certificate, s: that of kube-apiserver's.
LIFETIME = 365 * 86400.0


def pair_in(directory: Path) -> tuple[Path, Path]:
    """Return the files of the certificate and of its private key in *directory*."""
    return directory / "tower-proxy.crt", directory / "tower-proxy.key"


def has_pair(directory: Path) -> bool:
    """Return whether both files exist.

    :raise ConfigurationError: only one of them exists, or the directory cannot be read.
    """
    try:
        missing = [path for path in pair_in(directory) if not path.exists()]
    except OSError as e:
        raise ConfigurationError(
            f"--cert-dir {directory}: cannot read the certificate ({str(e.strerror).lower()}): name a "
            "directory that this user may read, or give --tls-cert-file and --tls-private-key-file"
        ) from e
    if len(missing) == 1:
        raise ConfigurationError(
            f"--cert-dir {directory}: has no {missing[0].name}: certificate and key must be supplied as "
            "a pair: add it, or remove the other file, and the proxy makes new ones"
        )
    return not missing


def make_pair(directory: Path, host: str, now: float) -> None:
    """Make a certificate for *host* and its private key unless both files exist.

    The certificate file ends with the CA, whose key is not kept.

    :param now: s since the epoch.
    :raise ConfigurationError: only one of the files exists, or a file cannot be written.
    """
    if has_pair(directory):
        return
    certificate, key = pair_in(directory)
    try:
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{host}-ca@{int(now)}")])
        authority = self_signed(subject, LIFETIME, now)
        issued = authority.server_certificate([host], LIFETIME, now)
        for path, content, mode in (
            (key, issued.key_pem, 0o600),
            (certificate, issued.certificate_pem + authority.pem, 0o644),
        ):
            with draft_of(path) as draft:
                draft.write(content, mode)
                draft.put()
    except OSError as e:
        raise ConfigurationError(
            f"--cert-dir {directory}: cannot write the certificate ({str(e.strerror).lower()}): name a "
            "directory that this user may write, or give --tls-cert-file and --tls-private-key-file"
        ) from e

"""Loading of Tower's CAs: created in the state directory, or given by ``--ca-cert`` and ``--ca-key``."""

from __future__ import annotations

import secrets
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509.oid import NameOID

from tower.errors import ConfigurationError
from tower.net.tls.published_authorities import refuse_published
from tower.trust.pki import Authority, SigningKey, load_certificates, moment, pem_of_key, self_signed
from tower.trust.statedir import StateDir

#: Lifetime of a created CA, s.
LIFETIME = 10 * 365 * 86400.0

#: Suffix of the name of a CA that will replace another one.
NEXT = ".next"

#: Shortest RSA key that is accepted, bits.
_RSA_BITS = 2048

#: Largest certificate or key file that is read, B.
_FILE_LIMIT = 1 << 20


def own_authority(state: StateDir, name: str, now: float) -> Authority:
    """Return the CA in ``<name>.pem`` of the state directory; create it if the file is missing.

    Key and certificate are in one file, so a crash never leaves one without the other.

    :param now: s since the epoch.
    :raise ConfigurationError: the file holds no usable CA; the text names the cure.
    """
    file = f"{name}.pem"
    data = state.read(file)
    if data is None:
        authority = new_authority(name, now)
        state.write(file, file_content(authority))
        return authority
    path = str(state.path / file)
    try:
        return _checked(path, data, path, data, now, "move the file away")
    except ConfigurationError as e:
        raise ConfigurationError(
            f"{e} (without this file Tower creates a new CA, and all kubeconfigs and joins must be renewed)"
        ) from e


def new_authority(name: str, now: float) -> Authority:
    """Return a new CA for the file ``<name>.pem``; *now*: s since the epoch."""
    # A unique name, so that clients that trust several CAs can distinguish them.
    common_name = f"tower {name.removesuffix(NEXT)} {secrets.token_hex(4)}"
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    return self_signed(subject, LIFETIME, now)


def file_content(authority: Authority) -> bytes:
    """Return the content of the file of a CA in the state directory.  Secret."""
    return pem_of_key(authority.key) + authority.pem


def given_authority(certificate_file: Path, key_file: Path, now: float) -> Authority:
    """Return the CA of ``--ca-cert`` and ``--ca-key``; its issuers' certificates may follow the first.

    :param now: s since the epoch.
    :raise ConfigurationError: with the option, the file and the cure.
    """
    certificate = _read("--ca-cert", certificate_file)
    key = _read("--ca-key", key_file)
    cure = "omit --ca-cert and --ca-key, and Tower creates its own CA"
    return _checked(f"--ca-cert {certificate_file}", certificate, f"--ca-key {key_file}", key, now, cure)


def _read(flag: str, path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(_FILE_LIMIT + 1)
    except OSError as e:
        raise ConfigurationError(f"{flag} {path}: {e.strerror}") from e
    if len(data) > _FILE_LIMIT:
        raise ConfigurationError(f"{flag} {path}: not a PEM file: larger than {_FILE_LIMIT} B")
    return data


def _checked(
    certificate_source: str, certificate: bytes, key_source: str, key: bytes, now: float, cure: str
) -> Authority:
    """:param cure: for a CA whose private key is published."""
    refuse_published(certificate_source, certificate, cure)
    certificates = _certificates(certificate_source, certificate, now)
    signing = _signing_key(key_source, key)
    if signing.public_key() != certificates[0].public_key():
        raise ConfigurationError(
            f"{key_source}: not the key of the certificate in {certificate_source}: set a matching pair"
        )
    return Authority(certificates, signing)


def _certificates(source: str, data: bytes, now: float) -> tuple[x509.Certificate, ...]:
    try:
        certificates = load_certificates(data)
    except ValueError as e:
        raise ConfigurationError(f"{source}: no certificate in PEM format") from e
    signer = certificates[0]
    try:
        is_authority = signer.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (x509.ExtensionNotFound, ValueError):
        is_authority = False
    if not is_authority or not _may_sign(signer):
        raise ConfigurationError(
            f"{source}: the first certificate is not a CA certificate (CA:TRUE, keyCertSign)"
        )
    if moment(now) >= signer.not_valid_after_utc:
        raise ConfigurationError(f"{source}: expired on {signer.not_valid_after_utc:%Y-%m-%d}: renew it")
    if moment(now) < signer.not_valid_before_utc:
        raise ConfigurationError(
            f"{source}: not valid before {signer.not_valid_before_utc:%Y-%m-%d %H:%M} UTC: "
            "check the clock of this machine"
        )
    return certificates


def _may_sign(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign
    except x509.ExtensionNotFound:
        return True


def _signing_key(source: str, data: bytes) -> SigningKey:
    try:
        key = load_pem_private_key(data, None)
    except TypeError as e:
        raise ConfigurationError(
            f"{source}: the key is encrypted: store it without a passphrase, mode 0600"
        ) from e
    except (ValueError, UnsupportedAlgorithm) as e:
        raise ConfigurationError(f"{source}: no private key in PEM format") from e
    if isinstance(key, ec.EllipticCurvePrivateKey):
        return key
    if isinstance(key, rsa.RSAPrivateKey) and key.key_size >= _RSA_BITS:
        return key
    raise ConfigurationError(
        f"{source}: unsupported key: must be RSA of at least {_RSA_BITS} bits, or an elliptic curve key"
    )

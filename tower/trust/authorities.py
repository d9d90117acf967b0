"""Where authorities come from: born in the state directory, or given by ``--ca-cert`` and ``--ca-key``."""

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

#: How long an authority lives that is born here, s.
LIFETIME = 10 * 365 * 86400.0

#: Shortest RSA key that is accepted, bits.
_RSA_BITS = 2048

#: Largest certificate or key file that is read, B.
_FILE_LIMIT = 1 << 20


def own_authority(state: StateDir, name: str, now: float) -> Authority:
    """Return the authority kept in the state directory as ``<name>.pem``, born there when there is none.

    Key and certificate are one file, so that no crash can leave one without the other.

    :param now: s since the epoch.
    :raise ConfigurationError: the file holds no usable authority; says how to get a new one.
    """
    kept = f"{name}.pem"
    data = state.read(kept)
    if data is None:
        # A name of its own, so that clients which trust several authorities can tell them apart.
        words = f"tower {name} {secrets.token_hex(4)}"
        authority = self_signed(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, words)]), LIFETIME, now)
        state.write(kept, pem_of_key(authority.key) + authority.pem)
        return authority
    where = str(state.path / kept)
    try:
        return _checked(where, data, where, data, now, "move the file away")
    except ConfigurationError as e:
        raise ConfigurationError(
            f"{e} (without that file a new authority is made, and all kubeconfigs and joins need renewing)"
        ) from e


def given_authority(certificate_file: Path, key_file: Path, now: float) -> Authority:
    """Return the authority of ``--ca-cert`` and ``--ca-key``; certificates above it may follow the first.

    :param now: s since the epoch.
    :raise ConfigurationError: naming the option, the file and the cure.
    """
    certificate = _read("--ca-cert", certificate_file)
    key = _read("--ca-key", key_file)
    cure = "leave --ca-cert and --ca-key out, and Tower makes an authority of its own"
    return _checked(f"--ca-cert {certificate_file}", certificate, f"--ca-key {key_file}", key, now, cure)


def _read(flag: str, path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(_FILE_LIMIT + 1)
    except OSError as e:
        raise ConfigurationError(f"{flag} {path}: {e.strerror}") from e
    if len(data) > _FILE_LIMIT:
        raise ConfigurationError(f"{flag} {path}: larger than {_FILE_LIMIT} B, so not a PEM file")
    return data


def _checked(
    certificate_place: str, certificate: bytes, key_place: str, key: bytes, now: float, cure: str
) -> Authority:
    """:param cure: what to do about an authority whose private key is public."""
    refuse_published(certificate_place, certificate, cure)
    certificates = _certificates(certificate_place, certificate, now)
    signing = _signing_key(key_place, key)
    if signing.public_key() != certificates[0].public_key():
        raise ConfigurationError(
            f"{key_place}: not the key of the certificate in {certificate_place}: "
            "give the pair that belongs together"
        )
    return Authority(certificates, signing)


def _certificates(place: str, data: bytes, now: float) -> tuple[x509.Certificate, ...]:
    try:
        certificates = load_certificates(data)
    except ValueError as e:
        raise ConfigurationError(f"{place}: no certificate in PEM format") from e
    signer = certificates[0]
    try:
        is_authority = signer.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (x509.ExtensionNotFound, ValueError):
        is_authority = False
    if not is_authority or not _may_sign(signer):
        raise ConfigurationError(
            f"{place}: the first certificate is not that of an authority (CA:TRUE, keyCertSign)"
        )
    if moment(now) >= signer.not_valid_after_utc:
        raise ConfigurationError(f"{place}: ended on {signer.not_valid_after_utc:%Y-%m-%d}: renew it")
    if moment(now) < signer.not_valid_before_utc:
        raise ConfigurationError(
            f"{place}: valid only from {signer.not_valid_before_utc:%Y-%m-%d %H:%M} UTC: "
            "is the clock of this machine right?"
        )
    return certificates


def _may_sign(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign
    except x509.ExtensionNotFound:
        return True


def _signing_key(place: str, data: bytes) -> SigningKey:
    try:
        key = load_pem_private_key(data, None)
    except TypeError as e:
        raise ConfigurationError(
            f"{place}: the key is encrypted: give it without a passphrase, mode 0600"
        ) from e
    except (ValueError, UnsupportedAlgorithm) as e:
        raise ConfigurationError(f"{place}: no private key in PEM format") from e
    if isinstance(key, ec.EllipticCurvePrivateKey):
        return key
    if isinstance(key, rsa.RSAPrivateKey) and key.key_size >= _RSA_BITS:
        return key
    raise ConfigurationError(
        f"{place}: only RSA keys from {_RSA_BITS} bits on and elliptic curve keys are accepted"
    )

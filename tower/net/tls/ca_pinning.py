"""Verification of the proxy's TLS by an agent: by the hash of its CA, a CA file, or the system's CAs.

If only the hash of the CA is known, a first handshake reads the server's certificate
chain and sends nothing.  The CA in the chain that has the hash becomes the only CA of a strict context.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from OpenSSL import SSL
from twisted.internet.abstract import isIPAddress, isIPv6Address
from twisted.internet.defer import Deferred

from tower.errors import ConfigurationError, TowerError
from tower.net.pipes import Pipe
from tower.net.tls.published_authorities import REASON, is_published, refuse_published, trust_system

#: Cure for a proxy's CA whose private key is public.
NEW_CA = "give the proxy another CA, and the agent the new one's join line"

#: Largest file of `--ca-cert`, B.
_FILE_LIMIT = 4 << 20


class NotThePinnedCA(TowerError):
    """The server sent no CA with one of the given hashes."""

    permanent = True


class ChainUnknown(TowerError):
    """The handshake failed before the server's certificates."""


def parse_ca_hash(text: str) -> str:
    """Read one `--ca-hash`.

    :raise ConfigurationError: with the value and the expected form.
    """
    kind, _, digest = text.strip().lower().partition(":")
    if kind != "sha256" or re.fullmatch(r"[0-9a-f]{64}", digest) is None:
        raise ConfigurationError(
            f"--ca-hash {text!r} is not sha256: and 64 hex digits: take it from the output of 'tower join'"
        )
    return f"{kind}:{digest}"


def strict_context(ca_file: str | None = None) -> ssl.SSLContext:
    """Return a context that verifies chain and host name, with the CAs of *ca_file* or the system's.

    :raise ConfigurationError: the file is unreadable, has no certificate, or a CA whose key is public.
    """
    context = _context()
    if ca_file is None:
        trust_system(context)
        return context
    try:
        with Path(ca_file).open("rb") as file:
            data = file.read(_FILE_LIMIT + 1)
        if len(data) > _FILE_LIMIT:
            raise ConfigurationError(f"--ca-cert {ca_file}: larger than {_FILE_LIMIT} B, so not a PEM file")
        refuse_published(f"--ca-cert {ca_file}", data, NEW_CA)
        context.load_verify_locations(cafile=ca_file)
    except ssl.SSLError as e:
        raise ConfigurationError(f"--ca-cert {ca_file}: the file has no PEM certificate") from e
    except OSError as e:
        raise ConfigurationError(f"--ca-cert {ca_file}: {e.strerror}") from e
    return context


def pinned_context(authority: x509.Certificate) -> ssl.SSLContext:
    """Return a context that trusts only *authority*, which need not be a root."""
    context = _context()
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata=authority.public_bytes(Encoding.DER))
    return context


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


def key_hash(certificate: x509.Certificate) -> str:
    """Return `sha256:` and the hash of the certificate's public key (its DER SubjectPublicKeyInfo)."""
    key = certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return f"sha256:{sha256(key).hexdigest()}"


def find_authority(chain: Sequence[x509.Certificate], hashes: Sequence[str]) -> x509.Certificate:
    """Return the CA in *chain* that has one of *hashes*.

    :raise NotThePinnedCA: no CA has, or the private key of one in *chain* is public.
    """
    keys = [key_hash(certificate) for certificate in chain]
    for key in filter(is_published, keys):
        raise NotThePinnedCA(f"the proxy's CA has the hash {key}: {REASON}: {NEW_CA}")
    for certificate, key in zip(chain, keys, strict=True):
        if key in hashes and _is_authority(certificate):
            return certificate
    found = (key for each, key in zip(chain, keys, strict=True) if _is_authority(each))
    shown = ", ".join(found) or "none"
    raise NotThePinnedCA(
        f"no CA of the proxy has the hash in --ca-hash; its CAs have {shown}; "
        "if its CA was changed on purpose, take the hash from a new join line"
    )


def _is_authority(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (x509.ExtensionNotFound, ValueError):
        return False


class ChainReader:
    """A receiver that runs a TLS client's handshake, without verification, to read the server's chain.

    Uses pyOpenSSL: Python's module returns the chain only from 3.13 on.

    :ivar chain: fires with the certificates, the server's own first, or fails with `ChainUnknown`.
    """

    def __init__(self, pipe: Pipe, host: str) -> None:
        self._pipe = pipe
        self._tls = SSL.Connection(SSL.Context(SSL.TLS_CLIENT_METHOD), None)
        if not (isIPAddress(host) or isIPv6Address(host)):
            self._tls.set_tlsext_host_name(host.encode("ascii"))
        self._tls.set_connect_state()
        self._settled = False
        self.chain: Deferred[list[x509.Certificate]] = Deferred(lambda _: pipe.abort())

    def start(self) -> None:
        """Start the handshake."""
        self._pipe.receiver = self
        self._handshake()
        self._pipe.resume()

    def received(self, data: memoryview) -> None:
        """Continue the handshake."""
        self._tls.bio_write(bytes(data))
        self._handshake()

    def ended(self) -> None:
        """Fail."""
        self._fail("the connection was cut during the TLS handshake")

    def drained(self) -> None:
        """No-op: a handshake is small."""

    def closed(self, reason: Exception) -> None:
        """Fail."""
        self._fail(str(reason))

    def _handshake(self) -> None:
        try:
            self._tls.do_handshake()
            chain = self._tls.get_peer_cert_chain(as_cryptography=True)
        except SSL.WantReadError:
            self._flush()
        except (SSL.Error, ValueError) as e:
            self._fail(f"the TLS handshake failed: {_reason(e)}")
        else:
            if not self._settled:
                self._settled = True
                self.chain.callback(list(chain or ()))
                self._pipe.abort()

    def _flush(self) -> None:
        try:
            self._pipe.send(self._tls.bio_read(1 << 16))
        except SSL.WantReadError:
            pass  # nothing to send

    def _fail(self, text: str) -> None:
        if not self._settled:
            self._settled = True
            self.chain.errback(ChainUnknown(text))
            self._pipe.abort()


def _reason(error: Exception) -> str:
    """Return OpenSSL's text, without its file names and numbers."""
    details: Any = error.args[0] if error.args else ""
    return str(details[0][-1]) if isinstance(details, list) and details else str(error) or "no reason given"

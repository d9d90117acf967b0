"""The certificate of ``--tls-cert-file``: its files, its name, and its CA."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from attrs import define, frozen
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.serialization import Encoding

from tower.control.front_door.followed_pair import FollowedPair
from tower.trust.named_certificates import NamedCertificate, PairFiles, names_of, wildcard_of
from tower.trust.pair_problem import pair_problem
from tower.trust.pki import load_certificates, public_key_hash
from tower.trust.rotating_authority import RotatingAuthority

OPTION, _KEY_OPTION = "tls-cert-file", "tls-private-key-file"
CURE = "give a certificate and its unencrypted private key, in PEM format"


@frozen
class PublicPair:
    """A certificate (PEM) with its CAs, its key, the host names in it, and the name that users connect to."""

    certificate: bytes
    key: bytes
    names: tuple[str, ...]
    host: str
    chain: tuple[x509.Certificate, ...]


@define(eq=False)
class PublicCertificate:
    """The certificate for the host name that users connect to.

    If agents connect to that name, too, it is shown there once they, and the users' kubeconfigs, know its CA.
    Until then Tower's own is shown, which all of them trust.

    :param pair: follows the files.
    :param agents: the CA of the front door, which agents and kubeconfigs get together with that of this
        certificate; None: agents connect to another name.
    :ivar accepted: hash of the CA that agents and kubeconfigs know.
    """

    pair: FollowedPair[PublicPair]
    _agents: RotatingAuthority | None = None
    accepted: str = ""

    @classmethod
    def of(
        cls, files: PairFiles, agents: RotatingAuthority | None = None, accepted: str = ""
    ) -> PublicCertificate:
        """Read the files.

        :raise ConfigurationError: one cannot be used, or lacks the name.
        """
        return cls(public_pair(files, for_agents=agents is not None), agents, accepted)

    @property
    def not_after(self) -> float:
        """Expiry of the certificate in use, s since the epoch."""
        return self.pair.value.chain[0].not_valid_after_utc.timestamp()

    @property
    def pending(self) -> str:
        """Hash of the CA that agents and kubeconfigs have to know first; empty: there is none."""
        found = "" if self._agents is None else _hash(self._root)
        return "" if found == self.accepted else found

    def named(self) -> list[NamedCertificate]:
        """Return the certificate for its names."""
        pair = self.pair.value
        found = [NamedCertificate(pair.certificate, pair.key, pair.names, is_explicit=False)]
        if self._agents is None or _hash(self._root) == self.accepted:
            found.insert(0, NamedCertificate(pair.certificate, pair.key, (pair.host,), is_explicit=True))
        return found

    def used(self) -> None:
        """Give agents and kubeconfigs the CA of the certificate from now on."""
        if self._agents is not None:
            self._agents.also = (self._root,)

    def kubeconfig_authority(self, own: bytes) -> bytes:
        """Return the CAs (PEM) for kubeconfigs; empty: those of the users' systems.

        :param own: those of the front door for agents.
        """
        if self._agents is not None:
            return own
        return own + self._root.public_bytes(Encoding.PEM) if _is_root(self._root) else b""

    @property
    def _root(self) -> x509.Certificate:
        return self.pair.value.chain[-1]


def public_pair(files: PairFiles, *, for_agents: bool) -> FollowedPair[PublicPair]:
    """Return the certificate of ``--tls-cert-file``, which follows its files.

    :param for_agents: whether agents connect to its name.
    :raise ConfigurationError: it cannot be used, or lacks the name.
    """
    (host,) = files.names

    def parse(certificate: bytes, key: bytes) -> PublicPair:
        problem = pair_problem(certificate, key)
        if problem:
            raise ValueError(f"{problem}: {CURE}")
        names = names_of(certificate)
        if not {host, wildcard_of(host)} & set(names):
            option = "publish-service-address" if for_agents else "external-hostname"
            raise ValueError(
                f"is for {', '.join(names) or 'no host name'}, not for --{option} {host}: "
                f"give a certificate for that name, or change --{option}"
            )
        chain = tuple(load_certificates(certificate))
        if for_agents:
            _check_chain(chain)
        return PublicPair(certificate, key, names, host, chain)

    return FollowedPair(OPTION, f"--{OPTION} {files.certificate}", files, parse, _KEY_OPTION)


def _hash(certificate: x509.Certificate) -> str:
    return f"sha256:{public_key_hash(certificate)}"


def _is_root(certificate: x509.Certificate) -> bool:
    return certificate.subject == certificate.issuer


def _check_chain(chain: Sequence[x509.Certificate]) -> None:
    """Check that agents find the CA in the file, and that it has issued the certificate."""
    if not (_is_root(chain[-1]) and _is_authority(chain[-1])):
        raise ValueError(
            "has no root CA at its end, which agents and kubeconfigs need: append the CA's "
            "certificate, or give users a name of their own by --external-hostname"
        )
    for each, issuer in pairwise(chain):
        try:
            each.verify_directly_issued_by(issuer)
        except (ValueError, TypeError, InvalidSignature):
            raise ValueError(
                f"{issuer.subject.rfc4514_string()} has not issued the certificate before it: put "
                "the certificate first, then its CAs in order, the root CA last"
            ) from None


def _is_authority(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (x509.ExtensionNotFound, ValueError):
        return False

"""The certificate of ``--tls-cert-file``: its files, its name, and its CA."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from attrs import define, field
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.serialization import Encoding

from tower.errors import ConfigurationError
from tower.options.followed_file import FollowedFile
from tower.trust.named_certificates import NamedCertificate, PairFiles, names_of, wildcard_of
from tower.trust.pair_problem import pair_problem
from tower.trust.pki import load_certificates, public_key_hash
from tower.trust.rotating_authority import RotatingAuthority

OPTION, _KEY_OPTION = "tls-cert-file", "tls-private-key-file"
CURE = "give a certificate and its unencrypted private key, in PEM format"


@define(eq=False)
class PublicCertificate:
    """The certificate for the host name that users connect to.

    If agents connect to that name, too, it is shown there once they, and the users' kubeconfigs, know its CA.
    Until then Tower's own is shown, which all of them trust.

    :param agents: the CA of the front door, which agents and kubeconfigs get together with that of this
        certificate; None: agents connect to another name.
    :ivar accepted: hash of the CA that agents and kubeconfigs know.
    """

    _pair: PairFiles
    certificate: FollowedFile[bytes]
    key: FollowedFile[bytes]
    _agents: RotatingAuthority | None = None
    accepted: str = ""
    _used: tuple[x509.Certificate, ...] = field(default=(), init=False)

    @classmethod
    def of(
        cls, pair: PairFiles, agents: RotatingAuthority | None = None, accepted: str = ""
    ) -> PublicCertificate:
        """Read the files.

        :raise ConfigurationError: one cannot be read.
        """
        return cls(
            pair, followed(OPTION, pair.certificate), followed(_KEY_OPTION, pair.key), agents, accepted
        )

    @classmethod
    def check(cls, pair: PairFiles, *, for_agents: bool) -> None:
        """Check the files.

        :raise ConfigurationError: one cannot be used, or lacks the name.
        """
        cls.of(pair).checked(for_agents=for_agents)

    @property
    def files(self) -> tuple[FollowedFile[bytes], FollowedFile[bytes]]:
        """Both files."""
        return self.certificate, self.key

    @property
    def not_after(self) -> float:
        """Expiry of the certificate in use, s since the epoch."""
        return self._used[0].not_valid_after_utc.timestamp()

    @property
    def pending(self) -> str:
        """Hash of the CA that agents and kubeconfigs have to know first; empty: there is none."""
        found = "" if self._agents is None or not self._used else _hash(self._used[-1])
        return "" if found == self.accepted else found

    def named(self) -> list[NamedCertificate]:
        """Return the certificate for its names.

        :raise ConfigurationError: it cannot be used, or lacks the name.
        """
        names, chain = self.checked(for_agents=self._agents is not None)
        content = self.certificate.value, self.key.value
        found = [NamedCertificate(*content, names, is_explicit=False)]
        if self._agents is None or _hash(chain[-1]) == self.accepted:
            found.insert(0, NamedCertificate(*content, self._pair.names, is_explicit=True))
        return found

    def used(self) -> None:
        """Use the content that was checked: agents and kubeconfigs get its CA from now on."""
        self._used = tuple(load_certificates(self.certificate.value))
        if self._agents is not None:
            self._agents.also = self._used[-1:]

    def kubeconfig_authority(self, own: bytes) -> bytes:
        """Return the CAs (PEM) for kubeconfigs; empty: those of the users' systems.

        :param own: those of the front door for agents.
        """
        last = self._used[-1]
        if self._agents is not None:
            return own
        return own + last.public_bytes(Encoding.PEM) if _is_root(last) else b""

    def checked(self, *, for_agents: bool) -> tuple[tuple[str, ...], Sequence[x509.Certificate]]:
        """Return the names and the chain of the certificate in the files; for errors see `named`."""
        where = f"--{OPTION} {self._pair.certificate}"
        problem = pair_problem(self.certificate.value, self.key.value)
        if problem:
            raise ConfigurationError(f"{where}: {problem}: {CURE}")
        names = names_of(self.certificate.value)
        (host,) = self._pair.names
        if not {host, wildcard_of(host)} & set(names):
            option = "publish-service-address" if for_agents else "external-hostname"
            raise ConfigurationError(
                f"{where}: is for {', '.join(names) or 'no host name'}, not for --{option} {host}: "
                f"give a certificate for that name, or change --{option}"
            )
        chain = load_certificates(self.certificate.value)
        if for_agents:
            _check_chain(where, chain)
        return names, chain


def followed(option: str, path: Path) -> FollowedFile[bytes]:
    """Return the file of *option*."""
    return FollowedFile(option, path, bytes)


def _hash(certificate: x509.Certificate) -> str:
    return f"sha256:{public_key_hash(certificate)}"


def _is_root(certificate: x509.Certificate) -> bool:
    return certificate.subject == certificate.issuer


def _check_chain(where: str, chain: Sequence[x509.Certificate]) -> None:
    """Check that agents find the CA in the file, and that it has issued the certificate."""
    if not (_is_root(chain[-1]) and _is_authority(chain[-1])):
        raise ConfigurationError(
            f"{where}: has no root CA at its end, which agents and kubeconfigs need: append the CA's "
            "certificate, or give users a name of their own by --external-hostname"
        )
    for each, issuer in pairwise(chain):
        try:
            each.verify_directly_issued_by(issuer)
        except (ValueError, TypeError, InvalidSignature):
            raise ConfigurationError(
                f"{where}: {issuer.subject.rfc4514_string()} has not issued the certificate before it: put "
                "the certificate first, then its CAs in order, the root CA last"
            ) from None


def _is_authority(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (x509.ExtensionNotFound, ValueError):
        return False

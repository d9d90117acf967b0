"""Certificates of ``--tls-cert-file`` and ``--tls-sni-cert-key``: their files, and their names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import define

from tower.control.front_door.public_certificate import CURE, OPTION, PublicCertificate, followed
from tower.errors import ConfigurationError
from tower.options.followed_file import FollowedFile
from tower.reactor.signals import Reloads
from tower.trust.named_certificates import NamedCertificate, PairFiles, is_covered, names_of
from tower.trust.pair_problem import pair_problem
from tower.trust.serving_certificate import ServingCertificate

_OPTION = "tls-sni-cert-key"


@define(eq=False)
class NamedServing:
    """The certificates that *serving* shows to clients that request their names.

    :param reserved: names of the proxy that agents and kubeconfigs verify by Tower's CA.
    :param public: that of ``--tls-cert-file``; None: there is none.
    """

    _serving: ServingCertificate
    _pairs: Sequence[PairFiles]
    _reserved: Sequence[str]
    _files: Sequence[tuple[FollowedFile[bytes], FollowedFile[bytes]]]
    _public: PublicCertificate | None

    @classmethod
    def of(
        cls,
        pairs: Sequence[PairFiles],
        serving: ServingCertificate,
        reserved: Sequence[str],
        reloads: Reloads,
        public: PublicCertificate | None = None,
    ) -> NamedServing:
        """Load the files.

        :raise ConfigurationError: one cannot be used, or has a reserved name.
        """
        files = [(followed(_OPTION, each.certificate), followed(_OPTION, each.key)) for each in pairs]
        self = cls(serving, pairs, reserved, files, public)
        for number, each in enumerate((file for pair in files for file in pair), 1):
            reloads.add(f"{_OPTION} {number}", each.reload)
        for file in () if self._public is None else self._public.files:
            reloads.add(file.option, file.reload)
        for file in self._all:
            file.on_change = self._use
        if self._all:
            self._use()
        return self

    def kubeconfig_authority(self, own: bytes) -> bytes:
        """Return the CAs (PEM) that verify the front door for users; empty: those of their systems.

        :param own: Tower's CA.
        """
        return own if self._public is None else self._public.kubeconfig_authority(own)

    @property
    def accepted(self) -> str:
        """See `tower.rotation.tls_cert_file.GivenCertificate`."""
        return "" if self._public is None else self._public.accepted

    @property
    def pending(self) -> str:
        """See `tower.rotation.tls_cert_file.GivenCertificate`."""
        return "" if self._public is None else self._public.pending

    def accept(self, authority: str) -> None:
        """See `tower.rotation.tls_cert_file.GivenCertificate`."""
        if self._public is None:
            return
        before, self._public.accepted = self._public.accepted, authority
        try:
            self._use()
        except ConfigurationError:
            self._public.accepted = before
            raise

    @property
    def expiries(self) -> Mapping[str, float]:
        """Expiry of the certificate of ``--tls-cert-file``, by that name, s since the epoch."""
        return {} if self._public is None else {OPTION: self._public.not_after}

    def check_files(self) -> None:
        """Use changed files; call this every `tower.options.followed_file.PERIOD` s."""
        for file in self._all:
            file.check()

    @property
    def _all(self) -> list[FollowedFile[bytes]]:
        return [
            *(file for pair in self._files for file in pair),
            *(() if self._public is None else self._public.files),
        ]

    def _use(self) -> None:
        found = [] if self._public is None else self._public.named()
        for pair, (certificate, key) in zip(self._pairs, self._files, strict=True):
            found.append(named_pair(pair, certificate.value, key.value, self._reserved))
        try:
            self._serving.show_for_names(found, self._reserved)
        except ValueError as e:
            option = _OPTION if self._public is None else f"{OPTION} or --{_OPTION}"
            raise ConfigurationError(f"--{option}: {e}") from None
        if self._public is not None:
            self._public.used()


def named_pair(pair: PairFiles, certificate: bytes, key: bytes, reserved: Sequence[str]) -> NamedCertificate:
    """Return the certificate of a ``--tls-sni-cert-key``, from the contents of its files.

    :raise ConfigurationError: it cannot be used, or has a reserved name.
    """
    where = f"--{_OPTION} {pair.certificate},{pair.key}"
    for name in pair.names:
        if is_covered(name, reserved):
            raise ConfigurationError(
                f"{where}: the name {name} is that of --publish-service-address or --host, where "
                "agents and kubeconfigs require a certificate whose CA they know: use another name, or "
                "--tls-cert-file"
            )
    problem = pair_problem(certificate, key)
    if problem:
        raise ConfigurationError(f"{where}: failed to load SNI cert and key: {problem}: {CURE}")
    return NamedCertificate(certificate, key, pair.names or names_of(certificate), bool(pair.names))

"""Certificates of ``--tls-cert-file`` and ``--tls-sni-cert-key``: their files, and their names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import define
from twisted.logger import Logger

from tower.control.front_door.followed_pair import FollowedPair
from tower.control.front_door.public_certificate import CURE, OPTION, PublicCertificate
from tower.errors import ConfigurationError
from tower.net.tls.validity import validity_problem
from tower.options.followed_file import Followed
from tower.reactor.signals import Reloads
from tower.trust.named_certificates import NamedCertificate, PairFiles, is_covered, names_of
from tower.trust.pair_problem import pair_problem
from tower.trust.pki import load_certificates
from tower.trust.serving_certificate import ServingCertificate

_OPTION = "tls-sni-cert-key"


@define(eq=False)
class NamedServing:
    """The certificates that *serving* shows to clients that request their names.

    Each pair is followed for itself: while one cannot be used, its last certificate stays in use.

    :param reserved: names of the proxy that agents and kubeconfigs verify by Tower's CA.
    :param public: that of ``--tls-cert-file``; None: there is none.
    """

    _log = Logger()

    _serving: ServingCertificate
    _reserved: Sequence[str]
    _pairs: Sequence[FollowedPair[NamedCertificate]]
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
        self = cls(serving, reserved, [named_pair(each, reserved) for each in pairs], public)
        for number, each in enumerate(self._pairs, 1):
            reloads.add(f"{_OPTION} {number}", each.reload)
        if public is not None:
            reloads.add(OPTION, public.pair.reload)
        for pair in self.files:
            pair.on_change = self._use
        if self.files:
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
        """Expiry of each certificate by the name of its option, s since the epoch; pairs are numbered."""
        found = {} if self._public is None else {OPTION: self._public.not_after}
        for number, each in enumerate(self._pairs, 1):
            first = load_certificates(each.value.certificate)[0]
            found[f"{_OPTION} {number}"] = first.not_valid_after_utc.timestamp()
        return found

    def check_files(self) -> None:
        """Use changed files; call this every `tower.options.followed_file.PERIOD` s."""
        for pair in self.files:
            pair.check()

    @property
    def files(self) -> Sequence[Followed[tuple[bytes, bytes], Any]]:
        """The pairs of a certificate and its key."""
        return [*self._pairs, *(() if self._public is None else (self._public.pair,))]

    def _use(self) -> None:
        found = [] if self._public is None else self._public.named()
        found += [each.value for each in self._pairs]
        try:
            self._serving.show_for_names(found, self._reserved)
        except ValueError as e:
            option = _OPTION if self._public is None else f"{OPTION} or --{_OPTION}"
            raise ConfigurationError(f"--{option}: {e}") from None
        if self._public is not None:
            self._public.used()
        self._warn()

    def _warn(self) -> None:
        """Log which certificates are not valid now: clients reject them."""
        for pair in self.files:
            first = load_certificates(pair.value.certificate)[0]
            if problem := validity_problem([first], self._serving.now):
                self._log.warn(
                    "{name}: {problem}; until then, clients reject it", name=pair.name, problem=problem
                )


def named_pair(files: PairFiles, reserved: Sequence[str]) -> FollowedPair[NamedCertificate]:
    """Return the certificate of a ``--tls-sni-cert-key``, which follows its files.

    :raise ConfigurationError: it cannot be used, or has a reserved name.
    """

    def parse(certificate: bytes, key: bytes) -> NamedCertificate:
        problem = pair_problem(certificate, key)
        if problem:
            raise ValueError(f"failed to load SNI cert and key: {problem}: {CURE}")
        return NamedCertificate(certificate, key, files.names or names_of(certificate), bool(files.names))

    where = f"--{_OPTION} {files.certificate},{files.key}"
    for name in files.names:
        if is_covered(name, reserved):
            raise ConfigurationError(
                f"{where}: the name {name} is that of --publish-service-address or --host, where "
                "agents and kubeconfigs require a certificate whose CA they know: use another name, or "
                "--tls-cert-file"
            )
    return FollowedPair(_OPTION, where, files, parse)

"""Options of ``tower-proxy`` for TLS of the front door and clusters' ports, with kube-apiserver's names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from typing import ClassVar, Self

from twisted.python import usage

from tower.control.front_door.authentication_options import AuthenticationOptions
from tower.net.tls.cipher_suites import ServerSettings, read_suites, read_version
from tower.options.errors import OptionError
from tower.options.parameters import Parameter, list_parameter, parameter
from tower.options.values import read_ip_address, read_path, read_public_host, unless_empty
from tower.trust.certificate_directory import pair_in
from tower.trust.named_certificates import PairFiles, read_pair

#: Default of --tls-min-version.
_VERSION = "VersionTLS12"


class ServingOptions(AuthenticationOptions):
    """Options of TLS."""

    optParameters: ClassVar[Sequence[Parameter]] = [
        parameter(
            "advertise-address",
            None,
            "IP address that users and agents connect to, if --publish-service-address is not set.  "
            "[default: --host; if that is a wildcard, the address of the default route's interface]",
            unless_empty(read_ip_address),
        ),
        parameter(
            "external-hostname",
            None,
            "Host name for users: in kubeconfigs and the URLs of clusters.  "
            "[default: --publish-service-address]",
            unless_empty(read_public_host),
        ),
        parameter(
            "tls-cert-file",
            None,
            "Certificate file for the host name of users, and of agents if it is the same; its root CA "
            "comes last.  "
            "[default: a certificate of Tower's CA]",
            read_path,
        ),
        parameter("tls-private-key-file", None, "Private key file of --tls-cert-file.", read_path),
        parameter(
            "cert-dir",
            None,
            "Directory of tower-proxy.crt and tower-proxy.key, used as --tls-cert-file and its key if these "
            "are not set.  The proxy makes a self-signed pair if there is none.",
            read_path,
        ),
        parameter(
            "tls-min-version",
            _VERSION,
            "Minimum version of TLS: VersionTLS12 or VersionTLS13.",
            unless_empty(read_version, read_version(_VERSION)),
        ),
        list_parameter(
            "tls-cipher-suites",
            None,
            "Comma-separated cipher suites for TLS 1.2, by kube-apiserver's names.  [default: OpenSSL's]",
            unless_empty(read_suites),
        ),
    ]

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        super().__init__(environ)
        self.named_pairs: list[PairFiles] = []
        self.makes_pair = False  # in --cert-dir

    def opt_tls_sni_cert_key(self, text: str) -> None:
        """Certificate and key files for other host names, as CERTIFICATE,KEY:NAME,NAME.  Repeatable."""
        self.check(self._add_pair, text)

    def _add_pair(self, text: str) -> None:
        try:
            self.named_pairs.append(read_pair(text))
        except ValueError as e:
            raise OptionError("tls-sni-cert-key", text, str(e)) from None

    def complete(self) -> Self:
        """See `EnvironmentOptions.complete`."""
        super().complete()
        has_files = self["tls-cert-file"] is not None or self["tls-private-key-file"] is not None
        if self["cert-dir"] is not None and not has_files:
            self.makes_pair = True
            self["tls-cert-file"], self["tls-private-key-file"] = pair_in(self["cert-dir"])
        return self

    def check_rules(self) -> None:
        """See `EnvironmentOptions.check_rules`."""
        super().check_rules()
        self.check(self._check_certificate)

    def _check_certificate(self) -> None:
        certificate = self["tls-cert-file"]
        if (certificate is None) != (self["tls-private-key-file"] is None):
            raise usage.UsageError(
                "missing filename for serving cert: give both --tls-cert-file and --tls-private-key-file, or "
                "neither"
            )
        if certificate is None:
            return
        if not self.certificate_host:
            option = "cert-dir" if self.makes_pair else "tls-cert-file"
            raise OptionError(
                option,
                str(self[option]),
                "requires the host name that it is for: set --publish-service-address, or, for users only, "
                "--external-hostname",
            )

    @property
    def public_address(self) -> str | None:
        """Name or address that agents connect to, and usually users; None: that of ``--host``."""
        address: str | None = self["publish-service-address"] or self["advertise-address"]
        return address

    @property
    def public_pair(self) -> PairFiles | None:
        """The certificate of ``--tls-cert-file``, for the name of users; None: there is none."""
        if self["tls-cert-file"] is None:
            return None
        return PairFiles(self["tls-cert-file"], self["tls-private-key-file"], (self.certificate_host,))

    @property
    def is_public_pair_for_agents(self) -> bool:
        """Whether the certificate is for the name that agents connect to, too."""
        return self.certificate_host == (self.public_address or self["host"]).lower()

    @property
    def certificate_host(self) -> str:
        """Host name that users connect to; empty: it is an address."""
        name: str = self["external-hostname"] or self.public_address or self["host"]
        try:
            ip_address(name)
        except ValueError:
            return name.lower()
        return ""

    @property
    def tls_settings(self) -> ServerSettings:
        """The settings of TLS."""
        return ServerSettings(self["tls-min-version"], self["tls-cipher-suites"])

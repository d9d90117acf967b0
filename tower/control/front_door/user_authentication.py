"""Methods of authentication that options of the proxy configure, and the files that they follow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from attrs import define, field
from cryptography import x509

from tower.control.front_door.authentication_options import AuthenticationOptions
from tower.errors import ConfigurationError
from tower.options.followed_file import Followed, FollowedFile, FollowedFiles
from tower.reactor.signals import Reloads
from tower.trust.client_authorities import ClientAuthorities
from tower.trust.pki import public_key_hash
from tower.trust.rotating_authority import AnyAuthority
from tower.trust.serving_certificate import ServingCertificate
from tower.web.access.authentication.presented import AuthenticationMethod
from tower.web.access.authentication.request_header import RequestHeaderAuthenticator
from tower.web.access.authentication.token_file import StaticTokenAuthenticator, parse_tokens
from tower.web.access.authentication.x509 import CertificateAuthenticator


@define(eq=False)
class UserAuthentication:
    """The methods for users without a credential of Tower, in kube-apiserver's order.

    :ivar by_certificate: those that read the client certificate.
    :ivar by_token: those that read the bearer token.
    :ivar files: those that the methods follow.
    :ivar on_change: called when users may have lost their access.
    """

    by_certificate: Sequence[AuthenticationMethod]
    by_token: Sequence[AuthenticationMethod]
    files: Sequence[Followed[Any, Any]]
    on_change: Callable[[], object] = field(default=lambda: None, init=False)

    @classmethod
    def of(
        cls,
        options: AuthenticationOptions,
        users: AnyAuthority,
        serving: ServingCertificate,
        seconds: Callable[[], float],
        reloads: Reloads,
    ) -> UserAuthentication:
        """Return the methods; *serving* accepts their certificates.

        :param users: Tower's own CA of users' certificates.
        :param seconds: returns the time, s since the epoch.
        :raise ConfigurationError: a file cannot be used; names option and file.
        """
        by_certificate: list[AuthenticationMethod] = []
        by_token: list[AuthenticationMethod] = []
        files: list[Followed[Any, Any]] = []
        parse = partial(ClientAuthorities.of_pem, is_own=partial(_is_of, users))
        users_file = front_file = None
        if options.client_ca_files:
            users_file = FollowedFiles("client-ca-file", options.client_ca_files, parse)
            by_certificate.append(CertificateAuthenticator(users_file, seconds))
        fields = options.front_proxy_fields
        if fields is not None:
            option = "requestheader-client-ca-file"
            front_file = FollowedFile(option, options[option], parse)
            by_certificate.insert(
                0,
                RequestHeaderAuthenticator(
                    front_file,
                    options["requestheader-allowed-names"] or (),
                    fields,
                    seconds,
                    partial(_signs, users_file),
                ),
            )
        authorities: list[Followed[Any, ClientAuthorities]] = [
            each for each in (users_file, front_file) if each is not None
        ]
        files += authorities
        path = options["token-auth-file"]
        if path is not None:
            tokens = FollowedFile("token-auth-file", path, partial(parse_tokens, path=path))
            files.append(tokens)
            by_token.append(StaticTokenAuthenticator(tokens))
        if front_file is not None and not options["requestheader-allowed-names"]:
            check_apart(front_file, users_file)
        self = cls(by_certificate, by_token, files)

        def trust() -> None:
            serving.trust_clients(b"".join(each.value.pem for each in authorities))

        def changed() -> None:
            self.on_change()

        def authorities_changed() -> None:
            trust()
            changed()

        for each in files:
            each.on_change = authorities_changed if each in authorities else changed
            reloads.add(each.option, each.reload)
        if authorities:
            trust()
        return self

    def check_files(self) -> None:
        """Use changed files; call this every `tower.options.followed_file.PERIOD` s."""
        for each in self.files:
            each.check()


def _signs(file: Followed[Any, ClientAuthorities] | None, anchor: str) -> bool:
    """Return whether *file* has the CA *anchor*."""
    return file is not None and anchor in file.value.anchors


def check_apart(
    front: Followed[Any, ClientAuthorities], users: Followed[Any, ClientAuthorities] | None
) -> None:
    """:raise ConfigurationError: every user of --client-ca-file would be a front proxy."""
    if any(_signs(users, anchor) for anchor in front.value.anchors):
        raise ConfigurationError(
            "--requestheader-client-ca-file and --client-ca-file contain overlapping certificates; "
            "--requestheader-allowed-names must be specified to ensure regular client certificates cannot "
            "set authenticating proxy headers for arbitrary users: set it, or use another CA for "
            "front proxies"
        )


def _is_of(users: AnyAuthority, certificate: x509.Certificate) -> bool:
    return f"sha256:{public_key_hash(certificate)}" in users.hashes

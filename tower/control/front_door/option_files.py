"""Checks of the files that options of the proxy name, before anything uses them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeAlias

from cryptography import x509

from tower.control.default_cluster import read_access
from tower.control.front_door.followed_kubeconfigs import KUBECONFIGS
from tower.control.front_door.named_serving import named_pair
from tower.control.front_door.public_certificate import public_pair
from tower.control.front_door.user_authentication import check_apart
from tower.control.proxy_options import Options
from tower.control.serving_reload import given_ca
from tower.errors import ConfigurationError
from tower.kube.access.abac import parse_policies
from tower.kube.kubeconfig import load_kubeconfig
from tower.kube.rest.rest_config import RestConfig
from tower.options.followed_file import FollowedFile, FollowedFiles
from tower.reactor.interfaces import IReactor
from tower.store.audit_log import check_log
from tower.trust.certificate_directory import has_pair
from tower.trust.client_authorities import ClientAuthorities
from tower.trust.serving_certificate import serving_names
from tower.web.access.audit.policy_file import read_audit_policy
from tower.web.access.authentication.account_keys import read_public_keys
from tower.web.access.authentication.token_file import parse_tokens

#: Raises an error of one option.
Rule: TypeAlias = Callable[[], object]

_USERS, _FRONT_PROXIES = "client-ca-file", "requestheader-client-ca-file"


def file_rules(options: Options, reactor: IReactor | None, now: float) -> Iterator[Rule]:
    """Yield the checks of the files of all options that are set.

    :param reactor: for clients of other servers, which do not connect; None: their kubeconfigs are only read.
    :param now: s since the epoch.
    """
    yield partial(given_ca, options, now)
    yield from _serving(options)
    yield from _authorities(options)
    path = options["token-auth-file"]
    if path is not None:
        yield partial(_read, "token-auth-file", path, partial(parse_tokens, path=path, warn=_ignore))
    for path in options.account_key_files:
        yield partial(_read, "service-account-key-file", path, read_public_keys)
    path = options["authorization-policy-file"]
    if path is not None:
        yield partial(_read, "authorization-policy-file", path, partial(parse_policies, path=str(path)))
    path = options["audit-policy-file"]
    if path is not None:
        yield partial(_read, "audit-policy-file", path, partial(read_audit_policy, path=path))
    for option in KUBECONFIGS:
        if options[option] is not None:
            yield partial(_read_kubeconfig, option, options[option], reactor)
    for option in ("audit-log-path", "access-log"):
        yield partial(check_log, option, options[option])
    if options.given_cluster is not None:
        yield partial(read_access, options.given_cluster)


def _serving(options: Options) -> Iterator[Rule]:
    """Yield the checks of the serving certificates; ``--cert-dir`` can still be empty."""
    pair = options.public_pair
    if pair is not None and options["tls-private-key-file"] is not None and options.certificate_host:

        def check() -> None:
            if not options.makes_pair or has_pair(options["cert-dir"]):
                public_pair(pair, for_agents=options.is_public_pair_for_agents)

        yield check
    reserved = serving_names(options.public_address, options["host"])
    for each in options.named_pairs:
        yield partial(named_pair, each, reserved)


def _authorities(options: Options) -> Iterator[Rule]:
    """Yield the checks of the CAs of users and of front proxies, and of both together."""
    parse = partial(ClientAuthorities.of_pem, is_own=_is_not_own)
    found: dict[str, FollowedFiles[ClientAuthorities]] = {}
    front_file: Path | None = options[_FRONT_PROXIES]
    paths = {_USERS: options.client_ca_files, _FRONT_PROXIES: [front_file] if front_file else []}

    def read(option: str) -> None:
        found[option] = FollowedFiles(option, paths[option], parse)

    def compare() -> None:
        if len(found) == 2 and not options["requestheader-allowed-names"]:
            check_apart(found[_FRONT_PROXIES], found[_USERS])

    for option, given in paths.items():
        if given:
            yield partial(read, option)
    yield compare


def _is_not_own(_certificate: x509.Certificate) -> bool:
    """Return False: Tower's own CA is compared when the state directory is known."""
    return False


def _read(option: str, path: Path, parse: Callable[[bytes], object]) -> None:
    FollowedFile(option, path, parse)


def _read_kubeconfig(option: str, path: Path, reactor: IReactor | None) -> None:
    try:
        if reactor is None:
            load_kubeconfig(path, allow_plugin=True)
        else:
            RestConfig.from_kubeconfig(path, reactor)
    except ConfigurationError as e:
        raise ConfigurationError(f"--{option}: {e}") from e


def _ignore(*_: object, **__: object) -> None:
    """Log nothing: the same warnings follow when the file is used."""

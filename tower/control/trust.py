"""Whom the proxy trusts and what it proves itself with, as its options and its state directory say."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tower.conch.transport.keys import KeyPair, load_or_create
from tower.control.proxy_options import Options
from tower.trust.authorities import given_authority, own_authority
from tower.trust.serving_certificate import ServingCertificate, serving_names
from tower.trust.statedir import StateDir


class ProxyTrust:
    """:param now: returns the time of day, s since the epoch.
    :ivar users: signs people's certificates.
    :ivar authority: signs what the proxy serves with.
    :ivar serving: the certificate that it serves with, and TLS contexts.
    :ivar host_keys: for agents; the first is the one in use.
    :raise ConfigurationError: something of it cannot be used.
    """

    def __init__(self, options: Options, state: StateDir, now: Callable[[], float]) -> None:
        self.users = own_authority(state, "users-ca", now())
        if options["ca-cert"] is not None:
            self.authority = given_authority(options["ca-cert"], options["ca-key"], now())
        else:
            self.authority = own_authority(state, "serving-ca", now())
        names = serving_names(options["publish-service-address"], options["host"])
        self.serving = ServingCertificate(state, self.authority, self.users, names, now)
        self.host_keys: Sequence[KeyPair] = [load_or_create(state, "ssh_host_ed25519_key")]

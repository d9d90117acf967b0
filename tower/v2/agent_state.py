"""The agent's state: its key and the pins of the proxy, in a directory or in a Secret."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Self

from attrs import frozen
from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from tower.conch.transport.keys import KeyPair, load_or_create
from tower.conch.tunnel.tunnel import SSHTunnel
from tower.kube.apiserver import APIServer
from tower.member.key_secret import KeySecret
from tower.member.member_access import create_client
from tower.member.options import AGENT_KEY
from tower.reactor.interfaces import ISocketReactor
from tower.trust.statedir import StateDir
from tower.v2.known_proxies import KnownProxies
from tower.v2.secret_uplink import SecretUplink
from tower.v2.uplink import Uplink


@frozen(eq=False)
class AgentState:
    """The state of one agent.

    :ivar services: write the state; empty for a directory.
    """

    known_proxies: KnownProxies
    services: tuple[Service, ...]
    _storage: StateDir | KeySecret

    @classmethod
    def of(
        cls,
        options: Mapping[str, Any],
        directory: StateDir | None,
        reactor: IReactorTime,
        sockets: ISocketReactor,
        member: APIServer,
    ) -> Self:
        """Return the state in *directory*, or, if that is None, in the Secret ``--key-secret`` of *member*.

        :raise ConfigurationError: the Secret's namespace is unknown.
        """
        pins = options["host-keys"], options["ca-hashes"]
        if directory is not None:
            return cls(KnownProxies(directory, *pins), (), directory)
        client = create_client(reactor, sockets, member)
        secret = KeySecret(reactor, client, options["key-secret"].in_pod(), options["name"])
        return cls(KnownProxies(secret, *pins, lambda: secret.is_saved), (secret.saving,), secret)

    def connector(self, create: Callable[[KeyPair], Uplink]) -> Callable[[], Deferred[SSHTunnel]]:
        """Return what opens tunnels with the key in the state, by the uplink that *create* returns for it.

        :raise ConfigurationError: the key in the directory cannot be used.
        """
        storage = self._storage
        if isinstance(storage, KeySecret):
            return SecretUplink(storage, self.known_proxies, create).connect
        return create(load_or_create(storage, AGENT_KEY)).connect

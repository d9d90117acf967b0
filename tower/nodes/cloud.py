"""The cloud provider of one cluster, if it has one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from twisted.internet.defer import Deferred

from tower.cloud.interfaces import ICloudProvider, IInstances, ISSHKeyLease
from tower.nodes.keypair import KeyPairFiles
from tower.nodes.ssh.client import Dial
from tower.reactor.interfaces import ISocketReactor

#: Installs a line of ``authorized_keys`` for a user on all nodes; the result fires when that is done.
Install: TypeAlias = Callable[[str, bytes], Awaitable[None]]


class NodeCloud:
    """Lists the machines of a cloud and installs the SSH key on them.

    :param provider: not initialized yet; None: there is no cloud.
    :ivar instances: the machines; None: there is no cloud, or it does not know them.
    """

    def __init__(self, reactor: ISocketReactor, provider: ICloudProvider | None) -> None:
        self._provider = provider
        self.instances: IInstances | None = None
        if provider is not None:
            provider.initialize(reactor)
            self.instances = provider.instances()

    @property
    def install(self) -> Install | None:
        """Installs the key on all machines; None: the cloud cannot do it."""
        return None if self.instances is None else self.instances.add_ssh_key_to_all_instances

    def dialer(self, dial: Dial, user: str, key: KeyPairFiles) -> Dial:
        """Return *dial*, preceded by `ISSHKeyLease.prepare_dial` if the cloud requires it."""
        if self.instances is None or not ISSHKeyLease.providedBy(self.instances):
            return dial
        lease: ISSHKeyLease = self.instances

        async def leased(host: str, port: int) -> Any:
            await lease.prepare_dial(user, key.public_line(), host)
            return await dial(host, port)

        return lambda host, port: Deferred.fromCoroutine(leased(host, port))

    def stop(self) -> None:
        """Stop the provider and all of its requests."""
        if self._provider is not None:
            self._provider.stop()

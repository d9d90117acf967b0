"""Dialling through a tunnel with Twisted's own abstraction.

`TunnelEndpoint` is an ``IStreamClientEndpoint``, so that ``Agent``, treq, Conch or anything else of Twisted's
works through a tunnel unchanged.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.address import HostnameAddress
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectError
from twisted.internet.interfaces import IProtocol, IProtocolFactory, IStreamClientEndpoint
from zope.interface import implementer

from tower.conch.channel import Channel
from tower.conch.mux import StreamRefused, TunnelLost
from tower.errors import ClusterUnreachable
from tower.transport import PipeTransport
from tower.tunnels import Tunnels


@implementer(IStreamClientEndpoint)
class TunnelEndpoint:
    """Leads to *target* of *cluster*, through whichever tunnel is there when `connect` is called.

    :param patience: how long to wait for a tunnel, s.
    """

    def __init__(self, tunnels: Tunnels, cluster: str, target: str, patience: float = 5.0) -> None:
        self._tunnels = tunnels
        self._cluster = cluster
        self._target = target
        self._patience = patience

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:
        """Open a stream and run a protocol of *protocolFactory* on it.

        :raise twisted.internet.error.ConnectError: through the Deferred: no tunnel, or the far end refused.
        """
        return Deferred.fromCoroutine(self._connect(protocolFactory))

    async def _connect(self, factory: IProtocolFactory) -> IProtocol:
        try:
            tunnel = await self._tunnels.wait(self._cluster, self._patience)
            channel: Channel = await tunnel.open(self._target)
        except (ClusterUnreachable, StreamRefused, TunnelLost) as e:
            raise ConnectError(string=str(e)) from e
        protocol: Any = factory.buildProtocol(HostnameAddress(self._cluster.encode(), 0))
        if protocol is None:
            channel.abort()
            raise ConnectError(string="the factory wants no protocol")
        PipeTransport(channel, protocol).start()
        return protocol  # type: ignore[no-any-return]

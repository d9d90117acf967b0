"""Tower's plugins of Twisted.  Every ``twistd`` of this Python imports this file: keep it small."""

from __future__ import annotations

from typing import Any

from twisted.application.reactors import Reactor
from twisted.application.service import ServiceMaker
from twisted.internet.interfaces import IStreamClientEndpointStringParserWithReactor
from twisted.plugin import IPlugin
from zope.interface import implementer

tower_proxy = ServiceMaker(
    "Tower proxy", "tower.proxy", "Front door to many Kubernetes clusters.", "tower-proxy"
)
tower_agent = ServiceMaker(
    "Tower agent", "tower.agent", "Connects a private cluster to tower-proxy.", "tower-agent"
)
tower_reactor = Reactor(
    "tower", "tower.reactor.epoll_reactor", "epoll(7) with Tower's sockets in it; Linux only."
)


@implementer(IPlugin, IStreamClientEndpointStringParserWithReactor)
class _EndpointParser:
    """``tower:cluster=C:target=T`` for ``clientFromString``; see `tower.endpoint.parse_description`."""

    prefix = "tower"

    def parseStreamClient(  # type: ignore[override]
        self, reactor: Any, /, *args: Any, **kwargs: Any
    ) -> Any:
        from tower.endpoint import parse_description

        return parse_description(reactor, args, kwargs)


tower_endpoint = _EndpointParser()

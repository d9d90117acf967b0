"""The chain of servers of the front door, from the options and the parts of the proxy."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from attrs import frozen

from tower.control.proxy_options import Options
from tower.nodes.clusters import NodeClusters
from tower.reactor.interfaces import IReactor
from tower.server.chain import ServerChain
from tower.server.chained_server import Answer, ChainedServer, Hook
from tower.server.health_pages import HealthCheck
from tower.server.login_server import LoginRoutes, login_server
from tower.server.profiling import Profiling
from tower.server.tower_server import TowerRoutes, tower_server
from tower.web.access.filters import FilterChain
from tower.web.gateway.request import Request
from tower.web.gateway.upstream.channel_pool import ChannelPool
from tower.web.ports.import_page import ServeImport
from tower.web.ports.metrics_page import MakePieces

#: Problem of the check ``log``, with kube-apiserver's text.
LOGGING_BLOCKED = "logging blocked"


@frozen
class StartHooks:
    """Steps of the start before the ports open, by server, in order."""

    clusters: Sequence[Hook] = ()
    logins: Sequence[Hook] = ()
    tower: Sequence[Hook] = ()


def create_server_chain(
    options: Options,
    reactor: IReactor,
    chain: FilterChain,
    api: Callable[[Request], Answer],
    nodes: NodeClusters,
    metrics: MakePieces,
    imports: ServeImport,
    logins: LoginRoutes,
    start_hooks: StartHooks,
    pool: ChannelPool,
) -> ServerChain:
    """Return the chain: clusters, logins, Tower's API, not found.

    :param chain: the filters of all requests.
    :param api: answers requests to Tower's own API that passed *chain*.
    :param pool: the channels into clusters.
    """

    def log_problem() -> str:
        return LOGGING_BLOCKED if options.log is not None and options.log.is_blocked else ""

    async def close_channels() -> None:
        pool.stop()

    routes = TowerRoutes(
        chain,
        api,
        imports=imports,
        metrics=metrics,
        ssh_tunnel=nodes.unhealthy,
        profiling=Profiling(reactor) if options["profiling"] else None,
    )
    return ServerChain(
        chain,
        ChainedServer(  # the front door itself routes to clusters
            "clusters",
            paths=("/clusters/",),
            start_hooks=start_hooks.clusters,
            stop_hooks=(Hook("channels", close_channels),),
        ),
        login_server(logins, start_hooks.logins),
        tower_server(routes, (HealthCheck("log", log_problem),), start_hooks.tower),
    )

"""The servers behind the front door, with an API of the test's."""

from __future__ import annotations

from collections.abc import Callable

from tower.server.chain import ServerChain
from tower.server.chained_server import Answer
from tower.server.tower_server import TowerRoutes, tower_server
from tower.web.access.filters import FilterChain
from tower.web.gateway.request import Request


def routes_to(chain: FilterChain, api: Callable[[Request], Answer]) -> Callable[[Request, bytes], Answer]:
    """Return the routes of Tower's own pages, and of *api* behind *chain*."""
    return ServerChain(chain, tower_server(TowerRoutes(chain, api))).prepare_run().route

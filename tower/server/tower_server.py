"""The server of Tower's own pages and API."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from tower.kube.status import StatusError
from tower.server.api_requests import ApiRequests
from tower.server.chained_server import Answer, ChainedServer, Hook
from tower.server.health_pages import HealthCheck
from tower.server.profiling import PREFIX, Profiling
from tower.web.access.filters import FilterChain
from tower.web.api import discovery
from tower.web.gateway.request import Request
from tower.web.outcome import NOT_CACHED, Response
from tower.web.ports.import_page import IMPORTS, ServeImport, no_imports
from tower.web.ports.metrics_page import MakePieces, page_maker
from tower.web.ports.plain_port import (
    SSH_TUNNEL,
    Check,
    no_problem,
    only_read,
    read_page,
    ssh_tunnel_check,
)

_API_ROOTS = (b"/api", b"/apis", b"/openapi")


class TowerRoutes:
    """Routes of Tower's own pages and API.

    :param chain: the filters of requests that need an administrator.
    :param api: answers requests to Tower's own API that passed *chain*.
    :param imports: answers requests to import URLs.
    :param metrics: returns the pieces of the page `/metrics` for administrators; None: there is none.
    :param ssh_tunnel: for `/healthz/ssh-tunnel`.
    :param profiling: for administrators; None: it is off.
    """

    def __init__(
        self,
        chain: FilterChain,
        api: Callable[[Request], Answer],
        *,
        imports: ServeImport = no_imports,
        metrics: MakePieces | None = None,
        ssh_tunnel: Check = no_problem,
        profiling: Profiling | None = None,
    ) -> None:
        self._chain, self._api, self._imports = chain, ApiRequests(chain, api), imports
        self._metrics, self._ssh_tunnel, self._profiling = metrics, ssh_tunnel, profiling

    def __call__(self, request: Request, path: bytes) -> Answer | None:
        """Return the answer; None: *path* is not one of these."""
        if path.startswith(IMPORTS):
            return self._imports(request)
        if path == SSH_TUNNEL:
            return ssh_tunnel_check(request, self._ssh_tunnel)
        if path == b"/version":
            only_read(request)
            return Response.of_json(discovery.version_info(), 200, NOT_CACHED)
        if path == b"/agent":
            raise StatusError(426, "agents connect here with a WebSocket of the subprotocol tower-v2")
        if path == b"/metrics" and self._metrics is not None:
            return self._chain(request, "", partial(read_page, request, page_maker(self._metrics)))
        if self._profiling is not None and path.startswith(PREFIX):
            page = self._profiling.page(path, request.query)
            return None if page is None else self._chain(request, "", partial(read_page, request, page))
        if any(path == root or path.startswith(root + b"/") for root in _API_ROOTS):
            return self._api(request)
        return None

    @property
    def paths(self) -> Iterator[str]:
        """Paths for the index."""
        yield from ("/api", "/apis", "/openapi/v2", "/openapi/v3", "/version", SSH_TUNNEL.decode())
        for each in discovery.GROUP_VERSIONS:
            if each.group:
                yield from (f"/apis/{each.group}", f"/apis/{each.name}")
            else:
                yield f"/api/{each.version}"
        if self._metrics is not None:
            yield "/metrics"


def tower_server(
    routes: TowerRoutes, checks: Sequence[HealthCheck] = (), start_hooks: Sequence[Hook] = ()
) -> ChainedServer:
    """Return the server with *routes*."""
    return ChainedServer("tower", routes, tuple(routes.paths), checks, start_hooks=start_hooks)

"""The server of the pages for ``tower login``."""

from __future__ import annotations

from collections.abc import Sequence

from tower.kube.status import StatusError
from tower.server.chained_server import Answer, ChainedServer, Hook
from tower.web.access.filters import FilterChain
from tower.web.gateway.request import Request
from tower.web.login.login_pages import DISCOVERY, PREFIX, LoginPages


class LoginRoutes:
    """Routes of the pages.

    :param authenticate: the chain that only authenticates.
    :param pages: None: users cannot log in.
    """

    def __init__(self, authenticate: FilterChain, pages: LoginPages | None) -> None:
        self._authenticate = authenticate
        self._pages = pages

    def __call__(self, request: Request, path: bytes) -> Answer | None:
        """Return the answer; None: *path* is not one of these."""
        if path != DISCOVERY and not path.startswith(PREFIX):
            return None
        pages = self._pages
        if pages is None:
            raise StatusError(
                404,
                "users cannot log in to this proxy: it has no identity provider (--oidc-issuer-url, or "
                "--authentication-config)",
            )
        if path == DISCOVERY:
            return pages.discovery(request)
        return self._authenticate(request, "", lambda: pages(request))


def login_server(routes: LoginRoutes, start_hooks: Sequence[Hook] = ()) -> ChainedServer:
    """Return the server with *routes*."""
    return ChainedServer("login", routes, (DISCOVERY.decode(),), start_hooks=start_hooks)

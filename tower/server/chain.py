"""The chain of servers: it merges their paths, health checks and hooks, and serves the pages about them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from tower.kube.status import StatusError
from tower.server.chained_server import Answer, ChainedServer, Hook
from tower.server.health_pages import HealthCheck, HealthPages
from tower.web.access.filters import FilterChain
from tower.web.gateway.request import Request
from tower.web.outcome import NOT_CACHED, Response
from tower.web.ports.plain_port import no_problem, only_read, read_page

#: Paths of the list of all paths, for administrators.
INDEX = frozenset({b"/", b"/index.html"})

#: Problems of the checks, with kube-apiserver's texts.
SHUTTING_DOWN = "process is shutting down"
NOT_FINISHED = "not finished"
NOT_SYNCED = "the records are not loaded yet"


class ServerChain:
    """Servers, the outermost first: each passes requests for other paths to the next one.

    :param chain: the filters of all requests.
    """

    def __init__(self, chain: FilterChain, *servers: ChainedServer) -> None:
        self._chain = chain
        self._servers = servers

    def prepare_run(self) -> PreparedChain:
        """Install the pages about all servers; afterwards nothing can be added."""
        return PreparedChain(self._chain, self._servers)


class PreparedChain:
    """A chain that can run.

    :ivar health: the health pages.
    :ivar paths: of the index, sorted.
    """

    def __init__(self, chain: FilterChain, servers: Sequence[ChainedServer]) -> None:
        self._chain = chain
        self._servers = servers
        self._finished: set[str] = set()
        self._is_started = self._is_stopping = False
        checks = _unique(
            HealthCheck("ping", no_problem),
            *(check for each in servers for check in each.checks),
            *(self._hook_check(hook) for each in servers for hook in each.start_hooks),
        )
        ready = _unique(
            *checks,
            *(check for each in servers for check in each.ready_checks),
            HealthCheck("informer-sync", lambda: "" if self._is_started else NOT_SYNCED),
            HealthCheck("shutdown", lambda: SHUTTING_DOWN if self._is_stopping else ""),
        )
        self.health = HealthPages({"healthz": checks, "livez": checks, "readyz": ready})
        self.paths = sorted({*self.health.paths, *(path for each in servers for path in each.paths)})
        self._index = Response.of_json({"paths": self.paths}, 200, NOT_CACHED)

    def route(self, request: Request, path: bytes) -> Answer:
        """Return the answer of the first server that serves *path*.

        :raise TowerError: the request is rejected, or no server serves the path.
        """
        page = self.health.answer(path, request.query)
        if page is not None:
            only_read(request)
            return page
        if path in INDEX:
            return self._chain(request, "", partial(read_page, request, lambda: self._index))
        for server in self._servers:
            answer = server.route(request, path)
            if answer is not None:
                return answer
        raise _nothing_here(path)

    async def run(self, is_wanted: Callable[[], bool] = lambda: True) -> None:
        """Run the hooks of the start, one after the other, while *is_wanted* returns True.

        Those of inner servers run first, because the outer ones use them.
        """
        for server in reversed(self._servers):
            for hook in server.start_hooks:
                if not is_wanted():
                    return
                await hook.run()
                self._finished.add(hook.name)
        self._is_started = True

    def announce_stop(self) -> None:
        """Report from now on that the proxy is not ready any more."""
        self._is_stopping = True

    async def stop(self) -> None:
        """Run the hooks of the stop, one after the other; those of outer servers first."""
        for server in self._servers:
            for hook in server.stop_hooks:
                await hook.run()

    def _hook_check(self, hook: Hook) -> HealthCheck:
        return HealthCheck(
            f"poststarthook/{hook.name}", lambda: "" if hook.name in self._finished else NOT_FINISHED
        )


def _unique(*checks: HealthCheck) -> list[HealthCheck]:
    """Return the checks without repeated names: the outermost server's check counts."""
    return list({each.name: each for each in reversed(checks)}.values())[::-1]


def _nothing_here(path: bytes) -> StatusError:
    return StatusError(
        404,
        f"the server could not find the requested resource: {path.decode('latin-1')} does not exist; "
        "clusters are below /clusters/, Tower's own API is below /apis/",
        reason="NotFound",
    )

"""The port without TLS, for agents and health checks; the same pages are on the front door."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from twisted.internet.defer import Deferred

from tower import __version__
from tower.kube.status import StatusError
from tower.net.pipes import Pipe
from tower.web.gateway.request import Request
from tower.web.outcome import NOT_CACHED, HandOver, Outcome, Response

#: Takes an agent's connection and all bytes received on it.
TakeAgent: TypeAlias = Callable[[Pipe, bytes], None]
#: Returns the current problem, or an empty string.
Check: TypeAlias = Callable[[], str]

#: The subprotocols of agents.
AGENT_PROTOCOLS = frozenset({b"tower-v2", b"kubesphere-v1"})

#: Fields of answers in plain text, with kube-apiserver's values.
TEXT_TYPE = (b"Content-Type", b"text/plain; charset=utf-8")
NOSNIFF = (b"X-Content-Type-Options", b"nosniff")

_TEXT = (TEXT_TYPE, NOT_CACHED)
#: The answer to a successful probe.
OK = Response(200, b"ok", _TEXT)
#: Health and version, as KubeSphere Tower answers them.
HEALTH = Response(200, b"OK\n", _TEXT)
PLAIN_VERSION = Response(200, f"{__version__}\n".encode(), _TEXT)

#: Pages of the port without TLS.
PLAIN = {b"/health": HEALTH, b"/version": PLAIN_VERSION}
#: Returns the health page at a path, for a query; None: there is none.
HealthPage: TypeAlias = Callable[[bytes, bytes], Response | None]

#: Reports whether nodes were listed and keys were installed in time.
SSH_TUNNEL = b"/healthz/ssh-tunnel"


def no_problem() -> str:
    """Return that there is no problem."""
    return ""


def no_page(_path: bytes, _query: bytes) -> None:
    """Return None: no page."""


def only_read(request: Request) -> None:
    """Check that the request only reads.

    :raise StatusError: its method is not GET or HEAD.
    """
    if request.method not in (b"GET", b"HEAD"):
        raise StatusError(405, f"{request.method.decode('latin-1')} is not supported on this path: use GET")


def read_page(
    request: Request, page: Callable[[], Outcome | Deferred[Outcome]]
) -> Outcome | Deferred[Outcome]:
    """Return *page*, if a request that has passed the filters only reads.

    :raise StatusError: its method is not GET or HEAD.
    """
    only_read(request)
    return page()


def ssh_tunnel_check(request: Request, check: Check) -> Response:
    """Answer as kube-apiserver's check of that name, also with ``?verbose``."""
    only_read(request)
    problem = check()
    if problem:
        return Response(500, problem.encode() + b"\n", _TEXT)
    verbose = b"verbose" in request.target.partition(b"?")[2].split(b"&")
    return Response(200, b"[+]SSH Tunnel Check ok\nhealthz check passed\n", _TEXT) if verbose else OK


def asks_for_agent(request: Request, path: bytes) -> bool:
    """Return whether *request* is an agent's: a WebSocket at `/agent`, or with an agent's subprotocol."""
    if request.fields.upgrade.lower() != b"websocket":
        return False
    return path == b"/agent" or request.fields.get(b"sec-websocket-protocol") in AGENT_PROTOCOLS


class PlainPort:
    """The router of the port without TLS: only agents and health checks.

    :param health: the health pages of the front door.
    """

    def __init__(
        self,
        take_agent: TakeAgent,
        ssh_tunnel: Check = no_problem,
        health: HealthPage = no_page,
    ) -> None:
        self._agent, self._health = HandOver(take_agent), health
        self._ssh_tunnel = ssh_tunnel

    def __call__(self, request: Request) -> Response | HandOver:
        """Return the destination of *request*."""
        path = request.path
        if asks_for_agent(request, path):
            return self._agent
        answer = PLAIN.get(path) or self._health(path, request.query)
        if answer is not None:
            only_read(request)
            return answer
        if path == SSH_TUNNEL:
            return ssh_tunnel_check(request, self._ssh_tunnel)
        raise StatusError(
            404, "this port is for agents only; clusters and Tower's API are served with TLS on --secure-port"
        )

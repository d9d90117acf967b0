"""Health pages: probes of Kubernetes, monitoring, the version."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from tower import __version__
from tower.kube.status import StatusError
from tower.web.outcome import Response

if TYPE_CHECKING:
    from tower.web.gateway.request import Request

#: Returns the current problem, or an empty string.
Check: TypeAlias = Callable[[], str]

_TEXT = ((b"Content-Type", b"text/plain; charset=utf-8"), (b"Cache-Control", b"no-store"))
#: The answer to a successful probe.
OK = Response(200, b"ok\n", _TEXT)
#: Health and version, as KubeSphere Tower answers them.
HEALTH = Response(200, b"OK\n", _TEXT)
PLAIN_VERSION = Response(200, f"{__version__}\n".encode(), _TEXT)

#: Paths of Kubernetes' probes, as on an API server.
PROBES = frozenset({b"/healthz", b"/readyz", b"/livez"})
#: Pages of the port without TLS.
PLAIN = {b"/health": HEALTH, b"/version": PLAIN_VERSION, **dict.fromkeys(PROBES, OK)}

#: Reports whether nodes were listed and keys were installed in time.
SSH_TUNNEL = b"/healthz/ssh-tunnel"


def no_problem() -> str:
    """Return that there is no problem."""
    return ""


def only_read(request: Request) -> None:
    """Check that the request only reads.

    :raise StatusError: its method is not GET or HEAD.
    """
    if request.method not in (b"GET", b"HEAD"):
        raise StatusError(405, f"{request.method.decode('latin-1')} is not supported on this path: use GET")


def ssh_tunnel_check(request: Request, check: Check) -> Response:
    """Answer as kube-apiserver's check of that name, also with ``?verbose``."""
    only_read(request)
    problem = check()
    if problem:
        return Response(500, problem.encode() + b"\n", _TEXT)
    verbose = b"verbose" in request.target.partition(b"?")[2].split(b"&")
    return Response(200, b"[+]SSH Tunnel Check ok\nhealthz check passed\n", _TEXT) if verbose else OK

"""Pages about the state of the process, for whoever asks: probes, monitoring, people."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from tower import __version__
from tower.kube.status import StatusError
from tower.web.outcome import Response

if TYPE_CHECKING:
    from tower.web.gateway.request import Request

#: Says what is wrong; an empty text when nothing is.
Check: TypeAlias = Callable[[], str]

_TEXT = ((b"Content-Type", b"text/plain; charset=utf-8"), (b"Cache-Control", b"no-store"))
#: What a question for the state of the process gets.
OK = Response(200, b"ok\n", _TEXT)
#: The same, and the version, as KubeSphere's Tower answers on its port.
HEALTH = Response(200, b"OK\n", _TEXT)
PLAIN_VERSION = Response(200, f"{__version__}\n".encode(), _TEXT)

#: Where Kubernetes asks, as at an API server.
PROBES = frozenset({b"/healthz", b"/readyz", b"/livez"})
#: What is on the port without TLS.
PLAIN = {b"/health": HEALTH, b"/version": PLAIN_VERSION, **dict.fromkeys(PROBES, OK)}

#: Tells whether nodes are listed, and keys are installed, as often as they should.
SSH_TUNNEL = b"/healthz/ssh-tunnel"


def nothing_wrong() -> str:
    """Find nothing; for where there is nothing to look at."""
    return ""


def only_read(request: Request) -> None:
    """Refuse what wants to change a page.

    :raise Refusal: the request is no GET or HEAD.
    """
    if request.method not in (b"GET", b"HEAD"):
        raise StatusError(405, f"{request.method.decode('latin-1')} is not for this path: use GET")


def ssh_tunnel_check(request: Request, check: Check) -> Response:
    """Answer as kube-apiserver answers who asks for its check of that name; with ``?verbose`` it is told."""
    only_read(request)
    problem = check()
    if problem:
        return Response(500, problem.encode() + b"\n", _TEXT)
    verbose = b"verbose" in request.target.partition(b"?")[2].split(b"&")
    return Response(200, b"[+]SSH Tunnel Check ok\nhealthz check passed\n", _TEXT) if verbose else OK

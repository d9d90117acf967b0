"""Refusals of requests: an error becomes a log line, counts, and a Status for the client."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from twisted.python.failure import Failure

from tower.errors import TowerError, Unauthorized
from tower.kube.request_info import is_discovery
from tower.kube.status import StatusError, status_response

if TYPE_CHECKING:
    from tower.web.gateway.http_channel import HTTPChannel
    from tower.web.gateway.request import Request

#: Text of a timeout, as kube-apiserver's.
TIMEOUT = "Timeout: request did not complete within the allotted timeout"

_CLUSTER = re.compile(rb"/clusters/[^/?]+")


def record_refusal(request: Request, error: BaseException, refusal: StatusError) -> None:
    """Log and count *error*, whose Status is *refusal*."""
    channel = request.channel
    gateway = channel.gateway
    if gateway.meter is not None:
        gateway.meter.refused(error)
    if not isinstance(error, TowerError):
        request.log.failure("request {id} failed", Failure(error), id=request.request_id)
    reason = ""
    if isinstance(error, Unauthorized):
        reason = error.reason
        channel.disprove()
    _log(request, refusal.code, reason or refusal.message)
    gateway.failures += 1


def record_rejected_certificate(channel: HTTPChannel, reason: Exception) -> None:
    """Log and count a TLS handshake that failed because of the client's certificate."""
    gateway = channel.gateway
    if gateway.meter is not None:
        gateway.meter.refused(Unauthorized(reason=str(reason), kind="rejected-certificate"))
    gateway.rejections.log(
        "client certificates were rejected in the TLS handshake",
        "client certificate from {peer} rejected in the TLS handshake: {reason}: use a certificate for "
        "client authentication that Tower or a CA of --client-ca-file has issued",
        peer=channel.peer.address,
        reason=str(reason),
    )


def request_timeout(server: str, limit: float, cure: str = "") -> StatusError:
    """Return the refusal of a request: *server* did not answer it within ``--request-timeout`` *limit*, s."""
    end = f": {cure}" if cure else ""
    return StatusError(504, f"{TIMEOUT}: {server} did not answer within {limit:g} s{end}")


def break_off(request: Request, error: Exception, cluster: str) -> None:
    """End one request: Tower failed to handle the answer of *cluster*, so *error* is a bug.

    The client gets a 502, or loses its connection if an answer has begun.  Never raises, because the caller
    handles an event of a tunnel, which other users share.
    """
    what = f"Tower failed to handle the answer of cluster {cluster}"
    try:
        request.log.failure("request {id}: {what}", Failure(error), id=request.request_id, what=what)
        if request.over:
            request.channel.connection.abort()
        else:
            if request.started:
                request.aborted("tower")
            request.fail(StatusError(502, f"{what}; the proxy's log has the reason"))
    except Exception:  # noqa: BLE001 - see above
        request.log.failure("request {id} cannot be answered", id=request.request_id)
        request.channel.connection.abort()


def _log(request: Request, code: int, text: str) -> None:
    """Log a refusal, or count it in a summary if the connection is unauthenticated."""
    channel = request.channel
    line = "request {id} from {peer}: {code} {text}"
    fields = {"id": request.request_id, "peer": channel.peer.address, "code": code, "text": text}
    if channel.proven:
        request.log.info(line, **fields)
    else:
        channel.gateway.rejections.log(f"requests were rejected with {code}", line, **fields)


def refusal_answer(request: Request, refusal: StatusError, *, close: bool) -> bytes:
    """Return the answer for *refusal*."""
    return status_response(
        refusal,
        request.request_id,
        close=close,
        without_body=request.method == b"HEAD",
        warn=_warns(request, refusal.code),
        extra=request.common_lines,
    )


def _warns(request: Request, code: int) -> bool:
    """Return whether the client may show the message of an error answer only as a warning.

    kubectl itself shows the Status of all requests but those for discovery.
    """
    prefix = _CLUSTER.match(request.target)
    if is_discovery(request.target, prefix.end() if prefix is not None else 0):
        return True
    return code in (401, 503) and not (request.fields.get(b"user-agent") or b"").startswith(b"kubectl")

"""Carries out the outcomes of the router; see `tower.web.outcome`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure

from tower.errors import TowerError, Unauthorized
from tower.kube.status import StatusError
from tower.web.gateway.inflight import take_stream_place
from tower.web.gateway.local_answers import StreamedAnswer, response_head
from tower.web.gateway.raw_streams import StreamOpening
from tower.web.outcome import HandOver, Outcome, RawStream, Relay, Response, StreamingResponse

if TYPE_CHECKING:
    from tower.web.gateway.request import Request


def carry_out(request: Request, outcome: Outcome) -> None:
    """Do what the router decided about *request*, or answer with a Status."""
    try:
        if isinstance(outcome, Relay):
            request.relay(outcome)
        elif isinstance(outcome, Response):
            _respond(request, outcome)
        elif isinstance(outcome, StreamingResponse):
            _stream(request, outcome)
        elif isinstance(outcome, RawStream):
            _open_stream(request, outcome)
        else:
            _hand_over(request, outcome)
    except Exception as e:  # noqa: BLE001 - any error becomes a Status, and other users are not affected
        request.fail(e)


def carry_out_later(request: Request, deciding: Deferred[Outcome]) -> None:
    """Do the same when the router has decided; `Request.deciding` is *deciding* until then."""
    request.deciding = deciding
    deciding.addCallbacks(_decided, _undecided, callbackArgs=(request,), errbackArgs=(request,))


def _decided(outcome: Outcome, request: Request) -> None:
    request.deciding = None
    if not request.over:
        carry_out(request, outcome)


def _undecided(failure: Failure, request: Request) -> None:
    request.deciding = None
    if not request.over:
        request.failed(failure)
    elif not failure.check(CancelledError, TowerError):
        request.log.failure(
            "request {id} failed after its client disconnected", failure, id=request.request_id
        )


def _respond(request: Request, response: Response) -> None:
    keep, common = request.keep, request.common_lines
    framing = b"" if response.code == 204 else b"Content-Length: %d\r\n" % len(response.body)
    head = response_head(
        response.code,
        response.headers,
        common,
        framing=framing,
        close=not keep,
        request_id=request.request_id,
    )
    entry = request.entry
    if entry is not None and entry.records_bodies:
        record = entry.record_answer(len(response.body), dict(response.headers).get(b"Content-Type"), None)
        if record is not None:
            record.add(response.body)
    request.begun(response.code)
    request.channel.send(head if request.method == b"HEAD" else head + response.body)
    request.finish_with_body(keep=keep)


def _stream(request: Request, response: StreamingResponse) -> None:
    if request.identity is not None:
        request.channel.enter(request.identity, "")
    if request.place is not None:
        request.place.answered(response.code)
    request.exchange = answer = StreamedAnswer(request)
    answer.begin(response)


def _open_stream(request: Request, stream: RawStream) -> None:
    if request.identity is None:
        raise Unauthorized(reason="the router accepted a request without an identity")
    request.channel.enter(request.identity, stream.cluster)
    opening = StreamOpening(request, stream)

    def start() -> None:
        request.exchange = opening
        opening.start()

    if request.observation is not None:
        request.observation.target = stream.target
    limits = request.channel.gateway.inflight
    if limits is None or not take_stream_place(request, stream.cluster, start, limits):
        start()


def _hand_over(request: Request, outcome: HandOver) -> None:
    if request.fields.body:
        raise StatusError(400, "an upgrade request must not have a body", close=True)
    channel = request.channel
    request.handed_over()
    received = request.head + channel.release()
    channel.forget()
    try:
        outcome.take(channel.connection, received)
    except Exception:  # noqa: BLE001 - this is the last owner that can close the connection
        request.log.failure("cannot hand connection of request {id} over", id=request.request_id)
        channel.connection.abort()

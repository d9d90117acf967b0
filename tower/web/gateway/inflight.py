"""Admission of requests in flight: see `tower.web.limits`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Final

from twisted.internet.defer import Deferred

from tower.clusters.credentials import ADMINS
from tower.web.access.authentication.anonymous import ANONYMOUS_METHOD
from tower.web.access.authentication.identity import ANONYMOUS, MEMBER_ACCOUNT, Identity
from tower.web.gateway.exchange import Exchange
from tower.web.limits.admissions import SILENT
from tower.web.limits.seat_pool import PATIENCE
from tower.web.request_kind import SHORT, WATCH, is_long_running, request_kind

if TYPE_CHECKING:
    from tower.web.gateway.request import Request
    from tower.web.limits.admissions import Place
    from tower.web.limits.door_limits import DoorLimits
    from tower.web.outcome import Relay


_IMPERSONATED: Final = b"impersonate-user"


class Waiting(Exchange):
    """A request that waits for its seat; *go_on* is called when it has one."""

    __slots__ = ("_go_on", "_limits", "_request")

    def __init__(self, request: Request, go_on: Callable[[], object], limits: DoorLimits) -> None:
        self._request = request
        self._go_on = go_on
        self._limits = limits

    def seated(self) -> None:
        """See `tower.web.limits.seat_pool.Seated`."""
        request = self._request
        request.exchange = None
        place = request.place
        try:
            if place is not None:
                place.seated()
            self._go_on()
        except Exception as e:  # noqa: BLE001 - any error becomes a Status, and other users are not affected
            request.fail(e)

    def tick(self, age: int) -> None:
        """Reject the request if it waits for too long."""
        limit = self._request.channel.gateway.limits.answer * PATIENCE
        if age > limit:
            self._request.fail(self._limits.timeout(limit))


def take_place(request: Request, relay: Relay, limits: DoorLimits) -> bool:
    """Admit *request* until `leave_place`; return whether it must wait.

    :raise StatusError: 429, if a limit is reached.
    """
    user, method = _user_of(request), request.method
    kind = request_kind(method, request.target, request.fields.upgrade)
    place: Place | None
    if kind == SHORT:
        place = request.place = limits.enter(user, relay.cluster, method)
    else:
        is_long = is_long_running(method, request.target)
        patience = SILENT if is_long and kind != WATCH else inf
        place = request.place = limits.enter_stream(
            user, relay.cluster, method, is_long_running=is_long, patience=patience
        )
    ticket = None if place is None else place.ticket
    if ticket is None or not ticket.waits:
        return False
    request.exchange = ticket.waiter = Waiting(request, partial(request.send, relay), limits)
    return True


def take_own_place(request: Request, limits: DoorLimits) -> Deferred[None] | None:
    """Admit a request to Tower's own API until `leave_place`; return a Deferred if it must wait.

    Requests of administrators are not limited (upstream: ``system:masters``).

    :raise StatusError: 429, if a limit is reached.
    """
    identity = request.identity
    if identity is None or ADMINS in identity.groups:
        return None
    method = request.method
    place: Place | None
    if request_kind(method, request.target, request.fields.upgrade) == WATCH:
        place = request.place = limits.enter_stream(_user_of(request), "", method)
    else:
        place = request.place = limits.enter(_user_of(request), "", method)
    ticket = None if place is None else place.ticket
    if ticket is None or not ticket.waits:
        return None
    seated: Deferred[None] = Deferred()
    request.exchange = ticket.waiter = Waiting(request, partial(seated.callback, None), limits)
    return seated


def take_stream_place(
    request: Request, cluster: str, go_on: Callable[[], object], limits: DoorLimits
) -> bool:
    """Admit a raw stream until `leave_place`; return whether it must wait until *go_on* is called.

    :raise StatusError: 429, if a limit is reached.
    """
    place = request.place = limits.enter_stream(_user_of(request), cluster, request.method)
    ticket = place.ticket
    if ticket is None or not ticket.waits:
        return False
    request.exchange = ticket.waiter = Waiting(request, go_on, limits)
    return True


def leave_place(request: Request) -> None:
    """End the admission of *request*, if there is one."""
    place, request.place = request.place, None
    if place is not None:
        place.leave()


def _user_of(request: Request) -> str:
    """Return the name by which a user is counted.

    Clients without authentication are counted by address, and requests of a trusted caller by the user whose
    name they claim.
    """
    identity = request.identity
    if (
        identity is None
        or identity is ANONYMOUS
        or identity is MEMBER_ACCOUNT
        or (isinstance(identity, Identity) and identity.method == ANONYMOUS_METHOD)
    ):
        return f"at {request.channel.peer.address}"
    if identity.is_trusted_caller and request.fields.foreign:
        for name, value in request.fields.split_claims()[0]:
            if name.lower() == _IMPERSONATED:
                return value.decode("utf-8", "replace")
    return identity.user

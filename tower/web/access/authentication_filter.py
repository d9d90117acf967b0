"""The filter that authenticates users; the identity is cached on the connection."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from twisted.internet.defer import Deferred

from tower.errors import Outdated
from tower.web.access.authentication.anonymous import ANONYMOUS_METHOD
from tower.web.access.authentication.identity import Identity
from tower.web.access.authentication.presented import Presented
from tower.web.access.authentication.request_header import FrontProxyFields
from tower.web.access.authentication.union import AuthenticatorUnion
from tower.web.gateway.request import Request
from tower.web.gateway.user_session import Claimed


class Authentication:
    """Authenticates the user, caches the identity on the connection, and checks it again for each request.

    :param front_proxies: the fields that front proxies set; None: there are no such proxies.
    """

    def __init__(
        self, authenticator: AuthenticatorUnion, front_proxies: FrontProxyFields | None = None
    ) -> None:
        self._authenticator = authenticator
        self._front_proxies = front_proxies

    def __call__(self, request: Request, cluster: str) -> Deferred[None] | None:
        """Set the request's identity, or reject the request."""
        claimed = request.channel.claimed
        if self._front_proxies is not None and (
            request.fields.foreign or (claimed is not None and claimed.onward is request.fields)
        ):
            return self._by_fields(request, claimed, self._front_proxies)
        bearer, cached = request.fields.bearer, request.channel.authenticated
        if cached is not None and cached[0] == bearer and self._is_known(cached[1]):
            request.identity = cached[1]
            return None
        return self._authenticate(request, partial(_authenticated, request, bearer))

    def _by_fields(
        self, request: Request, claimed: Claimed | None, front_proxies: FrontProxyFields
    ) -> Deferred[None] | None:
        """Do the same for a request with fields that claim an identity, so that the user depends on them."""
        if (
            claimed is None
            or request.fields not in (claimed.fields, claimed.onward)
            or not self._is_known(claimed.identity)
        ):
            return self._authenticate(request, partial(_claimed, request, front_proxies))
        request.identity, request.fields = claimed.identity, claimed.onward
        return None

    def _is_known(self, identity: Identity) -> bool:
        """Return whether a cached identity is still valid; False: it must be found again.

        :raise Unauthorized: it is not valid.
        """
        try:
            self._authenticator.check(identity)
        except Outdated:
            return False
        return True

    def _authenticate(self, request: Request, accept: Callable[[Identity], object]) -> Deferred[None] | None:
        fields = request.fields
        found = self._authenticator.authenticate(
            Presented(request.certificate, fields.bearer, fields, request.certificate_chain, request.path)
        )
        if isinstance(found, Deferred):
            return Deferred.fromCoroutine(_wait(found, request, accept))
        _accept(request, found, accept)
        return None


async def _wait(found: Deferred[Identity], request: Request, accept: Callable[[Identity], object]) -> None:
    _accept(request, await found, accept)


def _accept(request: Request, identity: Identity, accept: Callable[[Identity], object]) -> None:
    """Use *identity*; an anonymous one proves nothing, and depends on the path."""
    if identity.method == ANONYMOUS_METHOD:
        request.identity = identity
    else:
        accept(identity)


def _claimed(request: Request, front_proxies: FrontProxyFields, identity: Identity) -> None:
    fields = request.fields
    onward = fields.without(front_proxies.includes) if front_proxies.authenticated(identity) else fields
    request.channel.claimed = Claimed(fields, onward, identity)
    request.channel.prove()
    request.identity, request.fields = identity, onward


def _authenticated(request: Request, bearer: bytes | None, identity: Identity) -> None:
    request.channel.authenticated = (bearer, identity)  # the certificate cannot change within a connection
    request.channel.prove()
    request.identity = identity

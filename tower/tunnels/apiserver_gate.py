"""TLS and credential for a member's API server, for tunnels without a Tower agent.

An agent of ``tower-v2`` opens the TLS connection to its API server and adds its credential to each request.
An old agent, and a node reached by SSH, only forward bytes.  For these, the proxy runs TLS inside the channel
and adds the credential and the user's impersonation headers to each head.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable
from typing import Any, NoReturn

from attrs import define, field
from twisted.internet.defer import Deferred, succeed
from twisted.python.failure import Failure

from tower.errors import StreamRefused
from tower.kube.head_fields import Upstream
from tower.kube.head_policy import HeadPolicy, Refusal
from tower.kube.status import StatusError
from tower.kube.system_identities import NONE_ALLOWED, SystemIdentities
from tower.net.connecting import ConnectFailed
from tower.net.tls.resumption import Resumption
from tower.net.tls.unverified import unverified_context
from tower.reactor.timers import Clock
from tower.tunnels.live import TunnelChannel
from tower.tunnels.tls_handshake import TLSHandshake

_NO_TOKENS = (
    "the request has a credential, and this kind of cluster does not support tokens of its own accounts"
)

_REPLACED = re.compile(rb"(?i:host|authorization):[^\r\n]*\r\n")


@define(eq=False)
class APIServerGate:
    """Secures channels to one API server and rewrites the heads of their requests.

    :param context: verifies the API server; None: no TLS.
    :param server_name: required name in its certificate.
    :param identities: rule for system identities; see `tower.kube.head_policy.HeadPolicy`.
    :param impersonate: False gives all users the credential's own rights.
    :param why_not: cure in rejections because of *identities*.
    :param member_tokens: see `tower.kube.head_policy.HeadPolicy`.
    :param unusable: why all requests fail, and the cure; empty: they do not.
    :ivar draining: set it when another gate replaces this one: requests in progress finish, and no new
        request uses it.
    """

    _clock: Clock
    _context: ssl.SSLContext | None
    _server_name: str
    _upstream: Callable[[], Upstream]
    _resumption: Resumption
    _identities: SystemIdentities = field(default=NONE_ALLOWED, kw_only=True)
    _impersonate: bool = field(default=True, kw_only=True)
    _why_not: str = field(kw_only=True)
    _member_tokens: Callable[[], str] = field(default=lambda: _NO_TOKENS, kw_only=True)
    _unusable: str = field(default="", kw_only=True)
    draining: bool = field(default=False, init=False)
    _policy: HeadPolicy = field(init=False)

    def __attrs_post_init__(self) -> None:
        """Make the policy."""
        self._policy = HeadPolicy(
            self._upstream,
            identities=self._identities,
            impersonate=self._impersonate,
            why_not=self._why_not,
            member_tokens=self._member_tokens,
        )

    def secure(self, channel: TunnelChannel) -> Deferred[Any]:
        """Return a `Pipe` inside *channel* after the TLS handshake, or *channel* without TLS.

        :raise StreamRefused: the handshake failed; through the Deferred.
        :raise TunnelLost: through the Deferred.
        """
        return self._handshake(channel, self._context, self._resumption)

    def verify(self, channel: TunnelChannel) -> Deferred[Any]:
        """Return the same after a full handshake: a resumed one does not check the certificate again.

        :raise StreamRefused: the handshake failed; through the Deferred.
        :raise TunnelLost: through the Deferred.
        """
        return self._handshake(channel, self._context, None)

    def secure_unverified(self, channel: TunnelChannel) -> Deferred[Any]:
        """Return the same without verification: to read the API server's clock, never with a credential.

        :raise StreamRefused: the handshake failed; through the Deferred.
        :raise TunnelLost: through the Deferred.
        """
        return self._handshake(channel, self._context and unverified_context(), None)

    def _handshake(
        self, channel: TunnelChannel, context: ssl.SSLContext | None, resumption: Resumption | None
    ) -> Deferred[Any]:
        if context is None:
            return succeed(channel)
        pipe = TLSHandshake(channel, context, self._server_name, self._clock, resumption, owner=self)
        securing: Deferred[Any] = pipe.secured
        return securing.addErrback(not_secured)

    def rewrite(self, head: bytes, plain: bool) -> bytes:
        """Return a request's head for the API server, with the credential.

        :param plain: do not add impersonation headers.
        :raise StatusError: the policy rejects the request, or the API server cannot be used.
        """
        if self._unusable:
            raise StatusError(502, self._unusable)
        if plain:
            return self._with_credential(head)
        rewritten = self._policy.rewrite(head)
        if isinstance(rewritten, Refusal):
            raise StatusError(403, rewritten.text)
        return rewritten.head

    def _with_credential(self, head: bytes) -> bytes:
        line, _, fields = head.partition(b"\r\n")
        upstream = self._upstream()
        others = b"".join(
            field for field in fields.splitlines(keepends=True) if not _REPLACED.fullmatch(field)
        )
        return b"%b\r\n%b%b%b" % (line, upstream.host_line, upstream.credential_line, others)


def not_secured(failure: Failure) -> NoReturn:
    """Convert a failure of `TLSHandshake.secured` to one of a stream; an errback.

    :raise StreamRefused: the TLS handshake failed.
    """
    error = failure.value
    if isinstance(error, ConnectFailed):
        raise StreamRefused(error.kind, str(error)) from None
    failure.raiseException()

"""What the proxy does in front of a member's API server where no agent of ours does it.

Behind an agent of ``tower-v2`` the agent shakes hands with its API server and adds its own credential to each
request.  An old agent, and a node that is reached by SSH, only pass bytes on: so TLS is made here, inside the
channel, and the credential goes into the head here, with the user's identity beside it.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable
from typing import Any, NoReturn

from twisted.internet.defer import Deferred, succeed
from twisted.python.failure import Failure

from tower.errors import StreamRefused
from tower.kube.head_policy import HeadPolicy, Refusal, Upstream
from tower.kube.status import StatusError
from tower.kube.system_identities import NONE_ALLOWED, SystemIdentities
from tower.net.connecting import ConnectFailed
from tower.net.tls.resumption import Resumption
from tower.tunnels.registry import TunnelChannel
from tower.tunnels.tls_handshake import TLSHandshake

_OWN = re.compile(rb"(?i:host|authorization):[^\r\n]*\r\n")


class APIServerGate:
    """:param clock: has ``callLater`` and ``seconds``.
    :param context: verifies the API server; None: it has no TLS.
    :param server_name: the name that its certificate must have.
    :param upstream: returns what heads need now.
    :param identities: the cluster's own users and groups; see `tower.kube.head_policy.HeadPolicy`.
    :param impersonate: False lets everybody act with the credential's own rights.
    :param why_not: the cure, behind a refusal because of *identities*.
    :ivar draining: set it when another door took its place: what goes on through this one may end, but no
        request begins there any more.
    """

    draining = False

    def __init__(
        self,
        clock: Any,
        context: ssl.SSLContext | None,
        server_name: str,
        upstream: Callable[[], Upstream],
        resumption: Resumption,
        *,
        identities: SystemIdentities = NONE_ALLOWED,
        impersonate: bool = True,
        why_not: str,
    ) -> None:
        self._clock = clock
        self._context = context
        self._server_name = server_name
        self._upstream = upstream
        self._resumption = resumption
        self._policy = HeadPolicy(upstream, identities=identities, impersonate=impersonate, why_not=why_not)

    def secure(self, channel: TunnelChannel) -> Deferred[Any]:
        """Return *channel* with the API server's TLS up in it, if it has TLS.

        :raise StreamRefused: through the Deferred.
        :raise TunnelLost: through the Deferred.
        """
        if self._context is None:
            return succeed(channel)
        pipe = TLSHandshake(
            channel, self._context, self._server_name, self._clock, self._resumption, owner=self
        )
        securing: Deferred[Any] = pipe.secured
        return securing.addErrback(not_secured)

    def rewrite(self, head: bytes, plain: bool) -> bytes:
        """Return a request's head as it goes to the API server, with the credential.

        :param plain: nobody is impersonated but whom the request itself names.
        :raise StatusError: the credential's rights are not lent for this.
        """
        if plain:
            return self._lend(head)
        rewritten = self._policy.rewrite(head)
        if isinstance(rewritten, Refusal):
            raise StatusError(403, rewritten.text)
        return rewritten.head

    def _lend(self, head: bytes) -> bytes:
        line, _, fields = head.partition(b"\r\n")
        upstream = self._upstream()
        kept = b"".join(field for field in fields.splitlines(keepends=True) if not _OWN.fullmatch(field))
        return b"%b\r\n%b%b%b" % (line, upstream.host_line, upstream.credential_line, kept)


def not_secured(failure: Failure) -> NoReturn:
    """Turn what `TLSHandshake.secured` fails with into what fails a stream; an errback.

    :raise StreamRefused: TLS did not come about.
    """
    error = failure.value
    if isinstance(error, ConnectFailed):
        raise StreamRefused(error.kind, str(error)) from None
    failure.raiseException()

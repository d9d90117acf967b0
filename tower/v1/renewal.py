"""When our agent registers again with an old proxy, because its credential for the API server has changed.

An old proxy uses the credential of the registration as long as the tunnel lives, so each renewal needs a new
tunnel.  A service account's token in a pod is replaced every hour, but the replaced one stays valid, often
for a year.  So the agent waits until the credential that it *sent* ends soon, or is no longer accepted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import define, field
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from tower.errors import ConfigurationError
from tower.kube.apiserver import APIServer
from tower.kube.client import APIError
from tower.kube.connection_settings import CredentialFacts, claims_of_token
from tower.kube.head_fields import Upstream
from tower.member.member_access import create_client
from tower.member.reconnecting import RENEWAL, Reconnecting
from tower.reactor.coroutines import deferred
from tower.reactor.interfaces import ISocketReactor
from tower.v1.config import AgentConfig
from tower.v1.uplink import V1Uplink

#: How long before the end of the sent credential the agent begins to wait for an idle moment, s, and how long
#: before it the agent reconnects in any case; at most a tenth, and a twentieth, of the credential's lifetime.
LEAD = 600.0
LATEST = 60.0

_UNAUTHORIZED = 401


@define(eq=False)
class RegistrationRenewal:
    """Reconnects an agent when its registration must be sent again.

    :param is_accepted: returns whether the API server still accepts the bearer token of a registration.
    :param epoch: returns the time of day, s since the epoch.
    """

    _log = Logger()

    _uplink: V1Uplink
    _service: Reconnecting
    _is_accepted: Callable[[AgentConfig], Deferred[bool]]
    _epoch: Callable[[], float]
    _announced: AgentConfig | None = field(default=None, init=False, repr=False)

    def check(self, *, is_changed: bool) -> None:
        """Reconnect if it is time to; call it every few seconds, and after each change of credential files.

        :param is_changed: whether the files have changed since the last call.
        """
        current, sent = self._uplink.change, self._uplink.sent
        if current is None or sent is None:
            return
        limit = renewal_limit(sent, current, self._epoch())
        if limit is not None:
            self._reconnect(sent, limit)
        elif is_changed:
            self._is_accepted(sent).addCallback(self._checked, sent)

    def _checked(self, accepted: bool, sent: AgentConfig) -> None:
        if not accepted and self._uplink.sent is sent:
            self._reconnect(sent, RENEWAL)

    def _reconnect(self, sent: AgentConfig, limit: float) -> None:
        if self._announced is not sent:
            self._announced = sent
            self._log.info("reconnecting to send the changed credential to the proxy")
        self._service.renew(limit)


def renewal_limit(sent: AgentConfig, current: AgentConfig, now: float) -> float | None:
    """Return the time within which *current* must replace the registration *sent*, s; None: not yet.

    It can wait only if nothing has changed but a token, which is of the same account, and has a known end.
    """
    lifetime = CredentialFacts.of(sent.certificate, sent.bearer).lifetime
    if lifetime.end is None or not _is_renewed(sent, current):
        return RENEWAL
    total = lifetime.end - (now if lifetime.begin is None else lifetime.begin)
    left = lifetime.end - now
    if left > min(LEAD, total / 10):
        return None
    return max(0.0, left - min(LATEST, total / 20))


def _is_renewed(sent: AgentConfig, current: AgentConfig) -> bool:
    """Return whether the two differ only in tokens of one account in one pod."""
    if sent.certificate or current.certificate:
        return False
    facts = ("authority", "kubernetes", "kubesphere", "name")
    if any(getattr(sent, each) != getattr(current, each) for each in facts):
        return False
    holder = _holder(sent.bearer)
    return bool(holder) and holder == _holder(current.bearer)


def _holder(token: bytes) -> tuple[Any, ...]:
    """Return the claims that two tokens of one account in one pod share; none without a subject."""
    claims = claims_of_token(token)
    bound = claims.get("kubernetes.io")
    objects = bound if isinstance(bound, dict) else {}
    subject = claims.get("sub")
    return (claims.get("iss"), subject, objects.get("serviceaccount"), objects.get("pod")) if subject else ()


@define(eq=False)
class SentCredential:
    """Asks the API server about the token in a registration."""

    _clock: IReactorTime
    _sockets: ISocketReactor
    _member: APIServer

    @deferred
    async def is_accepted(self, sent: AgentConfig) -> bool:
        """Return False if the API server rejects the token; True also if it cannot be asked."""
        upstream = self._member.upstream()
        line = b"Authorization: Bearer %b\r\n" % sent.bearer
        values = Upstream(upstream.prefix, upstream.host_line, line)
        client = create_client(self._clock, self._sockets, self._member, lambda: values)
        try:
            return (await client.request("GET", "/version")).code != _UNAUTHORIZED
        except (APIError, ConfigurationError):
            return True
        finally:
            client.close()

"""The authenticated peers of a tunnel, and the errors of their authentication."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from attrs import frozen

from tower.errors import PeerError
from tower.v2.hello import AgentHello, ProxyHello


class HostKeyMismatch(PeerError):
    """The proxy has none of the pinned host keys.

    :ivar fingerprint: of the key that it has.
    """

    for_peer = "host key not accepted"
    permanent = True

    def __init__(self, seen: str, pinned: Collection[str]) -> None:
        super().__init__(
            f"the proxy's host key is {seen}, not {' or '.join(sorted(pinned))}: "
            "either this is not your proxy, or its key was changed: then set --host-key to the new one, "
            "which 'tower join' prints"
        )
        self.fingerprint = seen


class AgentRefused(PeerError):
    """The proxy rejects both the key and the token of this agent."""

    for_peer = "authentication rejected"
    permanent = True


class AuthenticationFailed(PeerError):
    """An agent's requests were rejected, and it or we closed the connection; only for the proxy's log.

    :ivar cluster: name of the claimed cluster.
    """

    def __init__(self, cluster: str, refusals: Sequence[str]) -> None:
        super().__init__(f"for cluster {cluster!r}: {'; '.join(refusals)}")
        self.cluster = cluster


@frozen
class AgentPeer:
    """The authenticated peer of a `ServerTransport`.

    :ivar name: name of the cluster.
    :ivar fingerprint: of the agent's key.
    """

    name: str
    fingerprint: str
    hello: AgentHello


@frozen
class ProxyPeer:
    """The authenticated peer of a `ClientTransport`.

    :ivar name: name of the cluster that this agent serves.
    :ivar fingerprint: of the proxy's host key.
    """

    name: str
    fingerprint: str
    hello: ProxyHello

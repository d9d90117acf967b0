"""The authenticated peers of a tunnel, and the errors of their authentication."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from attrs import frozen

from tower.clusters.agent_rejection import AGENT_REJECTIONS, DISABLED, REVOKED, AgentRejected
from tower.errors import PeerError
from tower.v2.hello import AgentHello, ProxyHello

#: Banners (RFC 4252 section 5.4) for the owner of a key, by kind of `AgentRejected`; each begins with it.
NOTICES = {
    DISABLED: b"disabled: the cluster is disabled",
    REVOKED: b"revoked: this key was revoked",
}


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
    """The proxy rejects both the key and the token of this agent.

    :param notice: see `UserAuthClient`.
    :param has_token: whether the agent has a join token.
    :ivar is_disabled: whether the cluster is disabled, so that the agent only has to wait.
    """

    for_peer = "authentication rejected"
    permanent = True

    def __init__(self, cluster: str, fingerprint: str, notice: str, *, has_token: bool) -> None:
        join, key = f"run 'tower join {cluster}' for a join line", f"key {fingerprint}"
        if notice == DISABLED:
            text = f"the cluster is disabled: run 'tower cluster enable {cluster}'"
        elif notice == REVOKED and has_token:
            text = f"its {key} was revoked, and its join token is unknown, expired or used up: {join}"
        elif notice == REVOKED:
            text = f"its {key} was revoked, and it has no join token: {join}"
        elif has_token:
            text = (
                f"its join token is unknown, expired or used up, and its {key} is not enrolled; or the "
                f"cluster was removed or disabled: {join}"
            )
        else:
            text = f"it has no join token, and its {key} is not enrolled, or the cluster was removed: {join}"
        super().__init__(f"the proxy rejected this agent for cluster {cluster!r}: {text}")
        self.is_disabled = notice == DISABLED


class AuthenticationFailed(PeerError):
    """An agent's requests were rejected, and it or we closed the connection; only for the proxy's log.

    :ivar cluster: name of the claimed cluster.
    :ivar fingerprint: of the agent's key; empty: it has proven none.
    :ivar kind: the main one of the reasons: one of `AGENT_REJECTIONS`.
    """

    def __init__(self, cluster: str, refusals: Sequence[AgentRejected], fingerprint: str = "") -> None:
        reasons = dict.fromkeys(refusal.reason for refusal in refusals)
        super().__init__(f"for cluster {cluster!r}: {'; '.join(reasons)}")
        self.cluster = cluster
        self.fingerprint = fingerprint
        self.kind = min((refusal.kind for refusal in refusals), key=AGENT_REJECTIONS.index)


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

"""A tunnel that an old agent opened.

An old agent connects a channel to the requested address and relays bytes.  So `tower.tunnels.apiserver_gate`
does on the proxy what an agent of ``tower-v2`` does at its end.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, ClassVar

from attrs import evolve
from twisted.internet.defer import Deferred, fail
from twisted.internet.interfaces import IReactorTime

from tower.conch.tunnel.tunnel import SSHTunnel
from tower.errors import StreamRefused
from tower.kube.client import APIClient
from tower.kube.member_check import CHECK_LIMIT, MemberChecker
from tower.kube.member_cures import found, old_agent_texts
from tower.kube.member_status import CREDENTIAL, UNCHECKED, Check, MemberStatus
from tower.net.addresses import join_address
from tower.tunnels.apiserver_gate import APIServerGate
from tower.tunnels.live import CheckMember, Rewrite
from tower.tunnels.targets import KUBERNETES, KUBESPHERE
from tower.v1.config import CHANNEL
from tower.v1.server import V1Agent
from tower.websocket.subprotocols import KUBESPHERE_V1

#: Default port of a KubeSphere API server; old agents omit it.
_KUBESPHERE_PORT = 80

#: Why system identities are rejected.
_NO_SYSTEM = "no option allows it for agents of kubesphere-v1"

_NO_TOKENS = (
    "the request has a credential, and cluster {cluster} does not allow tokens of its own accounts: "
    "'tower cluster set {cluster} --member-tokens allow' allows them to trusted callers"
)
_NO_CREDENTIAL = (
    "cluster {cluster} cannot be used: its kubesphere-v1 agent sent no credential for the API server; "
    "old agents do not read the files that a kubeconfig names: put client-certificate-data and "
    "client-key-data into the agent's kubeconfig, or run it in a pod with a service account, and restart it"
)

_HAS_PORT = re.compile(r"(?:\[[^\]]*\]|[^:\]]*):[0-9]+")


class V1Tunnel:
    """See `tower.tunnels.Tunnel`.

    :param epoch: returns the time of day, s since the epoch.
    :param impersonate: False: all users act with the agent's own credential.
    :param verified_tls: whether the agent connected by TLS, for which old agents verify the certificate.
    :param allows_member_tokens: returns whether the cluster allows tokens of its own accounts.
    :ivar sent_credential: whether the agent sent a credential for its API server.
    :ivar credential_expires: when the agent's credential for its API server expires, s since the epoch; None:
        never, or unknown.
    """

    protocol: ClassVar[str] = KUBESPHERE_V1

    #: Old agents do not report it.
    host = ""

    #: Old agents have no drain message.
    draining = False

    def __init__(
        self,
        tunnel: SSHTunnel,
        agent: V1Agent,
        clock: IReactorTime,
        epoch: Callable[[], float],
        *,
        impersonate: bool = True,
        verified_tls: bool = False,
        allows_member_tokens: Callable[[], bool] = lambda: False,
    ) -> None:
        self._tunnel = tunnel
        credential = agent.credential
        config = agent.config
        self._kubernetes = join_address(credential.host, credential.port).encode()
        self._kubesphere = _with_port(config.kubesphere).encode()
        self._gate = APIServerGate(
            clock,
            credential.context,
            credential.server_name,
            lambda: credential.upstream,
            credential.resumption,
            impersonate=impersonate,
            why_not=_NO_SYSTEM,
            member_tokens=lambda: "" if allows_member_tokens() else _NO_TOKENS.format(cluster=agent.name),
            unusable=_NO_CREDENTIAL.format(cluster=agent.name) if credential.is_missing else "",
        )
        self.sent_credential, self.verified_tls = not credential.is_missing, verified_tls
        self.credential_expires = credential.facts.lifetime.end
        self.name, self.fingerprint, self.version = agent.name, agent.fingerprint, config.version
        self.peer, self.since = tunnel.peer, tunnel.since
        self.server = credential.address.encode()  # as in the Host fields that it gets
        self.member_status: MemberStatus | None = None
        texts = old_agent_texts(agent.name)
        checker = MemberChecker(
            clock,
            APIClient(
                clock,
                lambda: self._open_api_server().addCallback(self._gate.verify),
                lambda: credential.upstream,
                limit=CHECK_LIMIT,
            ),
            lambda: credential.address,
            lambda: credential.facts,
            texts,
            epoch=epoch,
            impersonate=impersonate,
            unverified=APIClient(
                clock,
                lambda: self._open_api_server().addCallback(self._gate.secure_unverified),
                credential.upstream.without_credential,
                limit=CHECK_LIMIT,
            ),
        )
        self.check_member: CheckMember | None = checker.check
        if credential.is_missing:  # from the start on, so that other agents of the cluster are preferred
            text = f"{texts.peer} sent no credential for API server {credential.address}"
            missing = found(CREDENTIAL, "CredentialMissing", text, texts)
            self.member_status = MemberStatus(credential=missing)
            self.check_member = _with_credential(checker.check, missing)
        self.on_change: Callable[[], None] = lambda: None
        self.request_check: Callable[[], None] = lambda: None

    @property
    def round_trip(self) -> float:
        """To the agent, s; 0: unknown."""
        return self._tunnel.round_trip

    @property
    def streams(self) -> int:
        """Number of open streams."""
        return self._tunnel.streams

    @property
    def bytes_in(self) -> int:
        """Bytes received from the agent."""
        return self._tunnel.bytes_in

    def nudge(self) -> None:
        """Send the agent a probe."""
        self._tunnel.nudge()

    def open(self, target: str) -> Deferred[Any]:
        """Open a stream to ``kubernetes``, with TLS, or to ``kubesphere``.

        The agent accepts before it dials: a failure to connect shows only as a closed stream.

        :raise StreamRefused: through the Deferred.
        :raise TunnelLost: through the Deferred.
        """
        if target == KUBERNETES:
            return self._open_api_server().addCallback(self._gate.secure)
        if target == KUBESPHERE and self._kubesphere:
            return self._tunnel.open_channel(CHANNEL, self._kubesphere)
        return fail(StreamRefused("no-such-target", f'an agent of kubesphere-v1 has no target "{target}"'))

    def _open_api_server(self) -> Deferred[Any]:
        return self._tunnel.open_channel(CHANNEL, self._kubernetes)

    def rewrite_for(self, target: str) -> Rewrite | None:
        """See `APIServerGate.rewrite`."""
        return self._gate.rewrite if target == KUBERNETES else None

    def drain(self) -> None:
        """No-op: old agents have no drain message."""

    def close(self, reason: str) -> None:
        """Close with a message to the agent that has the reason."""
        self._tunnel.close(reason)


def _with_credential(check: CheckMember, credential: Check) -> CheckMember:
    """Return a check of the API server alone, with the known state of the credential."""

    async def checked() -> MemberStatus:
        return evolve(await check(), credential=credential, impersonation=UNCHECKED)

    return checked


def _with_port(address: str) -> str:
    """Return *address* with a port; an old agent's default has none."""
    if not address or _HAS_PORT.fullmatch(address):
        return address
    return join_address(address.strip("[]"), _KUBESPHERE_PORT)

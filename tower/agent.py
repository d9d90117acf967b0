"""``tower-agent``: dials out of a private cluster and leads the proxy's streams to its API server."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable
from functools import partial
from typing import Any

from twisted.application.service import IService, MultiService, Service
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.error import CannotListenError
from twisted.logger import Logger
from twisted.python.failure import Failure

from tower import __version__
from tower.conch.transport.keys import load_or_create
from tower.conch.transport.limits import TransportLimits
from tower.conch.tunnel.tunnel import SSHTunnel
from tower.errors import ConfigurationError
from tower.kube.apiserver import APIServer
from tower.kube.head_policy import HeadPolicy
from tower.kube.self_test import check_head_policy
from tower.member.health_page import HealthService
from tower.member.options import AGENT_KEY, ANY_HOST_KEY, V1, Options
from tower.member.outgoing import Outgoing
from tower.member.reconnecting import Backoff, Reconnecting
from tower.member.targets import Targets
from tower.net.addresses import parse_address
from tower.net.budget import Budget
from tower.net.proxy_environment import find_proxy
from tower.net.tls.ca_pinning import strict_context
from tower.options import one_line_errors
from tower.reactor.clock import TimeOfDay, count_steadily
from tower.reactor.memory import LOOK, FreedMemory
from tower.reactor.periodic import periodic
from tower.reactor.poller import Poller
from tower.reactor.process import end_in_failure, forbid_dumps, raise_file_limit, settle_memory
from tower.trust.statedir import StateDir
from tower.tunnels.targets import KUBESPHERE_SERVICE, ServiceAddress, Target
from tower.v1.outgoing import V1Outgoing
from tower.v1.registration import Registrar
from tower.v1.uplink import EitherUplink, V1Uplink
from tower.v2.hello import LONGEST_TEXT, AgentHello
from tower.v2.known_proxies import KnownProxies
from tower.v2.uplink import AgentIdentity, Uplink
from tower.websocket.dialer import Dialer

__all__ = ["Agent", "Options", "makeService"]

#: How often files with credentials are looked at, s.
REFRESH = 10.0

#: How often an agent says again that an owner's flag is not secure, s.
REMINDER = 600.0

_ANYBODY = (
    "--insecure-v1-any-host-key: WHOEVER ANSWERS at {proxy} is sent the credentials of this cluster; {how}"
)
_HOW = {
    True: "all that shows it to be the proxy is its TLS certificate",
    False: "without TLS, nothing shows it to be the proxy: use wss:// if it can be had",
}

_NO_IMPERSONATION = (
    "--no-impersonation: EVERYBODY whom the proxy lets in acts in this cluster with the agent's own rights"
)
_ALL_IDENTITIES = (
    "--allow-system-identities is insecure: EVERY system identity is accepted from the proxy, "
    "system:masters included; allow single names with --allow-system-identity NAME"
)


#: What is said of flags that are not secure.
_NOT_SECURE = {"no-impersonation": _NO_IMPERSONATION, "allow-system-identities": _ALL_IDENTITIES}


class Agent(MultiService):
    """The whole program, as one service.

    :ivar uplink: the service that keeps the tunnel up.
    """

    _log = Logger()

    def __init__(self, reactor: Any, options: Options, state: StateDir) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._options = options
        self._state = state
        self._token_is_argument = options.given.get("token") == "flag"
        self.member = _member(options)
        self._registrar: Registrar | None = None
        self._old: V1Uplink | None = None
        sockets = Poller(reactor)
        self.uplink = Reconnecting(
            reactor,
            self._connector(sockets, TimeOfDay(reactor).seconds),
            Backoff(longest=options["max-retry-interval"]),
            max_retry=options["max-retry"],
            gave_up=lambda: end_in_failure(reactor),
            grace=options["grace"],
        )
        self.uplink.setServiceParent(self)  # type: ignore[no-untyped-call]
        if options["health-address"]:
            host, port = options["health-address"]
            HealthService(reactor, host, port, self.uplink).setServiceParent(self)  # type: ignore[no-untyped-call]
        Hangup(reactor, self.uplink.retry_now).setServiceParent(self)  # type: ignore[no-untyped-call]
        periodic(reactor, REFRESH, self._refresh).setServiceParent(self)
        periodic(reactor, LOOK, FreedMemory().look).setServiceParent(self)
        for name, text in _NOT_SECURE.items():
            if options[name]:
                periodic(reactor, REMINDER, partial(self._log.critical, text)).setServiceParent(self)

    def _connector(self, sockets: Poller, epoch: Callable[[], float]) -> Callable[[], Deferred[SSHTunnel]]:
        """Return what opens a tunnel by the protocol that was chosen."""
        options = self._options
        dialer = _dialer(sockets, options)
        budget = Budget(options["buffer-budget"])
        settings: Any = {
            "keepalive": options["keepalive"],
            "epoch": epoch,
            "limits": TransportLimits(rekey_bytes=options["rekey-bytes"]),
        }
        host_keys = KnownProxies(self._state, options["host-keys"])
        if not options.may_speak_v1:
            outgoing = self._outgoing(sockets, budget)
            return Uplink(sockets, dialer, self._identity(), host_keys, outgoing, budget, **settings).connect
        service = options["kubesphere-service"]
        kubesphere = parse_address(service, 80) if service else KUBESPHERE_SERVICE
        self._registrar = Registrar(
            self.member, options["name"], options.secret("token") or "", ServiceAddress(*kubesphere)
        )
        pinned = None if options[ANY_HOST_KEY] else host_keys.pinned
        outgoing_v1 = V1Outgoing(sockets)
        self._old = V1Uplink(sockets, dialer, self._registrar, pinned, outgoing_v1, budget, **settings)
        return self._old.connect if options["protocol"] == V1 else EitherUplink(dialer, self._old).connect

    def _identity(self) -> AgentIdentity:
        options = self._options
        return AgentIdentity(
            cluster=options["name"],
            key=load_or_create(self._state, AGENT_KEY),
            hello=AgentHello(
                __version__,
                socket.gethostname()[:255],
                tuple(self._targets.names),
                server=self.member.address[:LONGEST_TEXT],
            ),
            token=options.secret("token") or None,
        )

    def _refresh(self) -> None:
        """Follow the files with credentials; an old proxy that has what was in them is told anew."""
        if self.member.refresh() and self._old is not None and self._old.is_stale:
            self._log.info("the credentials that the proxy was sent have changed")
            self.uplink.renew()

    def _outgoing(self, sockets: Poller, budget: Budget) -> Outgoing:
        options = self._options
        targets = list(options["targets"])
        if options["kubesphere-service"]:
            targets.append(Target("kubesphere", *parse_address(options["kubesphere-service"], 80)))
        self._targets = Targets(targets)
        policy = HeadPolicy(
            self.member.upstream,
            identities=options.identities,
            impersonate=not options["no-impersonation"],
        )
        return Outgoing(sockets, self.member, policy, self._targets, budget)

    def startService(self) -> None:
        """Say what the owner should know, and begin."""
        options = self._options
        self._log.info(
            "tower-agent {version} for cluster {cluster}: API server at {host}:{port}, proxy at {proxy}",
            version=__version__,
            cluster=options["name"],
            host=self.member.host,
            port=self.member.port,
            proxy=str(options.server),
        )
        for warning in self.member.warnings:
            self._log.warn("{text}", text=warning)
        if self._token_is_argument:
            self._log.warn(
                "--token shows in the process list, for everybody on this machine, and cannot be hidden; "
                "use --token-file or TOWER_TOKEN"
            )
        self._warn_of_v1()
        for name in options["allowed-identities"]:
            self._log.warn(
                "--allow-system-identity {name}: accepted from the proxy as user and as group", name=name
            )
        raise_file_limit()
        settle_memory()
        super().startService()  # type: ignore[no-untyped-call]

    def _warn_of_v1(self) -> None:
        if self._registrar is None:
            return
        for warning in self._registrar.warnings:
            self._log.warn("{text}", text=warning)
        if self._options[ANY_HOST_KEY]:
            server = self._options.server
            self._log.critical(_ANYBODY, proxy=str(server), how=_HOW[server.secure])

    def stopService(self) -> Deferred[None]:
        """Hand over, stop everything, and let another agent use the state directory."""
        return maybeDeferred(super().stopService).addBoth(self._stopped)

    def _stopped(self, result: Any) -> Any:
        self._state.close()
        return result if isinstance(result, Failure) else None


class Hangup(Service):
    """Calls *retry* on SIGHUP.

    :param set_handler: `signal.signal`, or what a test has instead.
    """

    def __init__(
        self, reactor: Any, retry: Callable[[], None], set_handler: Callable[..., Any] = signal.signal
    ) -> None:
        self._reactor = reactor
        self._retry = retry
        self._set_handler = set_handler
        self._before: Any = None

    def startService(self) -> None:
        """Listen to the signal."""
        super().startService()  # type: ignore[no-untyped-call]
        self._before = self._set_handler(signal.SIGHUP, self._hung_up)

    def stopService(self) -> None:
        """Leave the signal to whoever had it."""
        super().stopService()  # type: ignore[no-untyped-call]
        self._set_handler(signal.SIGHUP, self._before)

    def _hung_up(self, number: int, frame: object) -> None:
        self._reactor.callFromThread(self._retry)


def _member(options: Options) -> APIServer:
    service = options["kubernetes-service"]
    if options["kubeconfig"]:
        return APIServer.from_kubeconfig(str(options["kubeconfig"]), service)
    return APIServer.in_cluster(os.environ, service)


def _dialer(sockets: Poller, options: Options) -> Dialer:
    url = options.server
    context = None
    if url.secure and not options["ca-hashes"]:
        context = strict_context(None if options["ca-cert"] is None else str(options["ca-cert"]))
    proxy = find_proxy(url, os.environ)
    return Dialer(sockets, url, context=context, hashes=options["ca-hashes"], proxy=proxy)


@one_line_errors("tower-agent")
def makeService(options: Options, reactor: Any = None) -> IService:
    """Return the agent as a service; what cannot work ends the program here, with one line."""
    if reactor is None:
        from twisted.internet import reactor

        count_steadily(reactor)
        if not options["allow-core-dumps"]:
            forbid_dumps()
    check_head_policy()
    state = StateDir(options.state_dir)
    state.lock()
    try:
        agent: IService = Agent(reactor, options, state)
    except (ConfigurationError, CannotListenError):
        state.close()
        raise
    options.forget_secret("token")
    return agent

"""The agent, ``tower-agent``: its parts, their settings, and the services that run."""

from __future__ import annotations

import os
import socket
import ssl
from functools import partial
from typing import Any

from twisted.application.service import IService, MultiService, Service
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.error import CannotListenError
from twisted.logger import Logger
from twisted.python.failure import Failure

from tower import BUILD, WARNINGS, __version__
from tower.conch.transport.keys import KeyPair
from tower.conch.transport.limits import TransportLimits
from tower.errors import ConfigurationError
from tower.kube.apiserver import APIServer
from tower.kube.head_policy import HeadPolicy, allow_member_tokens, refuse_member_tokens
from tower.kube.member_check import TIMEOUT
from tower.kube.member_cures import agent_texts
from tower.kube.self_test import check_head_policy
from tower.member.agent_metrics import AgentCollector, metrics_services
from tower.member.health_page import HealthPage, HealthService
from tower.member.member_access import create_checker, create_client
from tower.member.member_health import MemberHealth
from tower.member.options import ANY_HOST_KEY, V1, Options
from tower.member.outgoing import Outgoing
from tower.member.policy.owner_enforcement import OwnerEnforcement
from tower.member.reconnecting import Backoff, Reconnecting
from tower.member.targets import Targets
from tower.net.addresses import join_address, parse_address
from tower.net.budget import Budget
from tower.net.proxy_environment import find_proxy
from tower.net.tls.ca_pinning import strict_context
from tower.options.errors import one_line_errors, raise_all
from tower.program import installed_reactor, run
from tower.reactor.clock import TimeOfDay
from tower.reactor.interfaces import IReactor
from tower.reactor.memory import LOOK, FreedMemory
from tower.reactor.poller import Poller
from tower.reactor.process import end_in_failure, raise_file_limit, settle_memory
from tower.reactor.repeating import RepeatingTask, periodic
from tower.reactor.service_manager import notify_manager
from tower.reactor.signals import Reloads, Signals
from tower.trust.statedir import StateDir
from tower.tunnels.targets import KUBESPHERE_SERVICE, ServiceAddress, Target
from tower.v1.neighbor import PERIOD, OldAgentCheck
from tower.v1.outgoing import V1Outgoing
from tower.v1.registration import Registrar
from tower.v1.renewal import RegistrationRenewal, SentCredential
from tower.v1.token_source import TokenSource
from tower.v1.uplink import EitherUplink, V1Uplink
from tower.v2.agent_state import AgentState
from tower.v2.hello import CHECK_MEMBER, LONGEST_TEXT, MEMBER_STATUS, AgentHello
from tower.v2.peers import AgentRefused
from tower.v2.uplink import AgentIdentity, Uplink
from tower.websocket.dialer import Dialer

__all__ = ["Agent", "Options", "main", "makeService"]

#: Interval of checks for changed credential files, s.
REFRESH = 10.0

#: Interval of warnings about insecure options, s.
REMINDER = 600.0

#: Warnings about insecure options.
_INSECURE = {
    "no-impersonation": "--no-impersonation is insecure: ALL users that the proxy authenticates act in this "
    "cluster with the agent's own rights",
    "allow-system-identities": "--allow-system-identities is insecure: ALL system identities are accepted "
    "from the proxy, system:masters included; allow single names with --allow-system-identity NAME",
}

_MEMBER_TOKENS = {
    False: "trusted callers of the proxy, and other clients if its administrators allow that, may send "
    "requests with tokens of this cluster's own accounts",
    True: "without effect while the agent has a client certificate, which takes precedence over tokens",
}

_ANY_PROXY = (
    "--insecure-v1-any-host-key: the credentials of this cluster are sent to ANY server that answers at "
    "{proxy}; {authenticated}"
)
_AUTHENTICATED = {
    True: "only its TLS certificate authenticates it",
    False: "nothing authenticates it: use wss:// if the proxy supports it",
}


def main() -> int:
    """Run ``tower-agent``; return its exit code."""
    return run("tower-agent", Options(), makeService)


@one_line_errors("tower-agent")
def makeService(options: Options, reactor: IReactor | None = None) -> IService:
    """Return the agent; a configuration that cannot work ends the program with one line and exit code 1.

    :param reactor: None: the installed one, and the agent handles the process's signals.
    """
    is_program = reactor is None
    if reactor is None:
        reactor = installed_reactor(options)
    check_head_policy()
    raise_all(options.complete().validate())
    state = None if options["key-secret"] else StateDir(options.state_dir)
    if state is not None:
        state.lock()
    try:
        agent = Agent(reactor, options, state)
    except (ConfigurationError, CannotListenError):
        if state is not None:
            state.close()
        raise
    options.forget_secret("token")
    if is_program:
        Signals(reactor, agent.reloads, options.flush_log).setServiceParent(agent)  # type: ignore[no-untyped-call]
        reactor.callWhenRunning(notify_manager(agent, reactor, agent.reloads, agent.summary))
    return agent


def _tls_context(options: Options) -> ssl.SSLContext | None:
    """Return the context that verifies the proxy; None: without TLS, or by ``--ca-hash``."""
    if not options.server.secure or options["ca-hashes"]:
        return None
    file = options["ca-cert"]
    return strict_context(None if file is None else str(file))


class Agent(MultiService):
    """The agent with all its parts.

    :param state: locked; None with ``--key-secret``.
    :ivar member: the API server.
    :ivar reloads: what SIGHUP reloads.
    :ivar member_health: the state of the API server and of the credential.
    :ivar targets: of streams; set with tower-v2 only.
    :ivar uplink: the service that keeps the tunnel open.
    """

    _log = Logger()
    targets: Targets

    def __init__(self, reactor: IReactor, options: Options, state: StateDir | None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._options = options
        self._state = state
        self._v1: V1Uplink | None = None
        self._renewal: RegistrationRenewal | None = None
        self._warnings: list[str] = []
        name, url, kubesphere = options["name"], options.server, options["kubesphere-service"]
        sockets = Poller(reactor)
        budget = Budget(options["buffer-budget"])

        # The API server
        self.member = member = _api_server(options)
        kept = AgentState.of(options, state, reactor, sockets, member)
        known_proxies = kept.known_proxies

        # Its health
        time_of_day = TimeOfDay(reactor).seconds
        impersonate = not (options["no-impersonation"] or options.may_speak_v1)
        texts = agent_texts(str(options["kubeconfig"] or ""), member.access)
        checker = create_checker(reactor, sockets, member, texts, epoch=time_of_day, impersonate=impersonate)
        self.member_health = health = MemberHealth(reactor, checker.check)

        # The tunnel
        dialer = Dialer(
            sockets,
            url,
            context=_tls_context(options),
            hashes=options["ca-hashes"],
            proxy=find_proxy(url, os.environ),
            announced=known_proxies.ca_hashes,
        )
        settings: Any = {
            "keepalive": options["keepalive"],
            "epoch": time_of_day,
            "limits": TransportLimits(rekey_bytes=options["rekey-bytes"]),
        }
        policy: HeadPolicy | None = None
        self.reloads = reloads = Reloads()
        self._owner = owner = OwnerEnforcement.of(options, reactor, reloads, os.environ)
        if options.may_speak_v1:
            registrar = Registrar(
                member,
                name,
                TokenSource(options.secret("token") or "", options.secret_file("token")),
                ServiceAddress(*(parse_address(kubesphere, 80) if kubesphere else KUBESPHERE_SERVICE)),
            )
            self._warnings += registrar.warnings
            pinned = None if options[ANY_HOST_KEY] else known_proxies.pinned
            v1_outgoing = V1Outgoing(sockets)
            tally = v1_outgoing.tally
            self._v1 = v1 = V1Uplink(sockets, dialer, registrar, pinned, v1_outgoing, budget, **settings)
            connect = v1.connect if options["protocol"] == V1 else EitherUplink(dialer, v1).connect
        else:
            targets = list(options["targets"])
            if kubesphere:
                targets.append(Target("kubesphere", *parse_address(kubesphere, 80)))
            self.targets = Targets(targets)
            policy = HeadPolicy(
                member.upstream,
                identities=options.identities,
                impersonate=not options["no-impersonation"],
                member_tokens=allow_member_tokens if options["allow-member-tokens"] else refuse_member_tokens,
            )
            hello = AgentHello(
                __version__,
                socket.gethostname()[:255],
                tuple(self.targets.names),
                (MEMBER_STATUS, CHECK_MEMBER),
                server=member.address[:LONGEST_TEXT],
            )
            gate = None if owner is None else owner.gate
            outgoing = Outgoing(sockets, member, policy, self.targets, budget, owner=gate)
            tally = outgoing.tally
            outgoing.on_dialed = health.dialed
            token = options.secret("token") or None

            def create_uplink(key: KeyPair) -> Uplink:
                identity = AgentIdentity(cluster=name, key=key, hello=hello, token=token)
                return Uplink(
                    sockets, dialer, identity, known_proxies, outgoing, budget, health=health, **settings
                )

            connect = kept.connector(create_uplink)

        # Services
        self.uplink = uplink = Reconnecting(
            reactor,
            connect,
            Backoff(longest=options["max-retry-interval"]),
            max_retry=options["max-retry"],
            gave_up=lambda: end_in_failure(reactor),
            grace=options["grace"],
        )
        reloads.add("log", options.reload_log)
        reloads.add("credential of the API server", self._refresh)
        reloads.add("state of the API server", health.check_now)
        reloads.add("connection to the proxy", uplink.retry_now)
        services: list[Service] = [
            uplink,
            *kept.services,
            periodic(reactor, REFRESH, self._refresh),
            health,
            periodic(reactor, LOOK, FreedMemory().look),
            *(() if owner is None else owner.services),
        ]
        if options["metrics-port"] is not None:
            collector = AgentCollector(
                uplink=uplink,
                tally=tally,
                budget=budget,
                status=lambda: health.status,
                is_disabled=lambda: isinstance(uplink.error, AgentRefused) and uplink.error.is_disabled,
                refused_heads=lambda: 0 if policy is None else policy.refused,
                owner=owner,
            )
            services += metrics_services(reactor, collector, options["metrics-host"], options["metrics-port"])
        if options["health-address"]:
            host, port = options["health-address"]
            services.append(HealthService(reactor, host, port, HealthPage(uplink, health, owner)))
        if self._v1 is not None:
            services.append(self._follow_v1(self._v1, reactor, sockets))
        for option, text in _INSECURE.items():
            if options[option]:
                services.append(periodic(reactor, REMINDER, partial(self._log.critical, text)))
        for each in services:
            each.setServiceParent(self)

    def _follow_v1(self, v1: V1Uplink, reactor: IReactor, sockets: Poller) -> Service:
        """Renew the registration with the old proxy from now on; return the check for an old agent."""
        sent = SentCredential(reactor, sockets, self.member)
        time_of_day = TimeOfDay(reactor).seconds
        self._renewal = RegistrationRenewal(v1, self.uplink, sent.is_accepted, time_of_day)
        check = OldAgentCheck(reactor, create_client(reactor, sockets, self.member), socket.gethostname())
        return RepeatingTask(reactor, PERIOD, check.run, TIMEOUT)

    def _refresh(self) -> None:
        """Follow the credential files; reconnect if a KubeSphere Tower proxy has an old credential."""
        problem = self.member.problem
        is_changed = self.member.refresh()
        if is_changed or self.member.problem != problem:
            self.member_health.check_now()
        if self._renewal is not None:
            self._renewal.check(is_changed=is_changed)

    def startService(self) -> None:
        """Log the configuration and its risks, and start."""
        options, member = self._options, self.member
        self._log.info(
            "tower-agent {version} ({build}) of cluster {cluster}: API server {server}, proxy {proxy}",
            version=__version__,
            build=BUILD,
            cluster=options["name"],
            server=join_address(member.host, member.port),
            proxy=str(options.server),
        )
        for warning in (*WARNINGS, *member.warnings, *self._warnings):
            self._log.warn("{text}", text=warning)
        if options.given.get("token") == "flag":
            self._log.warn(
                "--token is visible in the process list to all users of this machine: use --token-file or "
                "TOWER_TOKEN"
            )
        for name in options["allowed-identities"]:
            self._log.warn(
                "--allow-system-identity {name}: accepted from the proxy as user and as group", name=name
            )
        if options["allow-member-tokens"]:
            self._log.warn(
                "--allow-member-tokens: {text}", text=_MEMBER_TOKENS[member.upstream().has_certificate]
            )
        if self._v1 is not None and options[ANY_HOST_KEY]:
            authenticated = _AUTHENTICATED[options.server.secure]
            self._log.critical(_ANY_PROXY, proxy=str(options.server), authenticated=authenticated)
        raise_file_limit()
        settle_memory()
        super().startService()  # type: ignore[no-untyped-call]

    def summary(self) -> str:
        """Return the state of the tunnel and of the API server in one sentence."""
        if not self.uplink.ready:
            return f"not connected to the proxy: {self.uplink.state}"
        failure = "" if self._owner is None else self._owner.failure
        if failure:
            return f"connected to the proxy; all requests are rejected: {failure}"
        return f"connected to the proxy; {self.member_health.problem or 'the API server is usable'}"

    def stopService(self) -> Deferred[None]:
        """Stop everything, and unlock the state directory."""
        return maybeDeferred(super().stopService).addBoth(self._stopped)

    def _stopped(self, result: Any) -> Any:
        if self._state is not None:
            self._state.close()
        self._log.info("tower-agent stopped")
        return result if isinstance(result, Failure) else None


def _api_server(options: Options) -> APIServer:
    service = options["kubernetes-service"]
    if options["kubeconfig"]:
        return APIServer.from_kubeconfig(str(options["kubeconfig"]), service)
    return APIServer.in_cluster(os.environ, service)

"""``tower-agent``: dials out of a private cluster and leads the proxy's streams to its API server."""

from __future__ import annotations

import atexit
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from twisted.application.service import IService, MultiService, Service
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.error import CannotListenError
from twisted.logger import Logger
from twisted.python import usage
from twisted.python.failure import Failure

from tower import __version__
from tower.budget import Budget
from tower.clock import TimeOfDay, count_steadily
from tower.cluster import check_name
from tower.conch.hello import LONGEST_TEXT, AgentHello
from tower.conch.keys import checked_fingerprint, load_or_create
from tower.conch.limits import Limits
from tower.errors import ConfigurationError, Invalid
from tower.health import HealthService
from tower.member import Member
from tower.options import (
    EnvironmentOptions,
    flag,
    one_line_errors,
    parameter,
    read_address,
    read_count,
    read_duration,
    read_file,
    read_size,
    secret,
)
from tower.outgoing import Outgoing
from tower.periodic import periodic
from tower.policy import HeadPolicy, Target, Targets, parse_address, parse_target
from tower.poller import Poller
from tower.process import raise_file_limit, settle_memory
from tower.reconnecting import Reconnecting
from tower.statedir import StateDir
from tower.uplink import HostKeys, Identity, Uplink
from tower.web.dial import Backoff, Dialer
from tower.web.pinning import parse_ca_hash, strict_context
from tower.web.serverurl import ServerURL, find_proxy, parse_server_url

#: How often files with credentials are looked at, s.
REFRESH = 10.0

#: How often an agent without impersonation says so, s.
REMINDER = 600.0

_NO_IMPERSONATION = (
    "--no-impersonation: EVERYBODY whom the proxy lets in acts in this cluster with the agent's own rights"
)


class Options(EnvironmentOptions):
    """What `twistd tower-agent` is told.

    :ivar server: where the proxy is, once the options are parsed.
    """

    optParameters: ClassVar = [
        parameter("name", None, "The cluster that this agent serves, as the proxy knows it."),
        parameter("proxy-server", None, "URL of the proxy: wss://HOST:PORT, or ws://HOST:PORT without TLS."),
        parameter("ca-cert", None, "PEM file with the CA of a wss:// proxy (the system's CAs).", read_file),
        *secret("token", "Join token; shows in the process list, so rather use TOWER_TOKEN."),
        parameter("state-dir", None, "Where the agent keeps its key (~/.local/state/tower-agent/NAME)."),
        parameter(
            "kubeconfig", None, "How the cluster is reached (the service account, in a pod).", read_file
        ),
        parameter("kubernetes-service", "", "host:port of the API server, in place of the kubeconfig's."),
        parameter("kubesphere-service", "", "host:port of the KubeSphere API server: target kubesphere."),
        parameter("keepalive", 10.0, "How often the proxy is probed (10s).", read_duration),
        parameter("max-retry", 0, "Retries in a row before the agent gives up; 0: never.", read_count),
        parameter("max-retry-interval", 120.0, "Longest wait between two tries (2m).", read_duration),
        parameter("health-address", None, "host:port of the page with /healthz and /readyz.", read_address),
        parameter("grace", 10.0, "How long a stop waits for requests under way (10s).", read_duration),
        parameter("buffer-budget", 32 << 20, "Memory for streams in flight (32MiB).", read_size),
        parameter("rekey-bytes", 1 << 30, "Bytes after which the tunnel's keys change (1GiB).", read_size),
    ]
    optFlags: ClassVar = [
        flag(
            "allow-system-identities",
            "Let users act as system:masters, nodes, service accounts and the like.",
        ),
        flag("no-impersonation", "Let EVERYBODY act with the agent's own rights."),
    ]
    repeated = frozenset({"host-key", "ca-hash", "target"})
    server: ServerURL

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        super().__init__(environ)
        self["host-keys"], self["ca-hashes"], self["targets"] = [], [], []

    def opt_host_key(self, text: str) -> None:
        """Fingerprint of the proxy's host key, SHA256:..., from the join line.  Repeatable."""
        self["host-keys"].append(_usage(checked_fingerprint, text, "--host-key "))

    def opt_ca_hash(self, text: str) -> None:
        """Hash of the key of the proxy's CA, sha256:..., from the join line.  Repeatable."""
        self["ca-hashes"].append(_usage(parse_ca_hash, text))

    def opt_target(self, text: str) -> None:
        """What streams may lead to besides the API server, as NAME=HOST:PORT.  Repeatable."""
        self["targets"].append(_usage(parse_target, text, "--target "))

    def postOptions(self) -> None:
        """Check what goes together."""
        super().postOptions()
        for name, hint in (
            ("name", "the cluster's name, as in 'tower cluster add NAME'"),
            ("proxy-server", "where the proxy is, as in wss://tower.example.com:8443"),
        ):
            if not self[name]:
                raise usage.UsageError(f"--{name} is missing: {hint}")
        if not self["host-keys"]:
            raise usage.UsageError("--host-key is missing: take it from the line that 'tower join' prints")
        _usage(check_name, self["name"], "--name: ")
        self.server = _usage(parse_server_url, self["proxy-server"])
        self._check_authority()
        for name, default in (("kubernetes-service", 443), ("kubesphere-service", 80)):
            if self[name]:
                _usage(partial(parse_address, default_port=default), self[name], f"--{name} ")

    def _check_authority(self) -> None:
        if self["ca-hashes"] and self["ca-cert"]:
            raise usage.UsageError("--ca-hash and --ca-cert say the same thing twice: give one of them")
        if not self.server.secure and (self["ca-hashes"] or self["ca-cert"]):
            raise usage.UsageError(
                f"--proxy-server {self.server} has no TLS to verify: "
                "begin it with wss://, or leave out --ca-hash and --ca-cert"
            )

    @property
    def state_dir(self) -> Path:
        """Where the key is kept."""
        return Path(self["state-dir"] or Path.home() / ".local" / "state" / "tower-agent" / self["name"])


def _usage(read: Callable[[str], Any], text: str, prefix: str = "") -> Any:
    """Return what *read* makes of *text*; its error is one of usage."""
    try:
        return read(text)
    except (ConfigurationError, Invalid) as e:
        raise usage.UsageError(f"{prefix}{e}") from None


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
        sockets = Poller(reactor)
        outgoing = self._outgoing(sockets)
        identity = Identity(
            cluster=options["name"],
            key=load_or_create(state, "agent-key"),
            hello=AgentHello(
                __version__,
                socket.gethostname()[:255],
                tuple(self._targets.names),
                server=self.member.address[:LONGEST_TEXT],
            ),
            token=options.secret("token"),
        )
        self.uplink = Reconnecting(
            reactor,
            Uplink(
                sockets,
                _dialer(sockets, options),
                identity,
                HostKeys(state, options["host-keys"]),
                outgoing,
                Budget(options["buffer-budget"]),
                keepalive=options["keepalive"],
                epoch=TimeOfDay(reactor).seconds,
                limits=Limits(rekey_bytes=options["rekey-bytes"]),
            ).connect,
            Backoff(longest=options["max-retry-interval"]),
            max_retry=options["max-retry"],
            gave_up=lambda: _end(reactor),
            grace=options["grace"],
        )
        self.uplink.setServiceParent(self)  # type: ignore[no-untyped-call]
        if options["health-address"]:
            host, port = options["health-address"]
            HealthService(reactor, host, port, self.uplink).setServiceParent(self)  # type: ignore[no-untyped-call]
        Hangup(reactor, self.uplink.retry_now).setServiceParent(self)  # type: ignore[no-untyped-call]
        periodic(reactor, REFRESH, self.member.refresh).setServiceParent(self)
        if options["no-impersonation"]:
            periodic(reactor, REMINDER, lambda: self._log.critical(_NO_IMPERSONATION)).setServiceParent(self)

    def _outgoing(self, sockets: Poller) -> Outgoing:
        options = self._options
        targets = list(options["targets"])
        if options["kubesphere-service"]:
            targets.append(Target("kubesphere", *parse_address(options["kubesphere-service"], 80)))
        self._targets = Targets(targets)
        policy = HeadPolicy(
            self.member.upstream,
            allow_system=bool(options["allow-system-identities"]),
            impersonate=not options["no-impersonation"],
        )
        return Outgoing(sockets, self.member, policy, self._targets)

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
            self._log.warn("{warning}", warning=warning)
        if self._token_is_argument:
            self._log.warn(
                "--token shows in the process list, for everybody on this machine, and cannot be hidden; "
                "use TOWER_TOKEN or --token-file"
            )
        if options["allow-system-identities"]:
            self._log.warn("--allow-system-identities: whoever the proxy says is a cluster-admin is one here")
        raise_file_limit()
        settle_memory()
        super().startService()  # type: ignore[no-untyped-call]

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


def _member(options: Options) -> Member:
    service = options["kubernetes-service"]
    if options["kubeconfig"]:
        return Member.from_kubeconfig(str(options["kubeconfig"]), service)
    return Member.in_cluster(os.environ, service)


def _dialer(sockets: Poller, options: Options) -> Dialer:
    url = options.server
    context = None
    if url.secure and not options["ca-hashes"]:
        context = strict_context(None if options["ca-cert"] is None else str(options["ca-cert"]))
    proxy = find_proxy(url, os.environ)
    return Dialer(sockets, url, context=context, hashes=options["ca-hashes"], proxy=proxy)


def _end(reactor: Any) -> None:
    """Stop the program, with exit code 1: whoever started us should know that we gave up."""
    atexit.register(_exit)  # twistd itself ends with 0 whenever the reactor was stopped
    reactor.stop()


def _exit() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)


@one_line_errors("tower-agent")
def makeService(options: Options, reactor: Any = None) -> IService:
    """Return the agent as a service; what cannot work ends the program here, with one line."""
    if reactor is None:
        from twisted.internet import reactor

        count_steadily(reactor)
    state = StateDir(options.state_dir)
    state.lock()
    try:
        agent: IService = Agent(reactor, options, state)
    except (ConfigurationError, CannotListenError):
        state.close()
        raise
    os.environ.pop("TOWER_TOKEN", None)
    return agent

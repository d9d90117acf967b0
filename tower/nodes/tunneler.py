"""kube-apiserver's ``SSHTunneler``: lists the nodes, keeps tunnels to them and has the SSH key installed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from twisted.application.service import MultiService
from twisted.internet.defer import CancelledError, Deferred, fail
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from tower.cloud.errors import NotImplementedByCloud
from tower.clusters.node import Node
from tower.clusters.node_status import SSHStatus
from tower.conch.connection.channel import Channel
from tower.errors import ClusterUnreachable, ConfigurationError, TowerError, one_line
from tower.net.budget import Budget
from tower.nodes.cloud import Install, NodeCloud
from tower.nodes.keypair import KeyPairFiles
from tower.nodes.node_sources import Lister
from tower.nodes.ssh.client import KEEPALIVE_INTERVAL, Dial
from tower.nodes.tunnels.context import HealthCheck
from tower.nodes.tunnels.tunnel import NodeLogin, NodeTunnel
from tower.nodes.tunnels.tunnels import HEALTH_PERIOD, NodeTunnels
from tower.reactor.interfaces import ISocketReactor
from tower.reactor.repeating import RepeatingTask
from tower.reactor.timers import Clock
from tower.tunnels.counters import TunnelCounters

#: Interval between listings, and time limit for one, s.
SYNC_PERIOD = 15.0
SYNC_TIMEOUT = 30.0

#: Interval between installations of the key, and time limit for one, s.
INSTALL_PERIOD = 300.0
INSTALL_TIMEOUT = 120.0

#: Least interval between installations because of new nodes, s.
NEWCOMER_PERIOD = 60.0

#: Largest lags of a healthy tunneler, s.
TUNNEL_LAG = 600
KEY_LAG = 900

#: Longest user name, B, as in Linux.
LONGEST_USER = 32


class TunnelSyncUnhealthy(TowerError):
    """The nodes were not listed, or the key was not installed, for too long."""


def truncate_user(user: str) -> str:
    """Return *user*, or its first `LONGEST_USER` bytes; login and key installation must use the same."""
    return user.encode()[:LONGEST_USER].decode(errors="ignore")


class SSHTunneler(MultiService):
    """Three timers around a list of tunnels; an error in their work never stops them.

    As a service, it runs from its start to its stop; its owner calls `close`.

    :param user: to install the key for; truncated, see `truncate_user`.
    :param lister: may be passed to `run` instead.
    :ivar install: None: the administrator of the nodes installs the key.
    :param epoch: returns the time of day, s since the epoch.
    :param name: of the cluster, for log lines.
    :param on_close: called at the end of `close`.
    """

    _log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        user: str,
        keypair: KeyPairFiles,
        tunnels: NodeTunnels,
        *,
        lister: Lister | None,
        install: Install | None,
        epoch: Callable[[], float],
        name: str = "",
        on_close: Callable[[], object] = lambda: None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._on_close = on_close
        self.user = truncate_user(user)
        self.tunnels = tunnels
        self._too_long = self.user != user
        self._keypair = keypair
        self._lister = lister
        self.install = install
        self._epoch = epoch
        self._prefix = f"{name}: " if name else ""
        self._has_run = False
        self._last_sync: float | None = None
        self._last_install: float | None = None
        self._sync_lags_since: float | None = None
        self._key_lags_since: float | None = None
        self._list_error = self._key_error = ""
        self._listed: frozenset[str] | None = None
        self._installing = RepeatingTask(clock, INSTALL_PERIOD, self._install_key, INSTALL_TIMEOUT)
        self._syncing = RepeatingTask(clock, SYNC_PERIOD, self._sync, SYNC_TIMEOUT)
        for timer in (
            RepeatingTask(clock, HEALTH_PERIOD, self._check, HEALTH_PERIOD),
            self._installing,
            self._syncing,
        ):
            timer.setServiceParent(self)  # type: ignore[no-untyped-call]

    # Running

    def run(self, lister: Lister | None = None) -> None:
        """Start, unless it is running.

        :param lister: None: the one passed before.
        :raise ConfigurationError: none was ever passed.
        """
        if self.running:
            return
        self._lister = lister or self._lister
        self.startService()

    def startService(self) -> None:
        """See `run`."""
        if self.running:
            return
        if self._lister is None:
            raise ConfigurationError("there is no list of nodes: pass a lister to run()")
        if self._too_long:
            self._write(self._log.warn, "SSH User is too long, truncating to 32 chars")
        self._write(
            self._log.info, "Setting up proxy: {user} {path}", user=self.user, path=str(self._keypair.path)
        )
        self._ensure_key()
        self._has_run = True
        self._sync_lags_since = self._key_lags_since = self._epoch()
        super().startService()  # type: ignore[no-untyped-call]

    def switch(self, user: str, install: Install | None) -> None:
        """Install the key for *user*, with *install*, from now on."""
        self.user, self.install = truncate_user(user), install
        self._last_install, self._key_error = None, ""
        self._key_lags_since = self._epoch() if self._has_run else None
        self._ensure_key()
        self._installing.run_soon()

    def list_soon(self) -> None:
        """List the nodes now, because their source has changed."""
        self._syncing.run_soon()

    def stop(self) -> Deferred[None]:
        """Stop listing, checking and installing; open connections stay.  `run` may be called again."""
        return self.stopService()

    def stopService(self) -> Deferred[None]:
        """See `stop`."""
        self.tunnels.pause()
        stopped: Deferred[None] = super().stopService()  # type: ignore[no-untyped-call]
        return stopped.addCallback(lambda _: None)

    async def close(self) -> None:
        """Stop and close all connections."""
        if self.running:
            await self.stop()
        await self.tunnels.close()
        self._on_close()

    def _write(self, log: Callable[..., None], text: str, **values: object) -> None:
        log("{prefix}" + text, prefix=self._prefix, **values)

    # The timers' work

    async def _check(self) -> None:
        self.tunnels.check()

    async def _sync(self) -> None:
        if self._keypair.changed():
            self._installing.run_soon()
        assert self._lister is not None
        try:
            nodes = await self._lister()
        except Exception as error:  # noqa: BLE001 (the tunnels stay, and the next listing tries again)
            if self.running:
                self._list_error = _reason(error, SYNC_TIMEOUT)
                self._write(self._log.error, "Failed to getAddresses: {error}", error=self._list_error)
                self.tunnels.retry()
            return
        if not self.running:
            return
        addresses = [node.address for node in nodes]
        self._write(self._log.debug, "Calling update w/ addrs: {addresses}", addresses=addresses)
        self.tunnels.update(nodes)
        self._list_error = ""
        self._last_sync = self._sync_lags_since = self._epoch()
        before, self._listed = self._listed, frozenset(addresses)
        if before is not None and self._listed - before:
            self._installing.run_soon_at_most_every(NEWCOMER_PERIOD)  # the new nodes may lack the key

    def _ensure_key(self) -> None:
        try:
            self._keypair.ensure()
        except ConfigurationError as error:
            self._key_error = str(error)
            self._write(self._log.error, "Failed to create key pair: {error}", error=self._key_error)
        else:
            self._key_error = ""

    async def _install_key(self) -> None:
        if self._key_error:
            self._ensure_key()
        install = self.install
        if install is None:
            self._write(self._log.debug, "Won't attempt to install ssh key: InstallSSHKey function is nil")
            return
        try:
            line = self._keypair.public_line()
        except ConfigurationError as error:
            self._key_error = str(error)
            self._write(self._log.error, "Failed to load public key: {error}", error=self._key_error)
            return
        try:
            await install(self.user, line)
        except NotImplementedByCloud as error:
            self._key_error, self._key_lags_since = str(error), None  # as without an installer
            self._write(self._log.warn, "Won't attempt to install ssh key: {error}", error=self._key_error)
            return
        except Exception as error:  # noqa: BLE001 (it is tried again)
            if self.running and install == self.install:
                self._key_error = _reason(error, INSTALL_TIMEOUT)
                self._write(self._log.error, "Failed to install ssh key: {error}", error=self._key_error)
            return
        if install != self.install:
            return  # another cloud is in use now
        self._key_error = ""
        self._last_install = self._key_lags_since = self._epoch()
        self.tunnels.retry()  # nodes that rejected the login may accept it now

    # Streams and state

    def dial(self, host: str, port: int) -> Deferred[Channel]:
        """Open a stream to *host*, *port*; see `NodeTunnels.dial`.

        :raise ClusterUnreachable: through the Deferred: `run` was never called, or no tunnel is open.
        """
        if not self._has_run:
            return fail(ClusterUnreachable("The SSH tunneler was not started: no node was dialed yet."))
        return self.tunnels.dial(host, port)

    def seconds_since_sync(self) -> int:
        """Return the time since the last listing, whole s; negative if the clock was set back."""
        return self._seconds_since(self._sync_lags_since)

    def seconds_since_ssh_key_sync(self) -> int:
        """Return the time since the last key installation, likewise; 0 if nothing can install it."""
        return 0 if self.install is None else self._seconds_since(self._key_lags_since)

    def _seconds_since(self, moment: float | None) -> int:
        return 0 if moment is None else math.floor(self._epoch()) - math.floor(moment)

    def check_healthy(self) -> None:
        """Check the time since the last listing and key installation.

        :raise TunnelSyncUnhealthy: one of them is too long ago; with the lag.
        """
        lag = self.seconds_since_sync()
        if lag > TUNNEL_LAG:
            raise TunnelSyncUnhealthy(f"tunnel sync is taking too long: {lag}")
        lag = self.seconds_since_ssh_key_sync()
        if lag > KEY_LAG:
            raise TunnelSyncUnhealthy(f"SSHKey sync is taking too long: {lag}")

    def status(self) -> SSHStatus:
        """Return the state of the nodes, and the last error."""
        return SSHStatus(
            nodes=tuple(self.tunnels.states()),
            last_sync=self._last_sync,
            last_key_install=self._last_install,
            last_error=self._list_error or self._key_error,
        )


def _reason(error: Exception, timeout: float) -> str:
    return f"no answer within {timeout:g} s" if isinstance(error, CancelledError) else one_line(error)


def create_tunneler(
    reactor: ISocketReactor,
    connect: Dial,
    user: str,
    login: Callable[[], NodeLogin],
    key: KeyPairFiles,
    cloud: Callable[[], NodeCloud],
    lister: Lister | None,
    *,
    clock: Clock,
    budget: Budget,
    health: HealthCheck | None,
    epoch: Callable[[], float],
    keepalive: float = KEEPALIVE_INTERVAL,
    timers: IReactorTime | None = None,
    name: str = "",
    on_change: Callable[[], None] = lambda: None,
    counters: TunnelCounters | None = None,
) -> SSHTunneler:
    """Return a tunneler, not running yet, with its list of tunnels.  Its ``close`` stops the cloud, too.

    :param reactor: for the SSH connections.
    :param connect: connects to a node's sshd.
    :param login: returns the login for the next tunnel.
    :param cloud: returns the cloud in use; it grants access right before a dial, if it must.
    :param clock: for timeouts and keepalives of the SSH connections.
    :param timers: for everything else; default: *reactor*.
    :param counters: those of the cluster's tunnels; default: none.
    """
    timers = timers or reactor

    def dial(host: str, port: int) -> Deferred[Any]:
        return cloud().dialer(connect, login().user, key)(host, port)

    def create(node: Node) -> NodeTunnel:
        return NodeTunnel(
            reactor,
            clock,
            node,
            login(),
            budget,
            epoch=epoch,
            keepalive=keepalive,
            dial=dial,
            counters=counters,
        )

    tunnels = NodeTunnels(
        timers, create, user=truncate_user(user), health=health, epoch=epoch, on_change=on_change, name=name
    )
    return SSHTunneler(
        timers,
        user,
        key,
        tunnels,
        lister=lister,
        install=cloud().install,
        epoch=epoch,
        name=name,
        on_close=lambda: cloud().stop(),
    )

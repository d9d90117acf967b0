"""kube-apiserver's ``SSHTunneler``: has nodes listed, keeps tunnels to them, has its key installed there."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeAlias

from twisted.application.service import MultiService
from twisted.internet.defer import CancelledError, Deferred, fail
from twisted.logger import Logger

from tower.cloud.errors import NotImplementedByCloud
from tower.clusters.node import Node
from tower.clusters.node_status import SSHStatus
from tower.errors import ClusterUnreachable, ConfigurationError, TowerError, one_line
from tower.nodes.tunnels.tunnels import HEALTH_PERIOD, NodeTunnels
from tower.reactor.repeating import RepeatingTask

#: How often the nodes are listed, and how long one listing may take, s.
SYNC_PERIOD = 15.0
SYNC_TIMEOUT = 30.0

#: How often the key is installed, and how long that may take, s.
INSTALL_PERIOD = 300.0
INSTALL_TIMEOUT = 120.0

#: How often it may be installed beside that, s, for the nodes that are new since then.
NEWCOMER_PERIOD = 60.0

#: With a larger lag than this, s, the tunneler is not healthy.
TUNNEL_LAG = 600
KEY_LAG = 900

#: Longest name of a user, B: what Linux has.
LONGEST_USER = 32

#: Returns the nodes that there are.
Lister: TypeAlias = Callable[[], Awaitable[Sequence[Node]]]

#: Gets a user and a line for his ``authorized_keys``, and has it on all nodes when its result is there.
Install: TypeAlias = Callable[[str, bytes], Awaitable[None]]


class KeyPair(Protocol):
    """What is needed of `tower.nodes.keypair.KeyPairFiles`."""

    @property
    def path(self) -> object:
        """Where the private key is."""

    def ensure(self) -> None:
        """Make the pair, or what is missing of it."""

    def public_line(self) -> bytes:
        """Return the line that lets it in."""

    def changed(self) -> bool:
        """Tell whether it is another one than `public_line` returned."""


class TunnelSyncUnhealthy(TowerError):
    """The nodes were not listed, or the key was not installed, for too long."""


def truncate_user(user: str) -> str:
    """Return *user*, or as many of its characters as have room in `LONGEST_USER` bytes.

    Whoever logs in and whoever has the key installed have to use the same.
    """
    return user.encode()[:LONGEST_USER].decode(errors="ignore")


class SSHTunneler(MultiService):
    """Three timers around a list of tunnels; none of them can be stopped by what its work does.

    As a service, it is `run` when it starts and stopped when it stops; `close` is for its owner.

    :param clock: an ``IReactorTime``.
    :param user: to install the key for; see `truncate_user`.
    :param lister: unless `run` is given one.
    :param install: None: whoever keeps the nodes lets the key in.
    :param epoch: returns the time of day, s since the epoch.
    :param name: of the cluster, for log lines.
    :param on_close: called when `close` is through.
    :ivar user: as it is used.
    :ivar tunnels: to the nodes.
    """

    _log = Logger()

    def __init__(
        self,
        clock: Any,
        user: str,
        keypair: KeyPair,
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
        self._install = install
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
        """Begin, unless it runs already.

        :param lister: None keeps the one from before.
        :raise ConfigurationError: there never was one.
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
            raise ConfigurationError("nobody says which nodes there are: give run() a lister")
        if self._too_long:
            self._say(self._log.warn, "SSH User is too long, truncating to 32 chars")
        self._say(
            self._log.info, "Setting up proxy: {user} {path}", user=self.user, path=str(self._keypair.path)
        )
        self._ensure_key()
        self._has_run = True
        self._sync_lags_since = self._key_lags_since = self._epoch()
        super().startService()  # type: ignore[no-untyped-call]

    def turn_to(self, user: str, install: Install | None) -> None:
        """Have the key installed for *user*, by *install*, from now on; see there."""
        self.user, self._install = truncate_user(user), install
        self._last_install, self._key_error = None, ""
        self._key_lags_since = self._epoch() if self._has_run else None
        self._ensure_key()
        self._installing.run_soon()

    def hurry(self) -> None:
        """List the nodes now, because something else says which there are."""
        self._syncing.run_soon()

    def stop(self) -> Deferred[None]:
        """List, check and install no more; open connections stay open.  `run` may be called again."""
        return self.stopService()

    def stopService(self) -> Deferred[None]:
        """See `stop`."""
        self.tunnels.rest()
        stopped: Deferred[None] = super().stopService()  # type: ignore[no-untyped-call]
        return stopped.addCallback(lambda _: None)

    async def close(self) -> None:
        """Stop, and close all connections."""
        if self.running:
            await self.stop()
        await self.tunnels.close()
        self._on_close()

    def _say(self, log: Callable[..., None], text: str, **values: object) -> None:
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
        except Exception as error:  # noqa: BLE001 (whatever it is, the tunnels stay and it is tried again)
            if self.running:
                self._list_error = _why(error, SYNC_TIMEOUT)
                self._say(self._log.error, "Failed to getAddresses: {error}", error=self._list_error)
                self.tunnels.retry()
            return
        if not self.running:
            return
        addresses = [node.address for node in nodes]
        self._say(self._log.debug, "Calling update w/ addrs: {addresses}", addresses=addresses)
        self.tunnels.update(nodes)
        self._list_error = ""
        self._last_sync = self._sync_lags_since = self._epoch()
        before, self._listed = self._listed, frozenset(addresses)
        if before is not None and self._listed - before:
            self._installing.run_soon_at_most_every(NEWCOMER_PERIOD)  # the newcomers may not have the key

    def _ensure_key(self) -> None:
        try:
            self._keypair.ensure()
        except ConfigurationError as error:
            self._key_error = str(error)
            self._say(self._log.error, "Failed to create key pair: {error}", error=self._key_error)
        else:
            self._key_error = ""

    async def _install_key(self) -> None:
        if self._key_error:
            self._ensure_key()
        install = self._install
        if install is None:
            self._say(self._log.debug, "Won't attempt to install ssh key: InstallSSHKey function is nil")
            return
        try:
            line = self._keypair.public_line()
        except ConfigurationError as error:
            self._key_error = str(error)
            self._say(self._log.error, "Failed to load public key: {error}", error=self._key_error)
            return
        try:
            await install(self.user, line)
        except NotImplementedByCloud as error:
            self._key_error, self._key_lags_since = str(error), None  # as without anybody to install it
            self._say(self._log.warn, "Won't attempt to install ssh key: {error}", error=self._key_error)
            return
        except Exception as error:  # noqa: BLE001 (whatever it is, it is tried again)
            if self.running and install == self._install:
                self._key_error = _why(error, INSTALL_TIMEOUT)
                self._say(self._log.error, "Failed to install ssh key: {error}", error=self._key_error)
            return
        if install != self._install:
            return  # what counts now is another cloud
        self._key_error = ""
        self._last_install = self._key_lags_since = self._epoch()
        self.tunnels.retry()  # those that did not let us in before may do so now

    # Seen from outside

    def dial(self, host: str, port: int) -> Deferred[Any]:
        """Open a stream to *host*, *port*; see `NodeTunnels.dial`.

        :raise ClusterUnreachable: through the Deferred: `run` was never called, or no node is connected.
        """
        if not self._has_run:
            return fail(ClusterUnreachable("The SSH tunneler does not run yet: no node was dialled so far."))
        return self.tunnels.dial(host, port)

    def seconds_since_sync(self) -> int:
        """Return how long ago nodes were listed, whole s; less than 0 if the clock was set back."""
        return self._seconds_since(self._sync_lags_since)

    def seconds_since_ssh_key_sync(self) -> int:
        """Return how long ago the key was installed, likewise; 0 where nobody installs it."""
        return 0 if self._install is None else self._seconds_since(self._key_lags_since)

    def _seconds_since(self, moment: float | None) -> int:
        return 0 if moment is None else math.floor(self._epoch()) - math.floor(moment)

    def check_healthy(self) -> None:
        """Return if nodes are listed, and the key is installed, as often as they should.

        :raise TunnelSyncUnhealthy: with the lag.
        """
        lag = self.seconds_since_sync()
        if lag > TUNNEL_LAG:
            raise TunnelSyncUnhealthy(f"tunnel sync is taking too long: {lag}")
        lag = self.seconds_since_ssh_key_sync()
        if lag > KEY_LAG:
            raise TunnelSyncUnhealthy(f"SSHKey sync is taking too long: {lag}")

    def status(self) -> SSHStatus:
        """Return what is known."""
        return SSHStatus(
            nodes=tuple(self.tunnels.states()),
            last_sync=self._last_sync,
            last_key_install=self._last_install,
            last_error=self._list_error or self._key_error,
        )


def _why(error: Exception, timeout: float) -> str:
    return f"no answer in {timeout:g} s" if isinstance(error, CancelledError) else one_line(error)

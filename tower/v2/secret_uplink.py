"""Opens tunnels with the agent's key in a Secret, which is read before the first one."""

from __future__ import annotations

from collections.abc import Callable

from attrs import define, field
from twisted.logger import Logger

from tower.conch.transport.keys import KeyPair
from tower.conch.tunnel.tunnel import SSHTunnel
from tower.errors import TowerError
from tower.member.key_secret import KeySecret, KeySecretFailed
from tower.reactor.coroutines import deferred
from tower.v2.known_proxies import KnownProxies
from tower.v2.uplink import Uplink

#: Failed attempts to read the Secret that are repeated quickly, for about 10 s; all further ones are repeated
#: like errors that only a change ends, with a delay that does not grow.
QUICK = 12


@define(eq=False)
class SecretUplink:
    """Opens tunnels with the key in *secret*.

    The Secret is read again after an error that only a change ends, such as a rejected key: another replica,
    or an administrator, may have changed it.

    :param create: returns the uplink of an agent with this key.
    """

    _log = Logger()

    _secret: KeySecret
    _known_proxies: KnownProxies
    _create: Callable[[KeyPair], Uplink]
    _uplink: Uplink | None = field(default=None, init=False)
    _fingerprint: str = field(default="", init=False)
    _is_stale: bool = field(default=True, init=False)
    _failures: int = field(default=0, init=False)

    @deferred
    async def connect(self) -> SSHTunnel:
        """See `Uplink.connect`.

        :raise KeySecretFailed: through the Deferred: there is no key yet, with the cure.
        """
        uplink = self._uplink
        if uplink is None or self._is_stale:
            uplink = await self._loaded()
        try:
            return await uplink.connect()
        except TowerError as e:
            self._is_stale = e.permanent
            raise

    async def _loaded(self) -> Uplink:
        """Return the uplink with the current key; the earlier one if the Secret cannot be read again."""
        try:
            key = await self._secret.load()
        except KeySecretFailed as e:
            if self._uplink is None:
                self._failures += 1
                e.permanent = self._failures > QUICK
                raise
            self._log.warn("the agent's key could not be read again: {reason}", reason=str(e))
            return self._uplink
        self._known_proxies.reload()
        self._is_stale = False
        if self._uplink is None or key.fingerprint != self._fingerprint:
            self._uplink, self._fingerprint = self._create(key), key.fingerprint
        return self._uplink

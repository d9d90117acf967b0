"""Rotation of the proxy's SSH host key."""

from __future__ import annotations

from attrs import define

from tower.clusters.join_tokens import JoinTokens
from tower.conch.transport.keys import KeyPair, load_or_create
from tower.rotation.announcer import Announcer
from tower.rotation.rotation import Remaining, Rotation
from tower.trust.authorities import NEXT
from tower.trust.statedir import StateDir

#: File of the host key.
FILE = "ssh_host_ed25519_key"


def load_host_keys(state: StateDir) -> list[KeyPair]:
    """Return the host key, and the next one while it is rotated.

    :raise ConfigurationError: a file is damaged.
    """
    next_key = [load_or_create(state, FILE + NEXT)] if state.read(FILE + NEXT) is not None else []
    return [load_or_create(state, FILE), *next_key]


@define(eq=False)
class HostKeyRotation:
    """Announces the next host key; live tunnels keep the old one until they end.

    :param host_keys: of all new connections; changed in place.
    """

    _state: StateDir
    _host_keys: list[KeyPair]
    _announcer: Announcer
    _tokens: JoinTokens

    def pending(self) -> str:
        """See `Procedure`."""
        return self._host_keys[1].fingerprint if len(self._host_keys) > 1 else ""

    def current(self) -> str:
        """See `Procedure`."""
        return self._host_keys[0].fingerprint

    async def begin(self) -> tuple[str, str]:
        """See `Procedure`."""
        if self._state.read(FILE + NEXT) is None:
            await self._state.put(FILE + NEXT, KeyPair.generate().to_openssh())
        self._host_keys[1:] = [load_or_create(self._state, FILE + NEXT)]
        return self.current(), self.pending()

    async def begun(self) -> None:
        """See `Procedure`."""
        await self._announcer.publish()

    def remaining(self, rotation: Rotation) -> Remaining:
        """See `Procedure`."""
        agents, ready = self._announcer.lacking(rotation.new)
        return Remaining(agents, ready, self._tokens.unspent(rotation.started))

    async def finish(self, rotation: Rotation) -> None:
        """See `Procedure`."""
        await self._state.save_rename(FILE + NEXT, FILE)
        self._state.rename(FILE + NEXT, FILE)
        del self._host_keys[0]
        await self._announcer.publish()

    async def cancel(self) -> None:
        """See `Procedure`."""
        await self._state.save({FILE + NEXT: None})
        self._state.remove(FILE + NEXT)
        del self._host_keys[1:]
        await self._announcer.publish()

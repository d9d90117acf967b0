"""Rotation of the key that seals secrets in records."""

from __future__ import annotations

from attrs import define

from tower.clusters.member_credentials import MemberCredentials
from tower.errors import Conflict
from tower.rotation.rotation import Remaining, Rotation
from tower.trust.vault import new_key


@define(eq=False)
class SecretsKeyRotation:
    """Seals all secrets with a new key, then removes the old ones.

    Until then both keys are in the file, so a crash at any time loses nothing.
    """

    _credentials: MemberCredentials

    def pending(self) -> str:
        """See `Procedure`: several keys in the file may be the operator's, so the record alone counts."""
        return ""

    def current(self) -> str:
        """See `Procedure`."""
        return self._credentials.vault.key_id

    def begin(self) -> tuple[str, str]:
        """See `Procedure`."""
        old = self._credentials.vault.key_id
        self._credentials.vault.add_key(new_key())
        return old, self._credentials.vault.key_id

    async def begun(self) -> None:
        """See `Procedure`."""
        await self._credentials.reseal()

    def remaining(self, rotation: Rotation) -> Remaining:
        """See `Procedure`."""
        return Remaining(secrets=self._credentials.sealed_with_old_keys())

    async def finish(self, rotation: Rotation) -> None:
        """See `Procedure`."""
        await self._credentials.reseal()
        left = self._credentials.sealed_with_old_keys()
        if left:
            raise Conflict(
                f"secrets-key: {left} records are still sealed with the old key: see the proxy's log"
            )
        self._credentials.vault.drop_old_keys()

    async def cancel(self) -> None:
        """See `Procedure`."""
        raise Conflict("secrets-key: the new key is in use already: the rotation ends by itself")

"""Rotation of the key that seals secrets in records."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from attrs import define

from tower.errors import Conflict
from tower.rotation.rotation import Remaining, Rotation
from tower.store.sealed_records import SealedRecords
from tower.trust.vault import Vault, new_key


@define(eq=False)
class SecretsKeyRotation:
    """Seals all secrets with a new key, then removes the old ones.

    Until then both keys are in the file, so a crash at any time loses nothing.

    :param secrets: the records with secrets.
    :param save: saves the new content of the key file elsewhere, before it is written.
    """

    _vault: Vault
    _secrets: Sequence[SealedRecords]
    _save: Callable[[bytes], Awaitable[None]]

    def pending(self) -> str:
        """See `Procedure`: several keys in the file may be the operator's, so the record alone counts."""
        return ""

    def current(self) -> str:
        """See `Procedure`."""
        return self._vault.key_id

    async def begin(self) -> tuple[str, str]:
        """See `Procedure`."""
        vault, key = self._vault, new_key()
        old = vault.key_id
        await self._save(vault.with_key(key))
        vault.add_key(key)
        return old, vault.key_id

    async def begun(self) -> None:
        """See `Procedure`."""
        await self._reseal()

    def remaining(self, rotation: Rotation) -> Remaining:
        """See `Procedure`."""
        return Remaining(secrets=self._left())

    async def finish(self, rotation: Rotation) -> None:
        """See `Procedure`."""
        await self._reseal()
        left = self._left()
        if left:
            raise Conflict(
                f"secrets-key: {left} records are still sealed with the old key: see the proxy's log"
            )
        self._vault.drop_old_keys()

    async def cancel(self) -> None:
        """See `Procedure`."""
        raise Conflict("secrets-key: the new key is in use already: the rotation ends by itself")

    async def _reseal(self) -> None:
        for each in self._secrets:
            await each.reseal()

    def _left(self) -> int:
        return sum(each.sealed_with_old_keys() for each in self._secrets)

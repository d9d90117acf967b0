"""Records of one kind with a field ``sealed`` of a `Vault`, sealed again after the vault's key changed."""

from __future__ import annotations

from attrs import frozen
from twisted.logger import Logger

from tower.reactor.coroutines import deferred
from tower.store.records import Record, RecordChanged, RecordMissing, StoreFailed
from tower.store.store import IStore
from tower.trust.vault import Vault, VaultError


@frozen(eq=False)
class SealedRecords:
    """The records; each is sealed for its name, and an empty field has no secret."""

    _log = Logger()

    _store: IStore
    _kind: str
    vault: Vault

    def sealed_with_old_keys(self) -> int:
        """Return the number of records that are not sealed with the vault's first key.

        Those that no key of the vault opens do not count: no key makes them readable again.
        """
        return sum(map(self._is_old, self._store.snapshot(self._kind).values()))

    @deferred
    async def reseal(self) -> int:
        """Seal all secrets with the vault's first key, so that its other keys can be removed.

        Those that cannot be opened or written are unchanged.

        :return: number of records sealed again.
        """
        count = 0
        for record in list(self._store.snapshot(self._kind).values()):
            try:
                if not record.value["sealed"] or self.vault.is_current(record.value["sealed"]):
                    continue
                plain = self.vault.open(record.value["sealed"], record.name)
                sealed = self.vault.seal(plain, record.name)
            except VaultError:
                continue  # the owner of the record reports this error
            try:
                await self._store.update(
                    self._kind, record.name, {**record.value, "sealed": sealed}, record.version
                )
            except (RecordChanged, RecordMissing):
                continue  # it was replaced or removed concurrently
            except StoreFailed as e:
                self._log.warn(
                    "{kind} are still sealed with old keys: {reason}", kind=self._kind, reason=str(e)
                )
                break
            count += 1
        if count:
            self._log.info("sealed {count} {kind} with the first key", count=count, kind=self._kind)
        return count

    def _is_old(self, record: Record) -> bool:
        sealed = record.value.get("sealed")
        try:
            return bool(sealed and not self.vault.is_current(sealed) and self.vault.open(sealed, record.name))
        except VaultError:
            return False

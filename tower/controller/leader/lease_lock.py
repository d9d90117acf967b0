"""One Lease as a lock: reads, takes and releases it, and remembers when it changed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from attrs import define, field

from tower.controller.leader.lease_record import LeaseRecord, new_lease
from tower.kube.client import APIError
from tower.kube.rest.host_api import HostAPI, Object
from tower.kube.rest.well_known import LEASES

_NOT_FOUND, _CONFLICT = 404, 409

#: Holder of a Lease that was removed, for a candidate that never saw it.
UNKNOWN = "unknown"


@define(eq=False)
class LeaseLock:
    """A Lease, and what this candidate saw of it.

    All writes are conditional on the version that was read, so of several candidates one succeeds.

    :param identity: of this candidate.
    :param duration: time after the last change until another candidate may take the Lease, s.
    :param seconds: returns the time that never jumps, s.
    :param epoch: returns the time of day, s since the epoch, which is written, but never compared.
    :param had_leader: returns whether there ever was a leader; asked if the Lease does not exist.
    :ivar record: as it was seen last.
    :ivar was_expired: whether another candidate held the Lease when this one took it.
    """

    _api: HostAPI
    namespace: str
    name: str
    identity: str
    _duration: float
    _seconds: Callable[[], float]
    _epoch: Callable[[], float]
    _had_leader: Callable[[], Awaitable[bool]]
    record: LeaseRecord = field(factory=LeaseRecord, init=False)
    was_expired: bool = field(default=False, init=False)
    _lease: Object | None = field(default=None, init=False)
    _changed: float = field(default=0.0, init=False)

    def __str__(self) -> str:
        return f"Lease {self.namespace}/{self.name}"

    @property
    def version(self) -> str:
        """Resource version that was read last; empty: none."""
        return "" if self._lease is None else str(self._lease["metadata"]["resourceVersion"])

    @property
    def uid(self) -> str:
        """Uid that was read last; empty: none."""
        return "" if self._lease is None else str(self._lease["metadata"].get("uid", ""))

    @property
    def free_at(self) -> float:
        """Time at which this candidate may take the Lease if it does not change; 0: now."""
        if self.record.holder in ("", self.identity):
            return 0.0
        return self._changed + self.record.duration

    @property
    def is_own(self) -> bool:
        """Whether this candidate was the holder when the Lease was seen last."""
        return self.record.holder == self.identity

    def see(self, lease: Object) -> None:
        """Remember the current Lease."""
        self._lease = lease
        self._note(LeaseRecord.of(lease))

    async def take(self) -> float | None:
        """Acquire or renew the Lease.

        :return: the time at which the successful write was sent; None: another candidate holds it.
        :raise APIError: the Lease cannot be read or written; it may have been taken anyway.
        """
        for is_again in (False, True):
            if is_again or not self.is_own:
                await self._read()
            if self.free_at > self._seconds():
                return None
            sent = self._seconds()
            if not self.is_own:
                self.was_expired = bool(self.record.holder)
            if await self._write(self.record.taken(self.identity, self._duration, self._epoch())):
                return sent
        return None

    async def release(self) -> None:
        """Release the Lease, so that another candidate takes it at once; no-op if another one holds it.

        :raise APIError: the Lease cannot be read or written.
        """
        for is_again in (False, True):
            if is_again:
                await self._read()
            if not self.is_own or await self._write(self.record.released(self._epoch())):
                return

    async def _read(self) -> None:
        try:
            self.see(await self._api.get(LEASES, self.name, self.namespace))
        except APIError as e:
            if e.code != _NOT_FOUND:
                raise
            self._lease = None
            if self.record == LeaseRecord() and await self._had_leader():
                self._note(LeaseRecord(UNKNOWN).taken(UNKNOWN, self._duration, self._epoch()))

    async def _write(self, record: LeaseRecord) -> bool:
        """Write *record*; return False if the Lease has changed since it was read."""
        lease = record.written(self._lease or new_lease(self.namespace, self.name))
        write = self._api.create if self._lease is None else self._api.update
        try:
            self.see(await write(LEASES, lease, self.namespace))
        except APIError as e:
            if e.code not in (_NOT_FOUND, _CONFLICT):
                raise
            if e.code == _NOT_FOUND and self._lease is None:
                raise  # the namespace is missing
            return False
        return True

    def _note(self, record: LeaseRecord) -> None:
        if record != self.record:
            self.record, self._changed = record, self._seconds()

"""Watch of a Lease, so that a candidate sees a release at once and each renewal when it happens."""

from __future__ import annotations

from collections.abc import Callable

from attrs import define, field
from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from tower.controller.leader.lease_lock import LeaseLock
from tower.kube.client import APIError
from tower.kube.rest.host_api import HostAPI, WatchEvent
from tower.kube.rest.well_known import LEASES


@define(eq=False)
class LeaseWatch:
    """Shows the changes of a Lease to its lock; ends with any error, since candidates also poll.

    :param on_change: called after each change.
    """

    _log = Logger()

    _api: HostAPI
    _lock: LeaseLock
    _on_change: Callable[[], object]
    _watching: Deferred[None] | None = field(default=None, init=False)

    def start(self) -> None:
        """Watch from the version that the lock read last, unless a watch is open or there is no Lease."""
        if self._watching is not None or not self._lock.version:
            return
        self._watching = watching = Deferred.fromCoroutine(
            self._api.watch(
                LEASES,
                self._lock.namespace,
                self._lock.version,
                self._changed,
                field_selector=f"metadata.name={self._lock.name}",
            )
        )
        watching.addErrback(self._ended).addCallback(lambda _: self._forget(watching))

    def stop(self) -> None:
        """End the watch, if it is open."""
        watching, self._watching = self._watching, None
        if watching is not None:
            watching.cancel()

    def _changed(self, event: WatchEvent) -> None:
        if event.type in ("ADDED", "MODIFIED") and self._watching is not None:
            self._lock.see(event.object)
            self._on_change()

    def _ended(self, failure: Failure) -> None:
        if not failure.check(APIError, CancelledError):
            self._log.failure("the watch of the {lease} failed", failure, lease=str(self._lock))

    def _forget(self, watching: Deferred[None]) -> None:
        if self._watching is watching:
            self._watching = None

"""Events about the Lease, as client-go's leader election writes them; ``kubectl describe lease`` has them."""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

from attrs import define, field
from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from tower.controller.leader.lease_lock import LeaseLock
from tower.errors import one_line
from tower.kube.client import APIError
from tower.kube.rest.host_api import HostAPI
from tower.kube.rest.well_known import EVENTS, LEASES
from tower.kube.timestamps import timestamp

#: Reason of the events.
REASON = "LeaderElection"

_COMPONENT = "tower-proxy"


@define(eq=False)
class LeaseEvents:
    """Writes events about one Lease, without waiting for them; a failure is logged with level debug.

    :param epoch: returns the time, s since the epoch.
    """

    _log = Logger()

    _api: HostAPI
    _lock: LeaseLock
    _epoch: Callable[[], float]
    _writing: Deferred[None] | None = field(default=None, init=False)

    def record(self, change: str) -> None:
        """Write that this candidate *change*, such as ``became leader``."""
        self.stop()
        self._writing = Deferred.fromCoroutine(self._write(f"{self._lock.identity} {change}"))
        self._writing.addErrback(self._failed)

    def stop(self) -> None:
        """Cancel a write in progress."""
        if self._writing is not None:
            self._writing.cancel()

    async def _write(self, message: str) -> None:
        now, lock = self._epoch(), self._lock
        event = {
            "metadata": {"name": f"{lock.name}.{uuid4().hex[:16]}", "namespace": lock.namespace},
            "involvedObject": {
                "apiVersion": LEASES.api_version,
                "kind": LEASES.kind,
                "name": lock.name,
                "namespace": lock.namespace,
                "uid": lock.uid,
                "resourceVersion": lock.version,
            },
            "reason": REASON,
            "message": message,
            "type": "Normal",
            "count": 1,
            "source": {"component": _COMPONENT},
            "reportingComponent": _COMPONENT,
            "firstTimestamp": timestamp(now),
            "lastTimestamp": timestamp(now),
        }
        try:
            await self._api.create(EVENTS, event, lock.namespace)
        except APIError as e:
            self._log.debug("event of the {lease} not written: {reason}", lease=str(lock), reason=one_line(e))

    def _failed(self, failure: Failure) -> None:
        if not failure.check(CancelledError):
            self._log.failure("cannot write an event", failure)

"""Keeps records whose objects went with their namespace, until the objects can be written again.

Tower alone writes these objects.  If another program deletes some, their records are removed, unless the
namespace does not exist any more: then agents and users would lose their rights by accident.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from attrs import define, field
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from tower.kube.client import APIError
from tower.kube.rest.failures import is_lost_namespace
from tower.kube.rest.host_api import HostAPI
from tower.kube.rest.well_known import SECRETS
from tower.reactor.pause import Pause
from tower.store.kubernetes.host_cache import HostCache
from tower.store.kubernetes.host_change import RecordChange
from tower.store.kubernetes.host_writer import HostWriter
from tower.store.kubernetes.object_codec import ObjectCodec
from tower.store.kubernetes.transaction_log import Key, is_transient
from tower.store.records import Record

#: Secret that is created and removed to find out whether the namespace accepts objects.
PROBE = "tower-namespace-check"

#: Time between checks, s.
PERIOD = 3.0


@define(eq=False)
class LostNamespace:
    """The deletions by other programs that are held until it is known whether the namespace exists.

    :param lookup: returns the record of that kind and name.
    :param on_back: is called when the namespace is back, for `write_again`.
    :ivar problem: the reason why records are not in the host cluster, with the cure; empty: they are.
    """

    _log = Logger()

    _api: HostAPI
    _namespace: str
    _reactor: IReactorTime
    _cache: HostCache
    _writer: HostWriter
    _lookup: Callable[[str, str], Record | None]
    _on_back: Callable[[], None]
    problem: str = field(default="", init=False)
    _held: dict[Key, Callable[[], None]] = field(factory=dict, init=False)
    _is_back: bool = field(default=False, init=False)
    _checking: Deferred[None] | None = field(default=None, init=False)
    _pause: Pause = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._pause = Pause(self._reactor)

    @property
    def to_restore(self) -> list[Key]:
        """The objects to be written again, once the namespace is back."""
        return list(self._held) if self._is_back else []

    def hold(self, key: Key, publish: Callable[[], None]) -> None:
        """Hold the deletion of an object.

        :param publish: makes it count.
        """
        self._held[key] = publish
        if self._checking is None:
            self._checking = checking = Deferred.fromCoroutine(self._check())
            checking.addErrback(lambda failure: failure.trap(CancelledError))
            checking.addErrback(lambda failure: self._log.failure("cannot check the namespace", failure))
            checking.addBoth(self._checked)

    async def write_again(self, codec: ObjectCodec, object_name: str) -> None:
        """Write the object of a record that was held; the record does not change.

        :raise APIError: it cannot be written.
        """
        name = self._cache.record_name(codec, object_name)
        record = None if name is None else self._lookup(codec.kind, name)
        if record is not None:
            change = RecordChange(codec.kind, record.name, record.value)
            obj = await self._writer.finish(codec, change, None)
            if obj is not None:
                self._cache.replace(codec, obj)
        self._held.pop((codec.kind, object_name), None)
        if not self._held:
            self._is_back, self.problem = False, ""
            self._pause.end()
            self._log.info("all records are in the namespace {name} again", name=self._namespace)

    def stop(self) -> None:
        """Stop checking."""
        self._pause.cancel()
        if self._checking is not None:
            self._checking.cancel()

    async def is_lost(self) -> bool:
        """Return whether the namespace accepts no objects, because it does not exist or is being deleted.

        :raise APIError: it is not known.
        """
        try:
            await self._api.create(SECRETS, {"metadata": {"name": PROBE}}, self._namespace)
        except APIError as e:
            if is_transient(e):
                raise
            if is_lost_namespace(e, self._namespace):
                return True
        with suppress(APIError):
            await self._api.delete(SECRETS, PROBE, self._namespace)
        return False

    def _checked(self, _: object) -> None:
        self._checking = None

    async def _check(self) -> None:
        while self._held:
            try:
                is_lost = await self.is_lost()
            except APIError as e:
                self._log.debug("cannot check the namespace: {reason}", reason=str(e))
                await self._pause.wait(PERIOD)
                continue
            if is_lost:
                self._lose()
                await self._pause.wait(PERIOD)
            elif self.problem:
                self._is_back = True
                self._on_back()
                await self._pause.wait(PERIOD)  # and again, should a write fail
            else:
                held, self._held = self._held, {}
                for publish in held.values():
                    publish()

    def _lose(self) -> None:
        self._is_back = False
        if not self.problem:
            self.problem = (
                f"namespace {self._namespace} of the host cluster is deleted: the proxy keeps the records in "
                f"memory until it exists again: 'kubectl create namespace {self._namespace}'"
            )
            self._log.error("{problem}", problem=self.problem)

"""Commits the changes of transactions, one transaction after another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from attrs import define, field, frozen
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.python.failure import Failure

from tower.errors import Invalid, TowerError
from tower.kube.client import WEBHOOK_CURE, APIError
from tower.kube.crds.manifests import INSTALL
from tower.kube.rest.host_api import Object
from tower.store.kubernetes.host_change import RecordChange, StoredObject
from tower.store.kubernetes.host_transaction import HostTransaction
from tower.store.kubernetes.host_writer import CONFLICT, NOT_FOUND, FieldsDropped, HostWriter
from tower.store.kubernetes.object_codec import ObjectCodec
from tower.store.kubernetes.transaction_log import (
    Key,
    TransactionLog,
    Written,
    is_invalid,
    is_transient,
)
from tower.store.records import StoreFailed

#: Time after which an API server cannot carry out a request any more, s: its own timeout is 60 s.
DOUBT_TIME = 90.0

_CURES = {
    NOT_FOUND: f": install Tower's CRDs with {INSTALL}",
    403: ": grant tower-proxy the rights of 'tower rbac host | kubectl apply -f -'",
}


class HostConflict(Exception):
    """Another program has changed the object of *change*; nothing is written."""

    def __init__(self, change: RecordChange) -> None:
        super().__init__(f"{change.kind} {change.name}")
        self.change = change


@frozen
class _Interrupted:
    """A transaction whose end is not known.

    :ivar is_finished: whether only its object is left to be removed.
    """

    transaction: HostTransaction
    is_finished: bool


@define(eq=False)
class Committer:
    """Writes changes; must run one method at a time.

    A transaction that is decided but could not be finished blocks later ones until `settle` has finished it.
    """

    _log: TransactionLog
    _writer: HostWriter
    _codecs: Mapping[str, ObjectCodec]
    _reactor: IReactorTime
    _interrupted: _Interrupted | None = field(default=None, init=False)
    _doubts: dict[str, IDelayedCall] = field(factory=dict, init=False)  # by ID of the transaction
    _is_stopped: bool = field(default=False, init=False)

    @property
    def is_interrupted(self) -> bool:
        """Whether `settle` has work to do."""
        return self._interrupted is not None

    async def settle(self) -> Written:
        """Finish or drop the transaction that was interrupted, if any.

        :raise StoreFailed: it cannot be done now.
        """
        interrupted = self._interrupted
        if interrupted is None:
            return {}
        transaction = interrupted.transaction
        written: Written = {}
        try:
            if interrupted.is_finished:
                await self._log.remove(transaction)
            else:
                written = await self._log.resolve(transaction)
        except APIError as e:
            raise StoreFailed(
                f"an earlier transaction in the host cluster is not finished yet, retry later: {e}"
            ) from e
        self._interrupted = None
        return written

    def stop(self) -> None:
        """Leave the rest to the next start."""
        self._is_stopped = True
        for call in self._doubts.values():
            call.cancel()
        self._doubts.clear()

    async def commit(
        self, changes: Sequence[RecordChange], known: Mapping[Key, StoredObject | None]
    ) -> Written:
        """Write all *changes*, those of shared objects first, or none; return their objects.

        :param known: the objects as last seen.
        :raise HostConflict: nothing is written.
        :raise Invalid: the API server rejects a change; nothing is written.
        :raise StoreFailed: the API server did not answer; the changes may be written later.
        """
        first = changes[0]
        stored = known[first.kind, first.name]
        try:
            count = self._writer.count(self._codecs[first.kind], first, stored)
            if len(changes) == 1 and count <= 1:
                return {(first.kind, first.name): await self._alone(first, stored)}
            return await self._together(changes, known)
        except APIError as e:
            if e.code == CONFLICT or (e.code == NOT_FOUND and first.uid):
                raise HostConflict(first) from e
            raise _failure(first, e) from e

    async def _alone(self, change: RecordChange, stored: StoredObject | None) -> Object | None:
        """Write a change that takes one request."""
        codec = self._codecs[change.kind]
        obj = await self._writer.begin(codec, change, stored)
        if obj is None or not codec.is_shared:
            return obj
        try:
            return await self._writer.finish(codec, change, StoredObject.of(codec, obj))
        except FieldsDropped:
            raise StoreFailed(
                f"the host cluster drops fields of {codec.resource.name} {change.name}: install Tower's CRDs"
            ) from None

    async def _together(
        self, changes: Sequence[RecordChange], known: Mapping[Key, StoredObject | None]
    ) -> Written:
        first = changes[0]
        key = first.kind, first.name
        before = known[key]
        was_terminating = before is not None and "deletionTimestamp" in before.body.get("metadata", {})
        transaction = HostTransaction.of(changes, self._codecs, was_terminating=was_terminating)
        try:
            await self._log.create(transaction)
        except APIError as e:
            if is_transient(e):
                self._interrupted = _Interrupted(transaction, is_finished=True)
                self._doubt(transaction)
            raise _failure(first, e) from e
        # From here on, a cancellation leaves the rest to `settle` or to the next start.
        self._interrupted = _Interrupted(transaction, is_finished=False)
        if transaction.has_decider:
            known = {**known, key: await self._decide(transaction, before)}
        try:
            written = await self._log.finish(transaction, known)
        except APIError as e:
            raise StoreFailed(
                f"the change of {first.kind} {first.name} is accepted, but not complete: it is completed "
                f"as soon as the host cluster answers: {e}"
            ) from e
        self._interrupted = _Interrupted(transaction, is_finished=True)
        await self._clean_up()
        return written

    async def _decide(self, transaction: HostTransaction, stored: StoredObject | None) -> StoredObject | None:
        """Write the first change."""
        change = transaction.changes[0]
        codec = self._codecs[change.kind]
        try:
            obj = await self._writer.begin(codec, change, stored, transaction.id)
        except APIError as e:
            if not is_transient(e):
                self._interrupted = _Interrupted(transaction, is_finished=True)
                await self._clean_up()
            raise
        return None if obj is None else StoredObject.of(codec, obj)

    def _doubt(self, transaction: HostTransaction) -> None:
        """Remove the object of a failed transaction again later.

        The API server may create it after its removal, and the next start would repeat the transaction.
        """
        self._doubts[transaction.id] = self._reactor.callLater(DOUBT_TIME, self._remove_again, transaction)

    def _remove_again(self, transaction: HostTransaction) -> None:
        del self._doubts[transaction.id]
        removing = Deferred.fromCoroutine(self._log.remove(transaction))

        def failed(failure: Failure) -> None:
            failure.trap(APIError)
            if not self._is_stopped:
                self._doubt(transaction)

        removing.addErrback(failed)

    async def _clean_up(self) -> None:
        """Remove a transaction's object; if that fails, the next transaction does it first."""
        with suppress(StoreFailed):
            await self.settle()


def _failure(change: RecordChange, error: APIError) -> TowerError:
    if is_invalid(error):
        return Invalid(f"{change.kind} {change.name}: the host cluster rejects it: {error.message}")
    return StoreFailed(f"cannot write {change.kind} {change.name} to the host cluster: {described(error)}")


def described(error: APIError) -> str:
    """Return the text of an error, with the cure if there is one."""
    if error.webhook:
        return f"{error}{WEBHOOK_CURE}"
    if error.code == NOT_FOUND and "namespaces " in error.message:
        return f"{error}: create it with 'kubectl create namespace', or set --namespace"
    return f"{error}{_CURES.get(error.code, '')}"

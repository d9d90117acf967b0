"""Makes several changes atomic: a crash at any point leaves all or none.

The steps of a transaction:

1. Create its object, which has all changes.
2. Write the first change, if it is of an object that other programs write, too.  The same request adds the
   transaction's ID to that object.  After a conflict, nothing is written.
3. Write the other changes.
4. Remove the transaction's object.

After a crash, `resolve` repeats steps 3 and 4 if step 2 was done or is not needed; else only step 4.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from attrs import define
from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger

from tower.kube.client import APIError
from tower.kube.rest.host_api import HostAPI, Object
from tower.store.kubernetes.host_change import RecordChange, StoredObject
from tower.store.kubernetes.host_kinds import TRANSACTIONS
from tower.store.kubernetes.host_transaction import HostTransaction
from tower.store.kubernetes.host_writer import NOT_FOUND, FieldsDropped, HostWriter
from tower.store.kubernetes.object_codec import ObjectCodec

#: Most requests at a time.
_PARALLEL = 8

#: Delays of further attempts of a request that was not answered, s.
_RETRIES = (0.1, 0.3, 1.0, 2.0)

#: Kind and name of a record.
Key = tuple[str, str]

#: Objects after a transaction; None: removed.
Written = dict[Key, Object | None]


@define(eq=False)
class TransactionLog:
    """The transactions in one namespace.

    :param codecs: by kind of record.
    """

    _log = Logger()

    _api: HostAPI
    _namespace: str
    _codecs: Mapping[str, ObjectCodec]
    _writer: HostWriter
    _reactor: IReactorTime

    async def unfinished(self) -> list[HostTransaction]:
        """Return the transactions that were interrupted, the oldest first.

        :raise APIError: they cannot be read.
        :raise Invalid: one is malformed.
        """
        listed = await self._api.list(TRANSACTIONS, self._namespace)
        items = sorted(listed.items, key=lambda obj: int(obj["metadata"]["resourceVersion"]))
        return [HostTransaction.from_object(obj) for obj in items]

    async def create(self, transaction: HostTransaction) -> None:
        """Do step 1.

        :raise Invalid: the transaction is too large.
        :raise APIError: the object was not created, unless there was no answer.
        """
        await self._api.create(TRANSACTIONS, transaction.to_object(), self._namespace)

    async def remove(self, transaction: HostTransaction) -> None:
        """Do step 4.

        :raise APIError: the object may still exist.
        """
        try:
            await self._api.delete(TRANSACTIONS, transaction.id, self._namespace)
        except APIError as e:
            if e.code != NOT_FOUND:
                raise

    async def finish(
        self, transaction: HostTransaction, known: Mapping[Key, StoredObject | None] | None = None
    ) -> Written:
        """Do step 3, and the rest of step 2 if it takes several requests.

        :param known: the objects of all changes; None: read them.
        :raise APIError: not all is written.
        """
        written: Written = {}
        changes = iter(transaction.changes)
        is_failed = False

        async def work() -> None:
            nonlocal is_failed
            for change in changes:
                if is_failed:
                    return
                try:
                    written[change.kind, change.name] = await self._finish(transaction, change, known)
                except BaseException:
                    is_failed = True
                    raise

        count = min(_PARALLEL, len(transaction.changes))
        await all_done(Deferred.fromCoroutine(work()) for _ in range(count))
        return written

    async def resolve(self, transaction: HostTransaction) -> Written:
        """Finish an interrupted transaction, or drop it if it was not decided.

        :raise APIError: try again.
        """
        written: Written = {}
        if not transaction.has_decider or await self._is_decided(transaction):
            written = await self.finish(transaction)
        await self.remove(transaction)
        return written

    async def _is_decided(self, transaction: HostTransaction) -> bool:
        first = transaction.changes[0]
        return transaction.is_decided(await self._writer.read(self._codecs[first.kind], first.name))

    async def _finish(
        self,
        transaction: HostTransaction,
        change: RecordChange,
        known: Mapping[Key, StoredObject | None] | None,
    ) -> Object | None:
        codec = self._codecs[change.kind]
        for delay in (*_RETRIES, None):
            try:
                if known is None:
                    obj = await self._writer.read(codec, change.name)
                    stored = None if obj is None else StoredObject.of(codec, obj)
                else:
                    stored = known[change.kind, change.name]
                mark = transaction.id if codec.is_shared else ""
                return await self._writer.finish(codec, change, stored, mark)
            except FieldsDropped:
                self._log.error(
                    "the host cluster drops fields of {type} {name}: install Tower's CRDs",
                    type=codec.resource.name,
                    name=change.name,
                )
                return await self._writer.read(codec, change.name)
            except APIError as e:
                if is_invalid(e):
                    self._log.error(
                        "{type} {name} cannot be written, although its transaction is decided: {reason}",
                        type=codec.resource.name,
                        name=change.name,
                        reason=str(e),
                    )
                    return await self._writer.read(codec, change.name)
                if delay is None or not is_transient(e):
                    raise
            known = None
            await deferLater(self._reactor, delay)
        raise AssertionError


async def all_done(doing: Iterable[Deferred[None]]) -> None:
    """Wait until all are done, also if one fails; then raise its exception."""
    results: list[tuple[bool, Any]] = await DeferredList(list(doing), consumeErrors=True)
    for is_good, result in results:
        if not is_good:
            result.raiseException()


def is_invalid(error: APIError) -> bool:
    """Return whether the API server rejects the object for good."""
    return error.code in (400, 413, 422)


def is_transient(error: APIError) -> bool:
    """Return whether the request may succeed later, or may have succeeded.

    A code below 400 is that of an unexpected answer, such as one that is not an object, or a redirection.
    """
    return error.code < 400 or error.code == 429 or error.code >= 500

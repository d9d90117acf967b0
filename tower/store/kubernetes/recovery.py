"""Finishes the transactions of an earlier run, before the records are loaded."""

from __future__ import annotations

from attrs import define, field
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from tower.errors import Invalid
from tower.kube.client import APIError
from tower.reactor.pause import Pause
from tower.store.kubernetes.committer import described
from tower.store.kubernetes.transaction_log import TransactionLog
from tower.store.records import StoreFailed

#: Delays until the next attempt, s: the first, and the longest.
_FIRST_RETRY, _LAST_RETRY = 1.0, 30.0


@define(eq=False)
class Recovery:
    """The transactions in a log.

    :ivar problem: the reason why they are not finished yet, with the cure; empty: none.
    """

    _log = Logger()

    _transactions: TransactionLog
    _reactor: IReactorTime
    problem: str = field(default="", init=False)
    _pause: Pause = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._pause = Pause(self._reactor)

    async def run(self) -> None:
        """Finish them; wait for missing CRDs and rights.

        :raise StoreFailed: one is malformed; the text names the cure.
        """
        delay = _FIRST_RETRY
        while True:
            try:
                for transaction in await self._transactions.unfinished():
                    await self._transactions.resolve(transaction)
            except Invalid as e:
                raise StoreFailed(str(e)) from e
            except APIError as e:
                text = f"cannot finish the transactions of an earlier run: {described(e)}"
                if self.problem != text:
                    self._log.warn("{text}; retrying", text=text)
                self.problem = text
            else:
                self.problem = ""
                return
            await self._pause.wait(delay)
            delay = min(2 * delay, _LAST_RETRY)

    def stop(self) -> None:
        """Stop waiting."""
        self._pause.cancel()

"""Logs failed writes: a full disk makes every write fail, but must not fill the log, too."""

from __future__ import annotations

from attrs import define, field
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from tower.store.records import StoreFailed, StoreStopped

#: Shortest time between two lines about one subject, s.
REMINDER = 60.0


@define(eq=False)
class WriteFailures:
    """Logs that writes of one subject fail, at most once in `REMINDER`, and that they work again.

    :param subject: plural, such as ``conditions of clusters``.
    """

    _log = Logger()

    _clock: IReactorTime
    _subject: str
    _logged: float | None = field(default=None, init=False)
    _count: int = field(default=0, init=False)

    def failed(self, failure: Failure) -> None:
        """Log *failure*; one that is not the store's has a traceback, because it is a defect.

        Writes after the store's stop are not logged.
        """
        if failure.check(StoreStopped):
            return
        if not failure.check(StoreFailed):
            self._log.failure("cannot write {subject}", failure, subject=self._subject)
            return
        self._count += 1
        now = self._clock.seconds()
        if self._logged is None or not 0 <= now - self._logged < REMINDER:
            self._logged = now
            self._log.error(
                "{subject} are not up to date, {count} writes failed; retrying: {reason}",
                subject=self._subject,
                count=self._count,
                reason=str(failure.value),
            )

    def worked(self) -> None:
        """Log the end of the failures, if there were any."""
        if self._logged is not None:
            self._log.info("{subject} are written again", subject=self._subject)
            self._logged, self._count = None, 0

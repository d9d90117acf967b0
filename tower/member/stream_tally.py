"""Counts the streams of an agent, and the dials of each target, for the log and the metrics."""

from __future__ import annotations

from collections.abc import Iterable

from twisted.internet.defer import CancelledError
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from tower.conch.connection.channel_open import Incoming
from tower.conch.connection.traffic import Traffic
from tower.metrics.histogram import Histogram
from tower.net.connecting import ConnectFailed
from tower.tunnels.targets import KUBERNETES

#: Rate limit of logged rejections: burst, and number per second; the others are counted.
REFUSALS = 50.0
REFUSALS_RATE = 1.0


#: Reasons of `DialCounters.failures`, and codes of `TargetRefused`.
DIAL_FAILURES = ("refused", "unreachable", "timeout", "name", "tls", "busy", "failed")
REFUSAL_CODES = ("not-allowed", "no-such-target", "busy")


class DialCounters:
    """The dials of one target.

    :ivar times: durations of successful ones.
    :ivar failures: number of failed ones by reason; see `tower.net.connecting.ConnectFailed`.
    """

    def __init__(self) -> None:
        self.times = Histogram()
        self.failures: dict[str, float] = dict.fromkeys(DIAL_FAILURES, 0)


class StreamTally:
    """Counts the streams of an agent, and logs rejections at a limited rate.

    :param targets: names of all targets.
    :ivar dialed: connections opened so far.
    :ivar refused: streams rejected so far.
    :ivar refusals: number of streams that the owner does not allow or that exceed a limit, by reason.
    :ivar dials: by target.
    :ivar traffic: the streams of all tunnels.
    """

    _log = Logger()

    def __init__(self, clock: IReactorTime, targets: Iterable[str] = (KUBERNETES,)) -> None:
        self._clock = clock
        self.refusals: dict[str, float] = dict.fromkeys(REFUSAL_CODES, 0)
        self.dials = {target: DialCounters() for target in targets}
        self.traffic = Traffic()
        self._allowance = REFUSALS
        self._counted_at = 0.0
        self._unlogged = 0
        self.dialed = self.refused = 0

    def seconds(self) -> float:
        """Return monotonic time, s."""
        return self._clock.seconds()

    def not_allowed(self, code: str) -> None:
        """Count a stream that the owner does not allow, or that exceeds a limit."""
        self.refusals[code if code in self.refusals else "not-allowed"] += 1

    def refuse(self, name: str, incoming: Incoming, code: str, text: str) -> None:
        """Reject a stream, and log it."""
        self.refused += 1
        incoming.refuse(code, text)
        now = self._clock.seconds()
        self._allowance = min(REFUSALS, self._allowance + (now - self._counted_at) * REFUSALS_RATE)
        self._counted_at = now
        if self._allowance < 1.0:
            self._unlogged += 1
            return
        self._allowance -= 1.0
        if self._unlogged:
            self._log.info("{unlogged} more streams were rejected", unlogged=self._unlogged)
            self._unlogged = 0
        self._log.info(
            "stream to {target!r} rejected: {reason} ({code})", target=name, code=code, reason=text
        )

    def failed(self, name: str, incoming: Incoming, failure: Failure, target: str) -> None:
        """Reject a stream whose *target* could not be reached, unless dialing was cancelled."""
        error = failure.value
        if isinstance(error, ConnectFailed):
            failures = self.dials[target].failures
            failures[error.kind if error.kind in failures else "failed"] += 1
            self.refuse(name, incoming, error.kind, str(error))
        elif not isinstance(error, CancelledError):
            self._log.failure("cannot dial {target!r}", failure, target=name)
            incoming.refuse("failed", "the agent could not dial the target: see the agent's log")

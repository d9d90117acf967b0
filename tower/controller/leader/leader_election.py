"""Leader election by a Lease, with client-go's semantics: at most one candidate leads at any time.

A candidate takes the Lease over once its record has not changed for the duration that the record names, by
the candidate's own clock.  A leader that cannot renew stops earlier: the renew deadline after it sent the
last successful renewal.  No time of day is compared, so clocks may differ and jump.

Differences from client-go: a candidate also watches the Lease, so it takes a released one over at once; the
deadline counts from the last success; a removed Lease is taken over only when its record would have expired.
"""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable

from attrs import frozen
from twisted.application.service import Service
from twisted.internet import defer
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from tower.controller.leader.lease_lock import LeaseLock
from tower.controller.leader.lease_watch import LeaseWatch
from tower.errors import ConfigurationError, one_line
from tower.kube.client import APIError
from tower.kube.rest.host_api import HostAPI
from tower.reactor.pause import Pause

#: Largest part of a candidate's wait that is left out at random, so that not all try at the same time.
JITTER = 0.2

#: A leader that could not renew tries again after this part of the retry period.
AGAIN = 0.2

#: Cures of rejected requests, by the status of the answer.
_CURES = {
    0: ": check that the API server runs and that its address in --kubeconfig is right",
    401: ": write a new token to --kubeconfig, as of 'kubectl -n {namespace} create token tower'",
    403: ": grant the rights of 'tower rbac host | kubectl apply -f -'",
    404: ": create it with 'kubectl create namespace {namespace}', or set --namespace",
}

#: A deadline that is noticed later than this means that the process did not run, s.
LATE = 2.0

#: Pause before a leader acts that took an expired Lease, s: requests of the former leader that an API server
#: received, but did not handle while it was frozen, are handled meanwhile.
SETTLE = 2.0

#: Timeout of the release of the Lease, s.
RELEASE_TIMEOUT = 5.0


@frozen
class ElectionTimes:
    """Times of an election, s.

    :ivar lease: how long candidates wait after the last change of the Lease until they take it over.
    :ivar renew: how long a leader leads after its last successful renewal; shorter than *lease*.
    :ivar retry: interval of renewals and of candidates' attempts; also the timeout of an attempt.
    """

    lease: float = 30.0
    renew: float = 15.0
    retry: float = 5.0


async def _never_led() -> bool:
    return False


class LeaderElection(Service):
    """A candidate from its start until its stop, its `release`, or the loss of its leadership.

    :param identity: unique for each start of each program.
    :param is_only: whether no other candidate is expected (``--leader-elect=false``): then a leader that
        cannot renew stays one, without the right to write, until another candidate takes the Lease.
    :param had_leader: returns whether there ever was a leader; asked if the Lease does not exist.
    :param seconds: returns the time by which durations are measured, s; None: the clock's.
    :param epoch: returns the time of day, s since the epoch.
    :param chance: returns a random number below 1.
    :ivar on_started: called when this candidate becomes the leader.
    :ivar on_standby: called when it sees another leader.
    :ivar on_lost: called with the reason when it loses the leadership; it never leads again.
    """

    _log = Logger()

    def __init__(
        self,
        api: HostAPI,
        clock: IReactorTime,
        identity: str,
        namespace: str,
        times: ElectionTimes,
        *,
        name: str = "tower",
        is_only: bool = False,
        had_leader: Callable[[], Awaitable[bool]] = _never_led,
        seconds: Callable[[], float] | None = None,
        epoch: Callable[[], float] = time.time,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._seconds = seconds = clock.seconds if seconds is None else seconds
        self.lock = LeaseLock(api, namespace, name, identity, times.lease, seconds, epoch, had_leader)
        self._clock, self._times, self._chance, self._is_only = clock, times, chance, is_only
        self.on_started: Callable[[], object] = lambda: None
        self.on_standby: Callable[[], object] = lambda: None
        self.on_lost: Callable[[str], object] = lambda _: None
        self._problem = "no answer of the API server yet"
        self._logged = ""
        self._leads = False
        self._valid_until = 0.0
        self._deadline: IDelayedCall | None = None
        self._taking: Deferred[float | None] | None = None
        self._pause = Pause(clock)
        self._watch = LeaseWatch(api, self.lock, self._noticed)

    @property
    def problem(self) -> str:
        """Why the last attempt failed, or the only candidate cannot lead; empty: all is well."""
        if self._is_only and not self._leads and self.holder and not self._problem:
            return (
                f"{self.holder} holds the {self.lock}, although this proxy should be the only one "
                "(--leader-elect=false): stop the other one; if none runs, wait until the Lease expires"
            )
        return self._problem

    @property
    def is_leader(self) -> bool:
        """Whether this candidate leads now; also right while no timer runs, as after a suspension."""
        return self._leads and self._seconds() < self._valid_until

    @property
    def holder(self) -> str:
        """Identity of the leader; empty: none is known."""
        return self.lock.record.holder

    @property
    def fence(self) -> str:
        """Why this candidate must not write."""
        if not self._leads:
            return "this proxy is not the leader"
        return f"the {self.lock} is not renewed: {self._problem or 'the API server does not answer'}"

    @property
    def role(self) -> str:
        """``leader: …`` or ``standby: …``, with the Lease and its holder."""
        if self._leads and self._is_only:
            return f"leader: the only proxy (--leader-elect=false), with the {self.lock}"
        if self.is_leader:
            return f"leader: this proxy holds the {self.lock}"
        return f"standby: {self.holder} holds the {self.lock}" if self.holder else f"standby: {self.lock}"

    def startService(self) -> None:
        """Start trying to lead."""
        super().startService()  # type: ignore[no-untyped-call]
        Deferred.fromCoroutine(self._run()).addErrback(self._failed)

    def stopService(self) -> None:
        """Stop trying and leading, without a release of the Lease."""
        super().stopService()  # type: ignore[no-untyped-call]
        self._leads = False
        self._watch.stop()
        if self._deadline is not None and self._deadline.active():
            self._deadline.cancel()
        self._pause.cancel()
        if self._taking is not None:
            self._taking.cancel()

    async def release(self) -> None:
        """Stop, and release the Lease if this candidate leads; it must not act as the leader any more."""
        is_leader = self.is_leader
        if self.running:
            self.stopService()
        if not is_leader:
            return
        releasing = Deferred.fromCoroutine(self.lock.release()).addTimeout(RELEASE_TIMEOUT, self._clock)
        try:
            await releasing
        except (APIError, defer.TimeoutError) as e:
            self._log.warn(
                "cannot release the {lease}, so the next leader starts when it expires: {reason}",
                lease=str(self.lock),
                reason=one_line(e) if isinstance(e, APIError) else "no answer",
            )
        else:
            self._log.info("released the {lease}", lease=str(self.lock))

    # The two states

    async def _run(self) -> None:
        while (sent := await self._attempt(self._times.retry)) is None:
            self._noticed()
            self._watch.start()
            await self._pause.wait(self._until_next())
        self._watch.stop()
        self._hold(sent)
        self._leads = True
        if self.lock.was_expired:
            await self._pause.wait(min(SETTLE, self._times.retry))
        self._log.info(
            "{identity} is the leader by the {lease}", identity=self.lock.identity, lease=str(self.lock)
        )
        self.on_started()
        while self._leads:
            await self._pause.wait(self._times.retry if sent is not None else self._times.retry * AGAIN)
            left = self._times.retry if self._is_only else self._valid_until - self._seconds()
            sent = await self._attempt(min(self._times.retry, left))
            if sent is not None:
                self._hold(sent)
            elif not self.lock.is_own:
                cure = ": only one proxy may have --leader-elect=false" if self._is_only else ""
                self._lose(f"{self.holder or 'another program'} has taken it{cure}")

    async def _attempt(self, timeout: float) -> float | None:
        """Try to acquire or renew the Lease; return the time of the successful write, or None."""
        self._taking = taking = Deferred.fromCoroutine(self.lock.take())
        taking.addTimeout(max(timeout, 0.0), self._clock)
        try:
            sent = await taking
        except (APIError, defer.TimeoutError) as e:
            answer = f"no answer within {timeout:.1f} s"
            if isinstance(e, APIError) and isinstance(e.cause, ConfigurationError):
                answer = one_line(e)  # with its cure
            elif isinstance(e, APIError):
                answer = one_line(e) + _CURES.get(e.code, "").format(namespace=self.lock.namespace)
            self._problem = f"cannot use the {self.lock}: {answer}"
            if self._problem != self._logged:
                self._logged = self._problem
                self._log.warn("{problem}", problem=self._problem)
            return None
        finally:
            self._taking = None
        if self._problem:
            self._problem = self._logged = ""
        is_late = (
            sent is not None and self._seconds() >= sent + self._times.renew
        )  # this process was suspended
        return None if is_late else sent

    def _hold(self, sent: float) -> None:
        """Lead until the renew deadline after *sent*."""
        self._valid_until = sent + self._times.renew
        if self._deadline is None or not self._deadline.active():
            self._check_deadline()

    def _check_deadline(self) -> None:
        left = self._valid_until - self._seconds()
        if left > 0:
            self._deadline = self._clock.callLater(left, self._check_deadline)
        elif self._is_only:
            self._log.error(
                "the only proxy serves, but does not write until it can renew the {lease}: {reason}",
                lease=str(self.lock),
                reason=self._problem or "no answer",
            )
        else:
            reason = self._problem or "no answer in that time, or this process was suspended"
            if -left > LATE:
                reason = f"this process did not run for {-left:.0f} s or longer, as after a suspension"
            self._lose(f"it was not renewed within {self._times.renew:g} s: {reason}")

    def _lose(self, reason: str) -> None:
        if self._leads:
            self.stopService()
            self.on_lost(f"lost the {self.lock}: {reason}")

    # A candidate's wait

    def _until_next(self) -> float:
        """Return the time until a candidate's next attempt, s."""
        wait = self._times.retry * (1 - JITTER * self._chance())
        if self._problem or self.lock.free_at == 0.0:
            return wait
        left = self.lock.free_at - self._seconds() + self._times.retry * JITTER * AGAIN * self._chance()
        return max(0.0, min(wait, left))

    def _noticed(self) -> None:
        """Try at once if the Lease was released."""
        if self.lock.free_at == 0.0:
            self._pause.end()
        elif self.holder != self._logged and not self._problem:
            self._logged = self.holder
            if self._is_only:
                self._log.error("{problem}", problem=self.problem)
                return
            self._log.info("standby: {holder} holds the {lease}", holder=self.holder, lease=str(self.lock))
            self.on_standby()

    def _failed(self, failure: Failure) -> None:
        """Handle an error of `_run` that nothing expected: a leader must not go on without renewals."""
        if not failure.check(CancelledError):
            self._log.failure("the election failed", failure)
            if self.running:
                self.stopService()
                self.on_lost("the election failed")

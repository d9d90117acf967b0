"""The proxy in a host cluster: one of several replicas leads and serves, the others wait.

A replica takes part in the election.  As leader it gets the keys from the Secret, loads the records, and runs
the proxy; if it cannot, another replica gets the Lease.  A lost Lease ends the program; a stop hands over to
the next leader.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence

from prometheus_client.registry import Collector
from twisted.application.service import MultiService, Service
from twisted.internet import defer
from twisted.internet.defer import CancelledError, Deferred, maybeDeferred, succeed
from twisted.internet.error import CannotListenError
from twisted.logger import Logger
from twisted.python import usage
from twisted.python.failure import Failure

from tower.control.admin_kubeconfig import FILE as ADMIN_KUBECONFIG
from tower.control.state_files import HOSTED
from tower.controller.leader.leader_election import LeaderElection
from tower.controller.leader.leader_label import LABEL_PERIOD, LeaderLabel
from tower.controller.leader.leader_start import LeaderStart, StartAbandoned
from tower.controller.leader.leading_proxy import LeadingProxy
from tower.controller.leader.state_secret import SAVE_PERIOD, StateSecret
from tower.errors import ConfigurationError, TowerError
from tower.kube.client import APIError
from tower.options.errors import one_line
from tower.reactor.interfaces import IReactor
from tower.reactor.pause import Pause
from tower.reactor.process import end_in_failure
from tower.reactor.repeating import RepeatingTask
from tower.reactor.signals import Reloads
from tower.store import IStore
from tower.trust.statedir import StateDir

#: Time until a replica that could not start as the leader is a candidate again, s: doubled up to the longest.
FIRST_REST, LONGEST_REST = 5.0, 20.0

#: Longest time that a stop waits for the removal of the label, s.
LAST_REQUESTS = 1.0

#: Timeout of a check of the label or the Secret, s.
REQUEST_LIMIT = 60.0

#: Reason of a stop, for users.
LOST = (
    "it lost its Lease, because the API server of its host cluster does not answer, or another proxy leads: "
    "retry; the proxy's log has the reason"
)

#: Time after which a program that lost its Lease ends, finished or not, s.
END_LIMIT = 5.0


class HostedProxy(MultiService):
    """A replica of the proxy; its parts are stopped with it.

    :param state: locked; its keys are those of *secret*.
    :param label: of the pod of this process; None: it is not in a pod.
    :param load: returns the store with all records.
    :param create: returns the proxy with that store.
    :param failures: returns the reasons why records cannot be read now.
    :param own_secrets_key: whether the key that encrypts secrets is in the state directory.
    :param collector: of metrics of the election, for the proxy's page.
    :param announce: writes an event about a change of this candidate.
    :param fail: ends the program with exit code 1.
    :param end: ends the process at once with an exit code.
    :ivar reloads: what SIGHUP reloads.
    :ivar on_ready: called when this replica serves or is a standby.
    """

    _log = Logger()

    def __init__(
        self,
        reactor: IReactor,
        election: LeaderElection,
        state: StateDir,
        secret: StateSecret,
        label: LeaderLabel | None,
        load: Callable[[], Awaitable[IStore]],
        create: Callable[[IStore], LeadingProxy],
        reloads: Reloads,
        *,
        failures: Callable[[], Sequence[str]] = tuple,
        own_secrets_key: bool = True,
        collector: Collector | None = None,
        announce: Callable[[str], object] = lambda _: None,
        fail: Callable[[IReactor], object] = end_in_failure,
        end: Callable[[int], object] = os._exit,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._reactor, self._election, self._state = reactor, election, state
        self._secret, self._label, self.reloads = secret, label, reloads
        self._load, self._create, self._fail, self._end = load, create, fail, end
        self._failures, self._own_secrets_key = failures, own_secrets_key
        self._collector, self._announce = collector, announce
        self._pause = Pause(reactor)
        self._leading: Deferred[None] | None = None
        self._proxy: LeadingProxy | None = None
        self._start: LeaderStart[LeadingProxy] | None = None
        self._rest = FIRST_REST
        self._rests = False
        self._background: list[Service] = []
        self._stopping: Deferred[None] | None = None
        self._serves = False
        self._trouble = ""
        self.on_ready: Callable[[], None] = lambda: None
        election.on_started = self._started
        election.on_standby = self._standby
        election.on_lost = self._lost

    # For the health page and the service manager

    @property
    def problem(self) -> str:
        """See `tower.controller.leader.replica_page.Replica`."""
        if self._serves:
            return ""
        if self._start is not None:
            return self._start.problem or "the proxy is starting"
        return self._election.problem or (self._trouble if self._rests else "")

    @property
    def warnings(self) -> Sequence[str]:
        """See `tower.controller.leader.replica_page.Replica`."""
        if self._proxy is None or not self._serves:
            is_shown = bool(self._trouble) and self._start is None and not self._rests
            return [f"this proxy could not lead: {self._trouble}"] if is_shown else ()
        own = [each for each in (self._election.problem, self._secret.problem) if each]
        return list(dict.fromkeys([*self._failures(), *own, *self._proxy.host_problems]))

    @property
    def role(self) -> str:
        """See `tower.controller.leader.replica_page.Replica`."""
        return self._election.role

    def summary(self) -> str:
        """Return the state of this replica in one sentence."""
        return (
            self._proxy.summary() if self._proxy is not None and self._serves else self.problem or self.role
        )

    # Start

    def startService(self) -> None:
        """Take part in the election."""
        super().startService()  # type: ignore[no-untyped-call]
        self._note_no_leader("starting: this proxy has not seen the Lease yet")
        if self._label is not None:
            self._run([self._task(LABEL_PERIOD, self._label.try_to_clear)])
        self._election.startService()

    def _standby(self) -> None:
        self._note_no_leader(self.role)
        self.on_ready()

    def _note_no_leader(self, role: str) -> None:
        try:
            self._state.remove(ADMIN_KUBECONFIG)  # left by an earlier leader
            self._note_role(role)
        except ConfigurationError as e:
            self._log.warn("{reason}", reason=one_line(e))

    def _note_role(self, role: str) -> None:
        """Leave a note for the `tower` command on this machine."""
        self._state.write(HOSTED, f"{role}\n".encode())

    def _started(self) -> None:
        self._announce("became leader")
        self._leading = Deferred.fromCoroutine(self._lead())
        self._leading.addErrback(self._failed)

    async def _lead(self) -> None:
        self._start = start = LeaderStart(
            self._reactor,
            self._state,
            self._secret,
            self._load,
            self._create,
            self._failures,
            own_secrets_key=self._own_secrets_key,
        )
        self._note_role(self.role)
        try:
            proxy = await start.run()
        except StartAbandoned as e:
            self._start, self._trouble = None, str(e)
            self._leading = Deferred.fromCoroutine(self._step_aside()).addErrback(self._failed)
            return
        self._trouble, self._rest = "", FIRST_REST
        proxy.on_ready, proxy.hand_over = self._ready, self._hand_over
        if self._collector is not None:
            proxy.add_metrics(self._collector)
        self._proxy = proxy
        proxy.setServiceParent(self)

    async def _step_aside(self) -> None:
        """Let another replica lead, which may have what this one lacks, and be a candidate again later."""
        rest, self._rest = self._rest, min(2 * self._rest, LONGEST_REST)
        self._log.error(
            "the leader cannot start, so it releases the Lease for another proxy, and is a candidate "
            "again in {rest:g} s: {reason}",
            rest=rest,
            reason=self._trouble,
        )
        self._rests = True
        await self._hand_over()
        await self._pause.wait(rest)
        self._rests = False
        if self.running:
            self._election.startService()

    def _ready(self) -> None:
        """Let Services select this replica."""
        self._serves = True
        tasks = [self._task(SAVE_PERIOD, self._secret.try_to_save_changed)]
        if self._label is not None:
            tasks.append(self._task(LABEL_PERIOD, self._label.try_to_set))
        self._run(tasks)
        self.on_ready()

    def _run(self, tasks: list[Service]) -> None:
        """Run these background tasks only."""
        former, self._background = self._background, tasks
        for service in former:
            service.disownServiceParent()
        for service in tasks:
            service.setServiceParent(self)

    def _task(self, period: float, work: Callable[[], Awaitable[None]]) -> Service:
        return RepeatingTask(self._reactor, period, work, REQUEST_LIMIT)

    # End

    def _failed(self, failure: Failure) -> None:
        if failure.check(CancelledError):
            return
        error = failure.value
        if isinstance(error, (TowerError, usage.UsageError, CannotListenError)):
            self._log.critical("the proxy cannot start: {reason}", reason=one_line(error))
        else:
            self._log.failure("the proxy cannot start", failure)
        self._fail(self._reactor)

    def _lost(self, reason: str) -> None:
        """Stop serving, and end the program; the next leader may start at any moment."""
        self._log.critical("{reason}: the proxy ends", reason=reason)
        self._reactor.callLater(END_LIMIT, self._end, 1)
        self._cancel()
        if self._proxy is not None:
            self._proxy.grace, self._proxy.hand_over, self._proxy.reason = 0.0, None, LOST
            if self._start is not None and self._start.store is not None:
                self._start.store.stop()  # no write can succeed
            self._stop_proxy(self._proxy)
        self._fail(self._reactor)

    def stopService(self) -> Deferred[None]:
        """Hand over to the next leader, let requests finish, and stop."""
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        self._cancel()
        unlabeling = self._unlabel()
        if self._proxy is not None:
            await self._stop_proxy(self._proxy)
        elif self._start is not None and self._start.store is not None:
            await self._start.store.stop()
        await unlabeling
        await self._hand_over()
        await maybeDeferred(super().stopService)
        self._state.close()

    def _cancel(self) -> None:
        """Cancel a start that is not finished, and checks of the label and the Secret."""
        self._run([])
        self._pause.cancel()
        leading, self._leading = self._leading, None
        if leading is not None:
            leading.cancel()

    def _stop_proxy(self, proxy: LeadingProxy) -> Deferred[None]:
        if self._stopping is None:
            self._stopping = maybeDeferred(proxy.disownServiceParent)
        return self._stopping

    def _unlabel(self) -> Deferred[None]:
        """Let Services no longer select this replica."""
        was_serving, self._serves = self._serves, False
        if self._label is None or not was_serving or not self._election.is_leader:
            return succeed(None)
        removing = Deferred.fromCoroutine(self._label.remove()).addTimeout(LAST_REQUESTS, self._reactor)
        removing.addErrback(lambda failure: failure.trap(APIError, defer.TimeoutError) and None)
        return removing

    async def _hand_over(self) -> None:
        """Release the Lease; nothing is written any more."""
        if self._election.is_leader:
            self._announce("stopped leading")
        await self._election.release()

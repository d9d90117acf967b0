"""Candidates of an election as processes, each with its clock, which can freeze and die."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from zope.interface import implementer

from tests.kube.rest.fake_host import FakeHost
from tower.controller.leader.fenced_host import FencedHost
from tower.controller.leader.leader_election import ElectionTimes, LeaderElection
from tower.kube.client import APIError
from tower.kube.rest.host_api import Object, ResourceType, WatchEvent
from tower.kube.rest.well_known import CONFIG_MAPS

NAMESPACE = "kubesphere-system"


@implementer(IReactorTime)
class ProcessClock:
    """The clock of one process, which runs nothing while the process is frozen, and late calls afterwards.

    :param rate: how fast it runs, compared with *clock*.
    :ivar step: how far the time of day was set forward, s.
    """

    def __init__(self, clock: Clock, rate: float = 1.0, offset: float = 0.0) -> None:
        self._clock, self._rate, self._offset = clock, rate, offset
        self.step = 0.0
        self._late: list[Callable[[], object]] | None = None
        self._dead = False

    @property
    def runs(self) -> bool:
        """Whether the process is neither frozen nor dead."""
        return self._late is None and not self._dead

    def seconds(self) -> float:
        """Return the monotonic time."""
        return self._offset + self._clock.seconds() * self._rate

    def epoch(self) -> float:
        """Return the time of day."""
        return 1_800_000_000 + self._clock.seconds() + self.step

    def callLater(self, delay: float, callable: Callable[..., Any], *args: Any, **kw: Any) -> IDelayedCall:  # noqa: A002
        """Call later, by this clock."""
        call: IDelayedCall = self._clock.callLater(
            delay / self._rate, lambda: self.do(lambda: callable(*args, **kw))
        )
        return call

    def getDelayedCalls(self) -> Any:
        """Return all calls of the base clock."""
        return self._clock.getDelayedCalls()

    def do(self, work: Callable[[], object]) -> None:
        """Do *work* in the process: now, after it is thawed, or never."""
        if self._dead:
            return
        if self._late is not None:
            self._late.append(work)
        else:
            work()

    def freeze(self) -> None:
        """Suspend the process."""
        if self._late is None:
            self._late = []

    def thaw(self, random: Random) -> None:
        """Continue the process: late calls happen at once, in any order."""
        late, self._late = self._late or [], None
        random.shuffle(late)
        for work in late:
            self.do(work)

    def kill(self) -> None:
        """End the process."""
        self._dead = True


class FarHost:
    """The API server as one process reaches it: requests and answers take their time.

    A request that was sent arrives, even if its process was killed or has canceled it.

    :ivar is_frozen: whether requests wait at the server.
    """

    def __init__(self, host: FakeHost, clock: Clock, process: ProcessClock, random: Random) -> None:
        self._host, self._clock, self._process, self._random = host, clock, process, random
        self._waiting: list[Callable[[], object]] | None = None

    def freeze(self) -> None:
        """Let requests wait."""
        if self._waiting is None:
            self._waiting = []

    def thaw(self) -> None:
        """Do the requests that wait."""
        waiting, self._waiting = self._waiting or [], None
        for arrive in waiting:
            arrive()

    def _do(self, call: Callable[[], Awaitable[Any]]) -> Deferred[Any]:
        answer: Deferred[Any] = Deferred()

        async def work() -> Any:
            return await call()

        def arrive() -> None:
            if self._waiting is not None:
                self._waiting.append(arrive)
                return
            Deferred.fromCoroutine(work()).addBoth(leave)

        def leave(result: Any) -> None:
            self._clock.callLater(self._latency(), self._process.do, lambda: deliver(result))

        def deliver(result: Any) -> None:
            if answer.called:
                return
            if isinstance(result, Failure):
                answer.errback(result)
            else:
                answer.callback(result)

        self._clock.callLater(self._latency(), arrive)
        return answer

    def _latency(self) -> float:
        return self._random.choice((0.0, 0.01, 0.1, 1.0)) * self._random.random()

    async def get(self, resource: ResourceType, name: str, namespace: str | None = None) -> Object:
        """Return an object."""
        found: Object = await self._do(lambda: self._host.get(resource, name, namespace))
        return found

    async def create(self, resource: ResourceType, obj: Object, namespace: str | None = None) -> Object:
        """Create an object."""
        stored: Object = await self._do(lambda: self._host.create(resource, obj, namespace))
        return stored

    async def update(
        self, resource: ResourceType, obj: Object, namespace: str | None = None, subresource: str = ""
    ) -> Object:
        """Replace an object."""
        stored: Object = await self._do(lambda: self._host.update(resource, obj, namespace, subresource))
        return stored

    async def watch(
        self,
        resource: ResourceType,
        namespace: str | None,
        resource_version: str,
        deliver: Callable[[WatchEvent], None],
        label_selector: str = "",
        **options: Any,
    ) -> None:
        """Deliver changes, late."""
        is_open = True

        def arrive(event: WatchEvent) -> None:
            if is_open:
                deliver(event)

        def later(event: WatchEvent) -> None:
            self._clock.callLater(self._latency(), self._process.do, lambda: arrive(event))

        try:
            await self._host.watch(resource, namespace, resource_version, later, label_selector, **options)
        finally:
            is_open = False


class Candidate:
    """A process that takes part in an election.

    :ivar lost: the reason why it lost its leadership; None: it did not.
    """

    def __init__(
        self,
        name: str,
        host: FakeHost,
        clock: Clock,
        random: Random,
        times: ElectionTimes,
        had_leader: Callable[[], bool],
    ) -> None:
        self.name = name
        self.process = ProcessClock(clock, random.uniform(0.995, 1.005), random.uniform(0, 1e6))
        self.host = FarHost(host, clock, self.process, random)
        self.lost: str | None = None
        self.started = 0

        async def asked() -> bool:
            return had_leader()

        api: Any = self.host
        self.election = LeaderElection(
            api,
            self.process,
            name,
            NAMESPACE,
            times,
            had_leader=asked,
            epoch=self.process.epoch,
            chance=random.random,
        )
        self._fenced = FencedHost(api, lambda: self.election.is_leader)
        self.election.on_started = self._has_started
        self.election.on_lost = self._has_lost
        self.election.startService()

    @property
    def leads(self) -> bool:
        """Whether it acts as the leader now."""
        return self.process.runs and self.election.is_leader

    def kill(self) -> None:
        """End the process at once."""
        self.process.kill()

    def write(self) -> None:
        """Try to write an object with its name, as a leader may."""
        obj = {"metadata": {"name": self.name, "namespace": NAMESPACE}}
        writing = Deferred.fromCoroutine(self._fenced.update(CONFIG_MAPS, obj, NAMESPACE))
        writing.addErrback(lambda failure: failure.trap(APIError))

    def _has_started(self) -> None:
        self.started += 1

    def _has_lost(self, reason: str) -> None:
        self.lost = reason

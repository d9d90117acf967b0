"""A copy of the objects of one type that follows the host: list, then watch."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Protocol

from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from tower.kube.client import APIError
from tower.kube.rest.failures import describe
from tower.kube.rest.host_api import HostAPI, Object, ResourceType, WatchEvent
from tower.kube.rest.reflector_group import ReflectorCounts, ReflectorGroup

#: Delay before a retry, s: doubled after each failure in a row, up to the longest, and prolonged by chance
#: to at most twice as much.
FIRST_DELAY = 0.8
LONGEST_DELAY = 30.0

#: Duration of a watch, s; prolonged by chance to at most twice as much.
WATCH_SECONDS = 300

#: Longest delay before a retry when the API server answers again, s; by chance shorter, to spread the load.
SOON = 1.0

#: Shorter watches without an event count as failures, s.
SHORT = 1.0

#: Watches that lasted longer end a row of failures, s.
HEALTHY = 30.0

_EXPIRED = 410


class Follower(Protocol):
    """Receives the objects and their changes."""

    def replaced(self, items: list[Object], resource_version: str) -> None:
        """Replace all objects by *items*, at the start and after changes were missed."""

    def changed(self, event: WatchEvent) -> None:
        """Apply a change; never a bookmark."""


class Reflector:
    """Follows the objects of one type for *follower*.

    :param namespace: None: all namespaces.
    :param chance: returns a random number from 0 to 1.
    :param group: of all reflectors of this host; None: it is alone.
    :param describe: returns the text of a failure.
    :ivar synced: whether the follower has had a complete list.
    :ivar failure: why the objects are not followed now, with the cure; empty if they are.
    """

    _log = Logger()

    def __init__(
        self,
        api: HostAPI,
        resource: ResourceType,
        namespace: str | None,
        follower: Follower,
        reactor: IReactorTime,
        chance: Callable[[], float] = random.random,
        *,
        label_selector: str = "",
        field_selector: str = "",
        group: ReflectorGroup | None = None,
        describe: Callable[[APIError, ResourceType], str] = describe,
    ) -> None:
        self.resource = resource
        self.counts = ReflectorCounts()
        self.synced = False
        self.failure = ""
        self._api = api
        self._namespace = namespace
        self._follower = follower
        self._reactor = reactor
        self._chance = chance
        self._labels = label_selector
        self._fields = field_selector
        self._describe = describe
        self._group = ReflectorGroup(reactor) if group is None else group
        self._retry: IDelayedCall | None = None
        self._version = ""
        self._opened = math.inf  # time of the last watch that was accepted, until a failure
        self._in_a_row = 0
        self._is_expired = False
        self._fault: Exception | None = None
        self._stopped = False
        self._running: Deferred[None] | None = None
        self._watching: Deferred[None] | None = None
        self._waiting: list[Deferred[None]] = []

    def start(self) -> None:
        """Start; not again after `stop`."""
        self._group.add(self)
        self._running = running = Deferred.fromCoroutine(self._run())
        running.addErrback(lambda failure: failure.trap(CancelledError))

    def stop(self) -> None:
        """Stop, and close the watch."""
        self._stopped = True
        self._group.remove(self)
        if self._running is not None:
            self._running.cancel()
        for each in list(self._waiting):
            each.cancel()

    def when_synced(self) -> Deferred[None]:
        """Return a Deferred that fires when `synced` is true; `stop` cancels it."""
        if self.synced:
            return succeed(None)
        waiting: Deferred[None] = Deferred(self._waiting.remove)
        self._waiting.append(waiting)
        return waiting

    async def _run(self) -> None:
        while not self._stopped:
            delay = 0.0
            try:
                if not self._version:
                    await self._list()
                await self._watch()
            except Exception as e:  # noqa: BLE001 - of the follower, too
                delay = 0.0 if self._stopped else self._failed(e)
            if delay:
                await self._pause(delay)

    async def _pause(self, delay: float) -> None:
        over: Deferred[None] = Deferred(lambda _: retry.cancel())
        self._retry = retry = self._reactor.callLater(delay, over.callback, None)
        try:
            await over
        finally:
            self._retry = None

    def retry_soon(self) -> None:
        """Try again within a second, if it waits for longer: the API server answers others."""
        if self._retry is not None and self._retry.getTime() > self._reactor.seconds() + SOON:
            self._retry.reset(SOON * self._chance())

    async def _list(self) -> None:
        self.counts.lists += 1
        found = await self._api.list(
            self.resource, self._namespace, self._labels, field_selector=self._fields
        )
        self._follower.replaced(found.items, found.resource_version)
        self._version = found.resource_version
        self._well()
        self.synced = True
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            each.callback(None)

    async def _watch(self) -> None:
        """Follow until the server ends the watch.

        :raise APIError: it fails, or ends at once.
        """
        if self._stopped:
            return
        began, seen = self._reactor.seconds(), self._seen
        self.counts.watches += 1
        self._watching = Deferred.fromCoroutine(
            self._api.watch(
                self.resource,
                self._namespace,
                self._version,
                self._deliver,
                self._labels,
                field_selector=self._fields,
                seconds=int(WATCH_SECONDS * (1 + self._chance())),
                opened=self._accepted,
            )
        )
        try:
            await self._watching
        except CancelledError:
            if self._fault is None:
                raise
        fault, self._fault = self._fault, None
        if fault is not None:
            raise fault
        now = self._reactor.seconds()
        if now < began + SHORT and self._seen == seen:
            raise APIError("GET", self.resource.path(self._namespace), 0, "the watch ended at once")
        self.counts.ends += 1
        self._in_a_row = 0

    @property
    def _seen(self) -> int:
        return self.counts.events + self.counts.bookmarks

    def _deliver(self, event: WatchEvent) -> None:
        if self._stopped or self._fault is not None:
            return
        self._is_expired = False
        if event.type == "BOOKMARK":
            self.counts.bookmarks += 1
        else:
            self.counts.events += 1
            try:
                self._follower.changed(event)
            except Exception as e:  # noqa: BLE001 - raised when the watch ends
                self._fault = e
                self._reactor.callLater(0, self._cut)
                return
        self._version = event.resource_version

    def _accepted(self) -> None:
        self._opened = self._reactor.seconds()
        self._well()

    def _cut(self) -> None:
        if self._watching is not None and self._fault is not None:
            self._watching.cancel()

    def _well(self) -> None:
        if self.failure:
            self.failure = ""
            self._group.recovered(self)

    def _failed(self, error: Exception) -> float:
        """Return the delay before the next attempt, s."""
        if not isinstance(error, APIError):  # a complete list may help
            self._log.failure("following {name} failed", Failure(error), name=self.resource.name)
            self._version = ""
            return self._delay_after(f"internal error: {type(error).__name__}; see the log", -1)
        if error.code == _EXPIRED:
            self.counts.expirations += 1
            self._version = ""
            if not self._is_expired:
                self._is_expired = True
                return 0.0
        delay = self._delay_after(self._describe(error, self.resource), error.code)
        return max(delay, min(error.retry_after, LONGEST_DELAY))

    def _delay_after(self, failure: str, code: int) -> float:
        """Count a failure and return the delay."""
        self.counts.failures += 1
        self.failure = failure
        self._group.failed(self, code)
        if self._reactor.seconds() >= self._opened + HEALTHY:
            self._in_a_row = 0
        self._opened = math.inf
        self._in_a_row += 1
        delay = min(FIRST_DELAY * 2 ** min(self._in_a_row - 1, 10), LONGEST_DELAY)
        return float(delay * (1 + self._chance()))

"""Installs SSH keys in the metadata of a project or of its instances."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable

from attrs import define, field, frozen
from twisted.internet import defer
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger

from tower.cloud.errors import CloudAnswerError, CloudError
from tower.cloud.gce.compute import Compute, Resource
from tower.cloud.gce.config import INSTANCE_SCOPE, GCEConfig
from tower.cloud.gce.keys import find_item, ignores_project_keys, items_to_change, key_line, with_line
from tower.cloud.http.fan_out import describe, fan_out

#: Maximum number of instances that are changed in parallel.
PARALLEL = 8
#: Maximum number of instances that a log line names.
NAMED = 20
#: Timeout of the search for instances that ignore the project's keys, s; the pause before the next search is
#: this many times its duration.
SEARCH_LIMIT = 60.0
SEARCH_PAUSE = 20.0


class NotInTimeError(CloudError):
    """Polling timed out."""

    def __init__(self, last: CloudError | None = None) -> None:
        text = "timed out waiting for the condition"
        super().__init__(f"{text}: {last}" if last else text)


async def poll(
    clock: IReactorTime,
    attempt: Callable[[], Awaitable[object]],
    *,
    interval: float = 2.0,
    timeout: float = 30.0,
) -> None:
    """Call *attempt* until it raises no `CloudError`, as Go's ``wait.Poll``: first after *interval* s.

    ``Retry-After`` of a response is honored.

    :param interval: between attempts, s.
    :param timeout: of everything, s; an attempt in progress is cancelled then.
    :raise NotInTimeError: all attempts failed; has the error of the last one.
    """
    ends = clock.seconds() + timeout
    last: CloudError | None = None
    wait = interval
    while clock.seconds() + wait < ends:
        await deferLater(clock, wait)
        trying = Deferred.fromCoroutine(_call(attempt))
        trying.addTimeout(ends - clock.seconds(), clock)
        try:
            await trying
            return
        except defer.TimeoutError:
            break
        except CloudError as e:
            last = e
            wait = max(interval, e.retry_after if isinstance(e, CloudAnswerError) else 0.0)
    raise NotInTimeError(last)


async def _call(attempt: Callable[[], Awaitable[object]]) -> None:
    await attempt()


@frozen
class KeyTarget:
    """An instance that keys are for; *ignores* is why it ignores its project's keys; empty: it does not."""

    name: str
    zone: str
    ignores: str


def _target(instance: Resource, project: Resource) -> KeyTarget:
    zone = instance["zone"].rpartition("/")[2]
    return KeyTarget(instance["name"], zone, ignores_project_keys(instance.get("metadata") or {}, project))


@define(eq=False, repr=False)
class KeyInstaller:
    """Adds keys; never removes or changes other lines.

    Each write carries the fingerprint of the metadata it is based on, and is repeated if another writer was
    faster.

    :param instances: returns the results of its argument for the selected instances with their metadata.
    """

    _log = Logger()

    _clock: IReactorTime
    _compute: Compute
    _config: GCEConfig
    _instances: Callable[[Callable[[Resource], KeyTarget]], Awaitable[list[KeyTarget]]]
    _ignoring: dict[str, str] = field(factory=dict, init=False)
    _next_search: float = field(default=-math.inf, init=False)

    async def install(self, user: str, key: bytes) -> None:
        """Install a key for a user; try every 2 s for 30 s.

        :raise NotInTimeError: the project's metadata was not changed in time.
        :raise CloudError: some instances did not get the key; it names them.
        """
        line = key_line(user, key)
        into = self._into_instances if self._config.key_scope == INSTANCE_SCOPE else self._into_project
        await into(line)

    async def _into_project(self, line: str) -> None:
        metadata: Resource = {}

        async def attempt() -> None:
            nonlocal metadata
            project = await self._get("project", self._compute.project())
            metadata = project.get("commonInstanceMetadata") or {}
            await self._add("project", "", metadata, line)

        await poll(self._clock, attempt)
        await self._search_ignoring(metadata)

    async def _into_instances(self, line: str) -> None:
        instances = await self._targets({})
        ignoring = {each.name: each.ignores for each in instances if each.ignores == "enable-oslogin"}
        self._log_ignoring(ignoring)

        async def install(instance: KeyTarget) -> None:
            name, zone = instance.name, instance.zone

            async def attempt() -> None:
                fresh = await self._get("instance", self._compute.instance(zone, name, retry=False))
                metadata = fresh.get("metadata") or {}
                await self._add(f"instance {name}", f"zones/{zone}/instances/{name}", metadata, line)

            await poll(self._clock, attempt)

        failed = await fan_out((each for each in instances if each.name not in ignoring), install, PARALLEL)
        if failed:
            names = describe((each.item.name, each.reason) for each in failed)
            raise CloudError(f"{len(failed)} of {len(instances)} instances did not get the key: {names}")

    async def _get(self, what: str, request: Awaitable[Resource]) -> Resource:
        try:
            return await request
        except CloudError as e:
            self._log.warn("Could not get {what}: {error}", what=what, error=str(e))
            raise

    async def _add(self, what: str, where: str, metadata: Resource, line: str) -> None:
        keys = items_to_change(metadata, line, self._config.key_items, own=bool(where))
        if not keys:
            self._log.info("SSHKey already in {what} metadata", what=what)
            return
        for key in keys:
            if find_item(metadata, key) is None:
                self._log.info("Failed to find {key} metadata, creating a new item", key=key)
        verb = "/setMetadata" if where else "setCommonInstanceMetadata"
        try:
            await self._compute.set_metadata(where, verb, with_line(metadata, line, keys))
        except CloudError as e:
            self._log.warn("Could not Set Metadata: {error}", error=str(e))
            raise
        self._log.info("Successfully added sshKey to {what} metadata", what=what)

    async def _search_ignoring(self, project: Resource) -> None:
        """Log which instances ignore the project's keys, if that has changed."""
        began = self._clock.seconds()
        if began < self._next_search:
            return
        searching = Deferred.fromCoroutine(self._targets(project))
        try:
            instances = await searching.addTimeout(SEARCH_LIMIT, self._clock)
        except defer.TimeoutError:
            self._log.info("instances that ignore the key: unknown after {limit:g} s", limit=SEARCH_LIMIT)
        except CloudError as e:
            self._log.info("instances that ignore the key: unknown: {error}", error=str(e))
        else:
            self._log_ignoring({each.name: each.ignores for each in instances if each.ignores})
        # The metadata of all instances may be some gigabytes.
        now = self._clock.seconds()
        self._next_search = now + SEARCH_PAUSE * (now - began)

    async def _targets(self, project: Resource) -> list[KeyTarget]:
        return await self._instances(lambda each: _target(each, project))

    def _log_ignoring(self, ignoring: dict[str, str]) -> None:
        if ignoring == self._ignoring:
            return
        self._ignoring = ignoring
        if not ignoring:
            self._log.info("all instances accept the key")
            return
        names = ", ".join(f"{name} ({reason})" for name, reason in sorted(ignoring.items())[:NAMED])
        self._log.warn(
            "instances that ignore the key: {names}{more}; 'key-scope = instance' reaches those with "
            "block-project-ssh-keys or their own sshKeys; those with enable-oslogin ignore keys in metadata",
            names=names,
            more=f" and {len(ignoring) - NAMED} more" if len(ignoring) > NAMED else "",
        )

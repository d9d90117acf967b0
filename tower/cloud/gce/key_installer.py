"""Installing SSH keys by the metadata of a project or of its instances."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Any

from attrs import frozen
from twisted.internet.defer import Deferred
from twisted.internet.defer import TimeoutError as TooLate
from twisted.logger import Logger

from tower.cloud.errors import CloudError
from tower.cloud.gce.compute import Compute, Resource
from tower.cloud.gce.config import INSTANCE_SCOPE, GCEConfig
from tower.cloud.gce.keys import find_item, items_to_change, key_line, why_deaf, with_line
from tower.cloud.http.fan_out import describe, fan_out
from tower.cloud.http.polling import poll

#: Most instances that are changed at one time.
AT_ONCE = 8
#: Most that one line of the log names.
NAMED = 20
#: How long a look at who does not take the project's keys may take, s, and how much longer then is the pause
#: before the next one.
LOOK_LIMIT = 60.0
LOOK_PAUSE = 20.0


@frozen
class Seen:
    """What matters of an instance.

    :ivar deaf: why it does not take its project's keys; empty: it does.
    """

    name: str
    zone: str
    deaf: str


def _see(instance: Resource, project: Resource) -> Seen:
    zone = instance["zone"].rpartition("/")[2]
    return Seen(instance["name"], zone, why_deaf(instance.get("metadata") or {}, project))


class KeyInstaller:
    """Adds keys; never removes one, nor a line of anybody else.

    Every change carries the fingerprint of what it was made of, so that it fails where somebody else was
    faster, and is made anew.

    :param clock: for waits.
    :param instances: returns what it is told to make of each instance that the configuration means, with
        its metadata.
    """

    _log = Logger()

    def __init__(
        self,
        clock: Any,
        compute: Compute,
        config: GCEConfig,
        instances: Callable[[Callable[[Resource], Seen]], Awaitable[list[Seen]]],
    ) -> None:
        self._clock = clock
        self._compute = compute
        self._config = config
        self._instances = instances
        self._deaf: dict[str, str] = {}
        self._look_again = -math.inf
        self._under_way: set[Deferred[None]] = set()

    def stop(self) -> None:
        """Give up what is being installed."""
        for each in list(self._under_way):
            each.cancel()

    async def install(self, user: str, key: bytes) -> None:
        """Let the owner of *key* log in as *user*: tried each 2 s, for 30 s.

        :raise NotInTimeError: it could not be done.
        :raise CloudError: nor on these instances.
        """
        line = key_line(user, key)
        into = self._into_instances if self._config.key_scope == INSTANCE_SCOPE else self._into_project
        installing = Deferred.fromCoroutine(into(line))
        self._under_way.add(installing)
        try:
            await installing
        finally:
            self._under_way.discard(installing)

    async def _into_project(self, line: str) -> None:
        metadata: Resource = {}

        async def attempt() -> None:
            nonlocal metadata
            project = await self._get("project", self._compute.project())
            metadata = project.get("commonInstanceMetadata") or {}
            await self._add("project", "", metadata, line)

        await poll(self._clock, attempt)
        await self._name_deaf(metadata)

    async def _into_instances(self, line: str) -> None:
        instances = await self._look({})
        deaf = {each.name: each.deaf for each in instances if each.deaf == "enable-oslogin"}
        self._tell_deaf(deaf)

        async def install(instance: Seen) -> None:
            name, zone = instance.name, instance.zone

            async def attempt() -> None:
                fresh = await self._get("instance", self._compute.instance(zone, name, retry=False))
                metadata = fresh.get("metadata") or {}
                await self._add(f"instance {name}", f"zones/{zone}/instances/{name}", metadata, line)

            await poll(self._clock, attempt)

        failed = await fan_out((each for each in instances if each.name not in deaf), install, AT_ONCE)
        if failed:
            names = describe((each.item.name, each.reason) for each in failed)
            raise CloudError(f"{len(failed)} of {len(instances)} instances did not get the key: {names}")

    async def _get(self, what: str, asking: Awaitable[Resource]) -> Resource:
        try:
            return await asking
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

    async def _name_deaf(self, project: Resource) -> None:
        """Say which instances do not take the project's keys, when that has changed."""
        began = self._clock.seconds()
        if began < self._look_again:
            return
        looking = Deferred.fromCoroutine(self._look(project))
        try:
            instances = await looking.addTimeout(LOOK_LIMIT, self._clock)
        except TooLate:
            self._log.info("who takes the project's keys is not known within {limit:g} s", limit=LOOK_LIMIT)
        except CloudError as e:
            self._log.info("who takes the project's keys is not known: {error}", error=str(e))
        else:
            self._tell_deaf({each.name: each.deaf for each in instances if each.deaf})
        # All metadata of all instances may be some gigabytes.
        now = self._clock.seconds()
        self._look_again = now + LOOK_PAUSE * (now - began)

    async def _look(self, project: Resource) -> list[Seen]:
        return await self._instances(lambda each: _see(each, project))

    def _tell_deaf(self, deaf: dict[str, str]) -> None:
        if deaf != self._deaf:
            self._deaf = deaf
            names = ", ".join(f"{name} ({why})" for name, why in sorted(deaf.items())[:NAMED])
            more = f" and {len(deaf) - NAMED} more" if len(deaf) > NAMED else ""
            if deaf:
                self._log.warn(
                    "instances that do not take this key: {names}{more}; with block-project-ssh-keys or "
                    "sshKeys of its own one takes keys by 'key-scope = instance', with enable-oslogin by no "
                    "metadata",
                    names=names,
                    more=more,
                )
            else:
                self._log.info("all instances take this key")

"""The rotations of a proxy: begin, count, finish, cancel.

Their records survive a restart.  The files of the keys decide: a record that contradicts them is corrected at
the start.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import define, evolve, field
from twisted.application.service import Service
from twisted.internet.defer import Deferred, DeferredLock
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from tower.clusters.agent_keys import AgentKeys
from tower.errors import Conflict, NotFound, TowerError, one_line
from tower.reactor.coroutines import deferred
from tower.rotation.announcer import Announcer
from tower.rotation.rotation import PREFIX, TARGETS, Procedure, Remaining, Rotation
from tower.store import IStore
from tower.store.kinds import SETTINGS
from tower.store.records import Create, Delete, Update

#: Interval of checks whether a rotation can finish, s; confirmations are checked at once.
CHECK_PERIOD = 10.0

#: Most agents that the log line about the end of a rotation names.
_LOGGED_AGENTS = 10

#: Targets that agents must know before the new key is used.
_ANNOUNCED = ("host-key", "serving-ca", "tls-cert-file")

#: Targets whose rotation begins by itself.
_FOLLOWED = ("tls-cert-file",)


@define(eq=False)
class Rotations(Service):
    """Runs at most one rotation of each target.

    :param clock: its ``seconds()`` are since the epoch, like the reactor's.
    :param procedures: by target.
    """

    _log = Logger()

    _clock: IReactorTime
    _store: IStore
    _announcer: Announcer
    _keys: AgentKeys
    _procedures: Mapping[str, Procedure]
    _changing: DeferredLock = field(factory=DeferredLock, init=False)
    _checking: bool = field(default=False, init=False)

    def get(self, target: str) -> Rotation | None:
        """Return the rotation of *target* in progress, the last finished one, or None."""
        record = self._store.get(SETTINGS, PREFIX + target)
        return None if record is None else Rotation.decode(record)

    def all(self) -> list[Rotation]:
        """Return the rotations in progress and the last finished ones."""
        found = [self.get(target) for target in TARGETS]
        return [rotation for rotation in found if rotation is not None]

    def remaining(self, rotation: Rotation) -> Remaining:
        """Return what *rotation* waits for; nothing once it is finished."""
        if rotation.finished is not None:
            return Remaining()
        return self._procedures[rotation.target].remaining(rotation)

    def preview(self, target: str) -> Rotation:
        """Return the rotation of *target* in progress, or one that begins now; nothing changes."""
        rotation = self.get(target)
        if rotation is not None and rotation.finished is None:
            return rotation
        return Rotation(target, self._clock.seconds(), None, self._procedures[target].current(), "")

    # Changes

    @deferred
    async def begin(self, target: str, after: float | None = None) -> Rotation:
        """Begin a rotation, or set the date of the one in progress; it may finish at once.

        Fails with `Conflict` if one is in progress and *after* is None, and if it cannot begin.

        :param after: finish after so many seconds at the latest; None: when nothing lacks the new key.
        """
        async with self._changing:
            now = self._clock.seconds()
            until = None if after is None else now + after
            rotation = self.get(target)
            if rotation is not None and rotation.finished is None:
                if until is None:
                    raise Conflict(
                        f"{target} is being rotated already: 'tower rotate status' shows what it waits for; "
                        "set a date with --after, or finish it with --now"
                    )
                rotation = await self._write(evolve(rotation, until=until))
            else:
                old, new = await self._procedures[target].begin()
                rotation = await self._write(Rotation(target, now, until, old, new))
                self._activate()
                self._log.info(
                    "rotation of {target} begun: from {old} to {new}",
                    target=target,
                    old=old or "none",
                    new=new,
                )
                await self._procedures[target].begun()
            return await self._finish_if_due(rotation)

    @deferred
    async def cancel(self, target: str) -> Rotation:
        """Cancel the rotation of *target* in progress.

        Fails with `NotFound`, and with `Conflict` if the new key is in use already.
        """
        async with self._changing:
            rotation = self.get(target)
            if rotation is None or rotation.finished is not None:
                raise NotFound(f"{target} is not being rotated: 'tower rotate status' shows all rotations")
            await self._procedures[target].cancel()
            await self._store.transact([Delete(SETTINGS, PREFIX + target)])
            self._activate()
            self._log.info("rotation of {target} canceled", target=target)
            return rotation

    async def check(self) -> None:
        """Finish the rotations whose new key everything has, and those whose date has come."""
        if self._checking:
            return
        self._checking = True
        try:
            if self._announcer.is_active:
                await self._announcer.repeat()
            async with self._changing:
                for target in _FOLLOWED:
                    if await self._continue(target):
                        self._activate()
                        await self._procedures[target].begun()
                for rotation in self.all():
                    if rotation.finished is None:
                        try:
                            await self._finish_if_due(rotation)
                        except TowerError as e:
                            self._log.error(
                                "rotation of {target} cannot finish: {reason}",
                                target=rotation.target,
                                reason=one_line(e),
                            )
        finally:
            self._checking = False

    # Start and stop

    async def resume(self) -> None:
        """Correct the records by the files, and continue the rotations in progress."""
        for target in self._procedures:
            await self._continue(target)
        self._activate()

    async def _continue(self, target: str) -> bool:
        """Correct the record of *target* by the files; return whether a rotation has begun."""
        procedure = self._procedures[target]
        rotation, pending = self.get(target), procedure.pending()
        if rotation is not None and rotation.finished is not None:
            if target in _FOLLOWED and not pending and procedure.current() != rotation.new:
                await self._store.transact([Delete(SETTINGS, PREFIX + target)])  # the option was removed
            rotation = None
        if pending and (rotation is None or rotation.new != pending):
            is_same = rotation is not None and target not in _FOLLOWED
            began = rotation.started if is_same and rotation is not None else self._clock.seconds()
            await self._write(Rotation(target, began, None, procedure.current(), pending))
            return True
        if rotation is not None and not pending and target != "secrets-key":
            await self._settle(rotation, is_used=procedure.current() == rotation.new)
        return False

    def startService(self) -> None:
        """Check at each confirmation of an agent."""
        super().startService()  # type: ignore[no-untyped-call]
        self._keys.on_confirmed = self._check_soon

    def stopService(self) -> None:
        """Stop to check."""
        super().stopService()  # type: ignore[no-untyped-call]
        self._keys.on_confirmed = lambda: None
        self._keys.stop()

    def _check_soon(self) -> None:
        if self._announcer.is_active:
            Deferred.fromCoroutine(self.check()).addErrback(
                lambda failure: self._log.failure("cannot check rotations", failure)
            )

    async def _settle(self, rotation: Rotation, *, is_used: bool) -> None:
        """Correct a record in progress if the files show no rotation."""
        if is_used:  # stopped between the change of the file and of the record
            await self._write(evolve(rotation, finished=self._clock.seconds()))
            return
        self._log.warn(
            "rotation of {target} ended: the file of its next key was removed; begin it again if needed",
            target=rotation.target,
        )
        await self._store.transact([Delete(SETTINGS, PREFIX + rotation.target)])

    async def _finish_if_due(self, rotation: Rotation) -> Rotation:
        now = self._clock.seconds()
        remaining = self.remaining(rotation)
        is_late = rotation.until is not None and now >= rotation.until
        if not (remaining.is_empty or is_late):
            return rotation
        if not self._is_switched(rotation):
            if remaining.dependents != rotation.stranded:  # recorded first, for an end that is interrupted
                rotation = await self._write(evolve(rotation, stranded=remaining.dependents))
            await self._procedures[rotation.target].finish(rotation)
        finished = await self._write(evolve(rotation, finished=now))
        self._activate()
        self._log_end(finished)
        return finished

    def _log_end(self, rotation: Rotation) -> None:
        stranded, text = rotation.stranded, "rotation of {target} finished: {new} is in use"
        if stranded.is_empty:
            self._log.info(text, target=rotation.target, new=rotation.new)
            return
        self._log.warn(
            text + "; depended on the old one: agents {agents}, join lines {tokens}, credentials of users "
            "{users}; 'tower rotate status' lists them{first}",
            target=rotation.target,
            new=rotation.new,
            agents=stranded.agents,
            tokens=stranded.join_lines,
            users=stranded.kubeconfigs,
            first="".join(
                f"; {one.agent} of {one.cluster}" for one in stranded.named_agents[:_LOGGED_AGENTS]
            ),
        )

    def _is_switched(self, rotation: Rotation) -> bool:
        """Return whether only the record has to be written, which failed before."""
        procedure = self._procedures[rotation.target]
        return (
            rotation.target != "secrets-key"
            and not procedure.pending()
            and procedure.current() == rotation.new
        )

    async def _write(self, rotation: Rotation) -> Rotation:
        name, value = PREFIX + rotation.target, rotation.encode()
        known = self._store.get(SETTINGS, name)
        await self._store.transact(
            [Create(SETTINGS, name, value) if known is None else Update(SETTINGS, name, value)]
        )
        return rotation

    def _activate(self) -> None:
        """Announce to new tunnels while a rotation waits for agents."""
        self._announcer.is_active = any(
            rotation.finished is None and rotation.target in _ANNOUNCED for rotation in self.all()
        )

"""The reflectors of one host cluster: its outages are logged once, and all retry at the end of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from attrs import define, field
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from tower.kube.rest.host_api import ResourceType

#: Time from a failure to its log line, which also names others of that time, s.
COLLECT = 3.0

#: Key of failures that concern all types: no answer, an invalid credential, a server that is not ready.
_OUTAGE = 0
_UNAUTHORIZED, _TOO_MANY, _SERVER_ERROR = 401, 429, 500


@define(eq=False)
class ReflectorCounts:
    """Numbers of a `Reflector`.

    :ivar ends: watches that the server ended at their time.
    :ivar expirations: answers 410, each followed by a list.
    :ivar failures: requests and watches that failed otherwise.
    """

    lists: int = 0
    watches: int = 0
    events: int = 0
    bookmarks: int = 0
    ends: int = 0
    expirations: int = 0
    failures: int = 0


class Follows(Protocol):
    """A `tower.kube.rest.reflector.Reflector`."""

    resource: ResourceType
    counts: ReflectorCounts
    synced: bool
    failure: str

    def retry_soon(self) -> None:
        """Try again within a second, if it waits for longer."""


@define(eq=False)
class _Trouble:
    """Failures of one cause.

    :ivar failing: the reflectors that fail for it now.
    :ivar names: of all types that it has stopped.
    """

    began: float
    failing: list[Follows] = field(factory=list)
    names: dict[str, None] = field(factory=dict)
    is_logged: bool = False


class ReflectorGroup:
    """The reflectors that are running.

    :ivar members: all of them.
    """

    _log = Logger()

    def __init__(self, reactor: IReactorTime) -> None:
        self.members: list[Follows] = []
        self._reactor = reactor
        self._troubles: dict[int, _Trouble] = {}
        self._timer: IDelayedCall | None = None

    def add(self, member: Follows) -> None:
        """Add one that starts."""
        self.members.append(member)

    def remove(self, member: Follows) -> None:
        """Remove one that stops."""
        if member in self.members:
            self.members.remove(member)
        self._leave(member)
        if not self.members and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def failed(self, member: Follows, code: int) -> None:
        """Record that a member has failed; its `failure` has the text.

        :param code: status of the answer, 0 without one, -1 after an internal error.
        """
        if code in (_UNAUTHORIZED, _TOO_MANY) or code >= _SERVER_ERROR:
            code = _OUTAGE
        trouble = self._troubles.get(code)
        if trouble is not None and member in trouble.failing:
            return
        self._leave(member)
        if trouble is None:
            trouble = self._troubles[code] = _Trouble(self._reactor.seconds())
        trouble.failing.append(member)
        trouble.names[member.resource.name] = None
        if not trouble.is_logged and self._timer is None:
            self._timer = self._reactor.callLater(COLLECT, self._log_new)

    def recovered(self, member: Follows) -> None:
        """Record that a member follows again; its `failure` is empty."""
        trouble = self._leave(member)
        if trouble is None:
            return
        if trouble.failing:
            if trouble is self._troubles.get(_OUTAGE):
                for each in list(trouble.failing):
                    each.retry_soon()
        elif trouble.is_logged and not any(
            each.failure for each in self.members if each.resource.name in trouble.names
        ):
            self._log.info(
                "following {names} again, after {seconds:.0f} s",
                names=_listed(list(trouble.names)),
                seconds=self._reactor.seconds() - trouble.began,
            )

    def _leave(self, member: Follows) -> _Trouble | None:
        """Remove a failing member from its trouble, and return that."""
        for code, trouble in self._troubles.items():
            if member in trouble.failing:
                trouble.failing.remove(member)
                if not trouble.failing:
                    del self._troubles[code]
                return trouble
        return None

    def _log_new(self) -> None:
        self._timer = None
        for trouble in self._troubles.values():
            if not trouble.is_logged:
                trouble.is_logged = True
                self._log.warn(
                    "not following {names}: {failure}",
                    names=_listed(list(trouble.names)),
                    failure=trouble.failing[0].failure,
                )


def _listed(names: Sequence[str]) -> str:
    others = len(names) - 1
    return f"{names[0]} and {others} other type{'s' * (others > 1)}" if others else names[0]

"""Requests that filters and rules have allowed: equal ones get the same decisions, without asking again.

A decision on a request depends on the user, the cluster, method and target, and on the sources of rules.  So
`AllowedRequests` keeps the decisions of the same user and client until a source changes.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakValueDictionary

from tower.web.gateway.user_session import Ruled, RuleSource

if TYPE_CHECKING:
    from tower.web.access.audit.known_entry import KnownRequest

#: Longest target that is kept, B, and most requests of one user and client, and of all.
LONGEST_TARGET = 256
MOST = 1024
TOTAL = 4096


class Allowed(NamedTuple):
    """A request that was allowed.

    :ivar attributes: on which the rules decided; None: there are no rules.
    :ivar rules: their source, whose `generation` was *ruled*.
    :ivar known: for the audit entries of equal requests; None: there is no audit, or it must decide again.
    """

    attributes: object | None
    rules: RuleSource | None
    ruled: int
    known: KnownRequest | None

    def holds(self) -> bool:
        """Return whether the rules would allow it again."""
        return self.rules is None or self.rules.generation == self.ruled


class UserRequests(dict[tuple[bytes, bytes], Allowed]):
    """The allowed requests of one user and client, by method and target."""


class AllowedRequests:
    """The allowed requests of all users and clients that have a connection."""

    def __init__(self) -> None:
        self._users: WeakValueDictionary[Hashable, UserRequests] = WeakValueDictionary()
        self._size = 0  # at most; requests of users without a connection are forgotten

    def clear(self) -> None:
        """Forget all of them: the users' admissions may have changed."""
        for requests in list(self._users.values()):
            requests.clear()
        self._size = 0

    def of(self, user: Hashable) -> UserRequests:
        """Return those of *user*, which stands for everything that admissions and events depend on."""
        requests = self._users.get(user)
        if requests is None:
            requests = self._users[user] = UserRequests()
        return requests

    def keep(self, requests: UserRequests, method: bytes, target: bytes, allowed: Allowed) -> None:
        """Add a request to the ones of a user."""
        if len(target) > LONGEST_TARGET:
            return
        if len(requests) >= MOST:
            requests.clear()
        if self._size >= TOTAL:
            self._size = sum(map(len, self._users.values()))
            if self._size >= TOTAL // 2:
                self.clear()
        self._size += (method, target) not in requests
        requests[method, target] = allowed


def allowed_of(ruled: Ruled | None, known: KnownRequest | None) -> Allowed:
    """Return a request that was allowed just now; *ruled*: see `Allowed`."""
    if ruled is None:
        return Allowed(None, None, 0, known)
    return Allowed(ruled.attributes, ruled.rules, ruled.rules.generation, known)

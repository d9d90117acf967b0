"""Decisions on earlier requests of the same users, which count until a source of rules changes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import TypeAlias

from twisted.internet.defer import Deferred

from tower.kube.request_info import RequestInfo
from tower.web.access.authentication.identity import UserInfo
from tower.web.access.authorization.attributes import Attributes
from tower.web.access.authorization.decision import Answer, Authorizer, Decision

#: Most users, most decisions of each, and most decisions of all.
USERS = 2048
DECISIONS = 256
TOTAL = 64 * 1024

#: Larger keys of requests, and larger users, are not kept, B: clients choose these texts.
KEY_LIMIT = 512
USER_LIMIT = 8 * 1024

_Key: TypeAlias = "tuple[RequestInfo, str]"


class DecisionCache:
    """Keeps the decisions of *authorizer*; `clear` forgets them.

    :ivar generation: a number that changes with the sources of rules.
    """

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer
        self._users: OrderedDict[UserInfo, dict[_Key, Decision]] = OrderedDict()
        self._size = 0  # decisions of all
        self.generation = 0

    def clear(self) -> None:
        """Forget all decisions: a source of rules has changed."""
        self.generation += 1
        self._users.clear()
        self._size = 0

    def authorize(self, attributes: Attributes) -> Answer:
        """See `Authorizer`."""
        key = (attributes.request, attributes.cluster)
        kept = self._users.get(attributes.user)
        if kept is not None and (decision := kept.get(key)) is not None:
            return decision
        generation = self.generation
        answer = self._authorizer.authorize(attributes)
        if isinstance(answer, Deferred):
            return answer
        if (
            answer.may_be_kept
            and generation == self.generation
            and _size((*attributes.request[:-1], attributes.cluster)) <= KEY_LIMIT
            and (kept is not None or _size(_texts(attributes.user)) <= USER_LIMIT)
        ):
            self._keep(attributes.user, key, answer)
        return answer

    def _keep(self, user: UserInfo, key: _Key, decision: Decision) -> None:
        kept = self._users.get(user)
        if kept is None:
            kept = self._users[user] = {}
        else:
            self._users.move_to_end(user)
            if len(kept) >= DECISIONS:
                self._size -= len(kept)
                kept.clear()
        kept[key] = decision
        self._size += 1
        while len(self._users) > USERS or self._size > TOTAL:
            self._size -= len(self._users.popitem(last=False)[1])


def _texts(user: UserInfo) -> Iterator[str]:
    yield from (user.name, user.uid, *user.groups)
    for name, values in user.extra:
        yield from (name, *values)


def _size(texts: Iterable[str]) -> int:
    """Return the size of *texts* in memory, at most, B."""
    return sum(len(each) if each.isascii() else 4 * len(each) for each in texts)

"""Decisions on earlier requests of the same users, which count until a source of rules changes."""

from __future__ import annotations

from collections import OrderedDict
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

#: Requests with longer paths are not kept, characters.
PATH_LIMIT = 512

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
            and len(attributes.request.path) <= PATH_LIMIT
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

"""Decisions of authorizers."""

from __future__ import annotations

from enum import Enum
from typing import Protocol, TypeAlias

import attrs
from twisted.internet.defer import Deferred

from tower.web.access.authorization.attributes import Attributes


class Ruling(Enum):
    """The ruling of an authorizer: only without an opinion the next one is asked."""

    ALLOW = "allow"
    DENY = "deny"
    NO_OPINION = "no opinion"


@attrs.frozen
class Decision:
    """The ruling on a request.

    :ivar reason: for the user and the audit log; may be empty.
    :ivar error: of the authorizer that could not decide, for the log and the user; empty: none.
    :ivar may_be_kept: whether the same request gets the same decision until a source of rules changes.
    """

    ruling: Ruling
    reason: str = ""
    error: str = ""
    may_be_kept: bool = True

    @property
    def is_allowed(self) -> bool:
        """Whether the request may pass, in spite of any error."""
        return self.ruling is Ruling.ALLOW


#: A decision now, or later.
Answer: TypeAlias = "Decision | Deferred[Decision]"

#: The decision of an authorizer that no rule concerns.
NO_OPINION = Decision(Ruling.NO_OPINION)


class Authorizer(Protocol):
    """A method of authorization."""

    def authorize(self, attributes: Attributes) -> Answer:
        """Return the decision on a request; neither it nor the Deferred fails."""

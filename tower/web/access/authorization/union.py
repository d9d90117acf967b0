"""The union of the authorizers that are configured, with the semantics of kube-apiserver.

The authorizers are asked in order, until one allows or denies.  If none does, the request is rejected with
the reasons of all.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from twisted.internet.defer import Deferred

from tower.clusters.credentials import ADMINS
from tower.web.access.authorization.attributes import Attributes
from tower.web.access.authorization.decision import (
    NO_OPINION,
    Answer,
    Authorizer,
    Decision,
    Ruling,
)


class AlwaysAllow:
    """Allows all requests."""

    def authorize(self, attributes: Attributes) -> Decision:
        """See `Authorizer`."""
        return Decision(Ruling.ALLOW)


class AlwaysDeny:
    """Allows no request, but leaves it to others to allow some."""

    def authorize(self, attributes: Attributes) -> Decision:
        """See `Authorizer`."""
        return Decision(Ruling.NO_OPINION, "Everything is forbidden.")


class PrivilegedGroups:
    """Allows all requests of users in one of *groups*."""

    def __init__(self, groups: Collection[str] = (ADMINS,)) -> None:
        self._groups = frozenset(groups)

    def authorize(self, attributes: Attributes) -> Decision:
        """See `Authorizer`."""
        return NO_OPINION if self._groups.isdisjoint(attributes.user.groups) else Decision(Ruling.ALLOW)


class AuthorizerUnion:
    """Asks authorizers in order."""

    def __init__(self, *authorizers: Authorizer) -> None:
        self._authorizers = authorizers

    def use(self, *authorizers: Authorizer) -> None:
        """Ask these from now on."""
        self._authorizers = authorizers

    def authorize(self, attributes: Attributes) -> Answer:
        """Return the decision of the first authorizer that allows or denies; see `Authorizer`."""
        opinions: list[Decision] = []
        authorizers = iter(self._authorizers)
        for authorizer in authorizers:
            answer = authorizer.authorize(attributes)
            if isinstance(answer, Deferred):
                return Deferred.fromCoroutine(_wait(answer, authorizers, attributes, opinions))
            if answer.ruling is not Ruling.NO_OPINION:
                return _after(answer, opinions)
            opinions.append(answer)
        return _together(opinions)


async def _wait(
    waiting: Deferred[Decision],
    rest: Iterator[Authorizer],
    attributes: Attributes,
    opinions: list[Decision],
) -> Decision:
    found = await waiting
    for authorizer in rest:
        if found.ruling is not Ruling.NO_OPINION:
            break
        opinions.append(found)
        answer = authorizer.authorize(attributes)
        found = await answer if isinstance(answer, Deferred) else answer
    if found.ruling is not Ruling.NO_OPINION:
        return _after(found, opinions)
    return _together([*opinions, found])


def _after(found: Decision, opinions: list[Decision]) -> Decision:
    """Return *found*, which also depends on earlier *opinions*."""
    if all(each.may_be_kept for each in opinions):
        return found
    return Decision(found.ruling, found.reason, found.error, may_be_kept=False)


def _together(opinions: list[Decision]) -> Decision:
    """Return the decision on a request that no authorizer allows or denies."""
    reason = "\n".join(each.reason for each in opinions if each.reason)
    errors = list(dict.fromkeys(each.error for each in opinions if each.error))
    error = f"[{', '.join(errors)}]" if len(errors) > 1 else "".join(errors)
    return Decision(Ruling.NO_OPINION, reason, error, may_be_kept=all(each.may_be_kept for each in opinions))

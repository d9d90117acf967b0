"""Rules of a member's owner: users, requests, namespaces, targets and times that the agent allows.  Sans-IO.

Rules are additive: a request needs one rule that permits it.  All that no rule permits is forbidden.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import inf

from attrs import field, frozen

from tower.clusters.policies.access_levels import LEVELS, STREAM_LEVELS
from tower.clusters.policies.access_policy import ALL, Access, Subject, SubjectKey
from tower.clusters.policies.time_window import TimeWindow
from tower.member.policy.owner_action import OwnerAction
from tower.tunnels.targets import KUBERNETES

#: Most rules, namespaces and windows in an error.
_SHOWN = 3


def _keys(subjects: Sequence[Subject] | None) -> frozenset[SubjectKey] | None:
    return None if subjects is None else frozenset(subject.key for subject in subjects)


@frozen
class OwnerRule:
    """The requests that some users may send.

    :ivar subjects: keys of the users; None: all, and streams, which have no user.
    :ivar namespaces: None: all, and objects without a namespace.
    :ivar targets: names of targets, or `ALL`.
    :ivar window: None: always.
    """

    subjects: frozenset[SubjectKey] | None = field(default=None, converter=_keys)
    access: Access = "full"
    namespaces: frozenset[str] | None = None
    targets: tuple[str, ...] = (KUBERNETES,)
    window: TimeWindow | None = None

    def is_for(self, keys: Collection[SubjectKey]) -> bool:
        """Return whether the rule is for a user that is all of *keys*."""
        return self.subjects is None or not self.subjects.isdisjoint(keys)

    def has_target(self, target: str) -> bool:
        """Return whether the rule is for this target."""
        return target in self.targets or ALL in self.targets

    def permits(self, action: OwnerAction, protected: Collection[str] = ()) -> bool:
        """Return whether the rule, if it is for the user, permits a request.

        :param protected: namespaces of the agent: only rules that name them permit changes in them.
        """
        if not LEVELS[self.access] & action.levels:
            return False
        if self.namespaces is None:
            return action.is_read or action.changed not in protected
        return action.is_general or action.namespace in self.namespaces

    def permits_stream(self, target: str) -> bool:
        """Return whether the rule permits streams to *target*, which have no user and are not interpreted."""
        is_general = self.subjects is None and self.namespaces is None
        return is_general and self.has_target(target) and bool(LEVELS[self.access] & STREAM_LEVELS)

    def __str__(self) -> str:
        """Return what it permits, for errors."""
        if self.namespaces is None:
            return f"{self.access} access"
        names = sorted(self.namespaces)
        shown = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if names[_SHOWN:] else "")
        return f"{self.access} access in the namespace{'s' if names[1:] else ''} {shown}"


@frozen
class OwnerPolicy:
    """All rules; without a rule, everything is forbidden."""

    rules: tuple[OwnerRule, ...] = ()

    def open(self, now: float) -> tuple[tuple[OwnerRule, ...], float]:
        """Return the rules that are in force at *now*, and until when this holds, s since the epoch."""
        found, until = [], inf
        for rule in self.rules:
            if rule.window is not None:
                is_open, _, end = rule.window.state(now)
                until = min(until, end)
                if not is_open:
                    continue
            found.append(rule)
        return tuple(found), until

    def __str__(self) -> str:
        """Return it for the log."""
        return f"{len(self.rules)} rule{'' if len(self.rules) == 1 else 's'}"


@frozen(eq=False)
class OwnerUser:
    """The user of a request, as the proxy claims.

    :ivar name: empty: a token of the member's own, whose user the agent does not know.
    """

    name: str
    keys: tuple[SubjectKey, ...] = ()

    def __str__(self) -> str:
        """Return it for errors."""
        return f'user "{self.name}"' if self.name else "a request with a token of this cluster's own"


def refusal_of(
    policy: OwnerPolicy, rules: Sequence[OwnerRule], user: OwnerUser, action: OwnerAction, described: str
) -> str:
    """Return why no rule permits a request.

    :param rules: those in force.
    :param described: verb and object of the request.
    """
    own = [rule for rule in policy.rules if rule.is_for(user.keys) and rule.has_target(KUBERNETES)]
    if not own:
        return f"no rule of the agent's policy is for {user}"
    found = [rule for rule in own if rule in rules]
    if not found:
        windows = list(dict.fromkeys(str(rule.window) for rule in own))
        return f"the agent's policy permits {user} only {_listed(windows, ' and ')}"
    texts = list(dict.fromkeys(map(str, found)))
    permitted = f"the agent's policy permits only {_listed(texts, '; ')}"
    if any(rule.permits(action) for rule in found):
        permitted = (
            "the agent or its policy is in this namespace, and no rule of the policy names the namespace"
            if action.namespace
            else "this may change the namespace of the agent or of its policy, which no rule permits"
        )
    return f"{user} must not {described}: {permitted}"


def stream_refusal(policy: OwnerPolicy, target: str) -> str:
    """Return why no rule permits a stream to *target* now."""
    windows = list(dict.fromkeys(str(rule.window) for rule in policy.rules if rule.permits_stream(target)))
    if windows:
        return f"the agent's policy permits streams to {target} only {_listed(windows, ' and ')}"
    return f"no rule of the agent's policy permits streams to {target}"


def _listed(texts: Sequence[str], separator: str) -> str:
    more = f"{separator}{len(texts) - _SHOWN} more" if texts[_SHOWN:] else ""
    return separator.join(texts[:_SHOWN]) + more

"""An index of access policies by subject, so that the policies of a user are found by dictionary look-ups."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from attrs import define, field

from tower.clusters.policies.access_policies import AccessPolicies
from tower.clusters.policies.access_policy import AccessPolicy, SubjectKey
from tower.store.records import EventType, Watch


@define(eq=False, repr=False)
class PolicyIndex:
    """Follows the policies in a store.

    :ivar generation: changes with each policy.
    """

    _policies: AccessPolicies
    generation: int = field(default=0, init=False)
    _by_subject: dict[SubjectKey, dict[str, AccessPolicy]] = field(factory=dict, init=False)
    _by_name: dict[str, AccessPolicy] = field(factory=dict, init=False)
    _concerned: set[SubjectKey] = field(factory=set, init=False)  # of changed policies
    _watch: Watch = field(init=False)

    def __attrs_post_init__(self) -> None:
        for policy in self._policies.list():
            self.put(policy)
        self._watch = self._policies.watch(self._changed)

    def __len__(self) -> int:
        return len(self._by_name)

    def stop(self) -> None:
        """Stop to follow the store."""
        self._watch.stop()

    def of(self, subjects: Iterable[SubjectKey]) -> list[AccessPolicy]:
        """Return the policies of these subjects for any cluster, by name."""
        found: dict[str, AccessPolicy] = {}
        for subject in subjects:
            found |= self._by_subject.get(subject, {})
        return [found[name] for name in sorted(found)]

    def matching(
        self, subjects: Iterable[SubjectKey], cluster: str, labels: Mapping[str, str]
    ) -> list[AccessPolicy]:
        """Return the policies of these subjects for this cluster, by name."""
        found: dict[str, AccessPolicy] = {}
        for subject in subjects:
            for name, policy in self._by_subject.get(subject, {}).items():
                if name not in found and policy.spec.selects(cluster, labels):
                    found[name] = policy
        return [found[name] for name in sorted(found)]

    def take_concerned(self) -> Collection[SubjectKey]:
        """Return the subjects of all policies that have changed since the last call."""
        concerned, self._concerned = self._concerned, set()
        return concerned

    def put(self, policy: AccessPolicy) -> None:
        """Add or replace a policy."""
        self.drop(policy.name)
        self._concerned.update(subject.key for subject in policy.spec.subjects)
        self._by_name[policy.name] = policy
        for subject in policy.spec.subjects:
            self._by_subject.setdefault(subject.key, {})[policy.name] = policy
        self.generation += 1

    def drop(self, name: str) -> None:
        """Remove a policy, if there is one with this name."""
        policy = self._by_name.pop(name, None)
        if policy is None:
            return
        self._concerned.update(subject.key for subject in policy.spec.subjects)
        for subject in policy.spec.subjects:
            policies = self._by_subject[subject.key]
            policies.pop(name, None)
            if not policies:
                del self._by_subject[subject.key]
        self.generation += 1

    def _changed(self, event: EventType, policy: AccessPolicy) -> None:
        if event == "DELETED":
            self.drop(policy.name)
        else:
            self.put(policy)

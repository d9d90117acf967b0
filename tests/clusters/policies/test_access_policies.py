"""Tests of `tower.clusters.policies.access_policies`, and of the index that follows them."""

from __future__ import annotations

from typing import Any

from attrs import evolve
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tower.clusters.policies import access_policies
from tower.clusters.policies.access_policies import AccessPolicies
from tower.clusters.policies.access_policy import AccessPolicy
from tower.clusters.policies.policy_index import PolicyIndex
from tower.clusters.policies.policy_object import read_spec
from tower.errors import AlreadyExists, Conflict, Invalid, NotFound
from tower.store import MemoryStore
from tower.store.kinds import ACCESS_POLICIES


def given(group: str = "dev", cluster: str = "alpha", **more: Any) -> dict[str, Any]:
    """Return a spec for a group and a cluster."""
    return {"subjects": [{"kind": "Group", "name": group}], "clusters": {"names": [cluster]}, **more}


class AccessPoliciesTests(SynchronousTestCase):
    """Policies in a store in memory."""

    def setUp(self) -> None:
        """Make the store."""
        self.store = MemoryStore()
        clock: Any = Clock()
        self.policies = AccessPolicies(self.store, clock)
        self.index = PolicyIndex(self.policies)
        self.events: list[tuple[str, str]] = []
        self.policies.watch(lambda event, policy: self.events.append((event, policy.name)))

    def add(self, name: str = "dev", **more: Any) -> AccessPolicy:
        """Add a policy."""
        policy = self.policies.new(name, given(**more))
        return self.successResultOf(Deferred.fromCoroutine(self.policies.add(policy)))

    def change(self, name: str, spec: dict[str, Any], version: int | None = None) -> AccessPolicy:
        """Replace the spec of a policy."""

        def edit(old: AccessPolicy) -> AccessPolicy:
            return evolve(old, spec=read_spec(spec), given=spec)

        return self.successResultOf(Deferred.fromCoroutine(self.policies.change(name, edit, version)))

    def matching(self, group: str = "dev", cluster: str = "alpha") -> list[str]:
        """Return the policies of a group for a cluster, from the index."""
        return [policy.name for policy in self.index.matching([("Group", group)], cluster, {})]

    def test_life(self) -> None:
        """A policy is added, changed and removed; the index follows at once."""
        added = self.add()
        self.assertEqual(self.policies.get("dev"), added)
        self.assertEqual(self.policies.list(), [added])
        self.assertEqual((self.matching(), self.matching("qa")), (["dev"], []))
        before = self.index.generation
        changed = self.change("dev", given("qa"))
        self.assertEqual((changed.uid, changed.generation), (added.uid, 2))
        self.assertEqual((self.matching(), self.matching("qa")), ([], ["dev"]))
        self.assertGreater(self.index.generation, before)
        self.successResultOf(Deferred.fromCoroutine(self.policies.remove("dev", lambda _: None)))
        self.assertEqual((self.matching("qa"), self.policies.list(), len(self.index)), ([], [], 0))
        self.assertEqual(self.events, [("ADDED", "dev"), ("MODIFIED", "dev"), ("DELETED", "dev")])
        self.assertEqual([kind for kind, _ in self.policies.changes(0)], ["ADDED", "MODIFIED", "DELETED"])

    def test_conflicts(self) -> None:
        """Names are unique; a write to an old version fails; so does one to a removed policy."""
        added = self.add()
        again = self.policies.add(self.policies.new("dev", given()))
        self.failureResultOf(Deferred.fromCoroutine(again), AlreadyExists)
        self.change("dev", given("qa"), added.resource_version)
        late = self.policies.change("dev", lambda old: old, added.resource_version)
        self.failureResultOf(Deferred.fromCoroutine(late), Conflict)
        lost = self.policies.change("nope", lambda old: old)
        self.failureResultOf(Deferred.fromCoroutine(lost), NotFound)
        with self.assertRaises(Invalid):
            self.policies.new("Dev", given())

    def test_limit_of_subjects(self) -> None:
        """All policies together have a limited number of subjects."""
        self.patch(access_policies, "SUBJECTS_LIMIT", 2)
        self.add("a")
        self.add("b")
        late = self.policies.add(self.policies.new("c", given()))
        self.failureResultOf(Deferred.fromCoroutine(late), Conflict)
        self.change("a", given("qa"))
        two = {**given(), "subjects": [{"kind": "User", "name": name} for name in ("jane", "joe")]}
        more = self.policies.change("a", lambda old: evolve(old, spec=read_spec(two), given=two))
        self.failureResultOf(Deferred.fromCoroutine(more), Conflict)

    def test_another_store(self) -> None:
        """Policies survive a restart, with everything that their writer gave."""
        added = self.add(access="edit", ttl="1h", timeWindow={"timeZone": "UTC", "to": "12:00"})
        clock: Any = Clock()
        again = AccessPolicies(self.store, clock)
        self.assertEqual(again.get("dev"), added)
        self.assertEqual(len(PolicyIndex(again)), 1)

    def test_newer_records(self) -> None:
        """A record with an unknown field, which may be a limit, admits no user, and is logged once."""
        self.add()
        value = dict(self.store.snapshot(ACCESS_POLICIES)["dev"].value)
        for changed in (
            {**value, "limit": 1},
            {**value, "spec": {**value["spec"], "limit": 1}},
            {"uid": "x"},
            {**value, "created": "yesterday"},
            {**value, "labels": []},
        ):
            self.successResultOf(self.store.update(ACCESS_POLICIES, "dev", changed))
            for _ in range(2):
                self.assertIsNone(self.policies.get("dev"))
            self.assertEqual(self.matching(), [])
        self.successResultOf(self.store.update(ACCESS_POLICIES, "dev", value))
        self.assertEqual(self.matching(), ["dev"])
        self.successResultOf(self.store.update(ACCESS_POLICIES, "dev", {"uid": "x"}))
        self.successResultOf(Deferred.fromCoroutine(self.policies.remove("dev", self.fail)))
        self.assertIsNone(self.store.get(ACCESS_POLICIES, "dev"))

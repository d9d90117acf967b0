"""Tests of `tower.web.access.audit.changes`."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

from attrs import evolve
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.audits import Lines, audit_to, policy_of
from tests.fakes.stores import DelayedStore
from tests.kube.rest.fake_host import FakeHost
from tests.store.kubernetes.kit import NAMESPACE, opened
from tower.http.requests import Fields
from tower.store import IStore, MemoryStore
from tower.store.kubernetes.host_kinds import own_type
from tower.store.records import Create, Delete, DeleteWhere, Require, StoreFailed, Update
from tower.web.access.audit.changes import NEW_DIGEST, OLD_DIGEST, REQUEST, ChangeRecorder, by_author
from tower.web.access.authentication.identity import Identity

NAME = "cluster.kubesphere.io/name"


def request_of(identity: Identity) -> Any:
    """Return a request of *identity*."""
    return SimpleNamespace(
        identity=identity,
        request_id="id-1",
        target=b"/apis/x?y",
        channel=SimpleNamespace(peer=SimpleNamespace(address="192.0.2.7")),
        fields=Fields(b"Host: h\r\n\r\n"),
    )


class ChangeRecorderTests(SynchronousTestCase):
    """Tests of `ChangeRecorder`."""

    def setUp(self) -> None:
        """Observe a store."""
        self.lines = Lines()
        self.audit = audit_to(self.lines, Clock().seconds)
        self.store = self.opened()
        self.store.observe = ChangeRecorder(self.audit, self.store).observe

    def opened(self) -> IStore:
        """Return a store."""
        return MemoryStore()

    def by(self, identity: Identity) -> dict[str, Any]:
        """Return the event of a change by a request of *identity*."""

        async def answer() -> None:
            await self.store.create("clusters", "alpha", {"uid": "u"})

        done = by_author(request_of(identity), answer())
        (event,) = self.recorded()
        self.successResultOf(done)
        return event

    def commit(self) -> None:
        """Let the store commit."""

    def recorded(self) -> list[dict[str, Any]]:
        """Return the new events after a commit."""
        self.commit()
        return self.lines.events()

    def events(self) -> list[tuple[str, str, str]]:
        """Return verb, resource and name of the new events."""
        return [
            (each["verb"], each["objectRef"]["resource"], each["objectRef"]["name"])
            for each in self.recorded()
        ]

    def test_changes(self) -> None:
        """Each change has an event; the new digest of one is the old one of the next."""
        self.store.create("accesspolicies", "p", {"a": "secret"})
        self.store.update("accesspolicies", "p", {"a": 2})
        self.store.delete("accesspolicies", "p")
        first, second, third = self.recorded()
        self.assertNotIn("secret", str(first))
        self.assertEqual([each["verb"] for each in (first, second, third)], ["create", "update", "delete"])
        self.assertNotIn(OLD_DIGEST, first["annotations"])
        self.assertNotIn(NEW_DIGEST, third["annotations"])
        self.assertRegex(first["annotations"][NEW_DIGEST], r"\Asha256:[0-9a-f]{64}\Z")
        self.assertEqual(first["annotations"][NEW_DIGEST], second["annotations"][OLD_DIGEST])
        self.assertEqual(second["annotations"][NEW_DIGEST], third["annotations"][OLD_DIGEST])
        self.assertEqual(first["user"], {"username": "tower:proxy"})
        self.assertEqual(
            first["objectRef"],
            {
                "resource": "accesspolicies",
                "name": "p",
                "apiGroup": "cluster.kubesphere.io",
                "apiVersion": "v1alpha1",
            },
        )

    def test_author(self) -> None:
        """The author is the user whose request is being answered; an annotation has its ID."""
        event = self.by(Identity("jane", ("ops",), uid="7"))
        self.assertEqual((event["annotations"][REQUEST], event["requestURI"]), ("id-1", "/apis/x?y"))
        self.assertNotEqual(event["auditID"], "id-1")  # its events have that one, each stage once
        self.assertEqual(
            event["user"], {"username": "jane", "uid": "7", "groups": ["ops", "system:authenticated"]}
        )
        self.assertEqual(event["annotations"][NAME], "alpha")
        self.assertNotIn("impersonatedUser", event)

    def test_impersonated(self) -> None:
        """If a user acts as another, the author is the sender, and the policy decides on the sender."""
        jane = Identity("jane", ("ops",))
        joe = evolve(jane, user="joe", groups=("admins",), uid="9", impersonator=jane)
        self.audit.use(policy_of("rules: [{level: Metadata, users: [jane], userGroups: [ops]}]"))
        event = self.by(joe)
        self.assertEqual(
            (event["user"], event["impersonatedUser"]),
            (
                {"username": "jane", "groups": ["ops", "system:authenticated"]},
                {"username": "joe", "uid": "9", "groups": ["admins", "system:authenticated"]},
            ),
        )

    def test_roles_and_sessions(self) -> None:
        """Roles and bindings appear as the objects that they are; confirmations of sessions do not."""
        self.store.create("rbacobjects", "clusterrolebindings/dev", {"a": 1})
        self.store.create("rbacobjects", "roles/default/r", {"a": 1})
        self.store.create("loginsessions", "s-1", {"user": "jane", "confirmed": 1, "sealed": "x"})
        self.store.update("loginsessions", "s-1", {"user": "jane", "confirmed": 2, "sealed": "y"})
        self.store.delete("loginsessions", "s-1")
        binding, role, *sessions = self.recorded()
        self.assertEqual(
            role["objectRef"],
            {
                "resource": "roles",
                "namespace": "default",
                "name": "r",
                "apiGroup": "rbac.authorization.k8s.io",
                "apiVersion": "v1",
            },
        )
        self.assertEqual(binding["requestURI"], "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/dev")
        self.assertEqual(
            [(each["verb"], each["objectRef"]["name"]) for each in sessions],
            [("create", "s-1"), ("delete", "s-1")],
        )
        self.assertNotIn("sealed", str(sessions))

    def test_nothing(self) -> None:
        """States, other kinds, and failed transactions have no event."""
        self.store.create("clusters", "alpha", {"uid": "u", "conditions": []})
        self.store.update("clusters", "alpha", {"uid": "u", "conditions": [1]})
        self.store.create("events", "e", {})
        self.store.transact([Require("clusters", "alpha")])
        failing = [
            self.store.transact([Update("clusters", "alpha", {}), Delete("clusters", "b")]),
            self.store.create("clusters", "alpha", {}),
        ]
        self.commit()
        for each in failing:
            self.failureResultOf(each)
        self.assertEqual(self.events(), [("create", "clusters", "alpha")])

    def test_together(self) -> None:
        """A transaction has an event for each record that it removes."""
        self.store.create("clusters", "alpha", {"uid": "u"})
        for name in ("one", "two"):
            self.store.create("credentials", name, {"cluster_uid": "u", "cluster": "alpha"})
        self.store.create("credentials", "three", {"cluster_uid": "v"})
        self.recorded()
        self.store.transact([Delete("clusters", "alpha"), DeleteWhere("credentials", "cluster_uid", "u")])
        self.assertEqual(
            self.events(),
            [
                ("delete", "clusters", "alpha"),
                ("delete", "credentials", "one"),
                ("delete", "credentials", "two"),
            ],
        )

    def test_replaced(self) -> None:
        """A record that is removed and created again in one transaction is updated."""
        self.store.create("credentials", "c", {"a": 1})
        self.store.transact([Delete("credentials", "c"), Create("credentials", "c", {"a": 2})])
        self.store.transact([Create("credentials", "d", {}), Delete("credentials", "d")])
        self.assertEqual(self.events(), [("create", "credentials", "c"), ("update", "credentials", "c")])

    def test_policy(self) -> None:
        """The policy decides on changes, too."""
        self.audit.use(
            policy_of("rules: [{level: None, users: ['tower:proxy'], verbs: [create]}, {level: Metadata}]")
        )
        self.store.create("credentials", "c", {"a": 1})
        self.store.delete("credentials", "c")
        self.assertEqual(self.events(), [("delete", "credentials", "c")])


class DelayedStoreTests(ChangeRecorderTests):
    """The same changes, and concurrent ones, in a store that commits late."""

    store: DelayedStore

    def opened(self) -> IStore:
        """Return a store."""
        return DelayedStore()

    def commit(self) -> None:
        """Let the store commit."""
        self.store.commit()

    def test_submitted_together(self) -> None:
        """Old digests are those of the records at the commit, not at the time of the request."""
        for submit in (
            lambda: self.store.create("accesspolicies", "p", {"a": 1}),
            lambda: self.store.update("accesspolicies", "p", {"a": 2}),
            lambda: self.store.update("accesspolicies", "p", {"a": 3}),
            lambda: self.store.delete("accesspolicies", "p"),
        ):
            submit()
        events = self.recorded()
        self.assertEqual([each["verb"] for each in events], ["create", "update", "update", "delete"])
        digests = [
            (each["annotations"].get(OLD_DIGEST), each["annotations"].get(NEW_DIGEST)) for each in events
        ]
        for (_, new), (old, _) in pairwise(digests):
            self.assertEqual(new, old)
        self.assertEqual((digests[0][0], digests[-1][1]), (None, None))

    def test_removed_with_its_cluster(self) -> None:
        """A credential that is created while its cluster is deleted is removed with an event."""
        self.store.create("clusters", "alpha", {"uid": "u"})
        self.recorded()
        self.store.create("credentials", "c", {"cluster_uid": "u"})
        self.store.transact([Delete("clusters", "alpha"), DeleteWhere("credentials", "cluster_uid", "u")])
        self.assertEqual(
            self.events(),
            [("create", "credentials", "c"), ("delete", "clusters", "alpha"), ("delete", "credentials", "c")],
        )


class HostStoreTests(SynchronousTestCase):
    """Changes of records in a host cluster."""

    def setUp(self) -> None:
        """Observe a store in a fake host."""
        self.host, self.lines, self.clock = FakeHost(), Lines(), Clock()
        self.store = opened(self.host, self.clock)
        self.addCleanup(self.store.stop)
        self.store.observe = ChangeRecorder(audit_to(self.lines, Clock().seconds), self.store).observe

    def test_others(self) -> None:
        """Changes by other programs have no event; the next change of Tower's begins with their record."""
        self.store.create("accesspolicies", "p", {"a": 1})
        kind = own_type("accesspolicies")
        (obj,) = self.host.objects(kind, NAMESPACE)
        self.host.put(kind, {**obj, "spec": {"a": 2}}, NAMESPACE)
        self.store.update("accesspolicies", "p", {"a": 3})
        created, updated = self.lines.events()
        self.assertEqual((created["verb"], updated["verb"]), ("create", "update"))
        self.assertNotEqual(created["annotations"][NEW_DIGEST], updated["annotations"][OLD_DIGEST])

    def replace(self, user: str, number: int) -> Deferred[None]:
        """Replace two policies, by a request of *user*."""

        async def answer() -> None:
            await self.store.transact([Update("accesspolicies", name, {"a": number}) for name in "pq"])

        return by_author(request_of(Identity(user)), answer())

    def test_late(self) -> None:
        """Changes that wait for the host have the author of the request, and digests of the commit."""
        self.create()
        self.host.freeze()
        writes = [self.replace("jane", 2), self.replace("joe", 3)]
        self.assertEqual(self.lines, [])
        self.host.thaw()
        for each in writes:
            self.successResultOf(each)
        events = self.lines.events()
        self.assertEqual([each["user"]["username"] for each in events], ["jane", "jane", "joe", "joe"])
        for before, after in zip(events[:2], events[2:], strict=True):
            self.assertEqual(before["objectRef"]["name"], after["objectRef"]["name"])
            self.assertEqual(before["annotations"][NEW_DIGEST], after["annotations"][OLD_DIGEST])

    def test_interrupted(self) -> None:
        """A transaction that is completed later has events of its author then."""
        self.create()
        self.host.fail_next(403, verbs=["update"], plural="accesspolicies")
        self.failureResultOf(self.replace("jane", 2), StoreFailed)
        self.assertEqual(self.lines, [])
        self.clock.advance(1)
        self.assertEqual(
            [(each["verb"], each["user"]["username"]) for each in self.lines.events()],
            [("update", "jane")] * 2,
        )

    def create(self) -> None:
        """Create the two policies."""
        for name in "pq":
            self.successResultOf(self.store.create("accesspolicies", name, {"a": 1}))
        self.lines.clear()

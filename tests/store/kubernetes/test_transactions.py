"""Transactions in a host cluster are atomic: a stop of program or host at any write leaves all or nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from twisted.internet.defer import CancelledError
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.kube.rest.fake_host import FakeHost
from tests.store.kubernetes.crashing_host import CrashingHost
from tests.store.kubernetes.kit import opened
from tests.store.kubernetes.samples import cluster_value
from tower.kube.rest.well_known import CLUSTERS
from tower.store.kinds import KINDS
from tower.store.kubernetes.host_kinds import TRANSACTIONS
from tower.store.kubernetes.store import KubernetesStore
from tower.store.records import Create, Delete, DeleteWhere, Operation, Require, StoreFailed, Update, Value

#: Conditions, which are a request of their own with a status subresource.
_CONDITION = {
    "type": "Available",
    "status": "True",
    "reason": "Ready",
    "message": "All is well.",
    "last_transition": 1_700_000_100,
}


def _contents(store: KubernetesStore) -> dict[str, dict[str, Value]]:
    """Return all values, without the metadata that the host sets."""
    found: dict[str, dict[str, Value]] = {}
    for kind in KINDS:
        for name, record in store.snapshot(kind).items():
            value = {key: part for key, part in record.value.items() if key != "meta"}
            found.setdefault(kind, {})[name] = value
    return found


class Scenario:
    """Operations on a store with some records."""

    def __init__(
        self, *operations: Operation, setup: Sequence[Operation] = (), finalizers: bool = False
    ) -> None:
        self.operations = list(operations)
        self.setup = list(setup)
        self.finalizers = finalizers

    def host(self, *, has_status: bool) -> FakeHost:
        """Return a host with the records."""
        host = FakeHost()
        if not has_status:
            host.without_status.add(CLUSTERS)
        store = opened(host)
        for operation in self.setup:
            store.transact([operation])
        if self.finalizers:
            obj = host.object(CLUSTERS, "alpha")
            assert obj is not None
            obj["metadata"]["finalizers"] = ["example.org/cleanup"]
            host.put(CLUSTERS, obj)
        store.stop()
        return host


_ALPHA = Create("clusters", "alpha", cluster_value("a-1"))
_RECORDS = [
    Create("ports", "6000", {"cluster": "alpha", "cluster_uid": "a-1"}),
    Create("jointokens", "d1", {"cluster": "alpha", "cluster_uid": "a-1", "uses": 1}),
    Create("agentkeys", "a-1/SHA256:x", {"cluster_uid": "a-1", "seen": None}),
    Create("memberaccess", "a-1", {"cluster_uid": "a-1", "sealed": "x"}),
]

SCENARIOS = {
    "a cluster with its port": Scenario(_ALPHA, _RECORDS[0]),
    "a cluster with conditions": Scenario(
        Create("clusters", "alpha", {**cluster_value("a-1"), "conditions": [_CONDITION]})
    ),
    "a change of spec and status": Scenario(
        Update("clusters", "alpha", {**cluster_value("a-1"), "enabled": False, "conditions": [_CONDITION]}),
        setup=[_ALPHA],
    ),
    "a port for an old cluster": Scenario(
        Update("clusters", "alpha", {**cluster_value("a-1"), "kubernetes_port": 6000}),
        _RECORDS[0],
        setup=[_ALPHA],
    ),
    "an enrollment": Scenario(
        Require("clusters", "alpha"),
        Update("jointokens", "d1", {"cluster": "alpha", "cluster_uid": "a-1", "uses": 0}),
        Create("agentkeys", "a-1/SHA256:y", {"cluster_uid": "a-1"}),
        Delete("agentkeys", "a-1/SHA256:x"),
        setup=[_ALPHA, *_RECORDS],
    ),
    "a removal": Scenario(
        Delete("clusters", "alpha"),
        *(DeleteWhere(kind, "cluster_uid", "a-1") for kind in KINDS[2:]),
        setup=[_ALPHA, *_RECORDS],
    ),
    "a removal in spite of finalizers": Scenario(
        Delete("clusters", "alpha"),
        *(DeleteWhere(kind, "cluster_uid", "a-1") for kind in KINDS[2:]),
        setup=[_ALPHA, *_RECORDS],
        finalizers=True,
    ),
    "several clusters": Scenario(
        Update("clusters", "alpha", {**cluster_value("a-1"), "labels": {"a": "b"}}),
        Create("clusters", "beta", cluster_value("b-1")),
        Delete("clusters", "gamma"),
        Create("settings", "s", {"n": 1}),
        setup=[_ALPHA, Create("clusters", "gamma", cluster_value("g-1"))],
    ),
    "one new cluster": Scenario(_ALPHA),
    "one record": Scenario(Create("settings", "s", {"n": 1})),
}


def _both(test: Callable[[TransactionTests, Scenario, bool], None]) -> Callable[[TransactionTests], None]:
    """Run *test* for all scenarios, with and without a status subresource."""

    def run(self: TransactionTests) -> None:
        for name, scenario in SCENARIOS.items():
            for has_status in (True, False):
                try:
                    test(self, scenario, has_status)
                except BaseException as e:
                    e.add_note(f"in {name}, status subresource: {has_status}")
                    raise

    run.__doc__ = test.__doc__
    return run


class TransactionTests(SynchronousTestCase):
    """Tests of every scenario."""

    def outcome(self, scenario: Scenario, has_status: bool) -> tuple[Any, Any, int]:
        """Return the contents before and after, and the number of writes."""
        host = scenario.host(has_status=has_status)
        before = _contents(opened(host))
        view = CrashingHost(host)
        store = opened(cast(FakeHost, view))
        self.successResultOf(store.transact(scenario.operations))
        after = _contents(store)
        self.assertEqual(_contents(opened(host)), after)
        self.assertNotEqual(before, after)
        self.assertEqual(host.objects(TRANSACTIONS), [])
        return before, after, view.writes

    @_both
    def test_crash(self, scenario: Scenario, has_status: bool) -> None:
        """A program that stops after any write leaves all or nothing for the next start."""
        before, after, count = self.outcome(scenario, has_status)
        found = []
        for limit in range(count + 1):
            host = scenario.host(has_status=has_status)
            store = opened(cast(FakeHost, CrashingHost(host, limit)))
            store.transact(scenario.operations).addErrback(lambda failure: failure.trap(StoreFailed))
            contents = _contents(opened(host))
            self.assertIn(contents, (before, after), f"after {limit} writes")
            self.assertEqual(host.objects(TRANSACTIONS), [])
            found.append(contents == after)
        self.assertEqual(found, sorted(found))
        self.assertEqual((found[0], found[-1]), (False, True))

    @_both
    def test_second_crash(self, scenario: Scenario, has_status: bool) -> None:
        """The next start may be stopped at any write, too."""
        before, after, count = self.outcome(scenario, has_status)
        for limit in range(count + 1):
            for second in (0, 1, 3):
                host = scenario.host(has_status=has_status)
                store = opened(cast(FakeHost, CrashingHost(host, limit)))
                store.transact(scenario.operations).addErrback(lambda failure: failure.trap(StoreFailed))
                view = CrashingHost(host, second)
                try:
                    opened(cast(FakeHost, view))
                except (StoreFailed, CancelledError):
                    self.assertTrue(view.is_cut)
                self.assertIn(_contents(opened(host)), (before, after), f"{limit} and {second} writes")

    @_both
    def test_outage(self, scenario: Scenario, has_status: bool) -> None:
        """If the host stops to answer after any write, the program itself ends the transaction later."""
        before, after, count = self.outcome(scenario, has_status)
        for limit in range(count + 1):
            host, clock = scenario.host(has_status=has_status), Clock()
            view = CrashingHost(host, limit)
            store = opened(cast(FakeHost, view), clock)
            answers: list[object] = []
            store.transact(scenario.operations).addBoth(answers.append)
            clock.pump([0.1] * 40)
            self.assertEqual(len(answers), 1)
            self.assertIn(_contents(store), (before, after), "during the outage")
            view.limit = float("inf")
            view.writes = 0
            clock.pump([1.0] * 40)
            self.assertEqual(host.objects(TRANSACTIONS), [])
            if _contents(store) == before:
                store.transact([Require("clusters", "none")]).addErrback(lambda _: None)
            self.assertEqual(_contents(store), _contents(opened(host)))
            self.assertIn(_contents(store), (before, after))
            if isinstance(answers[0], list):
                self.assertEqual(_contents(store), after)

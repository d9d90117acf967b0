"""Tests of `tower.store.kubernetes.lost_namespace`, with the whole store."""

from __future__ import annotations

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.kube.rest.fake_host import FakeHost
from tests.store.kubernetes.kit import NAMESPACE, opened
from tower.kube.rest.host_api import Object
from tower.kube.rest.well_known import NAMESPACES, SECRETS
from tower.store.kinds import AGENT_KEYS, SETTINGS
from tower.store.kubernetes.host_kinds import own_type
from tower.store.kubernetes.lost_namespace import PERIOD
from tower.store.records import Create, StoreFailed, Update

_KEYS = own_type(AGENT_KEYS)


class LostNamespaceTests(SynchronousTestCase):
    """Each test has a store with two agent keys and a setting."""

    def setUp(self) -> None:
        """Load the store and follow the keys."""
        self.host, self.clock = FakeHost(), Clock()
        self.store = opened(self.host, self.clock)
        self.addCleanup(self.store.stop)
        for name in ("a", "b"):
            self.successResultOf(self.store.transact([Create(AGENT_KEYS, name, {"n": name})]))
        self.successResultOf(self.store.transact([Create(SETTINGS, "s", {"n": 1})]))
        self.events: list[tuple[str, str]] = []
        watch = self.store.watch(
            AGENT_KEYS, lambda event: self.events.append((event.type, event.record.name))
        )
        self.addCleanup(watch.stop)

    def keys(self) -> list[Object]:
        """Return the objects of the keys."""
        return self.host.objects(_KEYS)

    def lose(self) -> None:
        """Remove the namespace with all that is in it, as Kubernetes does."""
        self.host.remove(NAMESPACES, NAMESPACE)
        for resource in (_KEYS, own_type(SETTINGS)):
            for each in self.host.objects(resource):
                self.host.remove(resource, each["metadata"]["name"], NAMESPACE)

    def bring_back(self) -> None:
        """Create the namespace."""
        self.host.put(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        self.clock.advance(PERIOD)

    def test_one_deleted(self) -> None:
        """The record of an object that another program deletes is removed at once; no probe is left."""
        self.host.remove(_KEYS, self.keys()[0]["metadata"]["name"], NAMESPACE)
        self.assertEqual(self.events, [("DELETED", "a")])
        self.assertIsNone(self.store.get(AGENT_KEYS, "a"))
        self.assertEqual(self.host.objects(SECRETS), [])
        self.assertEqual(self.store.failures, [])

    def test_lost(self) -> None:
        """Without the namespace, all records stay; their objects are written when it is back."""
        before = [each["spec"] for each in self.keys()]
        self.lose()
        self.assertEqual((self.events, self.keys()), ([], []))
        (problem,) = self.store.failures
        self.assertIn(f"'kubectl create namespace {NAMESPACE}'", problem)
        self.clock.advance(PERIOD)
        self.assertEqual(self.keys(), [])
        self.bring_back()
        self.assertEqual([each["spec"] for each in self.keys()], before)
        self.assertEqual((self.events, self.store.failures), ([], []))
        self.successResultOf(self.store.transact([Update(AGENT_KEYS, "a", {"n": "new"})]))
        self.assertEqual(self.events, [("MODIFIED", "a")])
        again = opened(self.host)
        self.addCleanup(again.stop)
        for kind in (AGENT_KEYS, SETTINGS):
            self.assertEqual(
                {name: record.value for name, record in again.snapshot(kind).items()},
                {name: record.value for name, record in self.store.snapshot(kind).items()},
            )

    def test_writes_meanwhile(self) -> None:
        """Writes fail, and change nothing."""
        self.lose()
        for operation in (Update(AGENT_KEYS, "a", {"n": "x"}), Create(AGENT_KEYS, "c", {})):
            self.failureResultOf(self.store.transact([operation]), StoreFailed)
        self.assertEqual(self.events, [])
        self.bring_back()
        self.assertEqual(len(self.keys()), 2)
        self.assertEqual(self.store.failures, [])

    def test_being_deleted(self) -> None:
        """A namespace that is being deleted counts as lost."""
        text = f"secrets is forbidden: ... in namespace {NAMESPACE} because it is being terminated"
        self.host.fail_next(403, text, verbs=("create",), plural="secrets", count=2)
        self.host.remove(_KEYS, self.keys()[0]["metadata"]["name"], NAMESPACE)
        self.assertEqual(self.events, [])
        self.clock.advance(PERIOD)
        self.assertEqual(len(self.keys()), 1)
        self.clock.advance(PERIOD)
        self.assertEqual((len(self.keys()), self.events), (2, []))

    def test_listed_again(self) -> None:
        """An empty list after missed changes does not remove the records, either."""
        self.host.freeze()
        self.lose()
        self.host.thaw()
        self.host.compact()
        self.host.end_watches(410)
        self.clock.pump([1.0] * 5)
        self.assertEqual(self.events, [])
        self.bring_back()
        self.assertEqual(len(self.keys()), 2)

    def test_no_answer(self) -> None:
        """Without an answer, the deletion waits; with a rejection for another reason, it counts."""
        self.host.fail_next(0, verbs=("create",), plural="secrets")
        self.host.remove(_KEYS, self.keys()[0]["metadata"]["name"], NAMESPACE)
        self.assertEqual(self.events, [])
        self.clock.advance(PERIOD)
        self.assertEqual(self.events, [("DELETED", "a")])
        self.host.fail_next(403, 'secrets is forbidden: User "x" cannot', verbs=("create",), plural="secrets")
        self.host.remove(_KEYS, self.keys()[0]["metadata"]["name"], NAMESPACE)
        self.assertEqual(len(self.events), 2)

    def test_failed_restoration(self) -> None:
        """Objects that could not be written again are written later."""
        self.lose()
        self.host.fail_next(500, verbs=("create",), plural="agentkeys")
        self.bring_back()
        self.assertLess(len(self.keys()), 2)
        self.assertTrue(self.store.failures)
        self.clock.advance(PERIOD)
        self.assertEqual((len(self.keys()), self.store.failures, self.events), (2, [], []))

    def test_stop(self) -> None:
        """A store that stops meanwhile leaves nothing on the clock."""
        self.lose()
        self.successResultOf(self.store.stop())
        self.clock.advance(60)
        self.assertEqual(self.clock.getDelayedCalls(), [])

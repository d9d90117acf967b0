"""The store in a host cluster, on a fake one."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

from attrs import evolve
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.kube.rest.fake_host import FakeHost
from tests.store import store_contract
from tests.store.kubernetes.kit import NAMESPACE, codecs, opened, plurals, put_cluster
from tests.store.kubernetes.samples import cluster_value
from tower.clusters import Clusters
from tower.clusters.cluster import Condition
from tower.clusters.host.host_object import UID
from tower.errors import Invalid
from tower.kube.rest.host_api import Object
from tower.kube.rest.well_known import CLUSTERS, SECRETS
from tower.store.kubernetes.committer import DOUBT_TIME
from tower.store.kubernetes.host_change import RecordChange
from tower.store.kubernetes.host_kinds import TRANSACTIONS, own_type
from tower.store.kubernetes.host_transaction import HostTransaction
from tower.store.kubernetes.store import KubernetesStore
from tower.store.kubernetes.write_queue import QUEUE_LIMIT, STOP_TIME, WAIT_LIMIT
from tower.store.records import (
    Create,
    Event,
    RecordChanged,
    RecordExists,
    RecordMissing,
    StoreFailed,
    Update,
    Value,
)

_READY = Condition("Available", "True", "Ready", "Fine.", 0.0)


class KubernetesContractTests(store_contract.StoreContract):
    """The store in a host cluster keeps the contract of all stores."""

    def setUp(self) -> None:
        """Load a store from an empty host."""
        self.host = FakeHost()
        self.store = opened(self.host)
        self.addCleanup(self.store.stop)

    def cluster(self, **marks: Any) -> Value:
        """Return a valid cluster."""
        return cluster_value(**marks)


class WithoutStatusTests(KubernetesContractTests):
    """So does a store whose clusters have no status subresource, as with KubeSphere Tower."""

    def setUp(self) -> None:
        """Load a store from such a host."""
        super().setUp()
        self.host.without_status.add(CLUSTERS)


class _StoreCase(SynchronousTestCase):
    """A store in a host with one of KubeSphere's clusters."""

    def setUp(self) -> None:
        """Load the store."""
        self.host, self.clock = FakeHost(), Clock()
        self.before = put_cluster(self.host)
        self.store = opened(self.host, self.clock)
        self.addCleanup(self.store.stop)
        self.heard: list[Event] = []
        self.store.watch("clusters", self.heard.append)
        self.clusters = Clusters(self.store, None, self.clock)
        self.addCleanup(self.clusters.stop)
        self.host.requests.clear()

    def stored(self, name: str = "alpha") -> Object:
        """Return a cluster's object."""
        found = self.host.object(CLUSTERS, name)
        assert found is not None
        return found

    def edit(self, change: Callable[[Object], None], name: str = "alpha") -> None:
        """Change a cluster's object as another program does."""
        obj = self.stored(name)
        change(obj)
        self.host.put(CLUSTERS, obj)

    @property
    def types(self) -> list[tuple[str, str]]:
        """Types and names of the events of clusters so far."""
        return [(event.type, event.record.name) for event in self.heard]


class WriteTests(_StoreCase):
    """Writes to objects that belong to several programs."""

    def test_unknown_fields(self) -> None:
        """Every write keeps the fields that Tower does not know."""
        for has_status in (True, False):
            if not has_status:
                self.host.without_status.add(CLUSTERS)
            self.successResultOf(self.clusters.set_enabled("alpha", enabled=not has_status))
            self.successResultOf(self.clusters.set_conditions("alpha", [_READY]))
            self.successResultOf(
                self.clusters.change("alpha", lambda cluster: evolve(cluster, labels={"x": "y"}))
            )
            after = self.stored()
            connection = {**self.before["spec"]["connection"]}
            wanted = {**self.before["spec"], "connection": connection, "enable": not has_status}
            self.assertEqual(after["spec"], wanted)
            for key in ("kubeSphereVersion", "nodeCount", "region", "configz"):
                self.assertEqual(after["status"][key], self.before["status"][key])
            self.assertEqual(after["status"]["conditions"][:3], self.before["status"]["conditions"])
            self.assertEqual(after["status"]["conditions"][3]["type"], "Available")
            for key in ("annotations", "finalizers"):
                self.assertEqual(after["metadata"][key], self.before["metadata"][key])

    def test_number_of_writes(self) -> None:
        """A change of conditions is one request, with and without a status subresource; the same, none."""
        self.successResultOf(self.clusters.set_conditions("alpha", [_READY]))
        self.successResultOf(self.clusters.set_conditions("alpha", [_READY]))
        self.assertEqual(self.host.requests, [("patch", "clusters", "alpha")])
        self.assertEqual(self.store.version, self.host.version)
        self.host.without_status.add(CLUSTERS)
        self.successResultOf(self.clusters.set_conditions("alpha", [evolve(_READY, status="False")]))
        self.host.requests.clear()
        self.successResultOf(self.clusters.set_conditions("alpha", [evolve(_READY, status="Unknown")]))
        self.successResultOf(self.clusters.set_conditions("alpha", [evolve(_READY, status="Unknown")]))
        self.assertEqual(self.host.requests, [("patch", "clusters", "alpha")])
        self.host.requests.clear()
        for number in (1, 1.0, 1):
            value = {"n": number, "none": None}
            write = self.store.update if self.store.get("settings", "a") else self.store.create
            self.successResultOf(write("settings", "a", value))
        self.assertEqual(plurals(self.host.requests), [("create", "settings")])

    def test_status_subresource_appears(self) -> None:
        """A CRD that gets a status subresource, or loses it, is noticed by the next write."""
        for number in range(4):
            if number % 2:
                self.host.without_status.discard(CLUSTERS)
            else:
                self.host.without_status.add(CLUSTERS)
            condition = evolve(_READY, reason=f"R{number}")
            self.successResultOf(self.clusters.set_conditions("alpha", [condition]))
            self.assertEqual(self.stored()["status"]["conditions"][3]["reason"], f"R{number}")
            self.assertEqual(self.clusters.require("alpha").conditions[2].reason, f"R{number}")

    def test_transactions_leave_no_trace_of_cost(self) -> None:
        """The annotation of a transaction costs no further write, and is removed with the next one."""
        value = dict(self.store.snapshot("clusters")["alpha"].value)
        self.successResultOf(
            self.store.transact(
                [Update("clusters", "alpha", {**value, "kubernetes_port": 6000}), Create("ports", "6000", {})]
            )
        )
        mark = "tower.kubesphere.io/transaction"
        self.assertIn(mark, self.stored()["metadata"]["annotations"])
        self.assertEqual(
            plurals(self.host.writes),
            [
                ("create", "transactions"),
                ("patch", "clusters"),
                ("create", "clusterports"),
                ("delete", "transactions"),
            ],
        )
        self.host.requests.clear()
        self.successResultOf(self.clusters.set_conditions("alpha", [_READY]))
        self.assertEqual(len(self.host.requests), 1)
        self.successResultOf(self.clusters.set_enabled("alpha", enabled=False))
        self.assertEqual(len(self.host.requests), 2)
        self.assertNotIn(mark, self.stored()["metadata"]["annotations"])

    def test_member_access(self) -> None:
        """Sealed credentials are in a Secret only."""
        value = {"cluster_uid": "u", "sealed": "c2VhbGVk"}
        self.successResultOf(self.store.create("memberaccess", "u", value))
        (secret,) = self.host.objects(SECRETS, NAMESPACE)
        self.assertEqual(secret["metadata"]["name"], "tower-memberaccess-u")
        self.assertEqual(json.loads(base64.b64decode(secret["data"]["record"])), value)
        self.host.put(SECRETS, {"metadata": {"name": "other"}, "data": {}}, NAMESPACE)
        self.assertEqual(list(opened(self.host).snapshot("memberaccess")), ["u"])

    def test_dropped_fields(self) -> None:
        """If the CRD of clusters drops Tower's fields, the write fails with the cure."""

        def prune(_verb: str, resource: object, obj: Object) -> None:
            if resource == CLUSTERS:
                obj["spec"].get("connection", {}).pop("kubernetesAPIServerPort", None)

        self.host.admission.append(prune)
        value = {**self.store.snapshot("clusters")["alpha"].value, "kubernetes_port": 6000}
        error = self.failureResultOf(self.store.update("clusters", "alpha", value), StoreFailed)
        self.assertIn("CRD", str(error.value))

    def test_errors(self) -> None:
        """Errors name the record, the API server's answer and the cure."""
        for code, kind, text in (
            (422, Invalid, "rejects"),
            (403, StoreFailed, "right"),
            (404, StoreFailed, "CRDs"),
            (500, StoreFailed, "500"),
            (0, StoreFailed, "no answer"),
        ):
            self.host.fail_next(code, "because of a test")
            error = self.failureResultOf(self.store.create("settings", "a", {}), kind)
            self.assertIn("settings a", str(error.value))
            self.assertIn("because of a test", str(error.value))
            self.assertIn(text, str(error.value))
            self.assertIsNone(self.store.get("settings", "a"))
            self.host.fail_next(code, "because of a test")
            both = [Create("settings", "a", {}), Create("settings", "b", {})]
            self.failureResultOf(self.store.transact(both), kind)
            self.clock.advance(1)
        self.successResultOf(self.store.transact([Create("settings", "a", {}), Create("settings", "b", {})]))
        self.assertEqual(self.host.objects(TRANSACTIONS), [])

    def test_missing_namespace(self) -> None:
        """The cure of a missing namespace does not mention CRDs."""
        self.host.fail_next(404, 'namespaces "kubesphere-system" not found')
        error = self.failureResultOf(self.store.create("settings", "a", {}), StoreFailed)
        self.assertIn("kubectl create namespace", str(error.value))
        self.assertNotIn("CRD", str(error.value))

    def test_lost_answer(self) -> None:
        """A write whose answer is lost arrives by the watch."""
        self.host.fail_next(0, applied=True)
        self.failureResultOf(self.store.create("settings", "a", {"n": 1}), StoreFailed)
        found = self.store.get("settings", "a")
        assert found is not None
        self.assertEqual(found.value, {"n": 1})
        self.failureResultOf(self.store.create("settings", "a", {}), RecordExists)

    def test_late_transaction(self) -> None:
        """A transaction that the host creates long after it was given up is removed."""
        both = [Create("settings", "a", {"n": 1}), Create("settings", "b", {})]
        self.host.fail_next(0)
        self.failureResultOf(self.store.transact(both), StoreFailed)
        self.host.fail_next(0)
        self.clock.advance(1)
        self.clock.pump([1.0] * 4)
        self.successResultOf(self.store.create("settings", "a", {"n": 2}))
        name = next(name for verb, plural, name in self.host.requests if plural == "transactions" and name)
        changes = [RecordChange("settings", "a", {"n": 1}), RecordChange("settings", "b", {})]
        self.host.put(TRANSACTIONS, HostTransaction(name, changes, has_decider=False).to_object(), NAMESPACE)
        self.host.fail_next(0)
        self.clock.advance(DOUBT_TIME)
        self.assertEqual(len(self.host.objects(TRANSACTIONS)), 1)
        self.clock.advance(DOUBT_TIME)
        self.assertEqual(self.host.objects(TRANSACTIONS), [])
        self.assertEqual(list(opened(self.host).snapshot("settings")), ["a"])

    def test_backlog(self) -> None:
        """More writes than the backlog holds are rejected at once."""
        self.host.freeze()
        writes = [self.store.create("settings", str(n), {}) for n in range(QUEUE_LIMIT + 1)]
        rejected = self.failureResultOf(self.store.create("settings", "more", {}), StoreFailed)
        self.assertIn("retry later", str(rejected.value))
        self.host.thaw()
        for write in writes:
            self.successResultOf(write)

    def test_long_wait(self) -> None:
        """Writes that waited a minute for another one are rejected unsent."""
        self.host.freeze()
        first, *others = (self.store.create("settings", str(n), {}) for n in range(4))
        self.clock.advance(WAIT_LIMIT + 1)
        self.host.thaw()
        self.successResultOf(first)
        for each in others:
            reason = str(self.failureResultOf(each, StoreFailed).value)
            self.assertIn("waited 61 s for earlier writes to the host cluster", reason)
        self.successResultOf(self.store.create("settings", "new", {}))
        self.assertEqual(sorted(self.store.snapshot("settings")), ["0", "new"])

    def test_strange_answer(self) -> None:
        """After an answer that is not an object, a transaction is finished, as it may have been decided."""
        cluster = self.store.get("clusters", "alpha")
        assert cluster is not None
        changed = {**cluster.value, "enabled": False}
        self.host.fail_next(200, "the answer is not an object", verbs=["patch"], applied=True)
        update = Update("clusters", "alpha", changed, cluster.version)
        self.failureResultOf(self.store.transact([update, Create("settings", "a", {})]), StoreFailed)
        self.clock.advance(1)
        found = self.store.get("clusters", "alpha")
        assert found is not None
        self.assertEqual((found.value["enabled"], list(self.store.snapshot("settings"))), (False, ["a"]))
        self.assertEqual(self.host.objects(TRANSACTIONS), [])

    def test_stop_while_frozen(self) -> None:
        """A stop does not wait for a host that does not answer; the next start finds all or nothing."""
        self.host.freeze()
        both = [Create("settings", "a", {}), Create("settings", "b", {})]
        answers = [self.store.transact(both), self.store.create("settings", "c", {})]
        stopping = self.store.stop()
        self.assertNoResult(stopping)
        self.clock.advance(STOP_TIME)
        self.successResultOf(stopping)
        for answer in answers:
            self.failureResultOf(answer, StoreFailed)
        self.failureResultOf(self.store.create("settings", "d", {}), StoreFailed)
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.host.thaw()
        self.assertIn(sorted(opened(self.host).snapshot("settings")), ([], ["a", "b"]))


class OtherWriterTests(_StoreCase):
    """Changes of other programs."""

    def test_events(self) -> None:
        """Other programs' changes are events; changes of unknown fields are not."""
        put_cluster(self.host, "beta")
        self.edit(lambda obj: obj["metadata"]["labels"].update(a="b"))
        self.edit(lambda obj: obj["status"].update(nodeCount=4))
        self.edit(lambda obj: obj["metadata"].pop("finalizers"), "beta")
        self.host.remove(CLUSTERS, "beta")
        self.assertEqual(
            self.types,
            [("ADDED", "beta"), ("MODIFIED", "alpha"), ("MODIFIED", "beta"), ("DELETED", "beta")],
        )
        versions = [event.record.version for event in self.heard]
        self.assertEqual(versions, sorted(set(versions)))
        self.assertEqual(self.host.requests, [])

    def test_conflict(self) -> None:
        """A write from before another program's change fails; the snapshot has that change at once."""
        old = self.store.snapshot("clusters")["alpha"]
        self.host.hold_events()
        self.edit(lambda obj: obj["metadata"]["labels"].update(a="b"))
        update = self.store.update("clusters", "alpha", {**old.value, "enabled": False}, old.version)
        self.failureResultOf(update, RecordChanged)
        self.assertEqual(self.store.snapshot("clusters")["alpha"].value["labels"]["a"], "b")
        self.host.release_events()
        self.assertEqual(self.types, [("MODIFIED", "alpha")])

    def test_both_changes(self) -> None:
        """A change by Tower is repeated on the other program's, so that both survive."""
        self.host.hold_events()
        self.edit(lambda obj: obj["metadata"]["labels"].update(a="b"))
        self.edit(lambda obj: obj["spec"].update(provider="other"))
        self.successResultOf(self.clusters.set_enabled("alpha", enabled=False))
        self.successResultOf(self.clusters.set_conditions("alpha", [_READY]))
        obj = self.stored()
        self.assertEqual(obj["metadata"]["labels"]["a"], "b")
        self.assertEqual((obj["spec"]["provider"], obj["spec"]["enable"]), ("other", False))
        self.assertEqual(obj["status"]["conditions"][3]["type"], "Available")
        count = len(self.heard)
        self.host.release_events()
        self.assertEqual(len(self.heard), count)

    def test_unknown_change(self) -> None:
        """A write from before a change of unknown fields succeeds and keeps that change."""
        old = self.store.snapshot("clusters")["alpha"]
        self.host.hold_events()
        self.edit(lambda obj: obj["status"].update(nodeCount=9))
        value = {**old.value, "labels": {"x": "y"}}
        self.successResultOf(self.store.update("clusters", "alpha", value, old.version))
        obj = self.stored()
        self.assertEqual((obj["status"]["nodeCount"], obj["metadata"]["labels"]), (9, {"x": "y"}))

    def test_removed(self) -> None:
        """A write to a removed object fails, also before the event."""
        self.host.hold_events()
        self.edit(lambda obj: obj["metadata"].pop("finalizers"))
        self.host.remove(CLUSTERS, "alpha")
        self.failureResultOf(
            self.store.update("clusters", "alpha", {**cluster_value(), "enabled": False}), RecordMissing
        )
        self.assertIsNone(self.store.get("clusters", "alpha"))
        self.host.release_events()
        self.assertEqual(self.types, [("DELETED", "alpha")])

    def test_ignored_clusters(self) -> None:
        """Clusters of other types are not in the snapshot, and cannot be overwritten."""
        put_cluster(self.host, "beta", connection={"type": "direct"})
        self.assertEqual(self.types, [])
        before = self.stored("beta")
        self.failureResultOf(self.store.create("clusters", "beta", cluster_value()), RecordExists)
        self.host.hold_events()
        put_cluster(self.host, "gamma", connection={"type": "direct"})
        self.failureResultOf(self.store.create("clusters", "gamma", cluster_value()), RecordExists)
        self.assertEqual(self.stored("beta"), before)

    def test_type_changes(self) -> None:
        """A cluster that changes to another type leaves the snapshot, but keeps its records."""
        uid = self.store.snapshot("clusters")["alpha"].value["uid"]
        self.successResultOf(self.store.create("agentkeys", "k", {"cluster_uid": uid}))
        self.edit(lambda obj: obj["spec"]["connection"].update(type="direct"))
        self.clock.advance(1)
        self.edit(lambda obj: obj["spec"]["connection"].update(type="proxy"))
        self.assertEqual(self.types, [("DELETED", "alpha"), ("ADDED", "alpha")])
        self.assertIsNotNone(self.store.get("agentkeys", "k"))

    def test_malformed(self) -> None:
        """A malformed object is logged; the last good record stays."""
        self.edit(lambda obj: obj["metadata"]["annotations"].update({"tower.kubesphere.io/metadata": "["}))
        self.assertEqual(self.types, [])
        self.assertIsNotNone(self.store.get("clusters", "alpha"))
        self.host.put(own_type("settings"), {"metadata": {"name": "n-1"}, "spec": 7}, NAMESPACE)
        self.assertEqual(dict(self.store.snapshot("settings")), {})

    def test_identity_stays(self) -> None:
        """The uid of a cluster stays if another program removes Tower's annotations."""
        cluster = self.successResultOf(self.clusters.add("beta"))
        self.edit(lambda obj: obj["metadata"].pop("annotations"), "beta")
        self.assertEqual(self.clusters.require("beta").uid, cluster.uid)
        self.successResultOf(self.clusters.set_enabled("beta", enabled=False))
        self.assertEqual(self.stored("beta")["metadata"]["annotations"][UID], f"beta/{cluster.uid}")


class RemovalTests(_StoreCase):
    """Removed clusters and their records."""

    def own(self, uid: str) -> None:
        """Create records of a cluster."""
        for kind in ("agentkeys", "memberaccess", "events"):
            self.successResultOf(self.store.create(kind, f"{uid}-1", {"cluster_uid": uid}))
        self.successResultOf(self.store.create("ports", "6000", {"cluster_uid": uid}))
        self.successResultOf(self.store.create("credentials", "c-1", {"cluster_uid": ""}))

    def left(self) -> list[str]:
        """Return the kinds with records, except clusters."""
        kinds = ("agentkeys", "memberaccess", "events", "ports", "credentials")
        return [kind for kind in kinds if self.store.snapshot(kind)]

    def test_removed_by_another(self) -> None:
        """The records of a cluster that another program removes are removed, except its port."""
        self.own(self.store.snapshot("clusters")["alpha"].value["uid"])
        self.edit(lambda obj: obj["metadata"].pop("finalizers"))
        self.host.remove(CLUSTERS, "alpha")
        self.clock.advance(0)
        self.assertEqual(self.left(), ["ports", "credentials"])

    def test_removed_while_stopped(self) -> None:
        """So are those of a cluster that was removed while no proxy ran."""
        self.own("gone-1")
        self.store.stop()
        clock = Clock()
        self.store = opened(self.host, clock)
        self.addCleanup(self.store.stop)
        clock.advance(0)
        self.assertEqual(self.left(), ["ports", "credentials"])

    def test_retried(self) -> None:
        """If they cannot be removed, it is tried again."""
        self.own("gone-1")
        self.store.stop()
        clock = Clock()
        self.store = opened(self.host, clock)
        self.addCleanup(self.store.stop)
        self.host.fail_next(403, count=1, verbs=("create",))
        clock.advance(0)
        self.assertEqual(len(self.left()), 5)
        clock.advance(30)
        self.assertEqual(self.left(), ["ports", "credentials"])

    def test_with_finalizers(self) -> None:
        """A deletion by Tower's API lasts until the finalizers are removed; KubeSphere needs the member."""
        self.successResultOf(
            self.clusters.change(
                "alpha", lambda cluster: evolve(cluster, meta=evolve(cluster.meta, deleted=1.0))
            )
        )
        cluster = self.clusters.require("alpha")
        self.assertIsNotNone(cluster.meta.deleted)
        self.assertTrue(cluster.enabled)
        self.assertIn("deletionTimestamp", self.stored()["metadata"])
        self.successResultOf(
            self.clusters.change(
                "alpha", lambda cluster: evolve(cluster, meta=evolve(cluster.meta, finalizers=()))
            )
        )
        self.assertIsNone(self.host.object(CLUSTERS, "alpha"))
        self.assertIsNone(self.store.get("clusters", "alpha"))

    def test_late_events(self) -> None:
        """Events of the store's own writes change nothing, however late they are."""
        heard: list[Event] = []
        self.store.watch("settings", heard.append)
        self.host.hold_events()
        for _ in range(2):
            self.successResultOf(self.store.create("settings", "a", {"n": 1}))
            self.successResultOf(self.store.update("settings", "a", {"n": 2}))
            self.successResultOf(self.store.delete("settings", "a"))
        self.assertEqual(len(heard), 6)
        self.host.release_events()
        self.assertEqual(len(heard), 6)
        self.assertIsNone(self.store.get("settings", "a"))


class LoadTests(_StoreCase):
    """Starts, and complete lists later."""

    def test_versions(self) -> None:
        """Versions increase across restarts; events before a restart are expired."""
        self.successResultOf(self.store.create("settings", "a", {}))
        gone = self.successResultOf(self.store.create("settings", "b", {}))
        self.successResultOf(self.store.delete("settings", "b"))
        again = opened(self.host)
        self.assertGreaterEqual(again.version, gone.version)
        self.assertEqual(list(again.snapshot("settings")), ["a"])
        self.assertGreaterEqual(
            again.snapshot("settings")["a"].version, self.store.snapshot("settings")["a"].version
        )
        before = self.store.version
        newer = self.successResultOf(again.create("settings", "c", {}))
        self.assertGreater(newer.version, before)

    def test_listed_again(self) -> None:
        """After changes were missed, the differences are events."""
        put_cluster(self.host, "beta")
        self.heard.clear()
        self.host.hold_events()
        self.edit(lambda obj: obj["metadata"]["labels"].update(a="b"))
        self.edit(lambda obj: obj["metadata"].pop("finalizers"), "beta")
        self.host.remove(CLUSTERS, "beta")
        put_cluster(self.host, "gamma")
        self.host.compact()
        self.host.end_watches(410)
        self.clock.advance(60)
        self.assertEqual(sorted(self.types), [("ADDED", "gamma"), ("DELETED", "beta"), ("MODIFIED", "alpha")])

    def test_missing_crds(self) -> None:
        """A start waits for CRDs and rights; the failures name them until then."""
        host, clock = FakeHost(), Clock()
        host.missing.update((TRANSACTIONS, CLUSTERS))
        store = KubernetesStore(host, NAMESPACE, codecs(), clock)
        self.addCleanup(store.stop)
        starting = Deferred.fromCoroutine(store.start())
        self.assertIn("CRD", store.failures[0])
        clock.advance(1)
        self.assertEqual(len(store.failures), 1)
        host.missing.remove(TRANSACTIONS)
        clock.advance(2)
        self.assertNoResult(starting)
        self.assertIn("clusters", store.failures[0])
        host.missing.clear()
        put_cluster(host)
        clock.pump([1.0] * 5)
        self.successResultOf(starting)
        self.assertEqual((list(store.snapshot("clusters")), store.failures), (["alpha"], []))

    def test_stopped_before_it_started(self) -> None:
        """A stop ends a start that waits."""
        for missing in (TRANSACTIONS, CLUSTERS):
            host, clock = FakeHost(), Clock()
            host.missing.add(missing)
            store = KubernetesStore(host, NAMESPACE, codecs(), clock)
            starting = Deferred.fromCoroutine(store.start())
            self.successResultOf(store.stop())
            self.failureResultOf(starting, CancelledError)
            self.assertEqual(clock.getDelayedCalls(), [])

    def test_transaction_that_is_malformed(self) -> None:
        """A damaged transaction prevents the start, with its name and the cure."""
        self.host.put(TRANSACTIONS, {"metadata": {"name": "t-1"}, "spec": {"data": "e30="}}, NAMESPACE)
        error = self.assertRaises(StoreFailed, opened, self.host)
        self.assertIn("t-1", str(error))
        self.assertIn("delete it", str(error))

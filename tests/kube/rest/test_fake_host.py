"""Tests of `tests.kube.rest.fake_host`: the rules of a real API server, which clients depend on."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.kube.rest.fake_host import TIMEOUT, FakeHost
from tower.kube.client import APIError
from tower.kube.rest.host_api import HostAPI, Object, WatchEvent
from tower.kube.rest.well_known import CLUSTERS, CONFIG_MAPS, LEASES, NAMESPACES, SECRETS

NAMESPACE = "kubesphere-system"


def secret(name: str, **labels: str) -> Object:
    """Return a Secret."""
    return {"metadata": {"name": name, "labels": labels}, "stringData": {"key": "x"}}


class FakeHostCase(SynchronousTestCase):
    """A test case with a host."""

    def setUp(self) -> None:
        """Create it."""
        self.clock = Clock()
        self.host = FakeHost(self.clock)
        self.api: HostAPI = self.host
        self.events: list[tuple[str, str]] = []

    def do(self, request: Coroutine[Deferred[Any], Any, Any]) -> Any:
        """Return what a request returned."""
        return self.successResultOf(Deferred.fromCoroutine(request))

    def fails(self, request: Coroutine[Deferred[Any], Any, Any]) -> tuple[int, str]:
        """Return code and reason of a request's error."""
        error = self.failureResultOf(Deferred.fromCoroutine(request), APIError).value
        assert isinstance(error, APIError)
        return error.code, error.reason

    def watch(self, since: str, labels: str = "", namespace: str | None = None) -> Deferred[None]:
        """Watch Secrets."""

        def deliver(event: WatchEvent) -> None:
            self.events.append((event.type, event.object["metadata"].get("name", "")))

        return Deferred.fromCoroutine(self.api.watch(SECRETS, namespace, since, deliver, labels))


class WriteTests(FakeHostCase):
    """Reading and writing."""

    def test_create(self) -> None:
        """A created object has an identity and a version; another of its name is AlreadyExists."""
        made = self.do(self.api.create(SECRETS, secret("a"), NAMESPACE))
        self.assertEqual(made["data"], {"key": "eA=="})
        self.assertEqual((made["kind"], made["apiVersion"]), ("Secret", "v1"))
        self.assertEqual(made["metadata"]["namespace"], NAMESPACE)
        self.assertEqual(made, self.do(self.api.get(SECRETS, "a", NAMESPACE)))
        self.assertEqual(self.fails(self.api.create(SECRETS, secret("a"), NAMESPACE)), (409, "AlreadyExists"))
        self.assertEqual(self.fails(self.api.create(SECRETS, secret("a"), "none")), (404, "NotFound"))
        self.assertEqual(self.fails(self.api.get(SECRETS, "b", NAMESPACE)), (404, "NotFound"))

    def test_wrong_objects(self) -> None:
        """Objects of another kind or namespace, or without a name, are rejected."""
        for obj, code in (
            ({"metadata": {"name": "a"}, "kind": "Pod"}, 400),
            ({"metadata": {"name": "a", "namespace": "default"}}, 400),
            ({"metadata": {}}, 422),
            ({"metadata": {"name": "a", "resourceVersion": "1"}}, 500),
        ):
            self.assertEqual(self.fails(self.api.create(SECRETS, obj, NAMESPACE))[0], code)
        made = self.do(self.api.create(SECRETS, {"metadata": {"generateName": "a-"}}, NAMESPACE))
        self.assertTrue(made["metadata"]["name"].startswith("a-"))

    def test_update(self) -> None:
        """An update with another version or identity is a conflict; one without change writes nothing."""
        made = self.do(self.api.create(SECRETS, secret("a"), NAMESPACE))
        changed = self.do(self.api.update(SECRETS, {**made, "type": "x"}))
        self.assertNotEqual(changed["metadata"]["resourceVersion"], made["metadata"]["resourceVersion"])
        self.assertEqual(self.fails(self.api.update(SECRETS, made)), (409, "Conflict"))
        self.assertEqual(self.do(self.api.update(SECRETS, changed)), changed)
        changed["metadata"].update(uid="other", resourceVersion="")
        self.assertEqual(self.fails(self.api.update(SECRETS, changed)), (409, "Conflict"))
        self.assertEqual(self.fails(self.api.update(SECRETS, secret("b"), NAMESPACE)), (404, "NotFound"))

    def test_update_without_version(self) -> None:
        """A Secret may be replaced regardless of its version, a Lease or a custom object must have one."""
        self.do(self.api.create(SECRETS, secret("a"), NAMESPACE))
        self.do(self.api.update(SECRETS, secret("a"), NAMESPACE))
        for resource in (LEASES, CLUSTERS):
            self.do(self.api.create(resource, {"metadata": {"name": "a"}}, NAMESPACE))
            update = self.api.update(resource, {"metadata": {"name": "a"}}, NAMESPACE)
            self.assertEqual(self.fails(update), (422, "Invalid"))

    def test_patch(self) -> None:
        """A merge patch changes its fields; with another version it is a conflict."""
        made = self.do(self.api.create(SECRETS, secret("a", one="1", two="2"), NAMESPACE))
        patch = {"metadata": {"labels": {"one": None, "three": "3"}}}
        patched = self.do(self.api.patch(SECRETS, "a", patch, NAMESPACE))
        self.assertEqual(patched["metadata"]["labels"], {"two": "2", "three": "3"})
        self.assertEqual(patched["metadata"]["uid"], made["metadata"]["uid"])
        patch = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}}
        self.assertEqual(self.fails(self.api.patch(SECRETS, "a", patch, NAMESPACE)), (409, "Conflict"))

    def test_status(self) -> None:
        """With a status subresource only /status changes the status, and nothing else."""
        cluster = {"metadata": {"name": "a"}, "spec": {"x": 1}, "status": {"y": 1}}
        made = self.do(self.api.create(CLUSTERS, cluster))
        self.assertNotIn("status", made)
        changed = {**made, "spec": {"x": 2}, "status": {"y": 2}}
        done = self.do(self.api.update(CLUSTERS, changed, subresource="status"))
        self.assertEqual(
            (done["spec"], done["status"], done["metadata"]["generation"]), ({"x": 1}, {"y": 2}, 1)
        )
        done = self.do(self.api.patch(CLUSTERS, "a", {"spec": {"x": 3}, "status": {"y": 3}}))
        self.assertEqual(
            (done["spec"], done["status"], done["metadata"]["generation"]), ({"x": 3}, {"y": 2}, 2)
        )

    def test_no_status(self) -> None:
        """Without a status subresource the status is part of the object, and /status does not exist."""
        self.host.without_status.add(CLUSTERS)
        cluster = {"metadata": {"name": "a"}, "status": {"y": 1}}
        made = self.do(self.api.create(CLUSTERS, cluster))
        self.assertEqual(made["status"], {"y": 1})
        self.assertEqual(self.fails(self.api.update(CLUSTERS, made, subresource="status"))[0], 404)
        done = self.do(self.api.patch(CLUSTERS, "a", {"status": {"y": 2}}))
        self.assertEqual((done["status"], done["metadata"]["generation"]), ({"y": 2}, 2))

    def test_delete(self) -> None:
        """Deletion has preconditions, and waits for finalizers."""
        self.do(self.api.create(CLUSTERS, {"metadata": {"name": "a", "finalizers": ["f"]}}))
        self.assertEqual(self.fails(self.api.delete(CLUSTERS, "a", uid="other")), (409, "Conflict"))
        self.assertEqual(self.fails(self.api.delete(CLUSTERS, "a", resource_version="1")), (409, "Conflict"))
        self.do(self.api.delete(CLUSTERS, "a"))
        left = self.do(self.api.get(CLUSTERS, "a"))
        self.assertTrue(left["metadata"]["deletionTimestamp"])
        self.do(self.api.delete(CLUSTERS, "a"))
        left["metadata"]["finalizers"] = []
        self.do(self.api.update(CLUSTERS, left))
        self.assertEqual(self.fails(self.api.delete(CLUSTERS, "a")), (404, "NotFound"))

    def test_list(self) -> None:
        """A list has the objects of a namespace and selector, and the current version."""
        self.host.put(SECRETS, secret("a", x="1"), NAMESPACE)
        self.host.put(SECRETS, secret("b", x="2"), NAMESPACE)
        self.host.put(SECRETS, secret("c", x="2"), "default")

        def names(namespace: str | None, selector: str) -> list[str]:
            found = self.do(self.api.list(SECRETS, namespace, selector))
            self.assertEqual(found.resource_version, str(self.host.version))
            return [item["metadata"]["name"] for item in found.items]

        self.assertEqual(names(None, ""), ["c", "a", "b"])
        self.assertEqual(names(NAMESPACE, ""), ["a", "b"])
        self.assertEqual(names(NAMESPACE, "x=2"), ["b"])
        self.assertEqual(len(self.do(self.api.list(NAMESPACES, "ignored")).items), 3)
        named = self.do(self.api.list(SECRETS, field_selector="metadata.name=c"))
        self.assertEqual([item["metadata"]["name"] for item in named.items], ["c"])

    def test_missing_type(self) -> None:
        """A type without its CRD is not found."""
        self.host.missing.add(CLUSTERS)
        self.assertEqual(self.fails(self.api.list(CLUSTERS)), (404, ""))

    def test_admission(self) -> None:
        """A check may change or reject each object."""

        def admit(verb: str, resource: Any, obj: Object) -> None:
            if resource == CONFIG_MAPS:
                raise APIError("POST", "/x", 403, "no ConfigMaps")
            obj["metadata"].setdefault("labels", {})["seen"] = verb

        self.host.admission.append(admit)
        self.assertEqual(self.fails(self.api.create(CONFIG_MAPS, secret("a"), NAMESPACE))[0], 403)
        made = self.do(self.api.create(SECRETS, secret("a"), NAMESPACE))
        self.assertEqual(made["metadata"]["labels"], {"seen": "create"})


class FaultTests(FakeHostCase):
    """Planned failures, and a frozen server."""

    def test_fail_next(self) -> None:
        """Planned failures are those of the next matching requests."""
        self.host.fail_next(503, verbs=["create"], plural="secrets", count=2)
        self.do(self.api.list(SECRETS))
        self.do(self.api.create(NAMESPACES, {"metadata": {"name": "n"}}))
        for _ in range(2):
            self.assertEqual(self.fails(self.api.create(SECRETS, secret("a"), "n"))[0], 503)
        self.do(self.api.create(SECRETS, secret("a"), "n"))

    def test_lost_answer(self) -> None:
        """A write may happen although its answer is lost."""
        self.host.fail_next(0, applied=True)
        self.assertEqual(self.fails(self.api.create(SECRETS, secret("a"), "default"))[0], 0)
        self.assertIsNotNone(self.host.object(SECRETS, "a", "default"))
        self.assertEqual(self.host.writes, [("create", "secrets", "a")])

    def test_frozen(self) -> None:
        """A frozen server answers when it is thawed, and not after the timeout."""
        self.host.freeze()
        first = Deferred.fromCoroutine(self.api.create(SECRETS, secret("a"), "default"))
        self.clock.advance(TIMEOUT - 1)
        second = Deferred.fromCoroutine(self.api.create(SECRETS, secret("b"), "default"))
        third = Deferred.fromCoroutine(self.api.create(SECRETS, secret("c"), "default"))
        self.clock.advance(1)
        self.failureResultOf(first, APIError)
        third.cancel()
        self.failureResultOf(third, CancelledError)
        self.assertNoResult(second)
        self.host.thaw()
        self.successResultOf(second)
        self.assertEqual([obj["metadata"]["name"] for obj in self.host.objects(SECRETS)], ["b"])


class FakeWatchTests(FakeHostCase):
    """Watches."""

    def test_changes(self) -> None:
        """A watch has the changes after its version, also those before it began."""
        since = str(self.host.version)
        self.host.put(SECRETS, secret("a"), "default")
        self.watch(since)
        self.host.put(SECRETS, secret("a", x="1"), "default")
        self.host.put(SECRETS, secret("a", x="1"), "default")
        self.host.remove(SECRETS, "a", "default")
        self.assertEqual(self.events, [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")])

    def test_selected(self) -> None:
        """An object that gets or loses the label is added or deleted for the watch."""
        self.watch(str(self.host.version), "x=1", "default")
        self.host.put(SECRETS, secret("a"), "default")
        self.host.put(SECRETS, secret("a", x="1"), "default")
        self.host.put(SECRETS, secret("b", x="1"), NAMESPACE)
        self.host.put(SECRETS, secret("a", x="2"), "default")
        self.host.remove(SECRETS, "a", "default")
        self.assertEqual(self.events, [("ADDED", "a"), ("DELETED", "a")])

    def test_end(self) -> None:
        """A watch ends by itself, with an error, or when it is canceled."""
        since = str(self.host.version)
        watching = self.watch(since)
        self.host.end_watches()
        self.successResultOf(watching)
        watching = self.watch(since)
        self.host.end_watches(410)
        self.failureResultOf(watching, APIError)
        watching = self.watch(since)
        self.assertEqual(len(self.host.watches), 1)
        watching.cancel()
        self.failureResultOf(watching, CancelledError)
        self.assertEqual(self.host.watches, [])

    def test_compacted(self) -> None:
        """A watch from before a compaction is expired; one from the current version works."""
        since = str(self.host.version)
        self.host.put(SECRETS, secret("a"), "default")
        self.host.compact()
        self.failureResultOf(self.watch(since), APIError)
        self.watch(str(self.host.version))
        self.host.bookmark()
        self.assertEqual(self.events, [("BOOKMARK", "")])

    def test_held(self) -> None:
        """Held events are delivered later, once."""
        self.host.hold_events()
        since = str(self.host.version)
        self.watch(since)
        self.do(self.api.create(SECRETS, secret("a"), "default"))
        self.watch(since)
        self.assertEqual(self.events, [])
        self.host.release_events()
        self.assertEqual(self.events, [("ADDED", "a")] * 2)

    def test_frozen(self) -> None:
        """A frozen server delivers events after it is thawed."""
        self.watch(str(self.host.version))
        self.host.freeze()
        self.host.put(SECRETS, secret("a"), "default")
        self.assertEqual(self.events, [])
        self.host.thaw()
        self.assertEqual(self.events, [("ADDED", "a")])

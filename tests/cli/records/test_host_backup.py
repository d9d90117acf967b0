"""Tests of `tower.cli.records.host_backup`."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Coroutine
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.kube.rest.fake_host import FakeHost
from tests.store.kubernetes.kit import NAMESPACE, opened, put_cluster
from tests.store.kubernetes.samples import cluster_value
from tower.cli.client import CommandFailed
from tower.cli.records.host_backup import restore_objects, saved_objects
from tower.controller.objects.service_objects import CLUSTER_LABEL
from tower.kube.client import APIError
from tower.kube.rest.host_api import Object
from tower.kube.rest.well_known import CLUSTERS, SECRETS, SERVICES
from tower.rotation.host_key import FILE as HOST_KEY
from tower.store.kinds import AGENT_KEYS, KINDS, MEMBER_ACCESS
from tower.store.kinds import CLUSTERS as CLUSTER_RECORDS
from tower.store.kubernetes.host_kinds import TRANSACTIONS

NOW = 1_800_000_000.0


class HostBackupTests(SynchronousTestCase):
    """A host cluster with records of a proxy, and an empty one."""

    def setUp(self) -> None:
        """Write the records and the objects of the controller."""
        self.clock = Clock()
        self.host, self.empty = FakeHost(), FakeHost()
        self.put_cluster = put_cluster(self.host, "kube")
        put_cluster(self.host, "direct", connection={"type": "direct"})
        store = opened(self.host)
        uid = self.put_cluster["metadata"]["uid"]
        self.do(store.create(CLUSTER_RECORDS, "alpha", cluster_value("0b3e", note=1)))
        self.do(store.create(AGENT_KEYS, "SHA256:A/B", {"cluster_uid": uid, "created": 1.5}))
        self.do(store.create(MEMBER_ACCESS, "alpha", {"cluster_uid": "0b3e", "sealed": "c2VhbGVk"}))
        self.secret("tower-state", {}, **{HOST_KEY: "a key"})
        self.secret("mc-kube", {CLUSTER_LABEL: "kube"}, token="t" * 64)
        self.secret("foreign", {}, password="mine")
        self.host.put(SERVICES, {"metadata": {"name": "mc-kube"}}, NAMESPACE)
        self.do(store.stop())

    def secret(self, name: str, labels: dict[str, str], **data: str) -> None:
        """Write a Secret."""
        encoded = {key: b64encode(text.encode()).decode() for key, text in data.items()}
        metadata = {"name": name, "labels": labels, "ownerReferences": [{"uid": "1"}]}
        self.host.put(SECRETS, {"metadata": metadata, "type": "Opaque", "data": encoded}, NAMESPACE)

    def do(self, doing: Deferred[Any] | Coroutine[Any, Any, Any]) -> Any:
        """Return the result; pauses take no time."""
        waiting = doing if isinstance(doing, Deferred) else Deferred.fromCoroutine(doing)
        self.clock.pump([0.5] * 20)
        return self.successResultOf(waiting)

    def failed(self, doing: Coroutine[Any, Any, Any]) -> str:
        """Return the error."""
        waiting = Deferred.fromCoroutine(doing)
        self.clock.pump([0.5] * 20)
        return str(self.failureResultOf(waiting, CommandFailed).value)

    def saved(self, **options: bool) -> list[Object]:
        """Return the objects of a backup, as they are read from its file."""
        objects = self.do(saved_objects(self.host, NAMESPACE, self.clock, **options))
        found: list[Object] = json.loads(json.dumps(objects))
        return found

    def records(self, host: FakeHost) -> dict[str, dict[str, dict[str, Any]]]:
        """Return all records, without the fields that the API server sets."""
        store = opened(host)
        found = {
            kind: {name: dict(record.value) for name, record in store.snapshot(kind).items()}
            for kind in KINDS
        }
        for value in found[CLUSTER_RECORDS].values():
            value.pop("meta", None)
            value.pop("conditions")
        self.do(store.stop())
        return found

    def test_round_trip(self) -> None:
        """All records survive with their owners, and the fields and status of other programs, too.

        Conditions that depend on a running proxy are unknown.
        """
        self.do(restore_objects(self.empty, NAMESPACE, self.saved(), NOW))
        self.assertEqual(self.records(self.empty), self.records(self.host))
        before, after = (host.object(CLUSTERS, "kube") for host in (self.host, self.empty))
        assert before is not None
        assert after is not None
        self.assertEqual(after["spec"], before["spec"])
        self.assertEqual({**after["status"], "conditions": []}, {**before["status"], "conditions": []})
        initialized, *others = after["status"]["conditions"]
        self.assertEqual((initialized["status"], initialized["reason"]), ("Unknown", "NotChecked"))
        self.assertEqual(others, before["status"]["conditions"][1:])
        self.assertNotIn("finalizers", after["metadata"])
        self.assertIsNone(self.empty.object(CLUSTERS, "direct"))

    def test_secrets(self) -> None:
        """The proxy's Secrets are restored without owners, that with the keys first; no other is saved."""
        self.do(restore_objects(self.empty, NAMESPACE, self.saved(), NOW))
        self.assertEqual(self.empty.writes[0], ("create", "secrets", "tower-state"))
        names = [each["metadata"]["name"] for each in self.empty.objects(SECRETS, NAMESPACE)]
        self.assertEqual(sorted(names), ["mc-kube", "tower-memberaccess-alpha", "tower-state"])
        for name in names:
            before, after = (host.object(SECRETS, name, NAMESPACE) for host in (self.host, self.empty))
            assert before is not None
            assert after is not None
            self.assertEqual(after["data"], before["data"])
            self.assertNotIn("ownerReferences", after["metadata"])
        self.assertEqual(self.empty.objects(SERVICES), [])

    def test_status_subresource(self) -> None:
        """Without a status subresource, the status is restored with the object."""
        self.host.without_status.add(CLUSTERS)
        self.empty.without_status.add(CLUSTERS)
        self.do(restore_objects(self.empty, NAMESPACE, self.saved(), NOW))
        after = self.empty.object(CLUSTERS, "kube")
        assert after is not None
        self.assertEqual(after["status"]["nodeCount"], 3)

    def test_without_secrets(self) -> None:
        """Without secrets, no key, token or kubeconfig is in the backup; sealed credentials are."""
        objects = self.saved(with_secrets=False)
        names = [each["metadata"]["name"] for each in objects if each["kind"] == "Secret"]
        self.assertEqual(names, ["tower-memberaccess-alpha"])
        text = json.dumps(objects)
        for secret in ("t" * 64, "YXBpVmVyc2lvbjogdjEK", "e30="):
            self.assertNotIn(secret, text)

    def test_interrupted(self) -> None:
        """A restore that was interrupted is finished by the same command."""
        objects = self.saved()
        for at in range(3, len(objects)):
            self.empty.fail_next(500, verbs=["create"], plural=self.plural(objects[at]), count=99)
            waiting = Deferred.fromCoroutine(restore_objects(self.empty, NAMESPACE, objects, NOW))
            self.failureResultOf(waiting, APIError)
            self.empty._failures.clear()
        self.do(restore_objects(self.empty, NAMESPACE, objects, NOW))
        self.assertEqual(self.records(self.empty), self.records(self.host))

    def plural(self, obj: Object) -> str:
        """Return the plural of an object's kind."""
        return f"{obj['kind'].lower()}s"

    def test_not_empty(self) -> None:
        """Other keys in the host cluster are not replaced, and nothing is written."""
        self.empty.put(
            SECRETS, {"metadata": {"name": "tower-state"}, "data": {HOST_KEY: "b3RoZXI="}}, NAMESPACE
        )
        text = self.failed(restore_objects(self.empty, NAMESPACE, self.saved(), NOW))
        self.assertIn("Secret tower-state exists in the host cluster, and differs from the backup", text)
        self.assertEqual(self.empty.objects(CLUSTERS), [])

    def test_no_proxy(self) -> None:
        """A namespace without a proxy is named."""
        text = self.failed(saved_objects(self.empty, NAMESPACE, self.clock))
        self.assertIn("no Secret kubesphere-system/tower-state: set --namespace", text)

    def test_unfinished(self) -> None:
        """A backup waits for the end of a transaction."""
        self.host.put(TRANSACTIONS, {"metadata": {"name": "1"}}, NAMESPACE)
        saving = Deferred.fromCoroutine(saved_objects(self.host, NAMESPACE, self.clock))
        self.clock.pump([0.5] * 3)
        self.assertNoResult(saving)
        self.host.remove(TRANSACTIONS, "1", NAMESPACE)
        self.clock.pump([0.5] * 3)
        self.successResultOf(saving)
        self.host.put(TRANSACTIONS, {"metadata": {"name": "2"}}, NAMESPACE)
        self.assertIn("unfinished", self.failed(saved_objects(self.host, NAMESPACE, self.clock)))

    def test_deletion(self) -> None:
        """A cluster that is being deleted is not restored."""
        self.host.remove(CLUSTERS, "kube")
        names = [each["metadata"]["name"] for each in self.saved() if each["kind"] == "Cluster"]
        self.assertEqual(names, ["alpha"])

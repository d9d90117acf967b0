"""The store in a host cluster, with a real API server."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import yaml
from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.task import deferLater
from twisted.internet.utils import getProcessOutputAndValue
from twisted.trial.unittest import TestCase

from tests.integration.closed_sockets import sockets_closed
from tests.integration.member import Member, member
from tests.integration.own_time import OwnTime
from tests.kube.crds.rule_cases import RULE_CASES
from tests.store import store_contract
from tests.store.kubernetes.kit import NAMESPACE, codecs
from tests.store.kubernetes.samples import KUBESPHERE, cluster_value
from tower.clusters import Clusters
from tower.clusters.cluster import Condition
from tower.clusters.ports.port_assignment import PortAssignment
from tower.control.state_files import DATABASE, SHARED_FILES
from tower.kube.client import APIError
from tower.kube.rest.host_api import ResourceType
from tower.kube.rest.rest_client import RestClient
from tower.kube.rest.rest_config import RestConfig
from tower.kube.rest.well_known import CLUSTERS, CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES, SECRETS
from tower.store import IStore
from tower.store import store as store_module
from tower.store.kinds import KINDS
from tower.store.kubernetes.host_kinds import TRANSACTIONS, own_codecs
from tower.store.kubernetes.store import KubernetesStore
from tower.store.records import Event, RecordChanged, Value
from tower.store.sqlite import SQLiteStore
from tower.trust.statedir import StateDir

reactor: Any = _reactor

_CRDS = Path(__file__).parents[2] / "deploy" / "crds"
_TYPES = [CLUSTERS, TRANSACTIONS, SECRETS, *(codec.resource for codec in own_codecs())]

#: Clusters of `LoadTests`; 2,000 must load in `MOST_SECONDS` s and 100 MiB.
COUNT = 400
MOST_SECONDS, MOST_BYTES = 10.0, COUNT * 100 * 2**20 // 2000

#: Whether the installed CRD of clusters has a status subresource; empty: it is not installed.
_installed: list[bool] = []


def _crd(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((_CRDS / name).read_text())
    return found


async def _until(test: Any, what: str, patience: float = 120.0) -> Any:
    """Wait until *test* returns something true, and return it."""
    until = time.monotonic() + patience
    while True:
        found = test()
        if isinstance(found, Coroutine):
            found = await found
        if found:
            return found
        if time.monotonic() > until:
            raise AssertionError(f"not within {patience:g} s: {what}")
        await deferLater(reactor, 0.05)


class Host:
    """The real API server as a host, without records."""

    def __init__(self, real: Member) -> None:
        self.client = RestClient(reactor, RestConfig.from_kubeconfig(real.admin, reactor))

    async def prepare(self, *, has_status: bool) -> None:
        """Install the CRDs and the namespace, and remove all records."""
        if [has_status] != _installed:
            await self._install_all(has_status=has_status)
            _installed[:] = [has_status]
        await gatherResults(
            [
                Deferred.fromCoroutine(_until(lambda kind=kind: self._is_empty(kind), f"no {kind.name}"))
                for kind in _TYPES
            ]
        )

    async def _install_all(self, *, has_status: bool) -> None:
        crds = [_crd(path.name) for path in sorted(_CRDS.glob("*.yaml"))]
        for crd in crds:
            if crd["spec"]["names"]["kind"] == "Cluster":
                crd["spec"]["versions"][0]["subresources"] = {"status": {}} if has_status else None
        await gatherResults([Deferred.fromCoroutine(self._install(crd)) for crd in crds])
        with contextlib.suppress(APIError):  # it exists
            await self.client.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})

    async def _install(self, crd: dict[str, Any]) -> None:
        name = crd["metadata"]["name"]
        try:
            await self.client.create(CUSTOM_RESOURCE_DEFINITIONS, crd)
        except APIError as e:
            if e.code != 409:
                raise
            await self.client.patch(CUSTOM_RESOURCE_DEFINITIONS, name, {"spec": crd["spec"]})

        async def is_established() -> bool:
            found = await self.client.get(CUSTOM_RESOURCE_DEFINITIONS, name)
            conditions = found.get("status", {}).get("conditions") or []
            return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)

        await _until(is_established, f"{name} is established")

    async def _is_empty(self, kind: ResourceType) -> bool:
        namespace = NAMESPACE if kind.namespaced else None
        selector = "tower.kubesphere.io/kind" if kind == SECRETS else ""
        try:
            listed = await self.client.list(kind, namespace, selector)
        except APIError:
            return False  # its CRD is not served yet
        if len(listed.items) > 100:
            member().kubectl("delete", "--raw", kind.path(namespace))  # all at once
            return False
        for obj in listed.items:
            name = obj["metadata"]["name"]
            if obj["metadata"].get("finalizers"):
                await self.client.patch(kind, name, {"metadata": {"finalizers": None}}, namespace)
            with contextlib.suppress(APIError):
                await self.client.delete(kind, name, namespace)
        return not listed.items

    def load(self) -> Deferred[KubernetesStore]:
        """Return another store with all records."""
        return Deferred.fromCoroutine(KubernetesStore.load(self.client, NAMESPACE, codecs(), reactor))


class _HostCase(TestCase):
    """A store in the real API server."""

    timeout = 300.0
    has_status = True
    store: IStore

    async def setUp(self) -> None:  # type: ignore[override]
        """Load an empty store."""
        self.addCleanup(lambda: Deferred.fromCoroutine(sockets_closed()))
        self.host = Host(member())
        self.addCleanup(self.host.client.close)
        await self.host.prepare(has_status=self.has_status)
        self.store = await self.load()

    async def load(self) -> KubernetesStore:
        """Return a store that is stopped after the test."""
        store = await self.host.load()
        self.addCleanup(store.stop)
        return store


class RealContractTests(_HostCase, store_contract.StoreContract):
    """The contract of all stores, with a shorter ring."""

    ring = 40

    async def setUp(self) -> None:  # type: ignore[override]
        """Shorten the ring: objects of a real API server take time."""
        self.patch(store_module, "EVENT_LIMIT", self.ring)
        await super().setUp()

    def cluster(self, **marks: Any) -> Value:
        """Return a valid cluster."""
        return cluster_value(**marks)


class RealObjectTests(_HostCase):
    """Objects as other programs see and write them."""

    async def test_kubesphere(self) -> None:
        """A cluster that kubectl applies is there at once; writes keep its unknown fields."""
        obj = {key: part for key, part in KUBESPHERE.items() if key != "status"}
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(obj, file)
            file.flush()
            member().kubectl("apply", "-f", file.name)
        record = await _until(lambda: self.store.get("clusters", "alpha"), "the cluster is seen")
        self.assertNotIn("t" * 64, json.dumps(record.value))
        await self.host.client.patch(
            CLUSTERS, "alpha", {"status": KUBESPHERE["status"]}, subresource="status"
        )
        clusters = Clusters(self.store, range(6000, 6010), reactor)
        self.addCleanup(clusters.stop)
        ready = Condition("Available", "True", "Ready", "Fine.", 0.0)
        await clusters.set_conditions("alpha", [ready])
        await PortAssignment(self.store, clusters).assign_all()
        await clusters.set_enabled("alpha", enabled=False)
        stored = await self.host.client.get(CLUSTERS, "alpha")
        before = stored["metadata"]["resourceVersion"]
        await clusters.set_conditions("alpha", [ready])
        stored = await self.host.client.get(CLUSTERS, "alpha")
        self.assertEqual(stored["metadata"]["resourceVersion"], before)
        spec, status = dict(KUBESPHERE["spec"]), stored["status"]
        ports = {"kubernetesAPIServerPort": 6000, "kubesphereAPIServerPort": 16000}
        # The API server itself drops the null that kubectl sends.
        spec |= {"enable": False, "connection": {**spec["connection"], **ports}, "unknown": {"a": [1, {}]}}
        self.assertEqual(stored["spec"], spec)
        self.assertEqual(status["conditions"][:3], KUBESPHERE["status"]["conditions"])
        self.assertEqual([each["type"] for each in status["conditions"][3:]], ["Available"])
        self.assertEqual(status["nodeCount"], 3)
        shown = member().kubectl("get", "clusters")
        self.assertRegex(shown, r"(?m)^alpha +true +QKE +false +proxy +True")

    async def test_two_writers(self) -> None:
        """Changes of two programs at the same time all survive."""
        clusters = Clusters(self.store, None, reactor)
        self.addCleanup(clusters.stop)
        await clusters.add("alpha")

        async def other() -> None:
            for number in range(30):
                patch = {"metadata": {"labels": {f"other-{number}": "x"}}}
                await self.host.client.patch(CLUSTERS, "alpha", patch)
                await deferLater(reactor, 0.03)

        async def tower() -> None:
            for number in range(30):
                condition = Condition("Available", "True", f"R{number}", "Fine.", 0.0)
                await clusters.set_conditions("alpha", [condition])
                await clusters.set_enabled("alpha", enabled=bool(number % 2))

        await gatherResults([Deferred.fromCoroutine(other()), Deferred.fromCoroutine(tower())])
        found = await self.host.client.get(CLUSTERS, "alpha")
        self.assertEqual(len(found["metadata"]["labels"]), 30)
        self.assertEqual(found["status"]["conditions"][0]["reason"], "R29")
        await _until(lambda: len(clusters.require("alpha").labels) == 30, "all labels are seen")
        self.assertTrue(clusters.require("alpha").enabled)

    async def test_stale(self) -> None:
        """A write from before a change by kubectl fails."""
        old = await self.store.create("clusters", "alpha", cluster_value())
        await self.host.client.patch(CLUSTERS, "alpha", {"metadata": {"labels": {"a": "b"}}})
        update = self.store.update("clusters", "alpha", {**old.value, "enabled": False}, old.version)
        await self.assertFailure(update, RecordChanged)
        found = self.store.get("clusters", "alpha")
        assert found is not None
        self.assertEqual(found.value["labels"], {"a": "b"})

    async def test_removed_by_kubectl(self) -> None:
        """The records of a cluster that kubectl deletes are removed."""
        clusters = Clusters(self.store, None, reactor)
        self.addCleanup(clusters.stop)
        cluster = await clusters.add("alpha")
        await self.store.create("memberaccess", cluster.uid, {"cluster_uid": cluster.uid, "sealed": "x"})
        member().kubectl("delete", "cluster", "alpha")
        await _until(lambda: not self.store.snapshot("memberaccess"), "the records are removed")
        self.assertIsNone(clusters.get("alpha"))
        await _until(lambda: self.host._is_empty(SECRETS), "the Secret is removed")

    async def test_second_process(self) -> None:
        """A second store reads the same records, and follows the first."""
        await self.store.create("agentkeys", "0d-41/SHA256:Ab+/=", {"none": None, "x": 1.5})
        second = await self.load()
        self.assertEqual(
            {name: record.value for name, record in second.snapshot("agentkeys").items()},
            {name: record.value for name, record in self.store.snapshot("agentkeys").items()},
        )
        heard: list[Event] = []
        second.watch("agentkeys", heard.append)
        await self.store.delete("agentkeys", "0d-41/SHA256:Ab+/=")
        await _until(lambda: heard, "the second store sees the deletion")
        self.assertEqual([event.type for event in heard], ["DELETED"])


class RealObjectsWithoutStatusTests(RealObjectTests):
    """The same with a CRD without a status subresource, as KubeSphere Tower needs it."""

    has_status = False

    async def test_kubesphere(self) -> None:
        """Conditions are written with the object."""
        await self.host.client.create(CLUSTERS, json.loads(json.dumps(KUBESPHERE)))
        await _until(lambda: self.store.get("clusters", "alpha"), "the cluster is seen")
        clusters = Clusters(self.store, None, reactor)
        self.addCleanup(clusters.stop)
        await clusters.set_conditions("alpha", [Condition("Available", "True", "Ready", "Fine.", 0.0)])
        stored = await self.host.client.get(CLUSTERS, "alpha")
        self.assertEqual(stored["spec"], {**KUBESPHERE["spec"], "unknown": {"a": [1, {"b": None}]}})
        self.assertEqual(stored["status"]["conditions"][:3], KUBESPHERE["status"]["conditions"])
        self.assertEqual(stored["status"]["conditions"][3]["type"], "Available")


class RuleTests(_HostCase):
    """The validation rules of the CRDs."""

    async def test_rules(self) -> None:
        """Each rule rejects a bad change, with its text and the field, and allows a good one."""
        kinds = {kind.plural: kind for kind in _TYPES}
        for number, case in enumerate(RULE_CASES):
            kind = kinds[case.plural]
            namespace = NAMESPACE if kind.namespaced else None
            name = f"rule-{number}"
            await self.host.client.create(kind, {"metadata": {"name": name}, "spec": case.before}, namespace)
            try:
                await self.host.client.patch(kind, name, {"spec": case.bad}, namespace)
            except APIError as e:
                self.assertEqual(e.code, 422, e)
                self.assertRegex(e.message, rf'is invalid: spec\S*: Invalid value: [^"{{]*{case.message}"$')
            else:
                self.fail(f"not rejected: {case}")
            await self.host.client.patch(kind, name, {"spec": case.good}, namespace)


class CopyTests(_HostCase):
    """``tower store copy``."""

    async def tower(self, directory: Path, source: str, target: str) -> tuple[int, str]:
        """Run the command; return its exit code and its output."""
        words = ("--state-dir", str(directory), "store", "copy", "--from", source, "--to", target)
        access = ("--host-kubeconfig", str(member().admin))
        argv = ("-c", "from tower.cli import main; raise SystemExit(main())", *words, *access)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        out, errors, code = await getProcessOutputAndValue(sys.executable, argv, environment, reactor=reactor)
        return code, (out + errors).decode()

    async def test_both_ways(self) -> None:
        """Records and keys of a state directory are in the host cluster, and in another directory later."""
        first, second = Path(self.mktemp()).absolute(), Path(self.mktemp()).absolute()
        state = StateDir(first)
        for name in SHARED_FILES:
            state.write(name, name.encode())
        disk = SQLiteStore(reactor, first / DATABASE)
        clusters = Clusters(disk, range(6000, 6100), reactor)
        self.addCleanup(clusters.stop)
        alpha = await clusters.add("alpha", labels={"a": "b"})
        await disk.create("agentkeys", f"{alpha.uid}/SHA256:a/b", {"cluster_uid": alpha.uid, "seen": None})
        await disk.stop()
        code, text = await self.tower(first, "sqlite", "kubernetes")
        self.assertEqual(code, 0, text)
        self.assertIn("copied 3 records", text)
        await _until(lambda: self.store.snapshot("agentkeys"), "the records are seen")
        found = self.store.get("clusters", "alpha")
        assert found is not None
        self.assertEqual(found.value["uid"], alpha.uid)
        code, text = await self.tower(second, "kubernetes", "sqlite")
        self.assertEqual(code, 0, text)
        back = SQLiteStore(reactor, second / DATABASE)
        self.addCleanup(back.stop)
        for kind in KINDS:
            self.assertEqual(
                {name: record.value for name, record in back.snapshot(kind).items()},
                {name: record.value for name, record in disk.snapshot(kind).items()},
            )
        copied = StateDir(second)
        for name in SHARED_FILES:
            self.assertEqual(copied.read(name), name.encode())
        state.write(SHARED_FILES[0], b"other")
        code, text = await self.tower(first, "sqlite", "kubernetes")
        self.assertEqual(code, 1)
        self.assertIn("tower-state", text)
        member().kubectl("-n", NAMESPACE, "delete", "secret", "tower-state")


class LoadTests(_HostCase):
    """A host with many clusters."""

    has_status = False

    async def test_many(self) -> None:
        """Many clusters of KubeSphere load in time and memory."""
        await self.store.stop()
        waiting = iter(range(COUNT))

        async def create() -> None:
            for number in waiting:
                obj = json.loads(json.dumps(KUBESPHERE))
                obj["metadata"] |= {"name": f"c{number}", "finalizers": []}
                obj["spec"]["connection"]["kubeconfig"] = "QUJD" * 1500
                await self.host.client.create(CLUSTERS, obj)

        await gatherResults([Deferred.fromCoroutine(create()) for _ in range(8)])
        tracemalloc.start()
        try:
            own = OwnTime(servers=member().info["pids"].values())
            store = await self.load()
            took = own.passed()
            size = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        self.assertEqual(len(store.snapshot("clusters")), COUNT)
        self.assertLess(took, MOST_SECONDS)
        self.assertLess(size[1], MOST_BYTES)

"""The controller with a real API server as the host cluster, and with the store there."""

from __future__ import annotations

import base64
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from twisted.internet import reactor as global_reactor
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase

from tests.fakes.certificates import authority
from tests.integration.member import Running
from tower.clusters.host.host_object import ClusterCodec
from tower.clusters.records import Records
from tower.controller.controller import PROBE_PERIOD, Controller
from tower.controller.host_access import HostAccess
from tower.controller.kubeconfig_issuer import KubeconfigIssuer
from tower.controller.objects.host_cluster import ADDRESS_ANNOTATION, BALANCER_ANNOTATION, FINALIZER
from tower.controller.objects.service_objects import HostSettings
from tower.kube.kubeconfig import read_kubeconfig
from tower.kube.rest.host_api import Object
from tower.kube.rest.rest_client import RestClient
from tower.kube.rest.rest_config import RestConfig
from tower.proxy import QUARANTINE
from tower.reactor.clock import TimeOfDay
from tower.store.kinds import V1_TOKENS
from tower.store.kubernetes.host_kinds import NAMES, own_codecs, own_type
from tower.store.kubernetes.store import KubernetesStore
from tower.trust.vault import Vault

CRDS = Path(__file__).parent.parent.parent / "deploy" / "crds"
NAMESPACE = "kubesphere-system"
MANY = 15  # clusters that are applied at once
ADDRESSES = ("192.0.2.7", "2001:db8::7")  # of a proxy outside of the host cluster
PATIENCE = 60.0  # s
QUIET = 5.0  # s without a change
DELETIONS = 5
LOST = PROBE_PERIOD + 1.0  # s without the namespace
READS = frozenset(("get", "list", "watch"))


def manifest(name: str, annotations: dict[str, str] | None = None, **spec: Any) -> Object:
    """Return a cluster as its users apply it."""
    return {
        "apiVersion": "cluster.kubesphere.io/v1alpha1",
        "kind": "Cluster",
        "metadata": {"name": name, "annotations": annotations or {}},
        "spec": {"joinFederation": True, "connection": {"type": "proxy"}, **spec},
    }


class HostControllerTests(TestCase):
    """An API server with the CRDs and the namespace."""

    timeout = 300

    def setUp(self) -> None:
        """Start the API server with Tower's CRDs and the namespace."""
        self.folder = Path(tempfile.mkdtemp(prefix="tower-host-"))
        self.addCleanup(shutil.rmtree, self.folder, True)
        running = Running(self.folder, "--bare")
        self.addCleanup(running.halt)
        running.start()
        self.host = running.member
        self.host.kubectl("apply", f"--filename={CRDS}")
        self.host.kubectl("wait", "--for=condition=Established", "crd", "--all")
        self.host.kubectl("create", "namespace", NAMESPACE)
        now = time.time()
        self.authorities = authority("users", now=now), authority("serving", now=now)
        self.names: dict[str, tuple[str, ...]] = {}

    async def start(self) -> None:
        """Load the records and start the controller, as the leader does."""
        reactor: Any = global_reactor
        day = TimeOfDay(reactor)
        client = RestClient(reactor, RestConfig.from_kubeconfig(self.host.admin, reactor))
        self.addCleanup(client.close)
        codecs = [ClusterCodec(), *own_codecs()]
        store = await KubernetesStore.load(client, NAMESPACE, codecs, reactor)
        self.addCleanup(store.stop)
        vault = Vault(self.folder / "secrets.key", day.seconds)
        records = Records.of(store, vault, range(6000, 6100), day, 86400.0, QUARANTINE)
        self.addCleanup(records.stop)
        issuer = KubeconfigIssuer(records.credentials, *self.authorities, day.seconds)
        settings = HostSettings(selector=None, addresses=ADDRESSES)
        access = HostAccess(client, settings)
        controller = Controller(reactor, access, records, issuer, day.seconds, self._set_names)
        controller.startService()
        self.addCleanup(controller.stopService)
        self.records, self.controller, self.store = records, controller, store

    async def stop(self) -> None:
        """End the leader."""
        await self.controller.stopService()
        await self.store.stop()
        self.records.stop()

    def _set_names(self, cluster: str, names: Sequence[str]) -> None:
        self.names[cluster] = tuple(names)

    async def kubectl(self, *arguments: str, stdin: bytes = b"") -> str:
        """Run kubectl while the controller works."""
        return await deferToThread(self.host.kubectl, *arguments, stdin=stdin)

    async def apply(self, *objects: Object) -> None:
        """Apply objects."""
        listed = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        await self.kubectl("apply", "-f", "-", stdin=json.dumps(listed).encode())

    async def get(self, *arguments: str) -> Any:
        """Return objects."""
        return json.loads(await self.kubectl("-n", NAMESPACE, "get", *arguments, "-o", "json"))

    async def until(self, what: str, is_done: Callable[[], bool]) -> float:
        """Wait for the records; return how long it took, s."""
        began = time.monotonic()
        while not is_done():
            if time.monotonic() > began + PATIENCE:
                raise AssertionError(f"{what}: not within {PATIENCE:g} s: {self.controller.problems}")
            await self.pause(0.05)
        return time.monotonic() - began

    async def until_calm(self) -> None:
        """Wait until the last writes are done: those of events and conditions follow the others."""
        began = time.monotonic()
        size = -1
        while size < 0 or self.writes(size):
            self.assertLess(time.monotonic(), began + PATIENCE)
            size = self.host.audit_size()
            await self.pause(2.0)

    async def until_gone(self, *arguments: str) -> None:
        """Wait until an object does not exist."""
        began = time.monotonic()
        while await self.kubectl("-n", NAMESPACE, "get", *arguments, "--ignore-not-found", "-o", "name"):
            self.assertLess(time.monotonic(), began + PATIENCE, arguments)

    async def pause(self, seconds: float) -> None:
        """Let time pass."""
        reactor: Any = global_reactor
        await deferLater(reactor, seconds)

    def status(self, name: str, kind: str = "Initialized") -> str:
        """Return the status of a condition; empty without one."""
        cluster = self.records.clusters.get(name)
        found = None if cluster is None else cluster.condition(kind)
        return "" if found is None else found.status

    def writes(self, since: int) -> list[str]:
        """Return the controller's and the store's writes after byte *since* of the audit log."""
        return [
            f"{event['verb']} {event['requestURI']}"
            for event in self.host.audit(since)
            if event["verb"] not in READS
            and event["stage"] == "ResponseComplete"
            and event.get("userAgent", "").startswith("tower-proxy")
        ]

    async def test_controller(self) -> None:
        """Clusters that are applied, changed and deleted have the objects that KubeSphere expects."""
        connection = {"type": "proxy", "kubernetesAPIServerPort": 6010}
        await self.apply(*(manifest(f"c{number}", connection=connection) for number in range(MANY)))
        await self.start()
        await self.many_clusters()
        await self.one_cluster()

    async def one_cluster(self) -> None:
        """Export a cluster, switch it off and on, and delete it."""
        await self.apply(manifest("alpha"))
        taken = await self.until("initialized", lambda: self.status("alpha") == "True")
        self.assertLess(taken, 10.0)
        service, cluster = await self.get("service", "mc-alpha"), await self.get("cluster", "alpha")
        address, connection = service["spec"]["clusterIP"], cluster["spec"]["connection"]
        port = connection["kubernetesAPIServerPort"]
        targets = [each["targetPort"] for each in service["spec"]["ports"]]
        self.assertEqual(targets, [port, port + 10_000])
        for family, expected in zip(("ipv4", "ipv6"), ADDRESSES, strict=True):
            found = await self.get("endpointslice", f"mc-alpha-{family}")
            self.assertEqual(found["endpoints"][0]["addresses"], [expected])
            self.assertEqual(sorted(each["port"] for each in found["ports"]), targets)
        self.assertEqual(connection["kubernetesAPIEndpoint"], f"https://{address}:6443")
        self.assertNotIn("kubeconfig", connection)
        self.assertNotIn("token", connection)
        self.assertEqual(cluster["metadata"]["finalizers"], [FINALIZER])
        self.assertIn(address, self.names["alpha"])
        await self.until("names", lambda: "kubernetes.default.svc" in self.names["alpha"])
        secret = await self.get("secret", "mc-alpha")
        access = read_kubeconfig(base64.b64decode(secret["data"]["kubeconfig"]))
        self.assertEqual(access.server, f"https://{address}:6443")
        token = base64.b64decode(secret["data"]["token"]).decode()
        self.assertTrue(self.records.v1_tokens.check("alpha", token))
        await self.exported(address)
        await self.deleted_service(service)
        await self.off_and_on(port, address)
        await self.kubectl("delete", "cluster", "alpha", "--wait=true", f"--timeout={PATIENCE:g}s")
        await self.until_gone("service", "mc-alpha")
        await self.until_gone("secret", "mc-alpha")
        await self.other_type_and_name()
        await self.apply(manifest("beta"))
        await self.until("beta", lambda: self.status("beta") == "True")
        later = (await self.get("cluster", "beta"))["spec"]["connection"]["kubernetesAPIServerPort"]
        self.assertNotEqual(later, port)  # it is in quarantine
        await self.without_namespace()

    async def without_namespace(self) -> None:
        """Delete the namespace, as its controller would, and create it again."""
        tokens = self.records.v1_tokens.tokens("beta")
        secret = (await self.get("secret", "mc-beta"))["data"]["token"]
        ended: list[str] = []
        watch = self.records.store.watch(V1_TOKENS, lambda event: ended.append(event.type))
        self.addCleanup(watch.stop)
        await self.kubectl("delete", "namespace", NAMESPACE, "--wait=false")
        kinds = ["services", "secrets", "endpointslices", *(own_type(kind).name for kind in NAMES)]
        await self.kubectl("-n", NAMESPACE, "delete", ",".join(kinds), "--all", "--wait=false")
        await self.until("missing", lambda: self.reason("beta") == "NamespaceMissing")
        namespace = await self.get("namespace", NAMESPACE)
        namespace["spec"]["finalizers"] = []
        path = f"/api/v1/namespaces/{NAMESPACE}/finalize"
        await self.kubectl("replace", f"--raw={path}", "-f", "-", stdin=json.dumps(namespace).encode())
        await self.pause(LOST)  # attempts of the controller meanwhile
        self.assertEqual(self.reason("beta"), "NamespaceMissing")
        await self.kubectl("create", "namespace", NAMESPACE)
        await self.until("back", lambda: self.status("beta") == "True")
        self.assertEqual((ended, self.records.v1_tokens.tokens("beta")), ([], tokens))
        self.assertEqual((await self.get("secret", "mc-beta"))["data"]["token"], secret)
        await self.get("service", "mc-beta")
        began = time.monotonic()
        while len((await self.get(own_type(V1_TOKENS).name))["items"]) < len(self.records.v1_tokens.all()):
            self.assertLess(time.monotonic(), began + PATIENCE)

    def reason(self, name: str) -> str:
        """Return the reason of the condition."""
        found = self.records.clusters.require(name).condition("Initialized")
        return "" if found is None else found.reason

    async def other_type_and_name(self) -> None:
        """Check that a cluster that becomes a direct one is clean, and the status of an invalid name."""
        await self.apply(manifest("gamma"), manifest("a.b"))
        await self.until("gamma", lambda: self.status("gamma") == "True")
        direct = json.dumps({"spec": {"connection": {"type": "direct"}}})
        await self.kubectl("patch", "cluster", "gamma", "--type=merge", "-p", direct)
        await self.until_gone("service", "mc-gamma")
        began = time.monotonic()
        while (cluster := await self.get("cluster", "gamma"))["metadata"].get("finalizers"):
            self.assertLess(time.monotonic(), began + PATIENCE)
        self.assertEqual(cluster["status"].get("conditions", []), [])
        self.assertNotIn("kubernetesAPIEndpoint", cluster["spec"]["connection"])
        wanted = '--for=jsonpath={.status.conditions[?(@.type=="Available")].reason}=InvalidName'
        await self.kubectl("wait", "cluster", "a.b", wanted, f"--timeout={PATIENCE:g}s")

    async def exported(self, address: str) -> None:
        """Check the load balancer of alpha, and that it goes again."""
        note = {BALANCER_ANNOTATION: '{"cloud.example/kind":"nlb"}'}
        await self.apply(manifest("alpha", note, externalKubeAPIEnabled=True))
        await self.until("pending", lambda: self.status("alpha", "ExternalAccessReady") == "False")
        service = await self.get("service", "mc-alpha")
        self.assertEqual(service["spec"]["type"], "LoadBalancer")
        self.assertEqual(service["metadata"]["annotations"]["cloud.example/kind"], "nlb")
        status = {"status": {"loadBalancer": {"ingress": [{"hostname": "a.elb.example"}]}}}
        await self.kubectl(
            "-n", NAMESPACE, "patch", "service", "mc-alpha", "--subresource=status", "-p", json.dumps(status)
        )
        await self.until("ready", lambda: self.status("alpha", "ExternalAccessReady") == "True")
        cluster = await self.get("cluster", "alpha")
        endpoint = cluster["spec"]["connection"]["externalKubernetesAPIEndpoint"]
        self.assertEqual(endpoint, "https://a.elb.example:6443")
        self.assertIn("a.elb.example", self.names["alpha"])
        await self.until_observed()
        await self.apply(manifest("alpha", note))
        await self.until("unexported", lambda: self.status("alpha", "ExternalAccessReady") == "")
        service, cluster = await self.get("service", "mc-alpha"), await self.get("cluster", "alpha")
        self.assertEqual((service["spec"]["type"], service["spec"]["clusterIP"]), ("ClusterIP", address))
        self.assertNotIn("cloud.example/kind", service["metadata"].get("annotations", {}))
        self.assertNotIn("externalKubernetesAPIEndpoint", cluster["spec"]["connection"])

    async def until_observed(self) -> None:
        """Wait until the status has the generation of alpha."""
        began = time.monotonic()
        while True:
            cluster = await self.get("cluster", "alpha")
            if cluster["status"].get("observedGeneration") == cluster["metadata"]["generation"]:
                return
            self.assertLess(time.monotonic(), began + PATIENCE, cluster)
            await self.pause(0.2)

    async def deleted_service(self, before: Object) -> None:
        """Check that a Service that a user deletes is back with its ClusterIP."""
        for _ in range(DELETIONS):
            await self.kubectl("-n", NAMESPACE, "delete", "service", "mc-alpha")
            began = time.monotonic()
            while not await self.kubectl(
                "-n", NAMESPACE, "get", "service", "mc-alpha", "--ignore-not-found", "-o", "name"
            ):
                self.assertLess(time.monotonic(), began + PATIENCE)
            after = await self.get("service", "mc-alpha")
            self.assertEqual(after["spec"]["clusterIP"], before["spec"]["clusterIP"])
            self.assertNotEqual(after["metadata"]["uid"], before["metadata"]["uid"])

    async def off_and_on(self, port: int, address: str) -> None:
        """Check that `joinFederation` takes alpha's Service away, and brings it back with its ClusterIP."""
        await self.apply(manifest("alpha", joinFederation=False))
        await self.until("off", lambda: self.status("alpha") == "False")
        await self.until_gone("service", "mc-alpha")
        await self.until_gone("endpointslice", "mc-alpha-ipv4")
        await self.apply(manifest("alpha"))
        await self.until("on", lambda: self.status("alpha") == "True")
        service = await self.get("service", "mc-alpha")
        self.assertEqual(service["spec"]["ports"][0]["targetPort"], port)
        self.assertEqual(service["spec"]["clusterIP"], address)
        note = {ADDRESS_ANNOTATION: f"alpha/{await self.taken_address()}"}
        await self.apply(manifest("alpha", joinFederation=False))
        await self.until_gone("service", "mc-alpha")
        await self.until("off", lambda: self.status("alpha") == "False")
        await self.kubectl(
            "patch", "cluster", "alpha", "--type=merge", "-p", json.dumps({"metadata": {"annotations": note}})
        )
        await self.apply(manifest("alpha"))
        await self.until("on", lambda: self.status("alpha") == "True")

    async def taken_address(self) -> str:
        """Return the ClusterIP of another cluster's Service."""
        address: str = (await self.get("service", "mc-c0"))["spec"]["clusterIP"]
        return address

    async def many_clusters(self) -> None:
        """Check that clusters that were applied with one port get different ones; then nothing is written."""
        names = [f"c{number}" for number in range(MANY)]
        await self.until("all", lambda: all(self.status(name) == "True" for name in names))
        listed = (await self.get("clusters"))["items"]
        ports = {item["spec"]["connection"]["kubernetesAPIServerPort"] for item in listed}
        self.assertEqual(len(ports), MANY)
        await self.until_calm()
        self.assertGreater(len(self.writes(0)), MANY)
        size = self.host.audit_size()
        await self.pause(QUIET)
        await self.stop()
        await self.start()  # the next leader
        await self.until("all", lambda: all(self.status(name) == "True" for name in names))
        await self.pause(QUIET)
        self.assertEqual(self.writes(size), [])

"""Holes 7, 8, 15, 20, 21, 24 to 27, 29 and 30 with the clusters' objects in a host cluster."""

from __future__ import annotations

import base64
import json
import time
from typing import Any

from twisted.logger import capturedLogs, eventAsText

from tests.controller.kit import NAMESPACE, HostKit
from tests.fakes.certificates import authority, client_context, shake
from tests.holes.case import HoleTestCase
from tests.holes.towerkit import MemoryTower
from tower.clusters.condition_types import AGENT_AVAILABLE
from tower.controller.controller import Controller
from tower.controller.host_access import HostAccess
from tower.controller.objects.host_conditions import EXTERNAL_ACCESS_READY, INITIALIZED
from tower.kube.rest.host_api import Object
from tower.kube.rest.reflector_group import COLLECT
from tower.kube.rest.well_known import CLUSTERS, EVENTS, NAMESPACES, SERVICES
from tower.trust.port_certificates import PortCertificates
from tower.trust.serving_certificate import ServingCertificate
from tower.trust.statedir import StateDir

TOKEN = "0123456789abcdef" * 4


class HostTestCase(HoleTestCase):
    """Each test has a host cluster, a proxy with its controller there, and no clusters."""

    def setUp(self) -> None:
        """Start the proxy, then its controller."""
        self.tower = MemoryTower()
        self.addCleanup(self.tower.stop)
        self.kit = HostKit(self.mktemp(), clock=self.tower.machine, store=self.tower.store)
        self.addCleanup(self.kit.stop)
        now = time.time()  # which TLS clients look at
        self.authority = authority("serving", now=now)
        serving = ServingCertificate(
            StateDir(self.mktemp()), self.authority, authority("users", now=now), ["tower"], lambda: now
        )
        self.certificates = PortCertificates(serving)
        self.controller = self.started()

    def started(self) -> Controller:
        """Return a controller that has just started, as that of the next leader."""
        machine: Any = self.tower.machine
        controller = Controller(
            machine,
            HostAccess(self.kit.host, statuses=self.kit.statuses),
            self.kit.records,
            self.kit.issuer,
            machine.seconds,
            self.certificates.set_names,
        )
        controller.startService()
        self.addCleanup(controller.stopService)
        self.settle()
        return controller

    def apply(self, name: str = "alpha", /, **spec: Any) -> None:
        """Apply a cluster, and let the controller work."""
        self.kit.apply(name, **spec)
        self.settle()

    def settle(self, seconds: int = 1) -> None:
        """Let *seconds* pass, with all iterations of the reactor that are needed."""
        for _ in range(seconds):
            self.tower.sweep(1)
            for _ in range(20):
                self.tower.pump()

    def status(self, kind: str, name: str = "alpha") -> str:
        """Return the status of a condition in the cluster's object; empty without one."""
        conditions: list[Object] = self.kit.cluster(name).get("status", {}).get("conditions", [])
        return next((each["status"] for each in conditions if each["type"] == kind), "")

    def is_accepted(self, name: str) -> bool:
        """Return whether alpha's port proves to be *name*."""
        try:
            shake(self.certificates.context("alpha"), client_context(self.authority), name)
        except OSError:
            return False
        return True


class HostPortTests(HostTestCase):
    """Hole 7: ports in objects that other programs write."""

    def test_hole_07_ports_of_other_writers(self) -> None:
        """Hole 7: objects that were written at once with one port get different ones, and open no others."""
        names = [f"c{number}" for number in range(5)]
        for name in names:
            self.kit.apply(name, connection={"kubernetesAPIServerPort": 6003})
        self.settle(2)
        ports = [self.kit.connection(name)["kubernetesAPIServerPort"] for name in names]
        self.assertEqual(sorted(ports), [6000, 6001, 6002, 6003, 6004])
        self.assertEqual(sorted(self.tower.machine.open), sorted(ports))
        for name, port in zip(names, ports, strict=True):
            targets = [each["targetPort"] for each in self.kit.service(name)["spec"]["ports"]]
            self.assertEqual(targets, [port, port + 10_000])

    def test_hole_07_listed_again(self) -> None:
        """Hole 7: ports stay when the objects are listed again, also in the next leader."""
        for name in ("alpha", "beta"):
            self.apply(name, connection={"kubernetesAPIServerPort": 6003})
        ports = dict(self.tower.machine.open)
        writes = len(self.kit.host.writes)
        self.kit.host.compact()
        self.kit.host.end_watches(410)
        self.settle(5)
        self.controller.stopService()
        self.started()
        self.assertEqual(self.tower.machine.open, ports)
        self.assertEqual(self.kit.host.writes[writes:], [])

    def test_hole_07_no_port_of_the_system(self) -> None:
        """Hole 7: a port outside of the range, such as the proxy's own, is never opened for a cluster."""
        self.apply(connection={"kubernetesAPIServerPort": 443})
        self.assertEqual([number for number, _ in self.tower.machine.opened], [6000])


class HostCertificateTests(HostTestCase):
    """Holes 8 and 27: names of load balancers."""

    def test_hole_08_host_name_of_a_load_balancer(self) -> None:
        """Hole 8: a load balancer's host name is in the certificate and the object, without an agent."""
        self.apply(externalKubeAPIEnabled=True)
        self.kit.set_ingress("alpha", {"hostname": "a1b2.elb.example.com"})
        self.settle()
        self.assertTrue(self.is_accepted("a1b2.elb.example.com"))
        endpoint = self.kit.connection()["externalKubernetesAPIEndpoint"]
        self.assertEqual(endpoint, "https://a1b2.elb.example.com:6443")
        self.assertEqual(self.agent().service.state, "connected")

    def test_hole_27_a_name_that_comes_later(self) -> None:
        """Hole 27: names that come, change and go while an agent runs are in the certificate at once."""
        self.apply(externalKubeAPIEnabled=True)
        self.agent()
        address = self.kit.service()["spec"]["clusterIP"]
        for name in ("kubernetes", "kubernetes.default", "kubernetes.default.svc", address):
            self.assertTrue(self.is_accepted(name), name)
        for ingress, there, gone in (
            ({"ip": "192.0.2.7"}, "192.0.2.7", "other.example"),
            ({"hostname": "other.example"}, "other.example", "192.0.2.7"),
        ):
            self.kit.set_ingress("alpha", ingress)
            self.settle()
            self.assertEqual((self.is_accepted(there), self.is_accepted(gone)), (True, False))
        self.apply(externalKubeAPIEnabled=False)
        self.assertFalse(self.is_accepted("other.example"))


class HostWriteTests(HostTestCase):
    """Holes 15, 20, 21 and 29: writes and conditions."""

    def test_hole_15_no_work_for_a_reconnect(self) -> None:
        """Holes 15 and 20: agents that come and go cause no request and no write, and the port stays open."""
        self.apply()
        self.agent()
        self.settle(15)
        port, requests = self.tower.machine.open[6000], len(self.kit.host.requests)
        for _ in range(5):
            self.tower.lines[0].lose()
            self.settle(2)
            self.assertEqual(len(self.tower.tunnels.live("alpha")), 1)
        self.assertEqual(self.kit.host.requests[requests:], [])
        self.assertIs(self.tower.machine.open[6000], port)

    def test_hole_20_no_work_for_a_condition(self) -> None:
        """Hole 20: a lost agent changes the conditions, and the controller does nothing."""
        self.apply()
        agent = self.agent()
        self.settle(15)
        requests = len(self.kit.host.requests)
        agent.service.stopService()
        self.settle(30)
        self.assertEqual(self.status(AGENT_AVAILABLE), "False")
        self.assertEqual(self.kit.host.requests[requests:], [])

    def test_hole_21_the_next_leader(self) -> None:
        """Hole 21: another leader changes nothing, and the times of transition stay."""
        self.apply(externalKubeAPIEnabled=True)
        self.kit.set_ingress("alpha", {"ip": "192.0.2.7"})
        self.settle()
        before, writes = self.kit.cluster(), len(self.kit.host.writes)
        self.controller.stopService()
        self.settle(30)
        self.started()
        self.assertEqual(self.kit.host.writes[writes:], [])
        self.assertEqual(self.kit.cluster()["spec"], before["spec"])
        times = [
            (each["type"], each["lastTransitionTime"])
            for each in before["status"]["conditions"]
            if each["type"] in (INITIALIZED, EXTERNAL_ACCESS_READY)
        ]
        after = self.kit.cluster()["status"]["conditions"]
        self.assertEqual(len(times), 2)
        for kind, when in times:
            self.assertIn((kind, when), [(each["type"], each["lastTransitionTime"]) for each in after])

    def test_hole_29_after_a_crash(self) -> None:
        """Hole 29: the object of a cluster whose proxy crashed shows that its agent is not connected."""
        self.apply()
        self.agent()
        self.settle(15)
        self.assertEqual(self.status(AGENT_AVAILABLE), "True")
        again = MemoryTower(store=self.tower.store)
        self.addCleanup(again.stop)
        again.sweep(11)
        self.assertEqual(self.status(AGENT_AVAILABLE), "False")


class HostSecretTests(HostTestCase):
    """Hole 24."""

    def test_hole_24_secrets_are_in_secrets(self) -> None:
        """Hole 24: kubeconfig and token are in a Secret, which `get clusters` does not show."""
        self.apply(connection={"token": TOKEN})
        shown = json.dumps(self.kit.host.objects(CLUSTERS))
        data = self.kit.secret()["data"]
        for secret in (TOKEN, data["token"], data["kubeconfig"], 'kubeconfig": "'):
            self.assertNotIn(secret, shown)
        self.assertEqual(base64.b64decode(data["token"]).decode(), TOKEN)
        reference = self.kit.cluster()["metadata"]["annotations"]["tower.kubesphere.io/secret"]
        self.assertEqual(reference, f"{NAMESPACE}/mc-alpha")

    def test_hole_24_foreign_kubeconfig(self) -> None:
        """Hole 24: a kubeconfig that another program wrote to the object is moved, with an event."""
        foreign = base64.b64encode(b"kind: Config").decode()
        self.apply(connection={"token": TOKEN, "kubeconfig": foreign})
        self.assertNotIn(foreign, json.dumps(self.kit.host.objects(CLUSTERS)))
        self.assertEqual(self.kit.secret()["data"]["other-kubeconfig-1"], foreign)
        warnings = [event["reason"] for event in self.kit.host.objects(EVENTS) if event["type"] == "Warning"]
        self.assertEqual(warnings, ["KubeconfigMoved"])


class HostToggleTests(HostTestCase):
    """Holes 25 and 26: clusters that are switched off and on."""

    def test_hole_25_the_service_comes_back(self) -> None:
        """Hole 25: `joinFederation` off takes Service, port and tunnel away at once; on brings all back."""
        self.apply()
        agent = self.agent()
        self.apply(joinFederation=False)
        self.assertEqual(self.kit.host.objects(SERVICES), [])
        self.assertEqual((list(self.tower.machine.open), self.tower.tunnels.live("alpha")), ([], []))
        self.settle(10)
        self.apply()
        self.assertEqual(self.kit.service()["spec"]["ports"][0]["targetPort"], 6000)
        self.assertEqual((list(self.tower.machine.open), self.status(INITIALIZED)), ([6000], "True"))
        self.settle(120)
        self.assertEqual(agent.service.state, "connected")

    def test_hole_26_the_load_balancer_goes(self) -> None:
        """Hole 26: without `externalKubeAPIEnabled`, load balancer, endpoint and condition are removed."""
        self.apply(externalKubeAPIEnabled=True)
        self.kit.set_ingress("alpha", {"ip": "192.0.2.7"})
        self.settle()
        self.assertEqual(self.status(EXTERNAL_ACCESS_READY), "True")
        self.apply(externalKubeAPIEnabled=False)
        self.assertEqual(self.kit.service()["spec"]["type"], "ClusterIP")
        self.assertNotIn("externalKubernetesAPIEndpoint", self.kit.connection())
        self.assertEqual(self.status(EXTERNAL_ACCESS_READY), "")
        self.assertFalse(self.is_accepted("192.0.2.7"))


class HostPrerequisiteTests(HostTestCase):
    """Hole 30: prerequisites that are missing are reported, and used when they come."""

    def test_hole_30_no_namespace(self) -> None:
        """Hole 30: a missing namespace is in log, condition and event, and needs no restart."""
        self.kit.host.remove(NAMESPACES, NAMESPACE)
        with capturedLogs() as logs:
            self.apply()
        text = (
            "namespace kubesphere-system does not exist in the host cluster, or is being deleted: create it"
        )
        self.assertTrue(any(text in eventAsText(each) for each in logs))
        condition = self.kit.condition(INITIALIZED)
        assert condition is not None
        self.assertEqual((condition.status, condition.reason), ("False", "NamespaceMissing"))
        self.assertIn(text, condition.message)
        (event,) = self.kit.host.objects(EVENTS)
        self.assertEqual((event["type"], event["involvedObject"]["name"]), ("Warning", "alpha"))
        self.assertIn(text, event["message"])
        self.kit.host.put(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        self.settle(4)
        self.assertEqual((self.status(INITIALIZED), self.controller.problems), ("True", []))

    def test_hole_30_no_rights(self) -> None:
        """Hole 30: missing rights are in log, condition and event, and need no restart."""
        self.kit.host.fail_next(
            403, 'services "mc-alpha" is forbidden: User "x" cannot patch', plural="services", count=5
        )
        with capturedLogs() as logs:
            self.apply()
        self.assertTrue(any("cannot patch: grant it" in eventAsText(each) for each in logs))
        self.assertEqual([each["reason"] for each in self.kit.host.objects(EVENTS)][:1], ["Forbidden"])
        condition = self.kit.condition(INITIALIZED)
        assert condition is not None
        self.assertEqual((condition.status, condition.reason), ("False", "Forbidden"))
        self.assertIn("cannot patch: grant it the rights of 'tower rbac host", condition.message)
        self.settle(10)
        self.assertEqual((self.status(INITIALIZED), self.controller.problems), ("True", []))

    def test_hole_30_no_crd(self) -> None:
        """Hole 30: a missing CRD is in the log and in the problems for readiness, and may come later."""
        self.controller.stopService()
        self.kit.host.missing.add(CLUSTERS)
        with capturedLogs() as logs:
            controller = self.started()
            self.settle(int(COLLECT) + 1)
        self.assertTrue(any("clusters.cluster.kubesphere.io" in eventAsText(each) for each in logs))
        self.assertTrue(controller.problems)
        self.kit.host.missing.clear()
        self.settle(65)
        self.apply()
        self.assertEqual((self.status(INITIALIZED), controller.problems), ("True", []))

    def test_hole_30_lost_crd(self) -> None:
        """Hole 30: a CRD that is replaced under a running controller is in log, condition and event."""
        self.kit.host.fail_next(404, "page not found", verbs=["patch"], plural="clusters", count=5)
        text = "the CRD clusters.cluster.kubesphere.io is not installed in the host cluster: install it with"
        with capturedLogs() as logs:
            self.apply()
        self.assertTrue(any(text in eventAsText(each) for each in logs))
        condition = self.kit.condition(INITIALIZED)
        assert condition is not None
        self.assertEqual((condition.status, condition.reason), ("False", "CRDMissing"))
        (event,) = self.kit.host.objects(EVENTS)
        self.assertIn(text, event["message"])
        self.settle(10)
        self.assertEqual((self.status(INITIALIZED), self.controller.problems), ("True", []))

"""Tests of `tower.controller.objects.service_objects`."""

from __future__ import annotations

import json
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tower.controller.objects.differences import difference, without_removals
from tower.controller.objects.host_cluster import BALANCER_ANNOTATION, HostCluster
from tower.controller.objects.service_objects import (
    OWN_ANNOTATIONS,
    HostSettings,
    InvalidAnnotation,
    balancer_annotations,
    balancer_names,
    certificate_names,
    cluster_of,
    cluster_of_slice,
    slice_names,
    wanted_service,
    wanted_slices,
)

NLB = {"service.beta.kubernetes.io/aws-load-balancer-type": "nlb"}


def host_cluster(name: str = "alpha", annotation: str | None = None, **spec: Any) -> HostCluster:
    """Return a cluster of the host, as applied by its users."""
    annotations = {} if annotation is None else {BALANCER_ANNOTATION: annotation}
    metadata = {"name": name, "uid": f"uid-of-{name}", "resourceVersion": "7", "annotations": annotations}
    return HostCluster.of(
        {"metadata": metadata, "spec": {"joinFederation": True, "connection": {"type": "proxy"}, **spec}}
    )


class ServiceTests(SynchronousTestCase):
    """The Service of a cluster with the port 6007."""

    settings = HostSettings()

    def test_as_upstream(self) -> None:
        """Name, labels, selector and ports are those of KubeSphere Tower."""
        service = without_removals(wanted_service(host_cluster(), 6007, self.settings))
        self.assertEqual(service["metadata"]["name"], "mc-alpha")
        self.assertEqual(service["metadata"]["namespace"], "kubesphere-system")
        labels = service["metadata"]["labels"]
        self.assertEqual((labels["app"], labels["app.kubernetes.io/name"]), ("mc-alpha", "mc-alpha"))
        selector = service["spec"]["selector"]
        self.assertEqual((selector["app"], selector["app.kubernetes.io/name"]), ("tower", "tower"))
        self.assertEqual(service["spec"]["type"], "ClusterIP")
        ports = [(each["name"], each["port"], each["targetPort"]) for each in service["spec"]["ports"]]
        self.assertEqual(ports, [("kubernetes", 6443, 6007), ("kubesphere", 80, 16007)])

    def test_high_port(self) -> None:
        """A port so high that KubeSphere's would not exist has none for KubeSphere."""
        service = wanted_service(host_cluster(), 60_000, self.settings)
        self.assertEqual([each["targetPort"] for each in service["spec"]["ports"]], [60_000])

    def test_owner(self) -> None:
        """Kubernetes removes the Service with the cluster's object."""
        (owner,) = wanted_service(host_cluster(), 6007, self.settings)["metadata"]["ownerReferences"]
        self.assertEqual((owner["kind"], owner["name"], owner["uid"]), ("Cluster", "alpha", "uid-of-alpha"))

    def test_load_balancer(self) -> None:
        """An exported cluster has a load balancer with the annotations of upstream's annotation."""
        cluster = host_cluster(annotation=json.dumps(NLB), externalKubeAPIEnabled=True)
        service = wanted_service(cluster, 6007, self.settings)
        self.assertEqual(service["spec"]["type"], "LoadBalancer")
        self.assertEqual(service["metadata"]["annotations"], {**NLB, OWN_ANNOTATIONS: next(iter(NLB))})

    def test_annotations_of_others(self) -> None:
        """Annotations that came from the cluster's object go with it; those of a cloud stay."""
        exported = host_cluster(annotation=json.dumps(NLB), externalKubeAPIEnabled=True)
        service = without_removals(wanted_service(exported, 6007, self.settings))
        service["metadata"]["annotations"]["cloud"] = "x"
        self.assertEqual(difference(service, wanted_service(exported, 6007, self.settings, service)), {})
        other = host_cluster(annotation='{"b":"c"}', externalKubeAPIEnabled=True)
        patch = difference(service, wanted_service(other, 6007, self.settings, service))
        expected = {**dict.fromkeys(NLB), "b": "c", OWN_ANNOTATIONS: "b"}
        self.assertEqual(patch, {"metadata": {"annotations": expected}})
        patch = difference(service, wanted_service(host_cluster(), 6007, self.settings, service))
        removed = dict.fromkeys([*NLB, OWN_ANNOTATIONS])
        self.assertEqual(patch, {"metadata": {"annotations": removed}, "spec": {"type": "ClusterIP"}})

    def test_malformed_annotation(self) -> None:
        """A malformed annotation is rejected with its name; the load balancer has none of it."""
        for text in ("{", "[]", '{"a":1}', "null", "[" * 10_000):
            cluster = host_cluster(annotation=text, externalKubeAPIEnabled=True)
            error = self.assertRaises(InvalidAnnotation, balancer_annotations, cluster)
            self.assertIn(BALANCER_ANNOTATION, str(error))
            service = wanted_service(cluster, 6007, self.settings)
            self.assertEqual(
                (service["spec"]["type"], service["metadata"]["annotations"]), ("LoadBalancer", {})
            )
        self.assertEqual(balancer_annotations(host_cluster(annotation=" ")), {})

    def test_proxy_outside(self) -> None:
        """A proxy outside of the host is reached by EndpointSlices, one for each family."""
        settings = HostSettings(selector=None, addresses=("192.0.2.1", "2001:db8::1", "192.0.2.2"))
        cluster = host_cluster()
        current = {"spec": {"selector": {"app": "tower"}}}
        service = wanted_service(cluster, 6007, settings, current)
        self.assertEqual(service["spec"]["selector"], {"app": None})
        slices = wanted_slices(cluster, 6007, settings)
        self.assertEqual([each["metadata"]["name"] for each in slices], slice_names("alpha"))
        self.assertEqual([each["addressType"] for each in slices], ["IPv4", "IPv6"])
        first = slices[0]
        self.assertEqual(first["endpoints"][0]["addresses"], ["192.0.2.1", "192.0.2.2"])
        self.assertEqual(first["metadata"]["labels"]["kubernetes.io/service-name"], "mc-alpha")
        ports = [(each["name"], each["port"]) for each in first["ports"]]
        self.assertEqual(ports, [("kubernetes", 6007), ("kubesphere", 16007)])
        self.assertEqual(wanted_slices(cluster, 6007, self.settings), [])

    def test_names(self) -> None:
        """The names of the objects lead back to the cluster."""
        self.assertEqual(cluster_of("mc-alpha"), "alpha")
        self.assertEqual([cluster_of_slice(name) for name in slice_names("a-ipv4")], ["a-ipv4", "a-ipv4"])

    def test_load_balancer_names(self) -> None:
        """Addresses and host names of a load balancer are names of the certificate, as is the ClusterIP."""
        service: dict[str, Any] = {"spec": {"type": "LoadBalancer", "clusterIP": "10.0.0.9"}}
        self.assertEqual((balancer_names(service), certificate_names(service)), ([], ("10.0.0.9",)))
        ingress = [{"hostname": "a.elb.example"}, {"ip": "192.0.2.7", "hostname": "b.example"}, {}]
        service["status"] = {"loadBalancer": {"ingress": ingress}}
        self.assertEqual(balancer_names(service), ["a.elb.example", "192.0.2.7", "b.example"])
        service["spec"]["type"] = "ClusterIP"
        self.assertEqual(certificate_names(service), ("10.0.0.9",))
        self.assertEqual(certificate_names({"spec": {"clusterIP": "None"}}), ())
        self.assertEqual(certificate_names(None), ())


class HostClusterTests(SynchronousTestCase):
    """The parts of an object that count."""

    def test_served(self) -> None:
        """A cluster is served if it has joined; without `enable` it is enabled, as Go leaves it out."""
        self.assertTrue(host_cluster().is_served)
        self.assertTrue(host_cluster(enable=True).is_served)
        self.assertFalse(host_cluster(enable=False).is_served)
        self.assertFalse(host_cluster(joinFederation=False).is_served)
        self.assertFalse(host_cluster(connection={"type": "direct"}).is_served)

    def test_wrong_types(self) -> None:
        """Fields of a wrong type count as missing."""
        cluster = host_cluster(connection=[], externalKubeAPIEnabled="yes", joinFederation="true")
        self.assertEqual((cluster.type, cluster.is_exported, cluster.is_joined), ("", False, False))
        obj = {"metadata": {"name": "a", "uid": "u", "resourceVersion": "1"}, "spec": None, "status": "x"}
        self.assertFalse(HostCluster.of(obj).is_served)

    def test_status_does_not_count(self) -> None:
        """Two versions of an object that differ in status and generation only are equal."""
        metadata = {"name": "a", "uid": "u", "resourceVersion": "1", "generation": 1}
        obj: dict[str, Any] = {"metadata": metadata, "spec": {}, "status": {"conditions": []}}
        other = {**obj, "metadata": {**metadata, "resourceVersion": "2", "generation": 2}, "status": {}}
        self.assertEqual(HostCluster.of(obj), HostCluster.of(other))
        other["spec"] = {"externalKubeAPIEnabled": True}
        self.assertNotEqual(HostCluster.of(obj), HostCluster.of(other))

"""Tests of `tower.controller.objects.endpoints`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tower.controller.objects.endpoints import endpoints, server_url, with_endpoints
from tower.controller.objects.host_cluster import ADDRESS_ANNOTATION
from tower.kube.rest.host_api import Object

SERVICE: Object = {"spec": {"type": "ClusterIP", "clusterIP": "10.96.0.7"}}


class EndpointsTests(SynchronousTestCase):
    """The addresses of a Service."""

    def test_inside(self) -> None:
        """Without a load balancer, the external address is removed."""
        self.assertEqual(
            endpoints(SERVICE),
            {
                "kubernetesAPIEndpoint": "https://10.96.0.7:6443",
                "kubesphereAPIEndpoint": "http://10.96.0.7:80",
                "externalKubernetesAPIEndpoint": None,
            },
        )

    def test_external(self) -> None:
        """The first address of the load balancer is the external one."""
        ingress = [{"ip": "2001:db8::7"}]
        service = {"spec": {"type": "LoadBalancer", "clusterIP": "10.96.0.7"}}
        found = endpoints({**service, "status": {"loadBalancer": {"ingress": ingress}}})
        self.assertEqual(found["externalKubernetesAPIEndpoint"], "https://[2001:db8::7]:6443")

    def test_ipv6(self) -> None:
        """An IPv6 address has brackets."""
        self.assertEqual(server_url({"spec": {"clusterIP": "fd00::1"}}), "https://[fd00::1]:6443")

    def test_together(self) -> None:
        """The object also has the ports, and the cluster's name with the address; other fields stay."""
        access = {"metadata": {"annotations": {"x": "y"}}, "spec": {"connection": {"token": None}}}
        wanted = with_endpoints("alpha", access, SERVICE, 6000)
        self.assertEqual(wanted["metadata"]["annotations"], {"x": "y", ADDRESS_ANNOTATION: "alpha/10.96.0.7"})
        connection = wanted["spec"]["connection"]
        self.assertEqual((connection["token"], connection["kubesphereAPIServerPort"]), (None, 16000))
        self.assertEqual(access["metadata"], {"annotations": {"x": "y"}})

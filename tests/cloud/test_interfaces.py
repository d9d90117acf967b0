"""Tests of `tower.cloud.interfaces`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyClass, verifyObject

from tower.cloud.fake import FakeCloud
from tower.cloud.fake_network import FakeNetwork
from tower.cloud.interfaces import (
    EXTERNAL_IP,
    ICloudProvider,
    IClusters,
    IInstances,
    ILoadBalancer,
    Instance,
    IRoutes,
    ISSHKeyLease,
    IZones,
    NodeAddress,
    default_load_balancer_name,
)

#: The methods of each interface, with upstream's names.
METHODS = {
    ICloudProvider: "provider_name initialize stop instances zones clusters routes load_balancer"
    " has_cluster_id",
    IInstances: "node_addresses node_addresses_by_provider_id instance_id instance_type"
    " instance_type_by_provider_id add_ssh_key_to_all_instances current_node_name"
    " instance_exists_by_provider_id instance_shutdown_by_provider_id list_instances",
    ISSHKeyLease: "prepare_dial",
    IZones: "get_zone get_zone_by_provider_id get_zone_by_node_name",
    IClusters: "list_clusters master",
    IRoutes: "list_routes create_route delete_route",
    ILoadBalancer: "get_load_balancer get_load_balancer_name ensure_load_balancer update_load_balancer"
    " ensure_load_balancer_deleted",
}


class InterfaceTests(SynchronousTestCase):
    """The contracts."""

    def test_complete(self) -> None:
        """Each interface has upstream's methods, and each method has a docstring."""
        for interface, names in METHODS.items():
            self.assertEqual(sorted(interface.names()), sorted(names.split()), interface)
            for name in interface.names():
                self.assertTrue(interface[name].getDoc(), f"{interface}.{name}")

    def test_fake(self) -> None:
        """The fake cloud and its parts implement their interfaces."""
        cloud = FakeCloud()
        verifyObject(ICloudProvider, cloud)
        verifyObject(IInstances, cloud.instances())
        verifyObject(IZones, cloud.zones())
        verifyObject(IClusters, cloud.clusters())
        verifyObject(IRoutes, cloud.routes())
        verifyObject(ILoadBalancer, cloud.load_balancer())
        verifyClass(IRoutes, FakeNetwork)

    def test_records(self) -> None:
        """Equal records are equal, and hashable."""
        one = Instance("a", "fake://a", (NodeAddress(EXTERNAL_IP, "192.0.2.1"),))
        other = Instance("a", "fake://a", (NodeAddress(EXTERNAL_IP, "192.0.2.1"),))
        self.assertEqual(len({one, other}), 1)
        self.assertTrue(one.running)

    def test_load_balancer_name(self) -> None:
        """A load balancer's name is an a and the service's uid without dashes, 32 characters at most."""
        service = {"metadata": {"uid": "01234567-89ab-cdef-0123-456789abcdef"}}
        self.assertEqual(default_load_balancer_name(service), "a0123456789abcdef0123456789abcde")
        self.assertEqual(default_load_balancer_name({"metadata": {"uid": "1-2"}}), "a12")

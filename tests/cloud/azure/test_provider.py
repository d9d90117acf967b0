"""The provider azure against the resource manager's API, played by `tests.cloud.standins.azure`."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import CancelledError
from zope.interface.verify import verifyObject

from tests.cloud.asking import logged
from tests.cloud.azure.kit import AzureTestCase
from tests.cloud.standins.azure import GROUP, IDENTITY, SECRET, SUBSCRIPTION, Machine, error
from tests.cloud.standins.rest import Fault, Reply
from tower.cloud.azure.arm import AzureError
from tower.cloud.azure.provider import make
from tower.cloud.azure.tokens import NoToken
from tower.cloud.errors import CloudConfigError, CloudError, CloudUnreachable, InstanceNotFound
from tower.cloud.interfaces import (
    EXTERNAL_IP,
    HOSTNAME,
    INTERNAL_IP,
    ICloudProvider,
    IInstances,
    IZones,
    NodeAddress,
    Zone,
)

ABOVE = f"azure:///subscriptions/{SUBSCRIPTION}/resourceGroups/{GROUP}/providers/Microsoft.Compute"
NAMES = ["node-a", "node-b", "node-c", "pool000000", "pool000001"]
EVERYONE = f"/subscriptions/{SUBSCRIPTION}/providers/"


class ProviderTest(AzureTestCase):
    """Calls of every provider."""

    def test_interfaces(self) -> None:
        """Provider, instances and zones implement their interfaces; the rest is not supported."""
        provider = self.provider()
        verifyObject(ICloudProvider, provider)
        verifyObject(IInstances, provider.instances())
        verifyObject(IZones, provider.zones())
        for method in (provider.clusters, provider.routes, provider.load_balancer):
            self.assertIsNone(method())
        self.assertEqual((provider.provider_name(), provider.has_cluster_id()), ("azure", True))

    def test_no_configuration(self) -> None:
        """Without a configuration there is no provider."""
        self.assertRaises(CloudConfigError, make, None)


class ListTest(AzureTestCase):
    """Lists of machines."""

    def names(self, **keys: object) -> list[str]:
        """Return the names of the instances."""
        return [each.name for each in self.finish(self.instances(**keys).list_instances())]

    def test_list(self) -> None:
        """Machines, those of scale sets too, have name, provider id, type, zone and state."""
        found = self.finish(self.instances().list_instances())
        self.assertEqual([each.name for each in found], NAMES)
        self.assertEqual([each.running for each in found], [True, True, False, True, True])
        self.assertEqual(found[0].provider_id, f"{ABOVE}/virtualMachines/node-a")
        self.assertEqual(found[3].provider_id, f"{ABOVE}/virtualMachineScaleSets/pool/virtualMachines/0")
        self.assertEqual([each.zone.failure_domain for each in found[:2]], ["westeurope-1", ""])
        self.assertEqual((found[0].type, found[0].zone.region), ("Standard_D2s_v3", "westeurope"))

    def test_addresses(self) -> None:
        """Private addresses are internal, the primary one first, public ones external."""
        node_a = [
            NodeAddress(INTERNAL_IP, "10.0.0.4"),
            NodeAddress(EXTERNAL_IP, "203.0.113.4"),
            NodeAddress(INTERNAL_IP, "fd00::4"),
            NodeAddress(HOSTNAME, "node-a"),
        ]
        pool = [
            NodeAddress(INTERNAL_IP, "10.0.1.4"),
            NodeAddress(EXTERNAL_IP, "203.0.113.14"),
            NodeAddress(HOSTNAME, "pool000000"),
        ]
        instances = self.instances()
        self.assertEqual(list(self.finish(instances.node_addresses("node-a"))), node_a)
        self.assertEqual(list(self.finish(instances.node_addresses("POOL000000"))), pool)
        by_id = instances.node_addresses_by_provider_id(f"{ABOVE}/virtualMachines/NODE-A")
        self.assertEqual(list(self.finish(by_id)), node_a)

    def test_pages(self) -> None:
        """Every list goes on to its last page."""
        self.azure.machines = [
            *(Machine(f"node-{number}", f"10.0.0.{number}", f"203.0.113.{number}") for number in range(12)),
            *(
                Machine(f"p{number}", f"10.0.1.{number}", scale_set="p", number=str(number))
                for number in range(12)
            ),
        ]
        self.azure.page_size = 5
        found = self.finish(self.instances().list_instances())
        self.assertEqual(len(found), 24)
        self.assertTrue(all(each.running for each in found))
        self.assertEqual(found[11].addresses[1], NodeAddress(EXTERNAL_IP, "203.0.113.11"))
        self.assertEqual(self.azure.resource.refused, [])

    def test_flexible(self) -> None:
        """The machines of a flexible scale set are listed once, as stand-alone machines."""
        self.azure.flexible = ["flexible"]
        self.assertEqual(self.names(), NAMES)
        self.azure.machines.insert(0, Machine("flex_a1b2c3d4", "10.0.2.4", flexible="flexible"))
        self.assertEqual(self.names(), ["flexible000001", *NAMES])

    def test_empty(self) -> None:
        """A group without machines is an empty list."""
        self.azure.machines = []
        self.assertEqual(self.names(), [])

    def test_remembered(self) -> None:
        """The list of nodes, wanted each 15 s, costs Azure's questions no more than once a minute."""
        instances = self.instances()
        for _ in range(8):
            self.finish(instances.list_instances())
            self.clock.advance(15)
        self.assertEqual(self.azure.resource.count("GET", "/virtualMachineScaleSets"), 2)
        self.azure.machines.pop()
        self.clock.advance(60)
        self.assertEqual(len(self.finish(instances.list_instances())), 4)

    def test_group_alone(self) -> None:
        """Without permission for the subscription, each machine's state is requested, once a minute."""
        self.azure.denied = [EVERYONE]
        instances = self.instances()
        for _ in range(3):
            found = self.finish(instances.list_instances())
        self.assertEqual([each.running for each in found], [True, True, False, True, True])
        self.assertEqual(self.azure.resource.count("GET", "/instanceView"), 3)
        self.azure.machine("node-b").power = "stopped"
        self.clock.advance(60)
        self.assertFalse(self.finish(instances.list_instances())[1].running)

    def test_elsewhere(self) -> None:
        """A link that leads to another host, port or scheme is not followed: no token goes there."""
        self.azure.page_size = 1
        for elsewhere in (
            "http://evil.example",
            "http://azure.test:81",
            "https://azure.test",
            "http://a@azure.test",
        ):
            self.azure.elsewhere = elsewhere
            error = self.assertRaises(CloudError, self.names)
            self.assertIn("it is not followed", str(error))

    def test_usual_port(self) -> None:
        """Links that name the port that goes without saying, as those of scale sets do, are followed."""
        self.azure.page_size = 1
        self.azure.elsewhere = "http://AZURE.test:80"
        self.assertEqual(self.names(), NAMES)

    def test_endless(self) -> None:
        """A list that never ends is given up."""
        page = {"value": [], "nextLink": "http://azure.test/x?api-version=2024-07-01"}
        self.azure.resource.faults = [
            Fault(Reply(200, page), 10_000, "virtualMachines"),
            Fault(Reply(200, page), 10_000, "/x"),
        ]
        self.assertIn("500 pages", str(self.assertRaises(CloudError, self.names)))


class QuestionsTest(AzureTestCase):
    """Calls for one machine."""

    def test_by_name(self) -> None:
        """A node has an id and a type by its name."""
        instances = self.instances()
        self.assertEqual(self.finish(instances.instance_id("node-b")), f"{ABOVE[8:]}/virtualMachines/node-b")
        self.assertEqual(self.finish(instances.instance_type("pool000001")), "Standard_D2s_v3")
        zone = self.zones().get_zone_by_node_name("pool000001")
        self.assertEqual(self.finish(zone), Zone("westeurope-3", "westeurope"))

    def test_by_provider_id(self) -> None:
        """A machine has a type and a zone by its provider id."""
        provider_id = f"{ABOVE}/virtualMachines/node-a"
        self.assertEqual(
            self.finish(self.instances().instance_type_by_provider_id(provider_id)), "Standard_D2s_v3"
        )
        zone = self.zones().get_zone_by_provider_id(provider_id)
        self.assertEqual(self.finish(zone), Zone("westeurope-1", "westeurope"))

    def test_remembered(self) -> None:
        """Calls use data of the last minute; a machine that is not in it is requested at once."""
        instances = self.instances()
        self.finish(instances.node_addresses("node-a"))
        before = len(self.azure.resource.asks)
        self.finish(instances.node_addresses("node-b"))
        self.assertEqual(len(self.azure.resource.asks), before)
        self.azure.machines.append(Machine("node-d", "10.0.0.7"))
        self.finish(instances.node_addresses("node-d"))
        self.azure.machine("node-a").private = "10.0.0.44"
        self.clock.advance(60)
        self.assertEqual(self.finish(instances.node_addresses("node-a"))[0].address, "10.0.0.44")

    def test_not_found(self) -> None:
        """A missing machine is not found, with upstream's text."""
        gone = f"{ABOVE}/virtualMachines/gone"
        instances = self.instances()
        for asked in (
            instances.node_addresses("gone"),
            instances.instance_id("gone"),
            instances.instance_type_by_provider_id(gone),
            instances.instance_shutdown_by_provider_id(gone),
            self.zones().get_zone_by_provider_id(gone),
        ):
            error = self.assertRaises(InstanceNotFound, self.finish, asked)
            self.assertEqual(str(error), "instance not found")

    def test_exists(self) -> None:
        """A stopped machine exists; an uncertain result is an error, not False."""
        exists = self.instances().instance_exists_by_provider_id
        self.assertTrue(self.finish(exists(f"{ABOVE}/virtualMachines/node-c")))
        self.assertTrue(self.finish(exists(f"{ABOVE}/virtualMachineScaleSets/pool/virtualMachines/1")))
        self.assertFalse(self.finish(exists(f"{ABOVE}/virtualMachineScaleSets/pool/virtualMachines/7")))
        for wrong in (
            "aws:///us-east-1a/i-0123456789abcdef0",
            f"{ABOVE}/virtualMachines/a/b",
            f"{ABOVE}/virtualMachines/..",
            ABOVE.replace(SUBSCRIPTION, "another") + "/virtualMachines/node-a",
            f"{ABOVE}/virtualMachines/node-a?x=",
        ):
            self.assertRaises(CloudError, self.finish, exists(wrong))
        for fault in (error(404, "SubscriptionNotFound"), Reply(404), error(403, "AuthorizationFailed")):
            self.azure.resource.faults = [Fault(fault)]
            asked = exists(f"{ABOVE}/virtualMachines/node-a")
            self.assertRaises(AzureError, self.finish, asked)

    def test_shutdown(self) -> None:
        """A deallocated machine is shut down, a running one is not."""
        shutdown = self.instances().instance_shutdown_by_provider_id
        self.assertTrue(self.finish(shutdown(f"{ABOVE}/virtualMachines/node-c")))
        self.assertFalse(self.finish(shutdown(f"{ABOVE}/virtualMachineScaleSets/pool/virtualMachines/1")))

    def test_here(self) -> None:
        """The node's name is the host name, and the zone is the metadata service's."""
        self.assertEqual(self.finish(self.instances().current_node_name("me")), "me")
        self.assertEqual(self.finish(self.zones().get_zone()), Zone("westeurope-2", "westeurope"))


class TokenTest(AzureTestCase):
    """Tokens, and what is done without."""

    def logins(self) -> int:
        """Return how many tokens were given."""
        return len(self.azure.tokens)

    def test_secret(self) -> None:
        """One token, for the client's secret, serves until shortly before its end."""
        instances = self.instances()
        for _ in range(22):
            self.finish(instances.list_instances())
            self.clock.advance(300)
        self.assertEqual(self.azure.resource.refused, [])
        self.assertIn(self.logins(), (2, 3))

    def test_managed_identity(self) -> None:
        """A machine with an identity gets its token from the metadata service, by client id too."""
        for keys in ({}, {"userAssignedIdentityID": IDENTITY}):
            managed = self.instances(
                useManagedIdentityExtension=True,
                aadClientId=None,
                aadClientSecret=None,
                tenantId=None,
                **keys,
            )
            self.assertEqual(len(self.finish(managed.list_instances())), 5)
        self.assertEqual(self.azure.resource.count("POST", "/token"), 0)

    def test_no_identity(self) -> None:
        """A missing identity or metadata service is an error within seconds."""
        other = self.instances(useManagedIdentityExtension=True, userAssignedIdentityID="other")
        error = self.assertRaises(NoToken, self.finish, other.list_instances())
        self.assertIn("Identity not found", str(error))
        self.azure.resource.faults = [Fault(None, 100, "/metadata/")]
        before = self.clock.seconds()
        managed = self.instances(useManagedIdentityExtension=True)
        error = self.assertRaises(NoToken, self.finish, managed.list_instances())
        self.assertIn("no token for the managed identity, no metadata service", str(error))
        self.assertLess(self.clock.seconds() - before, 60)

    def test_busy_metadata(self) -> None:
        """A metadata service that is being updated, which answers 410 or 404, is asked again."""
        self.azure.resource.faults = [Fault(Reply(410)), Fault(Reply(404)), Fault(Reply(429))]
        managed = self.instances(useManagedIdentityExtension=True)
        self.assertEqual(len(self.finish(managed.list_instances())), 5)

    def test_revoked(self) -> None:
        """A token that is refused is replaced, once."""
        instances = self.instances()
        self.finish(instances.list_instances())
        self.azure.tokens.clear()
        self.clock.advance(60)
        self.finish(instances.list_instances())
        self.assertEqual(len(self.azure.resource.refused), 1)
        self.azure.audience = "https://graph.microsoft.com/"
        self.azure.tokens.clear()
        self.clock.advance(60)
        error = self.assertRaises(AzureError, self.finish, instances.list_instances())
        self.assertIn("InvalidAuthenticationTokenAudience", str(error))

    def test_wrong_secret(self) -> None:
        """A wrong secret is Azure's word for it, without the secret, though Azure quotes it."""
        wrong = "wr0ng~secret-of-the-client"
        with logged() as lines:
            instances = self.instances(aadClientSecret=wrong)
            error = self.assertRaises(NoToken, self.finish, instances.list_instances())
        self.assertIn("invalid_client: AADSTS7000215: Invalid client secret provided: …", str(error))
        for text in (str(error), *lines):
            self.assertNotIn(wrong, text)

    def test_garbage(self) -> None:
        """An invalid token is an error, and is not quoted."""
        bodies: list[Any] = [
            [],
            {},
            {"access_token": "s3 cr3t", "expires_in": 1},
            {"access_token": "s3cr3t"},
            {"x": 1},
        ]
        for body in bodies:
            self.azure.resource.faults = [Fault(Reply(200, body), 1, "/token")]
            error = self.assertRaises(CloudError, self.finish, self.instances().list_instances())
            self.assertIn("has no token", str(error))
            self.assertNotIn("cr3t", str(error))


class TroubleTest(AzureTestCase):
    """Errors."""

    def error(self, kind: type[Exception] = AzureError) -> str:
        """Return the error of a listing."""
        return str(self.assertRaises(kind, self.finish, self.instances().list_instances()))

    def test_denied(self) -> None:
        """A missing permission is an error with Azure's code and message."""
        self.azure.denied = ["/subscriptions/"]
        self.assertIn("AuthorizationFailed: does not have authorization", self.error())

    def test_throttled(self) -> None:
        """After a Retry-After of 17 s, the retry is not earlier."""
        self.azure.resource.faults = [
            Fault(error(429, "TooManyRequests", "", Retry_After="17"), 1, "virtualMachines")
        ]
        before = self.clock.seconds()
        self.assertEqual(len(self.finish(self.instances().list_instances())), 5)
        self.assertGreaterEqual(self.clock.seconds() - before, 17)

    def test_left_alone(self) -> None:
        """After a Retry-After of minutes, no request is sent before that time."""
        instances = self.instances()
        self.azure.resource.faults = [
            Fault(error(429, "TooManyRequests", "", Retry_After="400"), 100, "virtualMachines")
        ]
        self.assertRaises(AzureError, self.finish, instances.list_instances())
        self.azure.resource.faults.clear()
        asked = len(self.azure.resource.asks)
        for _ in range(13):
            error_ = self.assertRaises(AzureError, self.finish, instances.list_instances())
            self.assertIn("Azure throttles requests for", str(error_))
            self.clock.advance(30)
        self.assertRaises(AzureError, self.finish, instances.instance_id("node-a"))
        self.assertEqual(len(self.azure.resource.asks), asked)
        self.clock.advance(10)
        self.assertEqual(len(self.finish(instances.list_instances())), 5)

    def test_garbage(self) -> None:
        """Responses that are not lists of machines are errors."""
        bodies: list[Any] = [
            b"<html>",
            b"",
            [],
            {},
            {"value": 1},
            {"value": [1]},
            {"value": [{}]},
            {"value": [{"id": "/etc/passwd"}]},
        ]
        for body in bodies:
            self.azure.resource.faults = [Fault(Reply(200, body), 1, "/virtualMachines")]
            self.error(CloudError)

    def test_silence(self) -> None:
        """A request without a response times out."""
        self.azure.resource.faults = [Fault(None, 1000)]
        before = self.clock.seconds()
        self.assertIn("no answer within", self.error(CloudUnreachable))
        self.assertLess(self.clock.seconds() - before, 200)

    def test_stop(self) -> None:
        """A provider that is stopped gives up what it asks."""
        provider = self.provider()
        found = provider.instances()
        self.azure.resource.faults = [Fault(None, 1000, "/subscriptions/")]
        self.clock.callLater(1, provider.stop)
        self.assertRaises(CancelledError, self.finish, found.list_instances(), 10)

    def test_nothing_secret(self) -> None:
        """Neither the secret nor a token is in an error, in the log or in a repr."""
        provider = self.provider()
        found = provider.instances()
        with logged() as lines:
            self.finish(found.list_instances())
            self.clock.advance(60)
            self.azure.resource.faults = [Fault(Reply(503), 1000)]
            texts = [str(self.assertRaises(CloudError, self.finish, found.list_instances()))]
            texts += [repr(provider), repr(vars(provider)), repr(vars(found)), repr(provider.zones())]
        self.assertTrue(lines)
        for text in (*lines, *texts):
            for secret in (SECRET, *self.azure.tokens):
                self.assertNotIn(secret, text)

"""The provider aws against EC2's API, played by `tests.cloud.standins.aws`."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs

from twisted.internet.defer import CancelledError
from zope.interface.verify import verifyObject

from tests.cloud.asking import logged
from tests.cloud.aws.kit import ENVIRON, A, AWSTestCase, B, C
from tests.cloud.standins.aws import EC2_PATH, KEY, SECRET, Credentials, Machine
from tests.cloud.standins.rest import Fault, Reply
from tower.cloud.aws.api import AWSError
from tower.cloud.errors import CloudError, CloudUnreachable, InstanceNotFound
from tower.cloud.interfaces import (
    EXTERNAL_DNS,
    EXTERNAL_IP,
    HOSTNAME,
    INTERNAL_DNS,
    INTERNAL_IP,
    ICloudProvider,
    IInstances,
    ISSHKeyLease,
    IZones,
    NodeAddress,
    Zone,
)

NODE_A, NODE_B, NODE_C = (f"ip-10-0-0-{number}.ec2.internal" for number in (1, 2, 3))


class ProviderTest(AWSTestCase):
    """Calls of every provider."""

    def test_interfaces(self) -> None:
        """Provider, instances and zones implement their interfaces; the rest is not supported."""
        provider = self.provider()
        verifyObject(ICloudProvider, provider)
        verifyObject(IInstances, provider.instances())
        verifyObject(ISSHKeyLease, provider.instances())
        verifyObject(IZones, provider.zones())
        for method in (provider.clusters, provider.routes, provider.load_balancer):
            self.assertIsNone(method())
        self.assertEqual(provider.provider_name(), "aws")

    def test_cluster_id(self) -> None:
        """The cluster's id is known if the configuration has its tag or its id."""
        self.assertTrue(self.provider("KubernetesClusterID = x").has_cluster_id())
        self.assertTrue(self.provider("KubernetesClusterTag = x").has_cluster_id())
        self.assertFalse(self.provider("VPC = vpc-1").has_cluster_id())


class ListTest(AWSTestCase):
    """Lists of instances."""

    def names(self, text: str) -> list[str]:
        """Return the names of the instances that a configuration selects."""
        return [each.name for each in self.finish(self.instances(text).list_instances())]

    def test_list(self) -> None:
        """An instance has name, provider id, type, zone and state as EC2 has them."""
        found = self.finish(self.instances().list_instances())
        self.assertEqual([each.name for each in found], [NODE_A, NODE_B, NODE_C])
        self.assertEqual([each.running for each in found], [True, True, False])
        self.assertEqual(found[1].provider_id, f"aws:///us-east-1b/{B}")
        self.assertEqual((found[1].type, found[1].zone), ("t3.small", Zone("us-east-1b", "us-east-1")))

    def test_addresses(self) -> None:
        """Private and IPv6 addresses are internal, public ones external, both names are there, each once."""
        wanted = [
            NodeAddress(INTERNAL_IP, "10.0.0.1"),
            NodeAddress(INTERNAL_IP, "10.0.0.101"),
            NodeAddress(INTERNAL_IP, "2001:db8::1"),
            NodeAddress(EXTERNAL_IP, "203.0.113.1"),
            NodeAddress(INTERNAL_DNS, NODE_A),
            NodeAddress(HOSTNAME, NODE_A),
            NodeAddress(EXTERNAL_DNS, "ec2-203-0-113-1.compute-1.amazonaws.com"),
        ]
        self.assertEqual(list(self.finish(self.instances().node_addresses(NODE_A))), wanted)
        by_id = self.instances().node_addresses_by_provider_id(f"aws:///us-east-1a/{A}")
        self.assertEqual(list(self.finish(by_id)), wanted)

    def test_pages(self) -> None:
        """All pages are listed, with the same parameters."""
        self.aws.machines = [Machine(f"i-{number:017x}", f"10.1.{number}.1") for number in range(23)]
        self.aws.page_size = 5
        self.assertEqual(len(self.names("KubernetesClusterID = beta")), 23)
        self.assertEqual(self.aws.resource.count("POST", EC2_PATH), 5)
        self.assertEqual(self.aws.resource.refused, [])

    def test_large_pages(self) -> None:
        """If pods have addresses of the VPC, pages are large: smaller ones are requested from then on."""
        self.aws.machines = [Machine(f"i-{number:017x}", "10.1.0.1", pods=750) for number in range(110)]
        instances = self.instances()
        for asked in ([200, 50, 50, 50], [50, 50, 50]):
            self.aws.resource.asks.clear()
            found = self.finish(instances.list_instances())
            self.assertEqual((len(found), len(found[0].addresses)), (110, 753))
            forms = [parse_qs(ask.body.decode()) for ask in self.aws.resource.asks]
            self.assertEqual([int(form["MaxResults"][0]) for form in forms], asked)

    def test_terminated(self) -> None:
        """Terminated instances are not listed."""
        self.aws.machine(A).state = "terminated"
        self.assertEqual(self.names("KubernetesClusterID = beta"), [NODE_B, NODE_C])

    def test_selection(self) -> None:
        """Cluster id, cluster tag, VPC, subnet and filters each select; several have to hold all."""
        a, b, c = self.aws.machines
        a.tags, b.tags, c.tags = {"KubernetesCluster": "old"}, {"kubernetes.io/cluster/new": "shared"}, {}
        a.vpc, b.subnet, c.type = "vpc-a", "subnet-b", "c5.large"
        for text, wanted in {
            "KubernetesClusterTag = old": [NODE_A],
            "KubernetesClusterID = new": [NODE_B],
            "KubernetesClusterID = new\nKubernetesClusterTag = old": [NODE_B],
            "VPC = vpc-a": [NODE_A],
            "SubnetID = subnet-b": [NODE_B],
            "InstanceFilter = instance-type=c5.large,m5.large": [NODE_A, NODE_C],
            "VPC = vpc-1\nSubnetID = subnet-1": [NODE_C],
        }.items():
            self.assertEqual((text, self.names(text)), (text, wanted))

    def test_no_selection(self) -> None:
        """Without a selection no instances are the cluster's, and no request is sent."""
        error = self.assertRaises(CloudError, self.finish, self.instances("").list_instances())
        self.assertIn("KubernetesClusterID", str(error))
        self.assertEqual(self.aws.resource.asks, [])


class QuestionsTest(AWSTestCase):
    """Calls for one instance."""

    def test_by_name(self) -> None:
        """A node has an id and a type by its private name, or by its instance's id."""
        for name in (NODE_B, B):
            self.assertEqual(self.finish(self.instances().instance_id(name)), f"/us-east-1b/{B}")
            self.assertEqual(self.finish(self.instances().instance_type(name)), "t3.small")
        zone = self.zones().get_zone_by_node_name(NODE_B)
        self.assertEqual(self.finish(zone), Zone("us-east-1b", "us-east-1"))

    def test_by_provider_id(self) -> None:
        """A machine has a type and a zone by its provider ID, which may have another zone."""
        for provider_id in (f"aws:///us-east-1b/{B}", f"aws:///{B}", B):
            kind = self.instances().instance_type_by_provider_id(provider_id)
            self.assertEqual(self.finish(kind), "t3.small")
        zone = self.zones().get_zone_by_provider_id(f"aws:///us-east-1b/{B}")
        self.assertEqual(self.finish(zone), Zone("us-east-1b", "us-east-1"))

    def test_not_found(self) -> None:
        """A missing instance is not found, with upstream's text."""
        gone = "aws:///us-east-1a/i-0d0d0d0d0d0d0d0d0"
        instances, zones = self.instances(), self.zones()
        for asked in (
            instances.node_addresses("ip-10-9-9-9.ec2.internal"),
            instances.instance_id("nobody"),
            instances.instance_type_by_provider_id(gone),
            instances.instance_shutdown_by_provider_id(gone),
            instances.instance_type("i-0d0d0d0d0d0d0d0d0"),
            zones.get_zone_by_provider_id(gone),
        ):
            error = self.assertRaises(InstanceNotFound, self.finish, asked)
            self.assertEqual(str(error), "instance not found")

    def test_exists(self) -> None:
        """A stopped machine exists, a terminated one does not; an invalid ID is an error."""
        self.aws.machine(A).state = "terminated"
        exists = self.instances().instance_exists_by_provider_id
        self.assertFalse(self.finish(exists(f"aws:///us-east-1a/{A}")))
        self.assertFalse(self.finish(exists("aws:///us-east-1a/i-0d0d0d0d0d0d0d0d0")))
        self.assertTrue(self.finish(exists(f"aws:///us-east-1a/{C}")))
        for wrong in ("gce://project/zone/name", "aws:///us-east-1a/", "aws:///a/b/" + A):
            self.assertRaises(CloudError, self.finish, exists(wrong))

    def test_shutdown(self) -> None:
        """A stopped machine is shut down, a running one is not."""
        shutdown = self.instances().instance_shutdown_by_provider_id
        self.assertTrue(self.finish(shutdown(f"aws:///us-east-1a/{C}")))
        self.assertFalse(self.finish(shutdown(f"aws:///us-east-1a/{A}")))

    def test_here(self) -> None:
        """Name and zone of where we are come from the metadata service, the zone from the file if there."""
        self.assertEqual(self.finish(self.instances().current_node_name("me")), "ip-10-0-0-99.ec2.internal")
        self.assertEqual(self.finish(self.zones().get_zone()), Zone("us-east-1a", "us-east-1"))
        self.assertEqual(
            self.finish(self.zones("Zone = us-east-1f").get_zone()), Zone("us-east-1f", "us-east-1")
        )

    def test_region(self) -> None:
        """The region is that of the zone, the environment's, or that of the instance that we are on."""
        for text, environ in (
            ("VPC = vpc-1\nZone = us-east-1b", ENVIRON),
            ("VPC = vpc-1", {**ENVIRON, "AWS_REGION": "us-east-1"}),
            ("VPC = vpc-1", {**ENVIRON, "AWS_DEFAULT_REGION": "us-east-1"}),
            ("VPC = vpc-1", ENVIRON),
        ):
            found = self.provider(text, environ, region="").instances()
            self.assertEqual(len(self.finish(found.list_instances())), 3)
        self.assertEqual(self.aws.resource.count("GET", "placement/region"), 1)

    def test_no_region(self) -> None:
        """If the region is unknown or invalid, the error names the setting."""
        for environ in (ENVIRON, {**ENVIRON, "AWS_REGION": "evil.example/"}):
            self.aws.resource.faults = [Fault(Reply(404), 1000, "/latest/")]
            error = self.assertRaises(
                CloudError, self.finish, self.instances(environ=environ, region="").list_instances()
            )
            self.assertIn("the region is unknown: set Region or Zone", str(error))
        self.assertEqual(self.aws.resource.count("POST", EC2_PATH), 0)


class TroubleTest(AWSTestCase):
    """Errors."""

    def fail_to_list(self, kind: type[Exception] = AWSError, **kw: Any) -> str:
        """Return the error of a listing."""
        return str(self.assertRaises(kind, self.finish, self.instances(**kw).list_instances()))

    def test_denied(self) -> None:
        """A missing permission is an error with AWS's code, without retries."""
        self.aws.denied = {"DescribeInstances"}
        error = self.fail_to_list()
        self.assertIn("ec2 DescribeInstances: UnauthorizedOperation: You are not authorized", error)
        self.assertEqual(self.aws.resource.count("POST", EC2_PATH), 1)

    def test_throttled(self) -> None:
        """After throttling, a request is retried later."""
        body = (
            b"<Response><Errors><Error><Code>RequestLimitExceeded</Code>"
            b"<Message>Request limit exceeded.</Message></Error></Errors></Response>"
        )
        self.aws.resource.faults = [Fault(Reply(503, body), 2), Fault(Reply(400, body), 1)]
        before = self.clock.seconds()
        self.assertEqual(len(self.finish(self.instances().list_instances())), 3)
        self.assertEqual(self.aws.resource.count("POST", EC2_PATH), 4)
        self.assertGreater(self.clock.seconds(), before)

    def test_wrong_secret(self) -> None:
        """A wrong secret is named as the cause; AWS's quotes of the request are not repeated."""
        self.aws.credentials[KEY] = Credentials("another")
        error = self.fail_to_list()
        self.assertEqual(
            error,
            "ec2 DescribeInstances: SignatureDoesNotMatch: check the secret key",
        )

    def test_unknown_key(self) -> None:
        """A key that AWS does not know is an AuthFailure, once it was looked for again."""
        self.aws.credentials.clear()
        self.assertIn("AuthFailure", self.fail_to_list())
        self.assertEqual(self.aws.resource.count("POST", EC2_PATH), 2)

    def test_clock(self) -> None:
        """If the clock differs from AWS's by ten minutes, the error has the difference."""
        for off, wanted in ((-600, "is 10m behind AWS,"), (7200, "is 120m ahead of AWS,")):
            wrong = type("Wrong", (), {"seconds": lambda _, off=off: self.clock.seconds() + off})()
            found = self.provider(time_of_day=wrong).instances()
            error = self.assertRaises(AWSError, self.finish, found.list_instances())
            self.assertIn(f"SignatureDoesNotMatch: this machine's clock {wanted}", str(error))

    def test_wrong_region(self) -> None:
        """A signature for another region is refused by the service, as it should be."""
        sections = 'VPC = vpc-1\n[ServiceOverride "x"]\nService = ec2\nRegion = eu-west-1\n'
        sections += f"URL = http://aws.test{EC2_PATH}\nSigningRegion = eu-west-1"
        self.assertIn("SignatureDoesNotMatch", self.fail_to_list(text=sections, region="eu-west-1"))

    def test_garbage(self) -> None:
        """A response that is not XML, incomplete, or has entities is an error."""
        for body in (
            b"<html>",
            b"\x00\xff",
            b"",
            b"<a><reservationSet>",
            b"<a><reservationSet/></a>",
            b"<DescribeInstancesResponse/>",
            b'<x:DescribeInstancesResponse xmlns:x="y"><x:reservationSet/></x:DescribeInstancesResponse>',
            b'<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>',
        ):
            self.aws.resource.faults = [Fault(Reply(200, body))]
            self.assertIn("the response", self.fail_to_list(CloudError))

    def test_endless_pages(self) -> None:
        """A listing that never ends is given up."""
        body = b"<reservationSet/><nextToken>again</nextToken>"
        body = b"<DescribeInstancesResponse>%b</DescribeInstancesResponse>" % body
        self.aws.resource.faults = [Fault(Reply(200, body), 10_000)]
        self.assertIn("more than 500 pages", self.fail_to_list(CloudError))

    def test_silence(self) -> None:
        """A request without a response times out."""
        self.aws.resource.faults = [Fault(None, 1000)]
        before = self.clock.seconds()
        self.assertIn("no answer within", self.fail_to_list(CloudUnreachable))
        self.assertLess(self.clock.seconds() - before, 200)

    def test_stop(self) -> None:
        """A provider that is stopped gives up what it asks."""
        self.aws.resource.faults = [Fault(None, 1000)]
        provider = self.provider()
        found = provider.instances()
        self.clock.callLater(1, provider.stop)
        self.assertRaises(CancelledError, self.finish, found.list_instances(), 10)

    def test_nothing_secret(self) -> None:
        """No secret, token or signature is in an error, in the log or in a repr, though AWS quotes them."""
        token = "token-that-nobody-may-see"
        self.aws.credentials[KEY] = Credentials("another", token)
        provider = self.provider(environ={**ENVIRON, "AWS_SESSION_TOKEN": token})
        found = provider.instances()
        with logged() as lines:
            texts = [str(self.assertRaises(AWSError, self.finish, found.list_instances()))]
            quoted = self.aws.resource.refused[-1][1].body
            self.aws.resource.faults = [Fault(Reply(503, quoted), 1000)]
            texts += [str(self.assertRaises(AWSError, self.finish, found.list_instances()))]
            texts += [repr(provider), repr(found), repr(vars(found))]
        self.assertIn(token.encode(), quoted)
        self.assertIn("attempt 2 of 8", " ".join(lines))
        signatures = [ask.headers["authorization"][-64:] for ask in self.aws.resource.asks]
        for text in (*lines, *texts):
            for secret in (SECRET, token, *signatures):
                self.assertNotIn(secret, text)

"""The provider gce against Compute Engine's API, played by `tests.cloud.standins.gce`."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from zope.interface.verify import verifyObject

from tests.cloud.asking import finish, logged
from tests.cloud.gce.kit import GCETestCase
from tests.cloud.standins.gce import BUSY, PROJECT, RATE_LIMIT, Machine
from tests.cloud.standins.rest import Fault, Reply
from tower.cloud.errors import CloudAnswerError, CloudError, InstanceNotFound
from tower.cloud.gce.config import parse_gce_config
from tower.cloud.gce.provider import GCECloud
from tower.cloud.interfaces import (
    EXTERNAL_IP,
    INTERNAL_IP,
    ICloudProvider,
    IInstances,
    IZones,
    NodeAddress,
    Zone,
)


class ProviderTests(GCETestCase):
    """Calls of every provider."""

    def test_interfaces(self) -> None:
        """Provider, instances and zones implement their interfaces; the rest is not supported."""
        verifyObject(ICloudProvider, self.cloud)
        verifyObject(IInstances, self.cloud.instances())
        verifyObject(IZones, self.cloud.zones())
        rest = (self.cloud.clusters(), self.cloud.routes(), self.cloud.load_balancer())  # type: ignore[func-returns-value]
        self.assertEqual((None, None, None), rest)
        self.assertEqual("gce", self.cloud.provider_name())

    def test_uninitialized(self) -> None:
        """Calls before initialization are errors."""
        cloud = GCECloud(parse_gce_config(None, {}))
        self.assertRaises(CloudError, cloud.instances)
        self.assertRaises(CloudError, cloud.zones)
        cloud.stop()

    def test_list(self) -> None:
        """A listed instance has provider ID, addresses, type, zone and state."""
        first, second, third = finish(self.clock, self.cloud.instances().list_instances())
        self.assertEqual(f"gce://{PROJECT}/europe-west1-b/node-a", first.provider_id)
        self.assertEqual(
            (NodeAddress(INTERNAL_IP, "10.0.0.2"), NodeAddress(EXTERNAL_IP, "203.0.113.1")), first.addresses
        )
        self.assertEqual(("e2-small", Zone("europe-west1-b", "europe-west1")), (first.type, first.zone))
        self.assertEqual(
            (NodeAddress(INTERNAL_IP, "10.0.0.3"), NodeAddress(EXTERNAL_IP, "2001:db8::3")), second.addresses
        )
        self.assertEqual([True, True, False], [first.running, second.running, third.running])

    def test_by_name(self) -> None:
        """A node is found by its name, also where that is a DNS name."""
        instances = self.cloud.instances()
        wanted = f"{PROJECT}/europe-west1-b/node-a"
        self.assertEqual(wanted, finish(self.clock, instances.instance_id("node-a")))
        self.assertEqual(wanted, finish(self.clock, instances.instance_id("node-a.c.demo.internal")))
        self.assertEqual("e2-small", finish(self.clock, instances.instance_type("node-b")))
        addresses = finish(self.clock, instances.node_addresses("node-a"))
        self.assertEqual(["10.0.0.2", "203.0.113.1"], [each.address for each in addresses])
        self.assertEqual("anything", finish(self.clock, instances.current_node_name("anything")))

    def test_no_such_name(self) -> None:
        """Missing and invalid names are not found; no request is sent for the latter."""
        for name in ("gone", 'x" OR name eq ".*', ".*", "", "node"):
            with self.assertRaises(InstanceNotFound):
                finish(self.clock, self.cloud.instances().node_addresses(name))
        self.assertEqual(2, self.gce.resource.count("GET", "aggregated/instances"))

    def test_by_provider_id(self) -> None:
        """A provider id leads to the instance: its addresses, type and state."""
        instances = self.cloud.instances()
        number = f"gce://{PROJECT}/us-east1-b/other"
        self.assertEqual("e2-small", finish(self.clock, instances.instance_type_by_provider_id(number)))
        self.assertIs(True, finish(self.clock, instances.instance_shutdown_by_provider_id(number)))
        self.assertIs(True, finish(self.clock, instances.instance_exists_by_provider_id(number)))
        addresses = finish(self.clock, instances.node_addresses_by_provider_id(number))
        self.assertEqual(["10.1.0.2"], [each.address for each in addresses])

    def test_existence(self) -> None:
        """Only a missing instance does not exist; a failed request is an error."""
        instances = self.cloud.instances()
        gone = f"gce://{PROJECT}/us-east1-b/gone"
        self.assertIs(False, finish(self.clock, instances.instance_exists_by_provider_id(gone)))
        with self.assertRaises(InstanceNotFound):
            finish(self.clock, instances.instance_shutdown_by_provider_id(gone))
        for number in ("aws:///i-1", "gce://another/us-east1-b/other"):
            with self.assertRaises(CloudError) as caught:
                finish(self.clock, instances.instance_exists_by_provider_id(number))
            self.assertNotIsInstance(caught.exception, InstanceNotFound)
        self.gce.resource.faults.append(Fault(BUSY, 99))
        with self.assertRaises(CloudAnswerError):
            finish(self.clock, instances.instance_exists_by_provider_id(gone))

    def test_zones(self) -> None:
        """The zones of this machine, of nodes and of provider IDs."""
        zones = self.cloud.zones()
        here = Zone("europe-west1-b", "europe-west1")
        self.assertEqual(here, finish(self.clock, zones.get_zone()))
        self.assertEqual(here, finish(self.clock, zones.get_zone_by_node_name("node-a")))
        number = f"gce://{PROJECT}/us-east1-b/other"
        self.assertEqual(
            Zone("us-east1-b", "us-east1"), finish(self.clock, zones.get_zone_by_provider_id(number))
        )
        named = self.provider("local-zone = asia-east1-a\n").zones()
        self.assertEqual(Zone("asia-east1-a", "asia-east1"), finish(self.clock, named.get_zone()))


class ListTests(GCETestCase):
    """Which instances are listed."""

    def test_pages(self) -> None:
        """A list of many pages is listed whole, of all zones and of one."""
        self.gce.machines = [Machine(f"node-{number}") for number in range(7)]
        for size in (1, 2, 3, 7, 500):
            self.gce.page_size = size
            for cloud in (self.cloud, self.provider("local-zone = europe-west1-b\n")):
                self.assertEqual([f"node-{number}" for number in range(7)], self.names(cloud))

    def test_prefix(self) -> None:
        """Names begin with the prefix, in which a dot is literal."""
        self.assertEqual(["node-a", "node-b"], self.names(self.provider("node-instance-prefix = node-\n")))
        self.assertEqual([], self.names(self.provider("node-instance-prefix = nod.-\n")))
        self.assertEqual([], self.gce.resource.refused)

    def test_tags(self) -> None:
        """An instance has one of the tags."""
        self.assertEqual(["node-b"], self.names(self.provider("node-tags = gpu\nnode-tags = none\n")))

    def test_zone(self) -> None:
        """A zone leaves out others; many zones are those of its region."""
        self.assertEqual(["node-a"], self.names(self.provider("local-zone = europe-west1-b\n")))
        region = self.provider("local-zone = europe-west1-b\nmultizone\n")
        self.assertEqual(["node-a", "node-b"], self.names(region))

    def test_networks(self) -> None:
        """Addresses are those in the network that is named, if there are such; those inside come first."""
        self.gce.machines[0].backend = "192.168.0.2"
        for name, wanted in (
            ("", ["10.0.0.2", "192.168.0.2", "203.0.113.1"]),
            ("network-name = default\n", ["10.0.0.2", "203.0.113.1"]),
            ("network-name = projects/p/global/networks/backend\n", ["192.168.0.2"]),
            ("network-name = another\n", ["10.0.0.2", "192.168.0.2", "203.0.113.1"]),
        ):
            addresses = finish(self.clock, self.provider(name).instances().node_addresses("node-a"))
            self.assertEqual(wanted, [each.address for each in addresses])

    def test_half_a_list(self) -> None:
        """A list that misses a zone is an error, not a shorter list."""
        part: dict[str, Any] = {"warning": {"code": "UNREACHABLE", "message": "down"}}
        reply = Reply(body={"items": {"zones/europe-west1-b": part}})
        self.gce.resource.faults.append(Fault(reply, 1, "aggregated"))
        with self.assertRaisesRegex(CloudError, "zones/europe-west1-b are unknown: UNREACHABLE"):
            self.names(self.cloud)

    def test_endless_list(self) -> None:
        """A list whose next page is always the same one is an error."""
        self.gce.resource.faults.append(Fault(Reply(body={"items": {}, "nextPageToken": "again"}), 99, "agg"))
        with self.assertRaisesRegex(CloudError, "does not end"):
            self.names(self.cloud)
        self.assertEqual(2, self.gce.resource.count("GET", "aggregated/instances"))

    def test_unreadable(self) -> None:
        """Responses that are not valid are errors."""
        for body in (b"<html>", b"[]", {"items": {"zones/z": {"instances": [{"id": "1"}]}}}):
            self.gce.resource.faults.append(Fault(Reply(body=body), 1, "aggregated"))
            with self.assertRaisesRegex(CloudError, "not JSON|unexpected form|without name"):
                self.names(self.cloud)

    def test_little(self) -> None:
        """Metadata, which may be large, is requested only if needed."""
        self.gce.machines[0].metadata.replace({"startup-script": "x" * 200_000})
        self.names(self.cloud)
        finish(self.clock, self.cloud.instances().node_addresses("node-a"))
        sent = [ask.query["fields"] for ask in self.gce.resource.asks if "fields" in ask.query]
        self.assertEqual(2, len(sent))
        self.assertNotIn("metadata", "".join(sent))


class StopTests(GCETestCase):
    """Stopping."""

    def test_installing(self) -> None:
        """Stopping cancels an installation and a listing; no more requests are sent."""
        ends: list[Any] = []
        self.gce.resource.faults.append(Fault(None, 99, "aggregated"))
        instances = self.cloud.instances()
        for work in (
            instances.add_ssh_key_to_all_instances("alice", b"ssh-rsa AAAA"),
            instances.list_instances(),
        ):
            Deferred.fromCoroutine(work).addErrback(lambda failure: ends.append(failure.type))
        self.clock.advance(1)
        self.cloud.stop()
        self.cloud.stop()
        asked = len(self.gce.resource.asks)
        self.clock.pump([1] * 60)
        self.assertEqual([CancelledError, CancelledError], ends)
        self.assertEqual(asked, len(self.gce.resource.asks))
        self.assertEqual([], self.clock.getDelayedCalls())


class LimitTests(GCETestCase):
    """Rate limits and failures that pass."""

    def test_rate_limit(self) -> None:
        """After a rate limit, for which Compute Engine uses 403, it waits."""
        self.gce.resource.faults.append(Fault(RATE_LIMIT, 2, "aggregated"))
        before = self.clock.seconds()
        self.assertEqual(3, len(self.names(self.cloud)))
        self.assertGreaterEqual(self.clock.seconds() - before, 6)

    def test_busy(self) -> None:
        """A failure that passes is waited for."""
        self.gce.resource.faults.append(Fault(BUSY, 3, "aggregated"))
        self.assertEqual(3, len(self.names(self.cloud)))

    def test_forbidden(self) -> None:
        """A rejected request is not retried, and the error names it."""
        cloud = self.provider("project-id = somebody-elses\n")
        with self.assertRaisesRegex(CloudAnswerError, "403: Required 'compute.projects.get' permission"):
            self.names(cloud)
        self.assertEqual(1, len(self.gce.resource.refused))

    def test_silence(self) -> None:
        """A service that does not answer is given up."""
        self.gce.resource.faults.append(Fault(None, 99, "aggregated"))
        with self.assertRaisesRegex(CloudError, "no answer within"):
            finish(self.clock, self.cloud.instances().list_instances(), 200)


class SecretTests(GCETestCase):
    """Secrets."""

    def test_nothing_secret(self) -> None:
        """Logs, errors and reprs never have a token."""
        said = []
        with logged() as lines:
            for fault in (
                Fault(BUSY, 99),
                Fault(RATE_LIMIT, 99),
                Fault(None, 99),
                Fault(Reply(401, b"?"), 99),
            ):
                self.names(self.cloud)
                fault.path = "/compute/"
                self.gce.resource.faults = [fault]
                try:
                    self.names(self.cloud)
                except CloudError as e:
                    said.append(f"{e} {e!r}")
                token = list(self.gce.tokens)[-1]
                self.gce.resource.faults = [Fault(Reply(400, token.encode()), 1, "/compute/")]
                try:
                    self.names(self.cloud)
                except CloudError as e:
                    said.append(f"{e} {e!r}")
                self.gce.resource.faults = []
        text = "\n".join([*lines, *said, repr(vars(self.cloud))])
        self.assertGreater(len(said), 6)
        for token in self.gce.tokens:
            self.assertNotIn(token, text)
        self.assertNotIn("ya29", text)

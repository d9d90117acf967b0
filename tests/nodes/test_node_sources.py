"""Tests of `tower.nodes.node_sources`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase, TestCase

from tests.fakes.api_client import FakeAPI
from tests.fakes.instances import FakeAddress, FakeInstance, FakeInstances
from tower.cloud.interfaces import IInstances
from tower.clusters.node import Node
from tower.clusters.ssh_spec import ADDRESS_TYPES
from tower.errors import TowerError
from tower.kube.client import APIClient
from tower.nodes.node_sources import (
    FILE_LIMIT,
    Lister,
    ListingFailed,
    NoPreferredAddress,
    api_nodes,
    cloud_nodes,
    fallback,
    file_nodes,
    fixed_nodes,
    parse_nodes,
    preferred_node,
)

EXTERNAL_ONLY = ("ExternalIP",)


def node_object(name: str, *addresses: tuple[str, str]) -> dict[str, Any]:
    """Return a ``Node`` object of the API."""
    known = [{"type": kind, "address": address} for kind, address in addresses]
    return {"metadata": {"name": name}, "status": {"addresses": known}}


async def no_way() -> list[Node]:
    """Fail as a lister does."""
    raise ListingFailed("no connection")


class ListingCase(SynchronousTestCase):
    """Calls listers."""

    def nodes(self, lister: Lister) -> list[Node]:
        """Return what is listed."""
        return list(self.successResultOf(_asked(lister)))

    def why_not(self, lister: Lister) -> str:
        """Return why nothing is."""
        return str(self.failureResultOf(_asked(lister), ListingFailed).value)


def _asked(lister: Lister) -> Deferred[Any]:
    async def ask() -> Any:
        return await lister()

    return Deferred.fromCoroutine(ask())


class PreferredNodeTests(SynchronousTestCase):
    """Which of a node's addresses is dialed."""

    def test_order_of_types(self) -> None:
        """The first type that the node has decides, and of that type the first address."""
        addresses = [("InternalIP", "10.0.0.1"), ("ExternalIP", "192.0.2.1"), ("ExternalIP", "192.0.2.2")]
        node = preferred_node("n1", addresses, ADDRESS_TYPES, 2222)
        self.assertEqual((node.address, node.name), ("192.0.2.1:2222", "n1"))
        self.assertEqual(preferred_node("n1", addresses[:1], ADDRESS_TYPES).host, "10.0.0.1")

    def test_aliases(self) -> None:
        """All its other names and addresses mean it too, however IPv6 is written."""
        addresses = [("ExternalIP", "192.0.2.1"), ("InternalIP", "FD00:0::1"), ("Hostname", "n1.example")]
        node = preferred_node("n1", addresses, ADDRESS_TYPES)
        for name in ("n1", "192.0.2.1", "fd00::1", "n1.example"):
            self.assertTrue(node.is_called(name), name)
        self.assertFalse(node.is_called("n2"))

    def test_none(self) -> None:
        """The error about a node without a preferred address has all of its addresses, as upstream's."""
        addresses = [("InternalIP", "10.0.0.1"), ("Hostname", "n1")]
        error = self.assertRaises(NoPreferredAddress, preferred_node, "n1", addresses, EXTERNAL_ONLY)
        self.assertEqual(
            str(error),
            "no preferred addresses found; known addresses: [{InternalIP 10.0.0.1} {Hostname n1}]",
        )

    def test_empty_address(self) -> None:
        """An empty address is ignored."""
        self.assertRaises(NoPreferredAddress, preferred_node, "n1", [("ExternalIP", "")], EXTERNAL_ONLY)


class APINodesTests(ListingCase):
    """Nodes of the cluster's API."""

    def test_listed(self) -> None:
        """Every node is there, in order, with its names."""
        api = FakeAPI(
            node_object("a", ("ExternalIP", "192.0.2.1")), node_object("b", ("InternalIP", "10.0.0.2"))
        )
        nodes = self.nodes(api_nodes(cast(APIClient, api), ADDRESS_TYPES, 2222, clock=Clock()))
        self.assertEqual(
            [(node.name, node.address) for node in nodes], [("a", "192.0.2.1:2222"), ("b", "10.0.0.2:2222")]
        )
        self.assertEqual(api.paths, ["/api/v1/nodes"])

    def test_some_without_address(self) -> None:
        """A node without a preferred address is left out."""
        api = FakeAPI(
            node_object("a", ("InternalIP", "10.0.0.1")), node_object("b", ("ExternalIP", "192.0.2.2"))
        )
        self.assertEqual(
            [node.name for node in self.nodes(api_nodes(cast(APIClient, api), EXTERNAL_ONLY, clock=Clock()))],
            ["b"],
        )

    def test_all_without_address(self) -> None:
        """When no node has one, that is an error, the last node's."""
        api = FakeAPI(node_object("a", ("InternalIP", "10.0.0.1")), node_object("b"))
        self.assertEqual(
            self.why_not(api_nodes(cast(APIClient, api), EXTERNAL_ONLY, clock=Clock())),
            "no preferred addresses found; known addresses: []",
        )

    def test_no_nodes(self) -> None:
        """A cluster without nodes has an empty list, which is not an error."""
        self.assertEqual(self.nodes(api_nodes(cast(APIClient, FakeAPI()), EXTERNAL_ONLY, clock=Clock())), [])

    def test_no_status(self) -> None:
        """A node that was just made is one without addresses."""
        api = FakeAPI(
            {"metadata": {"name": "new"}}, {"metadata": {"name": "n"}, "status": {"addresses": None}}
        )
        self.assertIn(
            "no preferred addresses found",
            self.why_not(api_nodes(cast(APIClient, api), EXTERNAL_ONLY, clock=Clock())),
        )

    def test_odd_names(self) -> None:
        """Names that are not printable are rejected; such addresses are ignored."""
        for name in ("", "\x1b[31m", "a b", "n" * 254):
            api = FakeAPI(node_object(name, ("ExternalIP", "192.0.2.1")))
            self.assertIn(
                "is not a valid name of a node",
                self.why_not(api_nodes(cast(APIClient, api), EXTERNAL_ONLY, clock=Clock())),
            )
        api = FakeAPI(node_object("n1", ("ExternalIP", "\x1b[31m"), ("ExternalIP", "192.0.2.1")))
        (node,) = self.nodes(api_nodes(cast(APIClient, api), EXTERNAL_ONLY, clock=Clock()))
        self.assertEqual((node.host, node.aliases), ("192.0.2.1", frozenset()))

    def test_no_node_objects(self) -> None:
        """A list with other objects is rejected as a whole."""
        strange: list[Any] = [None, 1, {}, {"metadata": {}}, {"metadata": {"name": 5}}]
        strange.append({"metadata": {"name": "n"}, "status": 1})
        for item in strange:
            self.assertIn(
                "contains something other than nodes",
                self.why_not(api_nodes(cast(APIClient, FakeAPI(item)), EXTERNAL_ONLY, clock=Clock())),
                repr(item),
            )


class CloudNodesTests(ListingCase):
    """Instances of a cloud."""

    def test_running(self) -> None:
        """Instances that run are nodes, others are not."""
        address = (FakeAddress("ExternalIP", "192.0.2.1"), FakeAddress("InternalIP", "10.0.0.1"))
        found = [FakeInstance("a", address), FakeInstance("b", address, running=False)]
        (node,) = self.nodes(
            cloud_nodes(cast(IInstances, FakeInstances(found)), ADDRESS_TYPES, 22, clock=Clock())
        )
        self.assertEqual((node.name, node.address), ("a", "192.0.2.1:22"))
        self.assertTrue(node.is_called("10.0.0.1"))

    def test_port(self) -> None:
        """The cloud's port takes precedence over the default one."""
        address = (FakeAddress("ExternalIP", "192.0.2.1"),)
        other = (FakeAddress("ExternalIP", "192.0.2.2"),)
        found = [FakeInstance("a", address, ssh_port=2201), FakeInstance("b", other)]
        nodes = self.nodes(
            cloud_nodes(cast(IInstances, FakeInstances(found)), ADDRESS_TYPES, 22, clock=Clock())
        )
        self.assertEqual([node.address for node in nodes], ["192.0.2.1:2201", "192.0.2.2:22"])

    def test_fleet(self) -> None:
        """A large fleet is looked at in pieces, between which others have their turn."""
        found = [FakeInstance(f"n{n}", (FakeAddress("InternalIP", f"10.0.{n}.1"),)) for n in range(250)]
        clock = Clock()
        listing = _asked(cloud_nodes(cast(IInstances, FakeInstances(found)), ADDRESS_TYPES, clock=clock))
        self.assertNoResult(listing)
        clock.advance(0)
        self.assertEqual(len(self.successResultOf(listing)), 250)

    def test_none_runs(self) -> None:
        """When none runs there are no nodes."""
        found = [FakeInstance("b", running=False)]
        self.assertEqual(
            self.nodes(cloud_nodes(cast(IInstances, FakeInstances(found)), ADDRESS_TYPES, clock=Clock())), []
        )

    def test_without_address(self) -> None:
        """When none that runs has an address, that is an error."""
        self.assertIn(
            "known addresses: []",
            self.why_not(
                cloud_nodes(
                    cast(IInstances, FakeInstances([FakeInstance("a")])), ADDRESS_TYPES, clock=Clock()
                )
            ),
        )


class ParseNodesTests(SynchronousTestCase):
    """Files of nodes."""

    def test_lines(self) -> None:
        """One node in a line, with comments, empty lines, IPv6 and other names."""
        text = "# fleet\n\nh1\nh2:2222  # the second\n[fd00:0::1]:22 n3 n3.example FD00::3\nfd00::2\n"
        nodes = parse_nodes(text, "nodes", 2022)
        self.assertEqual(
            [(node.name, node.address) for node in nodes],
            [("h1", "h1:2022"), ("h2", "h2:2222"), ("n3", "[fd00::1]:22"), ("fd00::2", "[fd00::2]:2022")],
        )
        for name in ("n3", "n3.example", "fd00::3", "fd00::1"):
            self.assertTrue(nodes[2].is_called(name), name)

    def test_twice(self) -> None:
        """A repeated node is listed once."""
        self.assertEqual(parse_nodes("h1\nh1:22\n", "nodes"), [Node("h1")])

    def test_wrong(self) -> None:
        """The error about an invalid word has file and line."""
        for word in ("h1:99999", "h1:x", "user@h1:22:22", "/etc"):
            error = self.assertRaises(ListingFailed, parse_nodes, f"h0\n\n{word}\n", "/etc/nodes")
            self.assertEqual(
                str(error),
                "/etc/nodes:3: word 1 is neither a name nor an address: a line is HOST, HOST:PORT or "
                "[IPV6]:PORT, then other names of that node",
            )

    def test_something_else(self) -> None:
        """Other programs' output is not accepted as a list."""
        for text, number in (
            ("<html>\n<head><title>502 Bad Gateway</title></head>\n", 1),
            ("<!DOCTYPE html>\n", 1),
            ("404 page not found\n", 1),
            ("sh: 1: kubectl: not found\n", 1),
            ("Error from server (Forbidden): nodes is forbidden\n", 4),
            ('{"kind": "NodeList"}\n', 1),
            ("apiVersion: v1\n", 1),
            ("null,\n", 1),
            ("-\n", 1),
            ("10.0.0.256\n", 1),
            ("h1:22,h2:22\n", 1),
        ):
            error = self.assertRaises(ListingFailed, parse_nodes, text, "/etc/nodes")
            self.assertIn(f"/etc/nodes:1: word {number} is neither a name", str(error))

    def test_names(self) -> None:
        """Names may be of any alphabet, and of digits behind the first."""
        nodes = parse_nodes("knöten-1.example. 7 a_b\n192.0.2.1 n\nfe80::1%eth0\n", "nodes")
        self.assertEqual([node.host for node in nodes], ["knöten-1.example.", "192.0.2.1", "fe80::1%eth0"])
        self.assertEqual(nodes[0].name, "7")

    def test_odd_names(self) -> None:
        """Names that are not printable get the same error."""
        for word in ("\x1b[31m", "n\x00", "n" * 254):
            for line in (word, f"h1 {word}"):
                error = self.assertRaises(ListingFailed, parse_nodes, f"h0\n{line}\n", "/etc/nodes")
                self.assertIn("/etc/nodes:2: ", str(error))
                self.assertIn("is neither a name nor an address", str(error))
                self.assertTrue(str(error).isprintable())


class FileNodesTests(TestCase):
    """A file that changes."""

    def setUp(self) -> None:
        """A file of nodes."""
        self.path = Path(self.mktemp())
        self.lister = file_nodes(self.path, 2222)

    async def why_not(self) -> str:
        """Return why nothing is listed."""
        try:
            await self.lister()
        except ListingFailed as e:
            return str(e)
        raise AssertionError("it was listed")

    async def test_read_each_time(self) -> None:
        """The current contents are used."""
        self.path.write_text("h1\n")
        self.assertEqual(await self.lister(), [Node("h1", 2222)])
        self.path.write_text("h2\n")
        self.assertEqual(await self.lister(), [Node("h2", 2222)])

    async def test_vanished(self) -> None:
        """A file that is not there does not mean that there are no nodes."""
        self.assertEqual(await self.why_not(), f"{self.path}: No such file or directory")

    async def test_empty(self) -> None:
        """A file that is empty, for it is just being written, does not either."""
        self.path.write_text("# nothing yet\n")
        self.assertIn(f"{self.path}: it lists no node", await self.why_not())

    async def test_too_long(self) -> None:
        """A file that is too large is not read to its end."""
        self.path.write_bytes(b"#" * (FILE_LIMIT + 1))
        self.assertIn("larger than", await self.why_not())

    async def test_no_text(self) -> None:
        """The error about bytes that are not text has their line."""
        self.path.write_bytes(b"h1\n\xff\xfe:22:22\n")
        self.assertTrue((await self.why_not()).startswith(f"{self.path}:2: "))


class FallbackTests(ListingCase):
    """Several sources."""

    def test_first(self) -> None:
        """The first list is used, even an empty one."""
        self.assertEqual(self.nodes(fallback(fixed_nodes([]), no_way)), [])
        self.assertEqual(self.nodes(fallback(no_way, fixed_nodes([Node("h1")]), no_way)), [Node("h1")])

    def test_nobody(self) -> None:
        """When all fail, the error has every reason once."""

        async def unreachable() -> list[Node]:
            raise TowerError("unreachable")

        self.assertEqual(self.why_not(fallback(no_way, unreachable, no_way)), "no connection; unreachable")

    def test_our_own_mistakes(self) -> None:
        """An unexpected error is not handled as a failed listing."""

        async def broken() -> list[Node]:
            raise KeyError("x")

        self.failureResultOf(_asked(fallback(broken, fixed_nodes([Node("h1")]))), KeyError)

"""Tests of the fake cloud: `tower.cloud.fake`, `tower.cloud.fake_fleet` and `tower.cloud.fake_network`."""

from __future__ import annotations

import os
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tower.cloud.config.text import ConfigText, read_config
from tower.cloud.errors import CloudConfigError, CloudError, InstanceNotFound
from tower.cloud.fake import FakeCloud, make
from tower.cloud.fake_fleet import read_fleet
from tower.cloud.interfaces import Instance, LoadBalancerStatus, NodeAddress, Route, Zone

KEY = b"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ1YB9x1H5hmLXsGpUbMTl3oAwUsBYUEhB8d8bHaTnkz"
OTHER = b"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ1YB9x1H5hmLXsGpUbMTl3oAwUsBYUEhB8d8bHaTnk0"
SERVICE = {"metadata": {"uid": "1-2"}, "spec": {"loadBalancerIP": "192.0.2.9", "ports": [{"port": 80}]}}


class FakeCase(SynchronousTestCase):
    """Responses without delay."""

    def answer(self, asked: Awaitable[Any]) -> Any:
        """Return an answer."""
        return self.successResultOf(self.deferred(asked))

    def error(self, asked: Awaitable[Any], kind: type[Exception] = CloudError) -> str:
        """Return why there is none."""
        return str(self.failureResultOf(self.deferred(asked), kind).value)

    def deferred(self, asked: Awaitable[Any]) -> Deferred[Any]:
        """Begin to ask."""

        async def ask() -> Any:
            return await asked

        return Deferred.fromCoroutine(ask())


class DoubleTests(FakeCase):
    """The double: answers are its attributes, questions are recorded."""

    def test_recorded(self) -> None:
        """Each question that upstream's records has upstream's name."""
        cloud = FakeCloud(
            machines=[
                Instance("a", "fake://a", (NodeAddress("ExternalIP", "192.0.2.1"),), "big", Zone("z", "r"))
            ]
        )
        for asked, name, answer in (
            (cloud.node_addresses("a"), "node-addresses", (NodeAddress("ExternalIP", "192.0.2.1"),)),
            (
                cloud.node_addresses_by_provider_id("fake://a"),
                "node-addresses-by-provider-id",
                (NodeAddress("ExternalIP", "192.0.2.1"),),
            ),
            (cloud.instance_id("a"), "instance-id", "a"),
            (cloud.instance_type("a"), "instance-type", "big"),
            (cloud.instance_type_by_provider_id("fake://a"), "instance-type-by-provider-id", "big"),
            (cloud.instance_exists_by_provider_id("fake://a"), "instance-exists-by-provider-id", True),
            (cloud.instance_exists_by_provider_id("fake://b"), "instance-exists-by-provider-id", False),
            (cloud.instance_shutdown_by_provider_id("fake://a"), "instance-shutdown-by-provider-id", False),
            (cloud.list_instances(), "list", cloud.machines),
            (cloud.get_zone(), "get-zone", Zone()),
            (cloud.get_zone_by_provider_id("fake://a"), "get-zone-by-provider-id", Zone("z", "r")),
            (cloud.get_zone_by_node_name("a"), "get-zone-by-node-name", Zone("z", "r")),
            (cloud.network.list_routes("c"), "list-routes", []),
            (cloud.network.update_load_balancer("c", SERVICE, ["a"]), "update", None),
            (cloud.network.ensure_load_balancer_deleted("c", SERVICE), "delete", None),
        ):
            self.assertEqual(self.answer(asked), answer, name)
            self.assertEqual(cloud.calls, [name])
            cloud.clear_calls()

    def test_not_recorded(self) -> None:
        """Some calls are not recorded, as in upstream."""
        cloud = FakeCloud(cluster_list=["c"], master_name="m")
        self.assertEqual(self.answer(cloud.list_clusters()), ["c"])
        self.assertEqual(self.answer(cloud.master("c")), "m")
        self.assertEqual(self.answer(cloud.current_node_name("h")), "h")
        self.assertIsNone(self.answer(cloud.network.get_load_balancer("c", SERVICE)))
        self.assertTrue(cloud.has_cluster_id())
        self.assertEqual(cloud.calls, [])

    def test_without_machines(self) -> None:
        """Without machines the attributes answer, for every node."""
        cloud = FakeCloud(
            addresses=[NodeAddress("Hostname", "h")],
            instance_ids={"a": "i-1"},
            instance_types={"a": "big", "fake://a": "bigger"},
            exists=True,
            shutdown=True,
            zone=Zone("z", "r"),
        )
        self.assertEqual(self.answer(cloud.node_addresses("x")), cloud.addresses)
        self.assertEqual(self.answer(cloud.instance_id("a")), "i-1")
        self.assertEqual(self.answer(cloud.instance_type("a")), "big")
        self.assertEqual(self.answer(cloud.instance_type_by_provider_id("fake://a")), "bigger")
        self.assertTrue(self.answer(cloud.instance_exists_by_provider_id("fake://x")))
        self.assertTrue(self.answer(cloud.instance_shutdown_by_provider_id("fake://x")))
        self.assertEqual(self.answer(cloud.get_zone_by_node_name("x")), Zone("z", "r"))
        self.error(cloud.instance_id("b"), InstanceNotFound)

    def test_not_found(self) -> None:
        """With machines, another name or id is not found."""
        cloud = FakeCloud(machines=[Instance("a", "fake://a")])
        for asked in (
            cloud.node_addresses("b"),
            cloud.node_addresses_by_provider_id("b"),
            cloud.instance_id("b"),
            cloud.instance_type("b"),
            cloud.instance_type_by_provider_id("b"),
            cloud.instance_shutdown_by_provider_id("b"),
            cloud.get_zone_by_node_name("b"),
            cloud.get_zone_by_provider_id("b"),
        ):
            self.assertEqual(self.error(asked, InstanceNotFound), "instance not found")
        self.assertEqual(
            self.error(cloud.instance_shutdown_by_provider_id("")),
            "cannot shutdown instance with empty providerID",
        )

    def test_errors(self) -> None:
        """It fails in everything, in one kind of question, or for one node."""
        cloud = FakeCloud(error=CloudError("down"))
        self.assertEqual(self.error(cloud.list_instances()), "down")
        self.assertEqual(self.error(cloud.list_clusters()), "down")
        self.assertEqual(self.error(cloud.network.list_routes("c")), "down")
        cloud = FakeCloud(
            errors={"list": CloudError("no list")}, instance_id_errors={"a": CloudError("no id")}
        )
        self.assertEqual(self.error(cloud.list_instances()), "no list")
        self.assertEqual(self.error(cloud.instance_id("a")), "no id")
        self.assertEqual(self.answer(cloud.get_zone()), Zone())
        self.assertEqual(cloud.calls, ["list", "instance-id", "get-zone"])

    def test_disabled(self) -> None:
        """Each part can be missing."""
        cloud = FakeCloud(
            disable_instances=True,
            disable_zones=True,
            disable_clusters=True,
            disable_routes=True,
            disable_load_balancers=True,
        )
        parts = (cloud.instances(), cloud.zones(), cloud.clusters(), cloud.routes(), cloud.load_balancer())
        self.assertEqual(parts, (None,) * 5)

    def test_delay(self) -> None:
        """Answers take their time, and none comes after the end."""
        clock = Clock()
        cloud = FakeCloud(request_delay=2.0)
        cloud.initialize(clock)
        result = self.deferred(cloud.list_instances())
        clock.advance(1.9)
        self.assertNoResult(result)
        clock.advance(0.1)
        self.assertEqual(self.successResultOf(result), [])
        result = self.deferred(cloud.list_instances())
        cloud.stop()
        cloud.stop()
        self.failureResultOf(result, CancelledError)
        self.assertEqual(clock.getDelayedCalls(), [])

    def test_routes(self) -> None:
        """Routes belong to clusters, are there once, and are deleted once."""
        network = FakeCloud().network
        route = Route("", "n", "10.0.0.0/24")
        self.answer(network.create_route("c", "hint", route))
        self.assertEqual(
            self.error(network.create_route("c", "", route)), 'route "c-n-10.0.0.0/24" already exists'
        )
        (listed,) = self.answer(network.list_routes("c"))
        self.assertEqual(listed, Route("c-n-10.0.0.0/24", "n", "10.0.0.0/24"))
        self.assertEqual(self.answer(network.list_routes("d")), [])
        self.answer(network.delete_route("c", listed))
        self.assertEqual(
            self.error(network.delete_route("c", listed)),
            "no route found for node:n with DestinationCIDR== 10.0.0.0/24",
        )

    def test_load_balancers(self) -> None:
        """A load balancer is created in the zone's region, and deleted."""
        cloud = FakeCloud(zone=Zone("z", "r"))
        network = cloud.network
        network.external_ip = "192.0.2.8"
        status = self.answer(network.ensure_load_balancer("c", SERVICE, ["a", "b"]))
        self.assertEqual(status, LoadBalancerStatus(("192.0.2.8",)))
        self.assertEqual(cloud.calls, ["create", "get-zone"])
        balancer = network.balancers["a12"]
        self.assertEqual(
            (balancer.region, balancer.load_balancer_ip, balancer.ports, balancer.hosts),
            ("r", "192.0.2.9", [{"port": 80}], ["a", "b"]),
        )
        network.exists = True
        self.assertEqual(self.answer(network.get_load_balancer("c", SERVICE)), status)
        self.assertEqual(self.answer(network.get_load_balancer_name("c", SERVICE)), "a12")
        self.answer(network.update_load_balancer("c", SERVICE, ["b"]))
        self.assertEqual(network.updates, [("c", SERVICE, ["b"])])
        self.answer(network.ensure_load_balancer_deleted("c", SERVICE))
        self.answer(network.ensure_load_balancer_deleted("c", SERVICE))
        self.assertEqual(network.balancers, {})

    def test_volume_labels(self) -> None:
        """Volumes have labels, or there is no such volume."""
        cloud = FakeCloud(volume_labels={"v": {"zone": "z"}})
        self.assertEqual(self.answer(cloud.labels_for_volume("v")), {"zone": "z"})
        self.assertEqual(self.error(cloud.labels_for_volume("w")), "label not found for volume")

    def test_key_remembered(self) -> None:
        """Without a path keys are recorded, where upstream's fake is unimplemented."""
        cloud = FakeCloud()
        self.answer(cloud.add_ssh_key_to_all_instances("alice", KEY))
        self.assertEqual(cloud.keys, [("alice", KEY)])
        self.assertEqual(cloud.calls, ["add-ssh-key-to-all-instances"])


class ConfigTests(FakeCase):
    """The configuration of the fake."""

    def why_not(self, text: str) -> str:
        """Return the error of a configuration."""
        return str(self.assertRaises(CloudConfigError, read_fleet, ConfigText("f", text)))

    def cloud(self, text: str) -> tuple[FakeCloud, Path]:
        """Return a cloud with a configuration in a file."""
        path = Path(self.mktemp()).absolute()
        path.write_text(text)
        return make(read_config(path)), path

    def test_machines(self) -> None:
        """Each instance has a name, an address, a port, and may be stopped."""
        cloud, _ = self.cloud(
            "[fake]\nzone = z\nregion = r\ninstance = a 127.0.0.1:2201\ninstance = b [::1]:2202 stopped ; x\n"
            "instance = c host.example\n"
        )
        a, b, c = self.answer(cloud.list_instances())
        self.assertEqual(
            a,
            Instance(
                "a",
                "fake://a",
                (NodeAddress("ExternalIP", "127.0.0.1"), NodeAddress("Hostname", "a")),
                "fake",
                Zone("z", "r"),
                ssh_port=2201,
            ),
        )
        self.assertEqual((b.addresses[0].address, b.ssh_port, b.running), ("::1", 2202, False))
        self.assertEqual((c.addresses[0].address, c.ssh_port), ("host.example", 22))
        self.assertTrue(self.answer(cloud.instance_shutdown_by_provider_id("fake://b")))

    def test_read_again(self) -> None:
        """The file counts as it is at each question; while it is wrong, questions fail."""
        cloud, path = self.cloud("[fake]\ninstance = a 127.0.0.1:1\n")
        path.write_text("[fake]\ninstance = b 127.0.0.1:2\n")
        self.assertEqual([each.name for each in self.answer(cloud.list_instances())], ["b"])
        path.write_text("[fake]\ninstance = b\n")
        self.assertIn(f"{path}:2: instance must have the form", self.error(cloud.list_instances()))
        path.unlink()
        self.assertIn("No such file", self.error(cloud.list_instances()))
        path.write_text("[fake]\n")
        self.assertEqual(self.answer(cloud.list_instances()), [])

    def test_fails(self) -> None:
        """The file can have single questions fail, or all."""
        cloud, path = self.cloud("[fake]\nfail = list\n")
        self.assertIn("as configured", self.error(cloud.list_instances()))
        self.answer(cloud.get_zone())
        path.write_text("[fake]\nfail\n")
        self.error(cloud.get_zone())
        path.write_text("[fake]\n")
        self.answer(cloud.list_instances())

    def test_delay(self) -> None:
        """The file can have answers take their time."""
        clock = Clock()
        cloud, _ = self.cloud("[fake]\ndelay = 500ms\n")
        cloud.initialize(clock)
        result = self.deferred(cloud.get_zone())
        self.assertNoResult(result)
        clock.advance(0.5)
        self.successResultOf(result)

    def test_no_config(self) -> None:
        """Without a file there are no machines."""
        self.assertEqual(self.answer(make(None).list_instances()), [])

    def test_bad(self) -> None:
        """Errors have file and line."""
        form = "instance must have the form 'NAME HOST[:PORT] [stopped]'"
        for text, error in {
            "[fake]\n\ninstance = a": f"f:3: {form}",
            "[fake]\ninstance = a h:1 running": f"f:2: {form}",
            "[fake]\ninstance = ../a h:1": f"f:2: {form}",
            "[fake]\ninstance": f"f:2: {form}",
            "[fake]\ninstance = a h:0": "f:2: the instance's address must be HOST[:PORT]",
            "[fake]\ninstance = a h:1\ninstance = a h:2": "f:3: instance names must be unique",
            "[fake]\ndelay = 5": "f:2: delay must be a duration like 1.5s or 2m",
            "[fake]\nauthorized-keys = keys/%h": "f:2: authorized-keys must be an absolute path",
        }.items():
            self.assertEqual(self.why_not(text), error)


class KeyTests(FakeCase):
    """Keys where a real sshd reads them."""

    def setUp(self) -> None:
        """Make two machines."""
        self.folder = Path(self.mktemp()).absolute()
        self.folder.mkdir()
        machines = [Instance("a", "fake://a"), Instance("b", "fake://b")]
        self.cloud = FakeCloud(machines=machines, authorized_keys=f"{self.folder}/%h/%u.keys")

    def install(self, key: bytes = KEY, user: str = "alice") -> None:
        """Install a key."""
        self.answer(self.cloud.add_ssh_key_to_all_instances(user, key))

    def test_each_machine(self) -> None:
        """Each machine's file gets the line, readable for all users; no other files are left."""
        self.install()
        for name in ("a", "b"):
            path = self.folder / name / "alice.keys"
            self.assertEqual(path.read_bytes(), KEY + b" alice\n")
            self.assertEqual(path.stat().st_mode & 0o777, 0o644)
            self.assertEqual(path.parent.stat().st_mode & 0o022, 0)
            self.assertEqual(os.listdir(path.parent), ["alice.keys"])

    def test_once(self) -> None:
        """An existing key is not changed, with any options and comment."""
        self.install()
        self.install(KEY + b" somebody@else\n")
        path = self.folder / "a" / "alice.keys"
        self.assertEqual(path.read_bytes().count(KEY), 1)
        path.write_bytes(b'command="x y" ' + KEY)
        self.install()
        self.assertEqual(path.read_bytes(), b'command="x y" ' + KEY)

    def test_others_stay(self) -> None:
        """Other keys and comments stay, and a key within another line does not count as there."""
        path = self.folder / "a" / "alice.keys"
        path.parent.mkdir()
        before = b"# mine\n" + OTHER + b" me\n#" + KEY + b"\nx" + KEY + b"x"
        path.write_bytes(before)
        path.chmod(0o600)
        self.install()
        self.assertEqual(path.stat().st_mode & 0o777, 0o600)
        self.assertEqual(path.read_bytes(), before + b"\n" + KEY + b" alice\n")

    def test_directory(self) -> None:
        """In a directory each user has a file, for all machines."""
        for pattern in (str(self.folder), f"{self.folder}/new/"):
            self.cloud.authorized_keys = pattern
            self.install()
            self.assertEqual((Path(pattern) / "alice").read_bytes(), KEY + b" alice\n")

    def test_one_file(self) -> None:
        """A path without machines' names is one file, even while there are no machines."""
        self.cloud.machines = []
        self.cloud.authorized_keys = f"{self.folder}/authorized_keys"
        self.install()
        self.assertEqual((self.folder / "authorized_keys").read_bytes(), KEY + b" alice\n")

    def test_bad_names(self) -> None:
        """Names with path characters are rejected."""
        for user in ("../x", "", ".", "a/b", "a\nb"):
            self.error(self.cloud.add_ssh_key_to_all_instances(user, KEY))
        self.cloud.machines.append(Instance("..", "fake://x"))
        self.error(self.cloud.add_ssh_key_to_all_instances("alice", KEY))
        self.assertEqual(os.listdir(self.folder), [])

    def test_bad_keys(self) -> None:
        """Invalid keys and several lines are rejected."""
        for key in (b"", b"ssh-ed25519", b"ssh-ed25519 AAAA", KEY + b"\n" + OTHER, b"ssh-dss " + KEY[12:]):
            self.error(self.cloud.add_ssh_key_to_all_instances("alice", key))
        self.assertEqual(self.cloud.keys, [])

    def test_cannot_write(self) -> None:
        """A path that cannot be written is an error that names it."""
        (self.folder / "a").write_text("a file")
        self.assertIn(
            f"authorized-keys {self.folder}/a/alice.keys: ",
            self.error(self.cloud.add_ssh_key_to_all_instances("alice", KEY)),
        )

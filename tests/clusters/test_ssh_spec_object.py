"""How nodes are reached, as part of objects and records."""

from __future__ import annotations

import json
from typing import Any

from attrs import evolve, fields
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.members import SPEC
from tower.cloud.registry import cloud_providers
from tower.clusters.node import Node
from tower.clusters.ssh_spec import SSHSpec
from tower.clusters.ssh_spec_object import (
    NAMES,
    check_spec,
    from_record,
    nodes_of,
    read_spec,
    to_object,
    to_record,
)
from tower.errors import Invalid

FULL = SSHSpec(
    "core",
    "/keys/id",
    "rsa",
    "accept-new",
    "/keys/known_hosts",
    ("n1", "[fd00::2]:2222"),
    "",
    "",
    "",
    ("InternalIP", "Hostname"),
    2022,
    10255,
    "/keys/kubelet.ca",
    targets={"db": "10.1.0.5:5432"},
    allow_system=True,
    allowed_identities=("system:monitoring", "kubeadm:cluster-admins"),
)

_WORDS = st.text(max_size=8)
_JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | _WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_WORDS, inner, max_size=3),
    max_leaves=6,
)


class FormsTests(SynchronousTestCase):
    """There and back."""

    def test_every_field(self) -> None:
        """All fields are covered, and their names are unique."""
        self.assertEqual([field.name for field in fields(SSHSpec)], list(NAMES))
        self.assertEqual(len(set(NAMES.values())), len(NAMES))

    def test_object(self) -> None:
        """Empty and false fields are omitted from the object; all others are read back."""
        self.assertEqual(
            to_object(SPEC),
            {
                "user": "tower",
                "keyFile": "/etc/tower/id",
                "keyType": "ed25519",
                "hostKeys": "known-hosts",
                "nodes": ["10.0.0.11", "10.0.0.12:2222"],
                "addressTypes": ["ExternalIP", "LegacyHostIP", "InternalIP"],
                "sshPort": 22,
                "kubeletPort": 10250,
            },
        )
        for spec in (SPEC, FULL, evolve(SPEC, kubelet_port=0, kubelet_insecure=True)):
            self.assertEqual(read_spec(json.loads(json.dumps(to_object(spec)))), spec)

    def test_record(self) -> None:
        """A record holds what is a default now, should it be another one some day."""
        for spec in (SPEC, FULL):
            record = json.loads(json.dumps(to_record(spec)))
            self.assertEqual(set(record), set(NAMES))
            self.assertEqual(from_record(record), spec)

    def test_old_record(self) -> None:
        """A record of before there were single identities of the system allows none."""
        record = to_record(evolve(FULL, allow_system=False))
        del record["allowed_identities"]
        spec = from_record(json.loads(json.dumps(record)))
        self.assertEqual(spec, evolve(FULL, allow_system=False, allowed_identities=()))
        self.assertTrue(spec.identities.refuses("system:monitoring"))

    def test_identities(self) -> None:
        """System identities are allowed by name, or all."""
        some = evolve(SPEC, allowed_identities=("system:monitoring",)).identities
        self.assertFalse(some.refuses("system:monitoring"))
        self.assertTrue(some.refuses("system:masters"))
        self.assertFalse(evolve(SPEC, allow_system=True).identities.refuses("system:masters"))
        self.assertTrue(SPEC.identities.refuses("system:monitoring"))

    def test_types(self) -> None:
        """A field of another type is refused by name, with its value and what it has to be."""
        for name, value, text in (
            ("user", 7, "a string"),
            ("nodes", "n1,n2", "a list of strings"),
            ("nodes", [1], "a list of strings"),
            ("sshPort", "22", "a number"),
            ("sshPort", True, "a number"),
            ("sshPort", 22.0, "a number"),
            ("allowSystemIdentities", "yes", "true or false"),
            ("allowedSystemIdentities", "system:admin", "a list of strings"),
            ("targets", [], "an object of strings"),
            ("targets", {"a": 1}, "an object of strings"),
        ):
            error = str(self.assertRaises(Invalid, read_spec, {name: value}))
            self.assertIn(f"spec.connection.ssh.{name}: {value!r}", error)
            self.assertIn(text, error)

    def test_nulls(self) -> None:
        """A field that is null has its default."""
        self.assertEqual(read_spec(dict.fromkeys(NAMES.values())), SSHSpec("", ""))

    @given(st.dictionaries(st.sampled_from(sorted(NAMES.values())), _JSON))
    @settings(max_examples=300, deadline=None)
    def test_anything(self, value: dict[str, Any]) -> None:
        """Any JSON is accepted or rejected, and accepted values survive storing and showing."""
        try:
            spec = check_spec(read_spec(value))
        except Invalid:
            return
        self.assertEqual(from_record(json.loads(json.dumps(to_record(spec)))), spec)
        self.assertEqual(read_spec(to_object(spec)), spec)


class CheckTests(SynchronousTestCase):
    """Validation of specs."""

    def refusal(self, **changes: Any) -> str:
        """Return why a spec is refused."""
        error = str(self.assertRaises(Invalid, check_spec, evolve(SPEC, **changes)))
        self.assertTrue(error.startswith("spec.connection.ssh."), error)
        self.assertNotIn("\n", error)
        return error.removeprefix("spec.connection.ssh.")

    def test_good(self) -> None:
        """A spec with all fields, and a minimal one."""
        for spec in (SPEC, FULL, SSHSpec("u" * 32, "/k"), SSHSpec("ü" * 16, "/k")):
            self.assertIs(check_spec(spec), spec)

    def test_user(self) -> None:
        """A user of 1 to 32 bytes, which upstream would cut, without control characters."""
        for user in ("u" * 33, "ü" * 17, "a\nb", "a\0", "\x1b[31m"):
            self.assertIn(f"user: {user!r}", self.refusal(user=user))
        self.assertIn("user: required", self.refusal(user=""))

    def test_paths(self) -> None:
        """Files are named by what can be a path of a file, and the error shows what was given."""
        for attribute in ("key_file", "known_hosts", "nodes_file", "kubelet_authority"):
            for path in ("~/id", "/id\n", "\0", "a/" * 2048 + "b", "a" * 256, "/id/", "\ud800"):
                changes: dict[str, Any] = {"nodes": (), attribute: path}
                self.assertIn(f"{NAMES[attribute]}: ", self.refusal(**changes))
        self.assertIn("keyFile: required", self.refusal(key_file=""))

    def test_host_keys(self) -> None:
        """One of three ways, and a file only where it is looked at."""
        self.assertIn("must be known-hosts, accept-new or insecure-ignore", self.refusal(host_keys="maybe"))
        self.assertIn("knownHosts", self.refusal(host_keys="insecure-ignore", known_hosts="/f"))

    def test_nodes(self) -> None:
        """Each is a host with or without a port, and given once."""
        for nodes, text in (
            (("a b",), "nodes[0]: 'a b'"),
            (("a", ""), "nodes[1]: ''"),
            (("a:0",), "nodes[0]"),
            (("a:65536",), "nodes[0]"),
            (("a:b",), "nodes[0]"),
            (("[::1",), "nodes[0]"),
            (("a\x07",), "nodes[0]"),
            (("root@a",), "the login name is spec.connection.ssh.user"),
            (("a", "b", "a"), "nodes[2]: 'a': is listed twice, as a:22"),
            (("a", "a:22"), "is listed twice"),
            (("::1", "[::1]:22"), "is listed twice, as [::1]:22"),
            (("::1", "[0:0::1]:22"), "nodes[1]: '[0:0::1]:22': is listed twice, as [::1]:22"),
            (("A", "a:22"), "nodes[1]: 'a:22': is listed twice, as A:22"),
            (("a:0",), "the port from 1 to 65535"),
            (("a..b",), "nodes[0]: 'a..b': must be HOST"),
            (("a" * 64,), "must be HOST"),
            (tuple(f"n{n}" for n in range(5001)), "at most 5000"),
        ):
            self.assertIn(text, self.refusal(nodes=nodes))
        self.assertEqual(
            nodes_of(evolve(SPEC, nodes=("a", "a:23", "fd00::2"), ssh_port=24)),
            [Node("a", 24), Node("a", 23), Node("fd00::2", 24)],
        )

    def test_one_source(self) -> None:
        """The list comes from one place, or from the member's API."""
        self.assertIn(
            "nodesFile: spec.connection.ssh.nodes lists the nodes already", self.refusal(nodes_file="/f")
        )
        self.assertIn("cloudProvider: ", self.refusal(cloud_provider="fake"))
        self.assertIn("cloudProvider: ", self.refusal(nodes=(), nodes_file="/f", cloud_provider="fake"))
        check_spec(evolve(SPEC, nodes=()))
        check_spec(evolve(SPEC, nodes=(), nodes_file="/f"))

    def test_list_of_the_api(self) -> None:
        """A cloud may install keys at nodes that the API lists, and the record keeps that."""
        spec = check_spec(evolve(SPEC, nodes=(), nodes_from_api=True, cloud_provider="fake"))
        self.assertEqual(from_record(to_record(spec)), spec)
        self.assertIs(to_object(spec)["nodesFromAPI"], True)
        self.assertNotIn("nodesFromAPI", to_object(SPEC))
        self.assertIn("nodesFromAPI: spec.connection.ssh.nodes ", self.refusal(nodes_from_api=True))
        self.assertIn(
            "nodesFromAPI: spec.connection.ssh.nodesFile ",
            self.refusal(nodes=(), nodes_file="/f", nodes_from_api=True, cloud_provider="fake"),
        )

    def test_cloud(self) -> None:
        """A provider that there is, and a configuration only for one."""
        self.assertIn("requires spec.connection.ssh.cloudProvider", self.refusal(cloud_config="/f"))
        error = self.refusal(nodes=(), cloud_provider="clouds-r-us")
        self.assertIn("cloudProvider: 'clouds-r-us'", error)
        for name in cloud_providers():
            self.assertIn(name, error)
            check_spec(evolve(SPEC, nodes=(), cloud_provider=name, cloud_config="/f"))
        spec = evolve(SPEC, nodes=(), cloud_provider="mine")
        self.assertIs(check_spec(spec, lambda: ["mine"]), spec)
        self.assertIn("none", str(self.assertRaises(Invalid, check_spec, spec, list)))

    def test_ports(self) -> None:
        """Ports are ports; kubelets may have none."""
        for port in (0, -1, 65536):
            self.assertIn(f"sshPort: {port}", self.refusal(ssh_port=port))
        for port in (-1, 65536):
            self.assertIn(f"kubeletPort: {port}", self.refusal(kubelet_port=port))
        check_spec(evolve(SPEC, kubelet_port=0))

    def test_address_types(self) -> None:
        """Those that Kubernetes has, each once."""
        self.assertIn("addressTypes[1]: 'IP'", self.refusal(address_types=("ExternalIP", "IP")))
        self.assertIn("twice", self.refusal(address_types=("ExternalIP", "ExternalIP")))
        self.assertIn("at least one", self.refusal(address_types=()))

    def test_kubelets(self) -> None:
        """Kubelets are verified, or explicitly not."""
        error = self.refusal(kubelet_authority="/f", kubelet_insecure=True)
        self.assertIn("insecureSkipKubeletTLSVerify", error)

    def test_targets(self) -> None:
        """Names like those of agents' targets, but none that Tower has already."""
        for name, address in (
            ("kubernetes", "h:1"),
            ("kubelet", "h:1"),
            ("A", "h:1"),
            ("a b", "h:1"),
            ("", "h:1"),
            ("a", "h"),
            ("a", "h:0"),
            ("a", "::1:5"),
            ("a=b", "h:1"),
            ("a", "h\x07:1"),
        ):
            self.assertIn(f"targets.{name}: {address!r}", self.refusal(targets={name: address}))
        many = {f"t{n}": "h:1" for n in range(1001)}
        self.assertIn("at most 1000", self.refusal(targets=many))

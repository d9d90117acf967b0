"""Tests for `tower.cli`: clusters whose nodes are reached by SSH."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import yaml
from attrs import evolve

from tests.fakes.certificates import NOW
from tests.fakes.cli import CommandTestCase
from tests.fakes.members import SERVER, by_certificate, by_token
from tower.clusters.cluster import Cluster
from tower.clusters.node import Node
from tower.clusters.node_status import NodeStatus, SSHStatus
from tower.clusters.ssh_spec import SSHSpec
from tower.kube.flatten import self_contained
from tower.nodes.host_key_pins import Pins

KEY = "SHA256:" + "k" * 43


class NodesTestCase(CommandTestCase):
    """Test case with a member's kubeconfig.

    :ivar least: the required flags of such a cluster.
    """

    def setUp(self) -> None:
        """Write the kubeconfig."""
        super().setUp()
        self.member = Path(self.mktemp())
        self.member.write_bytes(self_contained(by_token()))
        self.least = ["--type", "ssh", "--ssh-user", "tower", "--ssh-keyfile", "/keys/id"]
        self.least += ["--member-kubeconfig", str(self.member)]

    def added(self, *words: str) -> SSHSpec:
        """Add the cluster beta; return its SSH spec."""
        self.good("cluster", "add", "beta", *self.least, *words)
        return self.spec()

    def spec(self) -> SSHSpec:
        """Return the SSH spec of beta."""
        ssh = self.beta().ssh
        assert ssh is not None
        return ssh

    def beta(self) -> Cluster:
        """Return the cluster."""
        return self.clusters.require("beta")


class AddTests(NodesTestCase):
    """`tower cluster add --type ssh`."""

    def test_least(self) -> None:
        """User, key and kubeconfig suffice; the output names the next step."""
        said = self.good("cluster", "add", "beta", *self.least)
        self.assertIn("tower cluster show beta", said)
        self.assertEqual(self.spec(), SSHSpec("tower", "/keys/id"))
        self.assertEqual(self.accesses.get(self.beta()), by_token())

    def test_all(self) -> None:
        """Each flag sets its field."""
        spec = self.added(
            *("--nodes", "n1, n2:2222,[fd00::3]:22", "--ssh-host-keys", "accept-new"),
            *("--ssh-known-hosts", "/keys/known", "--node-address-types", "InternalIP,Hostname"),
            *("--ssh-port", "24", "--kubelet-port", "0", "--kubelet-certificate-authority", "/keys/ca"),
            *("--target", "db=10.1.0.5:5432", "--target", "web=w:80", "--allow-system-identities"),
            *("--allow-system-identity", "system:monitoring", "--allow-system-identity", "kube:admin"),
            *("--port", "6003", "--ssh-key-type", "rsa"),
        )
        self.assertEqual(
            spec,
            SSHSpec(
                "tower",
                "/keys/id",
                "rsa",
                "accept-new",
                "/keys/known",
                ("n1", "n2:2222", "[fd00::3]:22"),
                address_types=("InternalIP", "Hostname"),
                ssh_port=24,
                kubelet_port=0,
                kubelet_authority="/keys/ca",
                targets={"db": "10.1.0.5:5432", "web": "w:80"},
                allow_system=True,
                allowed_identities=("system:monitoring", "kube:admin"),
            ),
        )
        self.assertEqual(self.beta().kubernetes_port, 6003)

    def test_sources(self) -> None:
        """A file or a cloud can list the nodes."""
        self.assertEqual(self.added("--nodes-file", "/n").nodes_file, "/n")
        self.good("cluster", "remove", "beta")
        words = ("--cloud-provider", "fake", "--cloud-config", "/c", "--insecure-skip-kubelet-tls-verify")
        spec = self.added(*words)
        self.assertEqual(
            (spec.cloud_provider, spec.cloud_config, spec.kubelet_insecure), ("fake", "/c", True)
        )

    def test_list_of_the_api(self) -> None:
        """The API can list the nodes while a cloud installs the key; another source replaces it."""
        spec = self.added("--nodes-from-api", "--cloud-provider", "fake")
        self.assertEqual((spec.nodes_from_api, spec.cloud_provider), (True, "fake"))
        self.assertRegex(self.good("cluster", "show", "beta"), r"(?m)^Nodes: +listed by its API server$")
        for words, fields in (
            (("--nodes", "n1"), (("n1",), False, "")),
            (("--nodes-from-api",), ((), True, "")),
            (("--cloud-provider", "fake"), ((), False, "fake")),
            (("--nodes-from-api",), ((), True, "fake")),
            (("--no-nodes-from-api",), ((), False, "fake")),
        ):
            self.good("cluster", "set", "beta", *words)
            spec = self.spec()
            self.assertEqual((spec.nodes, spec.nodes_from_api, spec.cloud_provider), fields, words)
        refusal = self.wrong("cluster", "set", "beta", "--nodes", "n1", "--nodes-from-api")
        self.assertIn("--nodes-from-api: --nodes lists the nodes already", refusal)

    def test_relative_paths(self) -> None:
        """Names are relative to the proxy's directory, names with a dot to the working directory."""
        self.least[5] = "beta/id"
        spec = self.added("--ssh-known-hosts", "../known", "--nodes-file", "./n")
        here = os.getcwd()
        self.assertEqual((spec.key_file, spec.nodes_file), ("beta/id", f"{here}/n"))
        self.assertEqual(spec.known_hosts, f"{os.path.dirname(here)}/known")

    def test_kubeconfig_with_files(self) -> None:
        """Files that the kubeconfig names are read locally and sent."""
        access = by_certificate()
        assert access.client_key is not None
        assert access.client_certificate is not None
        assert access.ca_data is not None
        folder = self.member.parent
        config = json.loads(self_contained(by_token()))
        config["clusters"][0]["cluster"] = {"server": SERVER, "certificate-authority": "member-ca"}
        config["users"][0]["user"] = {"client-certificate": "member-crt", "client-key": "member-key"}
        for name, data in (
            ("ca", access.ca_data),
            ("crt", access.client_certificate),
            ("key", access.client_key),
        ):
            (folder / f"member-{name}").write_bytes(data)
        self.member.write_text(json.dumps(config))
        self.added()
        self.assertEqual(self.accesses.get(self.beta()), access)

    def test_notes(self) -> None:
        """An insecure kubeconfig is accepted with a note."""
        self.member.write_bytes(self_contained(evolve(by_token(), insecure=True)))
        code, _, err = self.run_tower("cluster", "add", "beta", *self.least)
        self.assertEqual(code, 0)
        self.assertIn("insecure-skip-tls-verify", err)

    def test_missing(self) -> None:
        """Missing flags are named without a request to the proxy."""
        for words, texts in (
            (("--type", "ssh"), ("--ssh-user", "--ssh-keyfile", "--member-kubeconfig")),
            (self.least[:-2], ("requires --member-kubeconfig",)),
            (("--ssh-user", "u"), ("--ssh-user is for clusters of type ssh", "--type ssh")),
            (("--no-allow-system-identities",), ("--allow-system-identities is for",)),
            (("--allow-system-identity", "kube:admin"), ("--allow-system-identity is for",)),
            (("--member-kubeconfig", "k"), ("--member-kubeconfig is for",)),
        ):
            said = self.wrong("cluster", "add", "beta", *words)
            for text in texts:
                self.assertIn(text, said)
        self.assertEqual(self.connection.requests, [])

    def test_bad_kubeconfig(self) -> None:
        """An invalid kubeconfig is rejected locally, with the reason."""
        for content, text in (
            (None, "No such file"),
            (b"{", "not YAML"),
            (b"{}", "no current-context"),
        ):
            self.member.unlink(missing_ok=True)
            if content is not None:
                self.member.write_bytes(content)
            said = self.bad("cluster", "add", "beta", *self.least)
            self.assertIn(f"--member-kubeconfig: kubeconfig {self.member}: ", said)
            self.assertIn(text, said)
        config: dict[str, Any] = json.loads(self_contained(by_token()))
        config["users"][0]["user"] = {"exec": {"command": "aws"}}
        self.member.write_text(yaml.safe_dump(config))
        self.assertIn("a token or a client certificate", self.bad("cluster", "add", "beta", *self.least))
        self.assertEqual(self.connection.requests, [])

    def test_refused(self) -> None:
        """Errors of the proxy name flags, in one line."""
        for words, texts in (
            (("--ssh-user", "u" * 33), ("--ssh-user: ", "32 bytes")),
            (("--nodes", "root@n"), ("--nodes[0]: 'root@n'",)),
            (("--nodes", "n,n"), ("--nodes[1]: 'n': is listed twice",)),
            (
                ("--nodes", "n", "--nodes-file", "/n"),
                ("--nodes-file: --nodes lists the nodes already", "omit one of them"),
            ),
            (("--cloud-config", "/c"), ("--cloud-config: ", "requires --cloud-provider")),
            (
                ("--ssh-host-keys", "insecure-ignore", "--ssh-known-hosts", "/k"),
                ("--ssh-known-hosts: '/k'", "with --ssh-host-keys insecure-ignore"),
            ),
            (
                ("--kubelet-certificate-authority", "/k", "--insecure-skip-kubelet-tls-verify"),
                ("--kubelet-certificate-authority: '/k'", "with --insecure-skip-kubelet-tls-verify"),
            ),
            (("--nodes", ""), ("--nodes: the value is empty",)),
            (("--ssh-port", ""), ("--ssh-port: the value is empty",)),
            (("--nodes", " , "), ("--nodes: ' , ' is an empty list",)),
            (("--target", "a=h:1", "--target", "a=h:2"), ("--target: 'a' is given twice",)),
            (("--port", "99999"), ("--port: 99999",)),
            (("--cloud-provider", "rain"), ("--cloud-provider: 'rain'", "fake")),
            (("--ssh-host-keys", "maybe"), ("--ssh-host-keys: 'maybe'", "accept-new")),
            (("--ssh-port", "0"), ("--ssh-port: 0",)),
            (("--ssh-port", "ssh"), ("--ssh-port: 'ssh' is not a port",)),
            (("--kubelet-port", "70000"), ("--kubelet-port: 70000",)),
            (("--target", "kubernetes=h:1"), ("--target kubernetes: ",)),
            (("--target", "db"), ("--target: 'db' is not NAME=HOST:PORT",)),
        ):
            said = self.failing("cluster", "add", "beta", *self.least, *words)
            for text in texts:
                self.assertIn(text, said)
        self.member.write_bytes(self_contained(evolve(by_token(), server="http://h:1")))
        self.assertIn("--member-kubeconfig: server", self.wrong("cluster", "add", "beta", *self.least))
        self.assertEqual(self.clusters.list(), [])

    def test_exists(self) -> None:
        """An existing cluster is named, with the cure."""
        self.added()
        self.assertIn("tower cluster set beta", self.bad("cluster", "add", "beta", *self.least))


class SetTests(NodesTestCase):
    """`tower cluster set`."""

    def test_one_by_one(self) -> None:
        """Only the given settings change."""
        first = self.added("--nodes", "n1", "--target", "a=h:1", "--target", "b=h:2", "--ssh-port", "24")
        self.good("cluster", "set", "beta", "--ssh-user", "core", "--target", "a=", "--target", "c=h:3")
        changed = evolve(first, user="core", targets={"b": "h:2", "c": "h:3"})
        self.assertEqual(self.spec(), changed)
        self.good("cluster", "set", "beta", "--ssh-port", "", "--allow-system-identities")
        self.assertEqual(self.spec(), evolve(changed, ssh_port=22, allow_system=True))
        self.good("cluster", "set", "beta", "--no-allow-system-identities")
        self.assertFalse(self.spec().allow_system)

    def test_identities(self) -> None:
        """System identities replace the current ones; an empty one removes all."""
        first = self.added("--allow-system-identity", "system:monitoring")
        self.assertIn("users may act as system:monitoring", self.good("cluster", "show", "beta"))
        self.good("cluster", "set", "beta", "--ssh-user", "core")
        self.assertEqual(self.spec(), evolve(first, user="core"))
        for words, names in (
            (("kube:admin", "system:admin"), ("kube:admin", "system:admin")),
            (("", "system:nodes"), ("system:nodes",)),
            (("",), ()),
        ):
            flags = [word for name in words for word in ("--allow-system-identity", name)]
            self.good("cluster", "set", "beta", *flags)
            self.assertEqual(self.spec().allowed_identities, names)
        self.assertNotIn("Identities:", self.good("cluster", "show", "beta"))

    def test_bad_identities(self) -> None:
        """An invalid or repeated system identity is rejected by the flag's name."""
        self.added()
        for names, text in (
            (("jane",), "--allow-system-identity[0]: 'jane' is not a system identity"),
            (("system:authenticated",), "'system:authenticated' needs no permission"),
            (("system:node:*",), "in full"),
            (("kube:admin", "kube:admin"), "--allow-system-identity[1]: 'kube:admin': is listed twice"),
        ):
            flags = [word for name in names for word in ("--allow-system-identity", name)]
            self.assertIn(text, self.failing("cluster", "set", "beta", *flags))
        self.assertEqual(self.spec().allowed_identities, ())

    def test_another_source(self) -> None:
        """A new source of nodes replaces the current one; without a source, the API lists them."""
        self.added("--nodes", "n1,n2")
        for words, fields in (
            (("--nodes-file", "/n"), ((), "/n", "", "")),
            (("--cloud-provider", "fake", "--cloud-config", "/c"), ((), "", "fake", "/c")),
            (("--cloud-config", "/d"), ((), "", "fake", "/d")),
            (("--cloud-config", ""), ((), "", "fake", "")),
            (("--nodes", "n3"), (("n3",), "", "", "")),
            (("--ssh-user", "core"), (("n3",), "", "", "")),
            (("--nodes", ""), ((), "", "", "")),
        ):
            self.good("cluster", "set", "beta", *words)
            spec = self.spec()
            self.assertEqual(
                (spec.nodes, spec.nodes_file, spec.cloud_provider, spec.cloud_config), fields, words
            )

    def test_kubeconfig(self) -> None:
        """A new kubeconfig replaces the current one."""
        self.added()
        access = by_certificate()
        self.member.write_bytes(self_contained(access))
        self.good("cluster", "set", "beta", "--member-kubeconfig", str(self.member))
        self.assertEqual(self.accesses.get(self.beta()), access)

    def test_bad(self) -> None:
        """A change without flags, of a missing cluster, of one with an agent, or with a bad value fails."""
        self.added()
        self.add("alpha")
        self.assertIn("tower cluster set --help", self.wrong("cluster", "set", "beta"))
        self.assertIn("there is no cluster nope", self.bad("cluster", "set", "nope", "--ssh-user", "u"))
        self.assertIn("alpha is of type 'proxy'", self.wrong("cluster", "set", "alpha", "--ssh-user", "u"))
        self.assertIn("--ssh-user: required", self.wrong("cluster", "set", "beta", "--ssh-user", ""))
        self.assertIn("--port", self.wrong("cluster", "set", "beta", "--port", "6001"))
        self.assertIn("is an empty list", self.wrong("cluster", "set", "beta", "--nodes", ","))
        said = self.wrong("cluster", "set", "beta", "--member-kubeconfig", "")
        self.assertIn("--member-kubeconfig: the value is empty", said)


class ShowTests(NodesTestCase):
    """Output about clusters of type ssh."""

    def test_show(self) -> None:
        """The output has settings, latest status, nodes, and their errors."""
        self.added("--nodes", "n1,n2:2222", "--target", "db=10.1.0.5:5432")
        said = self.good("cluster", "show", "beta")
        self.assertIn("no nodes are known yet", said)
        self.ssh["beta"] = SSHStatus(
            (
                NodeStatus("n1", "n1:22", "open", NOW - 340, KEY, 3, 0.0012, NOW - 20),
                NodeStatus("n2", "n2:2222", "failed", NOW - 12, error="connection refused"),
            ),
            NOW - 4,
            None,
            "the API server did not answer",
        )
        said = self.good("cluster", "show", "beta")
        for pattern in (
            r"Type: +ssh",
            rf"API server: +{SERVER}",
            r"Credential: +token",
            r"SSH user: +tower",
            r"SSH key: +/keys/id",
            r"Host keys: +~/\.ssh/known_hosts, /etc/ssh/ssh_known_hosts",
            r"Nodes: +n1, n2:2222",
            r"Kubelets: +port 10250",
            r"Target db: +10\.1\.0\.5:5432",
            r"Tunnels: +1 open, 1 failed",
            r"Last sync: +2023-11-14T22:13:16Z",
            r"Key install: +not by Tower: no cloud provider",
            r"Last error: +the API server did not answer",
            r"NAME   ADDRESS   STATE    SINCE   ROUND TRIP   STREAMS   CHECKED   HOST KEY",
            rf"n1     n1:22     open     5m40s   1\.2ms        3         20s ago   {KEY}",
            r"n2     n2:2222   failed   12s     <none>       0         <none>    <none>",
            r"NODE   ERROR",
            r"n2     connection refused",
        ):
            self.assertRegex(said, f"(?m)^{pattern}$")
        self.assertLessEqual(max(len(line) for line in said.splitlines() if KEY not in line), 100)
        refused = [NodeStatus("n1", f"n1:{port}", "failed", NOW, error="refused") for port in (22, 23)]
        self.ssh["gamma"] = SSHStatus(tuple(refused))
        self.good("cluster", "add", "gamma", *self.least, "--nodes", "n1:22,n1:23")
        said_of_two = self.good("cluster", "show", "gamma")
        for address in ("n1:22", "n1:23"):  # one name does not tell them apart
            self.assertRegex(said_of_two, f"(?m)^{address}   refused$")
        whole = json.loads(self.good("cluster", "show", "beta", "-o", "json"))
        self.assertEqual(whole["status"]["ssh"]["usableNodes"], 1)
        self.good("cluster", "set", "beta", "--nodes", ",".join(f"n{n}" for n in range(9)))
        self.assertIn("n0, n1, n2, n3, n4 and 4 more\n", self.good("cluster", "show", "beta"))

    def test_many(self) -> None:
        """Every node has a line, and only the first failing ones have an error line."""
        self.added("--nodes", "n1")
        ill = [NodeStatus(f"n{number}", f"n{number}:22", "failed", NOW, error="no") for number in range(300)]
        self.ssh["beta"] = SSHStatus((*ill, NodeStatus("m", "m:22", "open", NOW)))
        said = self.good("cluster", "show", "beta")
        self.assertRegex(said, r"(?m)^Tunnels: +300 failed, 1 open$")
        self.assertEqual(len([line for line in said.splitlines() if line.startswith("n")]), 310)
        self.assertTrue(said.endswith("and 290 more: 'tower cluster show beta -o yaml' shows all\n"), said)

    def test_disabled(self) -> None:
        """The output for a disabled cluster has no nodes."""
        self.added("--nodes", "n1")
        self.good("cluster", "disable", "beta")
        self.assertNotIn("no nodes are known yet", self.good("cluster", "show", "beta"))

    def test_other_ways(self) -> None:
        """Each setting is shown."""
        self.member.write_bytes(self_contained(by_certificate(60)))
        self.added("--ssh-host-keys", "accept-new", "--kubelet-port", "0", "--allow-system-identities")
        for words, patterns in (
            (
                (),
                (
                    r"Credential: +certificate, until 2023-11-14T22:14:20Z",
                    r"Host keys: .*, otherwise learned \(accept-new\)",
                    r"Nodes: +listed by its API server",
                    r"Kubelets: +not accessible \(--kubelet-port 0\)",
                    r"Identities: +users may act as any system identity",
                ),
            ),
            (
                ("--ssh-host-keys", "insecure-ignore", "--nodes-file", "/n", "--kubelet-port", "1"),
                (
                    r"Host keys: +not verified \(insecure-ignore\)",
                    r"Nodes: +listed in /n",
                    r"Kubelets: +port 1",
                ),
            ),
            (
                ("--cloud-provider", "fake", "--cloud-config", "/c", "--insecure-skip-kubelet-tls-verify"),
                (
                    r"Nodes: +listed by the cloud fake \(/c\)",
                    r"Kubelets: +port 1, not verified",
                    r"Key install: +not yet",
                ),
            ),
            (
                (
                    *("--cloud-config", "", "--no-insecure-skip-kubelet-tls-verify"),
                    *("--kubelet-certificate-authority", "/ca"),
                ),
                (r"Nodes: +listed by the cloud fake", r"Kubelets: +port 1, verified by /ca"),
            ),
        ):
            if words:
                self.good("cluster", "set", "beta", *words)
            said = self.good("cluster", "show", "beta")
            for pattern in patterns:
                self.assertRegex(said, f"(?m)^{pattern}$")

    def test_list(self) -> None:
        """The wide list shows the types."""
        self.added()
        self.add("alpha")
        lines = self.good("cluster", "list", "-o", "wide").splitlines()
        place = lines[0].index("TYPE")
        self.assertEqual([line[place:].split()[0] for line in lines], ["TYPE", "proxy", "ssh"])

    def test_no_agents(self) -> None:
        """The output never suggests starting an agent."""
        self.added()
        for words in (("join", "beta"), ("join", "beta", "--protocol", "v1"), ("cluster", "agents", "beta")):
            said = self.wrong(*words)
            self.assertIn("cluster beta is of type ssh", said)
            self.assertIn("tower cluster show beta", said)

    def test_forget_host_key(self) -> None:
        """The key of a node is forgotten, by its name or its address."""
        self.added()
        pins = Pins(self.store, "beta", self.beta().uid)
        for name in ("n2", "[fd00::2]:2222", "fd00::2"):
            pins.learn(Node("fd00::2", 2222, "n2"), b"\0\0\0\x0bssh-ed25519")
            self.assertIn(f"host key of node {name}", self.good("cluster", "forget-host-key", "beta", name))
            self.assertEqual(pins.all(), [])
        said = self.bad("cluster", "forget-host-key", "beta", "n2")
        self.assertIn(
            "no host key of n2 is pinned in cluster beta: with known-hosts the keys are in known_hosts", said
        )
        for words, text in (
            (("--ssh-known-hosts", "/k"), "with known-hosts the keys are in /k: change that file"),
            (("--ssh-host-keys", "accept-new"), "'tower cluster show beta' lists its nodes"),
            (
                ("--ssh-host-keys", "insecure-ignore", "--ssh-known-hosts", ""),
                "with insecure-ignore host keys are not checked",
            ),
        ):
            self.good("cluster", "set", "beta", *words)
            self.assertIn(text, self.bad("cluster", "forget-host-key", "beta", "n2"))
        self.assertIn("cluster nope not found", self.bad("cluster", "forget-host-key", "nope", "n2"))
        self.add("alpha")
        self.assertIn("of type proxy", self.wrong("cluster", "forget-host-key", "alpha", "n2"))

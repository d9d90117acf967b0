"""Clusters of type ssh in Tower's API: writing, reading, and their subresources."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from attrs import evolve

from tests.fakes.api import BASE, TABLE, ApiTestCase, decoded
from tests.fakes.certificates import NOW
from tests.fakes.members import SERVER, by_certificate, by_token, jwt, secrets_of
from tower.clusters.node import Node
from tower.clusters.node_status import NodeStatus, SSHStatus
from tower.clusters.ssh_spec_object import NAMES
from tower.kube.flatten import self_contained
from tower.kube.kubeconfig import KubeAccess
from tower.kube.status import refusal_of
from tower.kube.timestamps import timestamp
from tower.nodes.host_key_pins import Pins
from tower.trust.vault import VaultError
from tower.web.api import openapi
from tower.web.outcome import Response

CLUSTERS = f"{BASE}/clusters"
BETA = f"{CLUSTERS}/beta"
MERGE = "application/merge-patch+json"
APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
KEY = "SHA256:" + "k" * 43


def encoded(access: KubeAccess) -> str:
    """Return the value of *access* in an object."""
    return base64.b64encode(self_contained(access)).decode("ascii")


def body(access: KubeAccess | None = None, **ssh: Any) -> dict[str, Any]:
    """Return a cluster to be created."""
    return {
        "apiVersion": "cluster.kubesphere.io/v1alpha1",
        "kind": "Cluster",
        "metadata": {"name": "beta"},
        "spec": {
            "connection": {
                "type": "ssh",
                "ssh": {"user": "tower", "keyFile": "/keys/id", "nodes": ["n1", "n2:2222"], **ssh},
                "kubeconfig": encoded(access or by_token()),
            }
        },
    }


def patch(**connection: Any) -> dict[str, Any]:
    """Return a merge patch."""
    return {"spec": {"connection": connection}}


def group_document() -> dict[str, Any]:
    """Return the document of Tower's own group."""
    found = openapi.document("apis/cluster.kubesphere.io/v1alpha1")
    assert found is not None
    return found


class WritingCase(ApiTestCase):
    """Creates and patches."""

    def create(self, value: dict[str, Any] | None = None) -> dict[str, Any]:
        """Create a cluster, return the answer."""
        return decoded(self.ask("POST", CLUSTERS, value or body()))

    def patched(self, change: dict[str, Any]) -> dict[str, Any]:
        """Patch it, return the answer."""
        return decoded(self.ask("PATCH", BETA, change, content=MERGE))

    def refusal(self, method: str, change: dict[str, Any]) -> str:
        """Return the error of a write, which must be the same in a dry run."""
        path, content = (CLUSTERS, "application/json") if method == "POST" else (BETA, MERGE)
        said = {
            str(self.refused(422, method, path, change, content=content, **query))
            for query in ({}, {"dryRun": "All"})
        }
        self.assertEqual(len(said), 1)
        return said.pop()


class WritingTests(WritingCase):
    """Create and patch."""

    def test_create(self) -> None:
        """The answer has the SSH settings, and only the public part of the credential."""
        made = self.create()
        connection = made["spec"]["connection"]
        self.assertEqual((connection["type"], connection["kubernetesAPIServerPort"]), ("ssh", 6000))
        self.assertEqual(connection["ssh"]["nodes"], ["n1", "n2:2222"])
        self.assertEqual(connection["ssh"]["hostKeys"], "known-hosts")
        self.assertNotIn("kubeconfig", connection)
        self.assertEqual(made["status"]["member"], {"server": SERVER, "credential": "token"})
        self.assertEqual(self.accesses.get(self.clusters.require("beta")), by_token())

    def test_facts(self) -> None:
        """The expiry of a credential is shown if it is known."""
        for access in (by_token(jwt(NOW + 60)), by_certificate(60)):
            member = self.create(body(access))["status"]["member"]
            self.assertEqual(member["expirationTimestamp"], timestamp(NOW + 60))
            self.ask("DELETE", BETA)

    def test_base64_in_lines(self) -> None:
        """Base64 may have line breaks, as is common in YAML."""
        value = body()
        connection = value["spec"]["connection"]
        text = connection["kubeconfig"]
        connection["kubeconfig"] = "\n".join(text[i : i + 76] for i in range(0, len(text), 76)) + "\n"
        self.create(value)

    def test_refused(self) -> None:
        """Each mistake is rejected with field and cure, also in a dry run, and nothing is stored."""
        for connection, text in (
            ({"kubeconfig": None}, "kubeconfig: required"),
            ({"kubeconfig": ""}, "in base64"),
            ({"kubeconfig": 7}, "in base64"),
            ({"kubeconfig": "hush!"}, "in base64"),
            ({"kubeconfig": base64.b64encode(b"hush").decode()}, "it has no clusters and contexts"),
            ({"kubeconfig": "A" * 600_000}, "larger than"),
            ({"kubeconfig": encoded(evolve(by_token(), server="http://h:1"))}, "use https"),
            ({"kubeconfig": encoded(evolve(by_token(), proxy_url="http://p"))}, "proxy-url"),
            ({"type": "direct"}, "must be 'proxy' (an agent in the cluster connects) or 'ssh'"),
            ({"type": "proxy"}, "spec.connection.ssh: only for clusters of type 'ssh'"),
            ({"type": "proxy", "ssh": None}, "spec.connection.kubeconfig: only for clusters of type 'ssh'"),
            ({"ssh": None}, "ssh.user: required"),
            ({"ssh": []}, "spec.connection.ssh: must be an object"),
            ({"ssh": {"user": "u"}}, "ssh.keyFile: required"),
            ({"ssh": {"user": "u", "keyFile": "~/id"}}, "keyFile: '~/id': must be a path without ~"),
        ):
            value = body()
            value["spec"]["connection"] |= connection
            said = self.refusal("POST", value)
            self.assertIn(text, said)
            self.assertNotIn("hush", said)
        self.assertEqual(self.clusters.list(), [])
        self.assertEqual(dict(self.store.snapshot("memberaccess")), {})

    def test_files_in_the_kubeconfig(self) -> None:
        """A kubeconfig with file names is rejected with the field for their content; so is a plugin."""
        config = json.loads(self_contained(by_token()))
        for user, text in (
            (
                {"tokenFile": "/t"},
                "tokenFile refers to the file '/t', which was not sent: put its content into token",
            ),
            ({"client-key": "k", "client-certificate-data": "QQ=="}, "into client-key-data"),
            ({"exec": {"command": "aws"}}, "give it a token or a client certificate"),
        ):
            config["users"][0]["user"] = user
            value = body()
            value["spec"]["connection"]["kubeconfig"] = base64.b64encode(json.dumps(config).encode()).decode()
            self.assertIn(text, self.refusal("POST", value))

    def test_dry_run(self) -> None:
        """A dry run returns the result, and stores neither cluster nor credential."""
        made = decoded(self.ask("POST", CLUSTERS, body(), dryRun="All"))
        self.assertEqual(made["spec"]["connection"]["ssh"]["user"], "tower")
        self.assertEqual(self.clusters.list(), [])
        self.create()
        change = patch(ssh={"user": "x"}, kubeconfig=encoded(by_certificate()))
        self.ask("PATCH", BETA, change, content=MERGE, dryRun="All")
        cluster = self.clusters.require("beta")
        self.assertEqual(
            (cluster.ssh and cluster.ssh.user, self.accesses.get(cluster)), ("tower", by_token())
        )

    def test_patch(self) -> None:
        """Fields are changed one by one; a list is replaced; null restores the default."""
        self.create(body(targets={"a": "h:1", "b": "h:2"}, sshPort=24))
        change = {"user": "core", "nodes": ["n3"], "sshPort": None, "targets": {"a": None, "c": "h:3"}}
        ssh = self.patched(patch(ssh=change))["spec"]["connection"]["ssh"]
        self.assertEqual((ssh["user"], ssh["keyFile"], ssh["sshPort"]), ("core", "/keys/id", 22))
        self.assertEqual((ssh["nodes"], ssh["targets"]), (["n3"], {"b": "h:2", "c": "h:3"}))
        ssh = self.patched(patch(ssh={"nodes": None, "nodesFile": "/n"}))["spec"]["connection"]["ssh"]
        self.assertEqual((ssh["nodesFile"], "nodes" in ssh), ("/n", False))

    def test_patch_of_other_things(self) -> None:
        """Labels and the state can be changed without the SSH settings."""
        self.create()
        self.patched({"metadata": {"labels": {"env": "prod"}}, "spec": {"enable": False}})
        cluster = self.clusters.require("beta")
        self.assertEqual((cluster.enabled, cluster.labels, cluster.type), (False, {"env": "prod"}, "ssh"))
        self.assertEqual(self.accesses.get(cluster), by_token())

    def test_patch_with_a_credential(self) -> None:
        """A new kubeconfig replaces the old one; null changes nothing."""
        self.create()
        heard: list[str] = []
        self.addCleanup(self.accesses.watch(heard.append).stop)
        answer = self.patched(patch(kubeconfig=encoded(by_certificate())))
        self.assertEqual(answer["status"]["member"]["credential"], "certificate")
        self.assertEqual(heard, ["beta"])
        self.patched(patch(kubeconfig=None))
        self.assertEqual(heard, ["beta"])
        self.assertIsNotNone(self.accesses.get(self.clusters.require("beta")).client_key)

    def test_patch_refused(self) -> None:
        """The type cannot change, and fields of the other type are rejected."""
        self.create()
        self.add("alpha")
        self.assertIn("cannot be changed", self.refusal("PATCH", patch(type="proxy", ssh=None)))
        self.assertIn("nodes[0]", self.refusal("PATCH", patch(ssh={"nodes": ["root@n"]})))
        self.assertIn("ssh.user: required", self.refusal("PATCH", patch(ssh=None)))
        self.assertIn("in base64", self.refusal("PATCH", patch(kubeconfig="?")))
        alpha = f"{CLUSTERS}/alpha"
        for change in (patch(ssh={"user": "u"}), patch(kubeconfig=encoded(by_token()))):
            for query in ({}, {"dryRun": "All"}):
                said = str(self.refused(422, "PATCH", alpha, change, content=MERGE, **query))
                self.assertIn("cluster alpha is of type 'proxy'", said)
        change = patch(**body()["spec"]["connection"])
        said = str(self.refused(422, "PATCH", alpha, change, content=MERGE))
        self.assertIn("cannot be changed", said)

    def test_old_version(self) -> None:
        """A client with an old version changes neither the cluster nor its credential."""
        self.create()
        change = {"metadata": {"resourceVersion": "999"}, **patch(kubeconfig=encoded(by_certificate()))}
        self.refused(409, "PATCH", BETA, change, content=MERGE)
        self.assertEqual(self.accesses.get(self.clusters.require("beta")), by_token())

    def test_field_validation(self) -> None:
        """Unknown fields are found in the SSH settings too; targets may have any name."""
        value = body(frob=1, targets={"frob": "h:1"})
        refusal = self.refused(400, "POST", CLUSTERS, value, fieldValidation="Strict")
        self.assertIn('unknown field "spec.connection.ssh.frob"', str(refusal))
        self.assertNotIn("targets", str(refusal))
        value = body(targets={"frob": "h:1"})
        self.ask("POST", CLUSTERS, value, fieldValidation="Strict")

    def test_warnings(self) -> None:
        """A credential without much protection is accepted with a warning."""
        outcome = self.ask("POST", CLUSTERS, body(evolve(by_token(), insecure=True)))
        assert isinstance(outcome, Response)
        self.assertIn(b"insecure-skip-tls-verify", dict(outcome.headers)[b"Warning"])
        outcome = self.ask("PATCH", BETA, patch(kubeconfig=encoded(KubeAccess("https://h"))), content=MERGE)
        assert isinstance(outcome, Response)
        self.assertIn(b"no credential", dict(outcome.headers)[b"Warning"])

    def test_no_secret(self) -> None:
        """No answer, annotation of `kubectl apply` or repr contains any part of the credential."""
        for access in (by_token(), by_certificate()):
            value = body(access)
            text = value["spec"]["connection"]["kubeconfig"]
            value["metadata"]["annotations"] = {APPLIED: json.dumps(value) + "\n", "other": "{"}
            answers = [self.create(value)]
            change = {"metadata": {"annotations": value["metadata"]["annotations"]}, **patch(kubeconfig=text)}
            answers.append(self.patched(change))
            answers += [self.get(path) for path in (CLUSTERS, BETA, f"{BETA}/nodes", f"{BETA}/hostkeys")]
            answers.append(self.get(CLUSTERS, accept=TABLE, includeObject="Object"))
            stored = [dict(record.value) for record in self.store.snapshot("clusters").values()]
            shown = (json.dumps([*answers, *stored]) + repr(self.clusters.require("beta"))).encode()
            for secret in (*secrets_of(access), text.encode()):
                self.assertNotIn(secret, shown)
            applied = json.loads(answers[0]["metadata"]["annotations"][APPLIED])
            self.assertEqual(applied["spec"]["connection"]["ssh"]["user"], "tower")
            self.assertEqual(answers[0]["metadata"]["annotations"]["other"], "{")
            self.ask("DELETE", BETA)

    def test_vault_fails(self) -> None:
        """If the credential cannot be sealed, the write fails with the reason."""
        self.vault.path.mkdir()
        refusal = refusal_of(self.assertRaises(VaultError, self.ask, "POST", CLUSTERS, body()))
        self.assertEqual(refusal.code, 500)
        self.assertIn(str(self.vault.path), refusal.message)
        self.assertEqual(self.clusters.list(), [])


class FilesTests(WritingCase):
    """Files of clusters must be below one directory."""

    node_files = Path("/keys")

    def test_elsewhere(self) -> None:
        """Another file is rejected with field, value and cure, on creation and on change."""
        value = body(keyFile="/keys/../etc/id")
        said = self.refusal("POST", value)
        self.assertIn("keyFile: '/keys/../etc/id': must be below /keys (--node-files of tower-proxy)", said)
        self.create()
        for name in ("knownHosts", "nodesFile", "keyFile", "kubeletCertificateAuthority"):
            for path in ("/etc/shadow", "../secrets.key", "a/../../b", "/keys", "."):
                said = self.refusal("PATCH", patch(ssh={"nodes": None, name: path}))
                self.assertIn(f"spec.connection.ssh.{name}: {path!r}: must be below /keys", said)
        ssh = self.patched(patch(ssh={"nodes": None, "nodesFile": "b/c"}))["spec"]["connection"]["ssh"]
        self.assertEqual(ssh["nodesFile"], "b/c")

    def test_of_former_times(self) -> None:
        """A file that a record has already is kept when another field changes, but cannot be added."""
        self.create()
        cluster = self.clusters.require("beta")
        assert cluster.ssh is not None
        old = evolve(cluster.ssh, key_file="/etc/id")
        self.successResultOf(self.clusters.change("beta", lambda known: evolve(known, ssh=old)))
        self.patched(patch(ssh={"user": "core"}))
        self.assertIn("knownHosts", self.refusal("PATCH", patch(ssh={"knownHosts": "/etc/id"})))
        self.assertEqual(
            self.patched(patch(ssh={"keyFile": "id"}))["spec"]["connection"]["ssh"]["keyFile"], "id"
        )
        self.assertIn("keyFile", self.refusal("PATCH", patch(ssh={"keyFile": "/etc/id"})))


class ShowingTests(ApiTestCase):
    """Live status."""

    def setUp(self) -> None:
        """Add one such cluster, and one with an agent."""
        super().setUp()
        self.ask("POST", CLUSTERS, body())
        self.add("alpha")

    def fleet(self) -> None:
        """Set the nodes."""
        self.ssh["beta"] = SSHStatus(
            (
                NodeStatus("n1", "n1:22", "open", NOW - 340, KEY, 3, 0.0012, NOW - 20),
                NodeStatus("n2", "n2:2222", "failed", NOW - 12, error="connection refused"),
                NodeStatus("n3", "n3:22", "degraded", NOW - 5, KEY, 0, 0.002, NOW - 5, "HTTP 500"),
            ),
            NOW - 4,
            NOW - 100,
            "the API server did not answer",
        )

    def test_status(self) -> None:
        """Times have Kubernetes' format, and unknown values are omitted."""
        self.assertNotIn("ssh", self.get(BETA)["status"])
        self.ssh["beta"] = SSHStatus()
        self.assertEqual(self.get(BETA)["status"]["ssh"], {"usableNodes": 0, "nodes": []})
        self.fleet()
        status = self.get(BETA)["status"]
        self.assertNotIn("agents", status)
        self.assertEqual(status["ssh"]["usableNodes"], 2)
        self.assertEqual(status["ssh"]["lastSync"], timestamp(NOW - 4))
        self.assertEqual(status["ssh"]["lastKeyInstall"], timestamp(NOW - 100))
        self.assertEqual(status["ssh"]["lastError"], "the API server did not answer")
        self.assertEqual(
            status["ssh"]["nodes"][:2],
            [
                {
                    "name": "n1",
                    "address": "n1:22",
                    "state": "open",
                    "since": timestamp(NOW - 340),
                    "streams": 3,
                    "hostKey": KEY,
                    "roundTripMilliseconds": 1.2,
                    "lastCheck": timestamp(NOW - 20),
                },
                {
                    "name": "n2",
                    "address": "n2:2222",
                    "state": "failed",
                    "since": timestamp(NOW - 12),
                    "streams": 0,
                    "error": "connection refused",
                },
            ],
        )

    def test_other_clusters(self) -> None:
        """A cluster with an agent has no SSH status."""
        self.ssh["alpha"] = SSHStatus()
        self.assertEqual(set(self.get(f"{CLUSTERS}/alpha")["status"]), {"conditions", "agents"})

    def test_table(self) -> None:
        """Rows show nodes if there are no agents."""
        self.successResultOf(self.clusters.set_condition("beta", "Available", "True", "R", "m"))

        def row() -> dict[str, Any]:
            answer = self.get(CLUSTERS, accept=TABLE)
            names = [column["name"] for column in answer["columnDefinitions"]]
            return dict(zip(names, answer["rows"][1]["cells"], strict=True))

        self.assertEqual(
            [row()[name] for name in ("Name", "Available", "Last seen", "Agents", "Type")],
            ["beta", "True", "never", "0/0", "ssh"],
        )
        self.fleet()
        self.assertEqual([row()[name] for name in ("Last seen", "Agents")], ["now", "2/3"])

    def test_nodes(self) -> None:
        """The nodes are a subresource, as objects and as a table."""
        self.assertEqual(self.get(f"{BETA}/nodes")["items"], [])
        self.fleet()
        answer = self.get(f"{BETA}/nodes")
        self.assertEqual((answer["kind"], len(answer["items"])), ("NodeList", 3))
        item = answer["items"][0]
        self.assertEqual(item["spec"], {"cluster": "beta", "address": "n1:22"})
        self.assertEqual((item["metadata"]["name"], item["status"]["state"]), ("n1", "open"))
        rows = [row["cells"] for row in self.get(f"{BETA}/nodes", accept=TABLE)["rows"]]
        self.assertEqual(rows[0], ["n1", "n1:22", "open", "5m40s", "1.2ms", 3, "20s ago", KEY, ""])
        self.assertEqual(rows[1], ["n2", "n2:2222", "failed", "12s", "", 0, "", "", "connection refused"])
        self.refused(405, "POST", f"{BETA}/nodes", {})
        self.refused(404, "GET", f"{BETA}/nodes/n1")
        self.assertIn("agents alpha", str(self.refused(422, "GET", f"{CLUSTERS}/alpha/nodes")))

    def test_host_keys(self) -> None:
        """The pinned keys are listed, and can be removed one by one; a dry run removes none."""
        pins = Pins(self.store, "beta", self.clusters.require("beta").uid)
        blob = b"\0\0\0\x0bssh-ed25519\0\0\0\x20" + bytes(32)
        for node in (Node("n1"), Node("fd00::2", 2222, "n2")):
            pins.learn(node, blob)
        items = self.get(f"{BETA}/hostkeys")["items"]
        self.assertEqual([item["metadata"]["name"] for item in items], ["n2", "n1"])
        self.assertIn("ssh-ed25519 SHA256:", items[0]["spec"]["hostKey"])
        self.assertEqual(len(self.get(f"{BETA}/hostkeys", accept=TABLE)["rows"]), 2)
        self.stays(f"{BETA}/hostkeys/fd00::2:2222")
        self.assertEqual(len(pins.all()), 2)
        self.refused(404, "DELETE", f"{BETA}/hostkeys/n3", dryRun="All")
        self.assertEqual(decoded(self.ask("DELETE", f"{BETA}/hostkeys/fd00::2:2222"))["status"], "Success")
        self.assertEqual([pin.name for pin in pins.all()], ["n1"])
        refusal = self.refused(404, "DELETE", f"{BETA}/hostkeys/n2")
        self.assertEqual(refusal.details["kind"], "hostkeys")
        self.refused(405, "DELETE", f"{BETA}/hostkeys")
        self.refused(404, "GET", f"{BETA}/hostkeys/n1/x")
        self.refused(422, "GET", f"{CLUSTERS}/alpha/hostkeys")

    def test_no_agents(self) -> None:
        """Such a cluster has no join tokens and no agents."""
        for spec in ({}, {"protocol": "v1"}):
            said = str(self.refused(422, "POST", f"{BETA}/jointokens", {"spec": spec}))
            self.assertIn("it has nodes instead of agents", said)
        self.assertIn("it has nodes instead of agents", str(self.refused(422, "GET", f"{BETA}/agents")))
        self.assertEqual(dict(self.store.snapshot("jointokens")), {})

    def test_kubeconfigs(self) -> None:
        """Users get kubeconfigs as for every other cluster."""
        answer = decoded(self.ask("POST", f"{BETA}/kubeconfigs", {"spec": {"user": "jane"}}))
        self.assertIn("/clusters/beta", answer["status"]["kubeconfig"])

    def test_watch(self) -> None:
        """A watch has the same objects as a list."""
        self.fleet()
        stream = self.watch()
        (event,) = [line for line in stream.lines if line["object"]["metadata"].get("name") == "beta"]
        self.assertEqual(event["object"], self.get(BETA))


class DocumentTests(ApiTestCase):
    """The schema for `kubectl explain`."""

    def test_fields(self) -> None:
        """Every field is described, and no other field."""
        schemas = group_document()["components"]["schemas"]
        cluster = schemas["io.kubesphere.cluster.v1alpha1.Cluster"]["properties"]
        connection = cluster["spec"]["properties"]["connection"]["properties"]
        self.assertEqual(set(connection["ssh"]["properties"]), set(NAMES.values()))
        self.ask("POST", CLUSTERS, body(by_certificate()))
        self.ssh["beta"] = SSHStatus(
            (NodeStatus("n", "n:22", "open", NOW, KEY, 1, 0.1, NOW, "e"),), NOW, NOW, "e"
        )
        status = self.get(BETA)["status"]
        described = cluster["status"]["properties"]
        for shown, schema in (
            (status["member"], described["member"]),
            (status["ssh"], described["ssh"]),
            (status["ssh"]["nodes"][0], described["ssh"]["properties"]["nodes"]["items"]),
        ):
            self.assertEqual(set(shown), set(schema["properties"]))

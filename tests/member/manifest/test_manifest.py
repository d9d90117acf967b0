"""Tests of `tower.member.manifest.manifest`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.agent_options import CA_HASH, FINGERPRINT
from tower.cli.manifest import rbac_manifest
from tower.member.manifest.manifest import agent_manifest, agent_objects
from tower.member.manifest.settings import AgentSettings, Joining
from tower.member.options import Options
from tower.tunnels.targets import Target

#: The manifest of `JOINING`.  After a change, review the difference, and replace the file by the printed one.
GOLDEN = Path(__file__).parent / "agent.yaml"

JOINING = Joining("alpha", "tower-t0ken", "wss://tower.example:8443", [FINGERPRINT], [CA_HASH])
SETTINGS = AgentSettings("registry.example/tower:1.2.3")


class ManifestTests(SynchronousTestCase):
    def objects(self, settings: AgentSettings = SETTINGS) -> dict[tuple[str, str], dict[str, Any]]:
        """Return the objects by kind and name."""
        found = agent_objects(JOINING, settings)
        named = {(item["kind"], item["metadata"]["name"]): item for item in found}
        self.assertEqual(len(named), len(found))
        return named

    def container(self) -> dict[str, Any]:
        """Return the agent's container."""
        deployment = self.objects()["Deployment", "tower-agent"]
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        return dict(container)

    def test_golden(self) -> None:
        """The manifest is the reviewed one."""
        made = agent_manifest(JOINING, SETTINGS) + "\n"
        self.assertEqual(made, GOLDEN.read_text(), f"replace {GOLDEN} if this is right:\n{made}")

    def test_readable(self) -> None:
        """The text is the objects, after a comment that names the cluster."""
        text = agent_manifest(JOINING, SETTINGS)
        self.assertTrue(text.startswith("# Agent of Tower for cluster alpha."))
        self.assertEqual(list(yaml.safe_load_all(text)), agent_objects(JOINING, SETTINGS))
        self.assertNotRegex(text, r"[&*]id0")

    def test_token(self) -> None:
        """Only one Secret has the token; the agent gets it from there, and starts without that Secret."""
        objects = self.objects()
        holders = [key for key, item in objects.items() if JOINING.token in str(item)]
        self.assertEqual(holders, [("Secret", "tower-agent-join")])
        (variable,) = (each for each in self.container()["env"] if each["name"] == "TOWER_TOKEN")
        reference = variable["valueFrom"]["secretKeyRef"]
        self.assertEqual(reference, {"name": "tower-agent-join", "key": "token", "optional": True})

    def test_new_token(self) -> None:
        """Another token changes the pods, so that they restart with it."""

        def template(token: str) -> Any:
            joining = Joining("alpha", token, "wss://tower.example", [FINGERPRINT], [CA_HASH])
            return agent_objects(joining, SETTINGS)[-1]["spec"]["template"]

        self.assertEqual(template("one"), template("one"))
        self.assertNotEqual(template("one"), template("two"))

    def test_key(self) -> None:
        """The Secret for the key is empty, and the agent can only get and patch it."""
        objects = self.objects()
        secret = objects["Secret", "tower-agent-key"]
        self.assertEqual(set(secret), {"apiVersion", "kind", "metadata", "type"})
        (rule,) = objects["Role", "tower-agent-key"]["rules"]
        self.assertEqual(
            (rule["resources"], rule["resourceNames"], rule["verbs"]),
            (["secrets"], ["tower-agent-key"], ["get", "patch"]),
        )
        self.assertIn({"name": "TOWER_KEY_SECRET", "value": "tower-agent-key"}, self.container()["env"])

    def test_options(self) -> None:
        """The agent accepts its variables, also with two pins and in a pod with an IPv6 address."""
        joining = Joining(
            "alpha", "t", "wss://tower.example", [FINGERPRINT, "SHA256:" + "B" * 43], [CA_HASH, CA_HASH]
        )
        (container,) = agent_objects(joining, SETTINGS)[-1]["spec"]["template"]["spec"]["containers"]
        self.assertEqual(container["command"], ["tower-agent"])
        for address in ("10.1.2.3", "fd00::3"):
            values = {each["name"]: each["value"] for each in container["env"] if "value" in each}
            options = Options({name: text.replace("$(POD_IP)", address) for name, text in values.items()})
            options.parse([])
            self.assertEqual(options["health-address"], (address, 8081))
            self.assertEqual(options["host-keys"], list(joining.host_keys))
            self.assertEqual(options["ca-hashes"], list(joining.ca_hashes))
            self.assertEqual(str(options["key-secret"]), "tower-agent-key")

    def test_targets(self) -> None:
        """The agent gets its targets."""
        settings = AgentSettings(targets=("db=10.0.0.5:5432", "web=[fd00::1]:80"), kubesphere_service="ks:81")
        (container,) = agent_objects(JOINING, settings)[-1]["spec"]["template"]["spec"]["containers"]
        values = {each["name"]: each["value"] for each in container["env"] if "value" in each}
        options = Options({**values, "TOWER_HEALTH_ADDRESS": ""})
        options.parse([])
        self.assertEqual(options["targets"], [Target("db", "10.0.0.5", 5432), Target("web", "fd00::1", 80)])
        self.assertEqual(options["kubesphere-service"], "ks:81")

    def test_impersonation(self) -> None:
        """Without names, all users and groups can be impersonated; with names, only those."""
        role = ("ClusterRole", "tower-agent")
        (rule,) = self.objects()[role]["rules"]
        self.assertEqual((rule["resources"], rule["verbs"]), (["users", "groups"], ["impersonate"]))
        self.assertNotIn("resourceNames", rule)
        rules = self.objects(AgentSettings(groups=("dev",)))[role]["rules"]
        found = {each["resources"][0]: each.get("resourceNames") for each in rules}
        self.assertEqual(found, {"users": None, "groups": ["dev"]})

    def test_printed_rights(self) -> None:
        """The account, its names and its rights are also those that `tower rbac agent` prints."""
        objects = self.objects()
        for item in yaml.safe_load_all(rbac_manifest("agent")):
            found = objects[item["kind"], item["metadata"]["name"]]
            for part in ("rules", "roleRef", "subjects"):
                self.assertEqual(found.get(part), item.get(part))
            self.assertEqual(found["metadata"].get("namespace"), item["metadata"].get("namespace"))

    def test_namespace(self) -> None:
        """Another namespace is neither created nor removed; rights of two agents have different names."""
        settings = AgentSettings(namespace="platform")
        objects = self.objects(settings)
        kinds = [kind for kind, _ in objects]
        self.assertNotIn("Namespace", kinds)
        self.assertEqual(len(objects), len(self.objects()) - 1)
        shared = {(kind, name) for kind, name in objects if kind.startswith("Cluster")}
        self.assertEqual(
            shared, {(kind, "platform-tower-agent") for kind in ("ClusterRole", "ClusterRoleBinding")}
        )
        self.check_names(objects, "platform", "platform-tower-agent")
        self.assertIn("kubectl -n platform rollout", agent_manifest(JOINING, settings))

    def test_replicas(self) -> None:
        """Replicas and the registry's credentials are those of the settings; one replica has no budget."""
        deployment = self.objects(AgentSettings(replicas=3, pull_secrets=("a", "b")))[
            "Deployment", "tower-agent"
        ]
        self.assertEqual(deployment["spec"]["replicas"], 3)
        pod = deployment["spec"]["template"]["spec"]
        self.assertEqual(pod["imagePullSecrets"], [{"name": "a"}, {"name": "b"}])
        kinds = [kind for kind, _ in self.objects(AgentSettings(replicas=1))]
        self.assertNotIn("PodDisruptionBudget", kinds)

    def test_names_match(self) -> None:
        """References lead to objects of the manifest, and selectors to the pods."""
        self.check_names(self.objects(), "tower-system", "tower-agent")

    def check_names(self, objects: dict[tuple[str, str], dict[str, Any]], space: str, shared: str) -> None:
        """Check references and selectors.

        :param space: namespace of the agent.
        :param shared: name of the ClusterRole.
        """
        self.assertIn(("ClusterRole", shared), objects)
        for kind in ("Role", "ClusterRole"):
            for item in (item for key, item in objects.items() if key[0] == f"{kind}Binding"):
                self.assertIn((kind, item["roleRef"]["name"]), objects)
                for subject in item["subjects"]:
                    self.assertIn((subject["kind"], subject["name"]), objects)
                    self.assertEqual(subject["namespace"], space)
        template = objects["Deployment", "tower-agent"]["spec"]["template"]
        labels = template["metadata"]["labels"].items()
        for kind, path in (("Deployment", "selector"), ("PodDisruptionBudget", "selector")):
            selector = objects[kind, "tower-agent"]["spec"][path]["matchLabels"]
            self.assertLessEqual(selector.items(), labels)
        policy = objects["NetworkPolicy", "tower-agent"]["spec"]
        self.assertLessEqual(policy["podSelector"]["matchLabels"].items(), labels)
        self.assertNotIn("ingress", policy)
        self.assertIn(("ServiceAccount", template["spec"]["serviceAccountName"]), objects)
        for (kind, _), item in objects.items():
            namespace = item["metadata"].get("namespace")
            is_global = kind in {"Namespace", "ClusterRole", "ClusterRoleBinding"}
            self.assertEqual(namespace, None if is_global else space)

"""The chart `tower-agent`: the objects that it renders, and the values that it rejects."""

from __future__ import annotations

import json
from typing import Any

from tests.integration.chart_kit import ChartCase, Objects
from tower.member.manifest.manifest import agent_objects
from tower.member.manifest.settings import AgentSettings, Joining
from tower.member.options import Options
from tower.member.policy.owner_policy import OwnerPolicy, OwnerRule
from tower.member.policy.policy_document import read_policy

AGENT: dict[str, Any] = {
    "name": "alpha",
    "proxyServer": "wss://tower.example.org:8443",
    "hostKeys": ["SHA256:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU"],
    "caHashes": ["sha256:" + "0" * 64],
}


#: Values that render all objects and options.
WHOLE: dict[str, Any] = {
    **AGENT,
    "joinToken": {"token": "tower-abc"},
    "impersonate": {
        "users": ["jane"],
        "groups": ["dev", "system:monitoring"],
        "uid": True,
        "extra": ["example.org/team"],
    },
    "allowSystemIdentities": ["system:monitoring"],
    "policy": {"allow": [{"access": "read-only"}]},
    "targets": {"db": "10.0.0.5:5432"},
    "extraArgs": ["--max-retry-interval=30s"],
    "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy.example.org:3128"}],
    "metrics": {"enabled": True, "serviceMonitor": {"enabled": True}},
    "podLabels": {"c": "d"},
    "podAnnotations": {"e": "f"},
    "priorityClassName": "system-cluster-critical",
}


#: A constraint that gets the label selector of the pods.
ZONES = {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"}


class AgentChartTests(ChartCase):
    """The agents' objects."""

    timeout = 900  # s; the API server and helm are built once

    def options(self, objects: Objects, address: str = "10.1.2.3") -> Options:
        """Return the options as the agent reads them in a pod with this address."""
        (container,) = self.pod(objects, "main-tower-agent")["containers"]
        self.assertEqual(container["command"], ["tower-agent"])
        options = Options(
            {name: value.replace("$(POD_IP)", address) for name, value in self.variables(container).items()}
        )
        options.parse(container.get("args", []))
        return options

    def variables(self, container: dict[str, Any]) -> dict[str, str]:
        """Return the variables with values."""
        return {item["name"]: item["value"] for item in container["env"] if "value" in item}

    def test_defaults(self) -> None:
        """Two agents share a key in a Secret; the Deployment has no token, and no port is open."""
        objects = self.objects("tower-agent", AGENT)
        self.assertEqual(
            sorted(objects),
            [
                ("ClusterRole", "system-main-tower-agent"),
                ("ClusterRoleBinding", "system-main-tower-agent"),
                ("Deployment", "main-tower-agent"),
                ("NetworkPolicy", "main-tower-agent"),
                ("PodDisruptionBudget", "main-tower-agent"),
                ("Role", "main-tower-agent-key"),
                ("RoleBinding", "main-tower-agent-key"),
                ("Secret", "main-tower-agent-key"),
                ("ServiceAccount", "main-tower-agent"),
            ],
        )
        self.assertEqual(objects["Deployment", "main-tower-agent"]["spec"]["replicas"], 2)
        self.assertNotIn("data", objects["Secret", "main-tower-agent-key"])
        options = self.options(objects)
        self.assertEqual(options["key-secret"].name, "main-tower-agent-key")
        self.assertEqual(options["host-keys"], AGENT["hostKeys"])
        policy = objects["NetworkPolicy", "main-tower-agent"]["spec"]
        self.assertEqual((policy["policyTypes"], policy["egress"]), (["Ingress", "Egress"], [{}]))
        self.assertNotIn("ingress", policy)
        pod = self.pod(objects, "main-tower-agent")
        (container,) = pod["containers"]
        (port,) = container["ports"]
        self.assertEqual(options["health-address"], ("10.1.2.3", port["containerPort"]))
        self.assertEqual(pod["serviceAccountName"], "main-tower-agent")

    def test_rights(self) -> None:
        """The agent may impersonate, all or the named ones, and read and fill its own Secret only."""
        for values, users, groups in (
            (AGENT, None, None),
            (WHOLE, ["jane"], ["dev", "system:monitoring"]),
        ):
            objects = self.objects("tower-agent", values)
            first, second, *more = objects["ClusterRole", "system-main-tower-agent"]["rules"]
            facts = [["uids", "userextras/example.org/team"]] if values is WHOLE else []
            self.assertEqual([each["resources"] for each in more], facts)
            self.assertEqual((first["resources"], first["verbs"]), (["users"], ["impersonate"]))
            self.assertEqual((second["resources"], second["verbs"]), (["groups"], ["impersonate"]))
            self.assertEqual((first.get("resourceNames"), second.get("resourceNames")), (users, groups))
            (own,) = objects["Role", "main-tower-agent-key"]["rules"]
            self.assertEqual((own["resources"], own["verbs"]), (["secrets"], ["get", "patch"]))
            self.assertEqual(own["resourceNames"], ["main-tower-agent-key"])
            for kind, name in (("Role", "main-tower-agent-key"), ("ClusterRole", "system-main-tower-agent")):
                binding = objects[f"{kind}Binding", name]
                self.assertEqual((binding["roleRef"]["kind"], binding["roleRef"]["name"]), (kind, name))
                (subject,) = binding["subjects"]
                self.assertEqual((subject["name"], subject["namespace"]), ("main-tower-agent", "system"))

    def test_everything(self) -> None:
        """All values reach the options."""
        objects = self.objects("tower-agent", WHOLE)
        options = self.options(objects)
        self.assertEqual(options["allowed-identities"], ["system:monitoring"])
        self.assertEqual(len(options["targets"]), 1)
        self.assertEqual((options["metrics-port"], options["metrics-host"]), (9101, "10.1.2.3"))
        self.assertEqual(options["max-retry-interval"], 30)
        monitor = objects["ServiceMonitor", "main-tower-agent"]
        labels = objects["Service", "main-tower-agent-metrics"]["metadata"]["labels"]
        self.assertLessEqual(monitor["spec"]["selector"]["matchLabels"].items(), labels.items())
        (rule,) = objects["NetworkPolicy", "main-tower-agent"]["spec"]["ingress"]
        self.assertEqual(rule["ports"], [{"port": "metrics"}])

    def test_policy(self) -> None:
        """The owner's policy is in a ConfigMap, of the chart or of the owner, which the agent may watch."""
        whole = self.objects("tower-agent", WHOLE)
        policy = read_policy(whole["ConfigMap", "main-tower-agent-policy"]["data"]["policy.yaml"].encode())
        self.assertEqual(policy, OwnerPolicy((OwnerRule(access="read-only"),)))
        own = self.objects("tower-agent", AGENT, policy={"existingConfigMap": "mine"})
        self.assertNotIn("ConfigMap", {kind for kind, _ in own})
        for objects, name in ((whole, "main-tower-agent-policy"), (own, "mine")):
            self.assertEqual(str(self.options(objects)["policy-config-map"]), name)
            (rule,) = objects["Role", "main-tower-agent-policy"]["rules"]
            self.assertEqual((rule["resources"], rule["resourceNames"]), (["configmaps"], [name]))
            self.assertEqual(rule["verbs"], ["get", "list", "watch"])
            binding = objects["RoleBinding", "main-tower-agent-policy"]
            self.assertEqual(binding["roleRef"]["name"], "main-tower-agent-policy")
        nothing = self.objects("tower-agent", AGENT, policy={"allow": []})
        text = nothing["ConfigMap", "main-tower-agent-policy"]["data"]["policy.yaml"]
        self.assertEqual(read_policy(text.encode()), OwnerPolicy())
        self.assertNotIn(("Role", "main-tower-agent-policy"), self.objects("tower-agent", AGENT))

    def test_token(self) -> None:
        """The token is in a Secret only: the chart's, or an existing one."""
        for given, name in (
            ({"token": "tower-abc"}, "main-tower-agent-join"),
            ({"existingSecret": "mine"}, "mine"),
        ):
            objects = self.objects("tower-agent", AGENT, joinToken=given)
            made = objects.get(("Secret", "main-tower-agent-join"))
            annotations = objects["Deployment", "main-tower-agent"]["spec"]["template"]["metadata"].get(
                "annotations", {}
            )
            self.assertEqual("tower.kubesphere.io/join-token-digest" in annotations, made is not None)
            self.assertEqual(
                made and made["stringData"], {"token": given["token"]} if "token" in given else None
            )
            self.assertNotIn("tower-abc", json.dumps(objects["Deployment", "main-tower-agent"]))
            (container,) = self.pod(objects, "main-tower-agent")["containers"]
            variable = container["env"][0]
            reference = variable["valueFrom"]["secretKeyRef"]
            self.assertEqual(
                (variable["name"], reference["name"], reference["key"]), ("TOWER_TOKEN", name, "token")
            )

    def test_manifest(self) -> None:
        """The agents run as those of `tower join --format manifest`, with the same rights."""
        users, groups, targets = ["jane"], ["dev"], {"db": "10.0.0.5:5432", "cache": "10.0.0.6:6379"}
        names = {"users": users, "groups": groups, "uid": True, "extra": ["unit"]}
        values = {**AGENT, "impersonate": names, "targets": targets}
        joining = Joining("alpha", "t", AGENT["proxyServer"], AGENT["hostKeys"], AGENT["caHashes"])
        lines = tuple(f"{name}={targets[name]}" for name in sorted(targets))
        settings = AgentSettings(
            users=tuple(users), groups=tuple(groups), targets=lines, uid=True, extra=("unit",)
        )
        manifest = {
            (item["kind"], item["metadata"]["name"]): item for item in agent_objects(joining, settings)
        }
        chart = {
            (kind, name.removeprefix("system-").removeprefix("main-")): item
            for (kind, name), item in self.objects("tower-agent", values, joinToken={"token": "t"}).items()
        }
        self.assertEqual(set(manifest) - {("Namespace", "tower-system")}, set(chart))
        self.assertEqual(
            chart["ClusterRole", "tower-agent"]["rules"], manifest["ClusterRole", "tower-agent"]["rules"]
        )
        whole = self.objects("tower-agent", AGENT, impersonate={"extra": ["*"]})
        (_, _, rule) = whole["ClusterRole", "system-main-tower-agent"]["rules"]
        (_, expected) = agent_objects(joining, AgentSettings(extra=("*",)))[2]["rules"]
        self.assertEqual(rule, expected)
        (theirs, ours) = (each["Deployment", "tower-agent"]["spec"]["template"] for each in (manifest, chart))
        self.assertEqual(theirs["metadata"]["annotations"], ours["metadata"]["annotations"])
        for name in ("securityContext", "automountServiceAccountToken", "enableServiceLinks"):
            self.assertEqual(ours["spec"][name], theirs["spec"][name], name)
        (their, our) = (each["spec"]["containers"][0] for each in (theirs, ours))
        different = {"env", "imagePullPolicy"}
        self.assertEqual(set(our) - different, set(their) - different)
        for name in set(their) - different:
            self.assertEqual(our[name], their[name], name)
        log = {"TOWER_LOG_FORMAT": "text", "TOWER_V": "0"}
        key = {"TOWER_KEY_SECRET": "main-tower-agent-key"}
        self.assertEqual(self.variables(our), {**self.variables(their), **log, **key})
        spread = [each["spec"]["topologySpreadConstraints"][0] for each in (theirs, ours)]
        for each in spread:
            del each["labelSelector"]
        self.assertEqual(spread[0], spread[1])

    def test_addresses(self) -> None:
        """The agent may listen on IPv6; with one replica there is no budget of disruptions."""
        objects = self.objects("tower-agent", AGENT, replicas=1)
        self.assertEqual(self.options(objects, "fd00::5")["health-address"], ("fd00::5", 8081))
        self.assertNotIn(("PodDisruptionBudget", "main-tower-agent"), objects)

    def test_rejected(self) -> None:
        """A wrong value is named with its cure or its form."""
        for values, words in (
            ({"name": ""}, ("name is missing", "tower join CLUSTER --format env")),
            ({"name": "Alpha_1"}, ("/name", "pattern")),
            ({"proxyServer": ""}, ("proxyServer is missing",)),
            ({"proxyServer": "tower.example.org:8443"}, ("/proxyServer", "wss?://")),
            ({"hostKeys": []}, ("hostKeys is missing",)),
            ({"hostKeys": "SHA256:x"}, ("/hostKeys", "array")),
            ({"hostKeys": ["SHA256:x"]}, ("/hostKeys/0", "pattern")),
            ({"caHashes": ["0" * 64]}, ("/caHashes/0", "sha256:")),
            ({"joinToken": {"token": "tower-a\n"}}, ("/joinToken/token", "pattern")),
            ({"targets": {"db": "10.0.0.5"}}, ("/targets/db", "pattern")),
            ({"allowSystemIdentities": ["a,b"]}, ("/allowSystemIdentities/0", "pattern")),
            ({"imagePullSecrets": ["registry"]}, ("/imagePullSecrets/0", "object")),
            ({"extraEnv": [{"value": "x"}]}, ("/extraEnv/0", "name")),
            ({"joinToken": {"token": "a", "existingSecret": "b"}}, ("both set",)),
            ({"impersonate": {"users": ["jane"]}}, ("requires impersonate.groups",)),
            ({"impersonate": {"extra": ["Team"]}}, ("/impersonate/extra/0", "pattern")),
            ({"policy": {"allow": [], "existingConfigMap": "a"}}, ("both set",)),
            ({"policy": {"allow": ["dev"]}}, ("/policy/allow/0", "object")),
            ({"replicas": 9}, ("/replicas", "maximum")),
            ({"target": {"db": "10.0.0.5:5432"}}, ("target", "not allowed")),
            ({"podDisruptionBudget": {"maxUnavailable": 0}}, ("/podDisruptionBudget/maxUnavailable",)),
        ):
            error = self.rejected("tower-agent", {**AGENT, **values})
            for word in words:
                self.assertIn(word, error)

    def test_version(self) -> None:
        """The chart installs this version of Tower."""
        self.versions("tower-agent")

    def test_lint(self) -> None:
        """Helm finds nothing to improve."""
        self.lint("tower-agent", WHOLE)

    def test_accepted(self) -> None:
        """A real API server accepts all objects, whatever the values."""
        self.accepted(
            "tower-agent",
            AGENT,
            WHOLE,
            {**AGENT, "joinToken": {"existingSecret": "mine"}, "replicas": 0},
            {**AGENT, "rbac": {"create": False}, "serviceAccount": {"create": False, "name": "mine"}},
            {**AGENT, "networkPolicy": {"enabled": False}, "podDisruptionBudget": {"maxUnavailable": "50%"}},
            {**AGENT, "nameOverride": "x" * 70, "fullnameOverride": "y" * 70},
            {**AGENT, "topologySpreadConstraints": [ZONES], "podSecurityContext": {"runAsUser": None}},
        )

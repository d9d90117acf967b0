"""The chart `tower`: the objects that it renders, and the values that it rejects."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

import tower
from tests.integration.chart_kit import ChartCase, Objects
from tests.integration.helm import ROOT
from tower.cli.manifest import rbac_manifest
from tower.control.proxy_options import Options
from tower.controller.objects.service_objects import LEADER_SELECTOR

PROXY: dict[str, Any] = {"publishServiceAddress": "tower.example.org"}

PROXY_MANIFEST = ROOT / "deploy" / "host-proxy.yaml"

HOSTED: dict[str, Any] = {**PROXY, "store": "kubernetes", "replicas": 3}

#: Values in KubeSphere's host cluster.
KUBESPHERE: dict[str, Any] = {
    **HOSTED,
    "clusterPorts": "",
    "kubesphere": {"compat": True, "ports": "16000-17000"},
}

#: Values that render all objects and options.
WHOLE: dict[str, Any] = {
    **PROXY,
    "securePort": 443,
    "plainPort": 8080,
    "clusterPorts": "6000-6003",
    "proxyProtocolFrom": ["10.0.3.0/24", "fd00:3::/64"],
    "requireV2": True,
    "accessLog": True,
    "auditLog": True,
    "log": {"format": "json", "level": 4},
    "extraArgs": ["--max-credential-ttl=8h"],
    "extraEnv": [{"name": "TOWER_KEEPALIVE", "value": "5s"}],
    "extraVolumes": [{"name": "nodes", "emptyDir": {}}],
    "extraVolumeMounts": [{"name": "nodes", "mountPath": "/nodes"}],
    "imagePullSecrets": [{"name": "registry"}],
    "service": {"annotations": {"a": "b"}, "externalTrafficPolicy": "Local", "loadBalancerClass": "x.io/y"},
    "metrics": {
        "enabled": True,
        "serviceMonitor": {"enabled": True, "interval": "30s", "labels": {"x": "y"}},
    },
    "networkPolicy": {"from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]},
    "podLabels": {"c": "d"},
    "podAnnotations": {"e": "f"},
    "persistence": {"storageClass": "fast", "annotations": {"g": "h"}},
    "priorityClassName": "system-cluster-critical",
    "nodeSelector": {"i": "j"},
    "tolerations": [{"key": "k", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
}


#: A constraint that gets the label selector of the pods.
ZONES = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}


class ProxyChartTests(ChartCase):
    """The proxy's objects."""

    timeout = 900  # s; the API server and helm are built once

    def arguments(self, objects: Objects) -> list[str]:
        """Return the arguments of the proxy."""
        (container,) = self.pod(objects, "main-tower")["containers"]
        self.assertEqual(container["command"], ["tower-proxy"])
        found: list[str] = container["args"]
        return found

    def options(self, objects: Objects) -> Options:
        """Return the options as the proxy reads them."""
        (container,) = self.pod(objects, "main-tower")["containers"]
        options = Options({item["name"]: item["value"] for item in container["env"] if "value" in item})
        options.parse(self.arguments(objects))
        return options

    def test_defaults(self) -> None:
        """One proxy with a volume, and only the front door."""
        objects = self.objects("tower", PROXY)
        self.assertEqual(
            sorted(objects),
            [
                ("Deployment", "main-tower"),
                ("NetworkPolicy", "main-tower"),
                ("PersistentVolumeClaim", "main-tower-state"),
                ("Service", "main-tower"),
                ("ServiceAccount", "main-tower"),
            ],
        )
        self.assertEqual(objects["Deployment", "main-tower"]["spec"]["strategy"], {"type": "Recreate"})
        pod = self.pod(objects, "main-tower")
        self.assertFalse(pod["automountServiceAccountToken"])
        self.assertNotIn("sysctls", pod["securityContext"])
        self.assertEqual(pod["containers"][0]["image"], f"kubesphere/tower:{tower.__version__}")
        options = self.options(objects)
        (volume,), (mount,) = pod["volumes"], pod["containers"][0]["volumeMounts"]
        # fsGroup opens the volume's root to the group, and the proxy requires a private directory
        self.assertEqual(Path(options["state-dir"]).parent, Path(mount["mountPath"]))
        self.assertEqual(volume["persistentVolumeClaim"], {"claimName": "main-tower-state"})
        self.assertEqual(options["publish-service-address"], "tower.example.org")
        self.assertEqual(
            (options["secure-port"], options["port"], options["cluster-ports"]), (8443, None, None)
        )
        self.assertIsNone(options["metrics-port"])
        service = objects["Service", "main-tower"]
        self.assertEqual((service["spec"]["type"], self.ports(service)), ("LoadBalancer", {"https": 8443}))
        claim = objects["PersistentVolumeClaim", "main-tower-state"]
        self.assertEqual(claim["metadata"]["annotations"], {"helm.sh/resource-policy": "keep"})

    def test_everything(self) -> None:
        """All values reach the options, the Services and the policy; the pod may use ports below 1024."""
        objects = self.objects("tower", WHOLE)
        pod = self.pod(objects, "main-tower")
        self.assertEqual(
            pod["securityContext"]["sysctls"],
            [{"name": "net.ipv4.ip_unprivileged_port_start", "value": "0"}],
        )
        options = self.options(objects)
        self.assertEqual((options["secure-port"], options["port"]), (443, 8080))
        self.assertEqual(options["cluster-ports"], range(6000, 6004))
        self.assertEqual((options["metrics-port"], options["metrics-host"]), (9100, "0.0.0.0"))
        self.assertEqual((options["access-log"], options["audit-log-path"]), ("-", "-"))
        self.assertEqual(len(options["proxy-protocol-from"]), 2)
        self.assertTrue(options["require-v2"])
        self.assertEqual(options["max-credential-ttl"], 8 * 3600)
        wanted = {"https": 443, "http": 8080, **{f"cluster-{port}": port for port in range(6000, 6004)}}
        self.assertEqual(self.ports(objects["Service", "main-tower"]), wanted)
        self.assertEqual(self.ports(objects["Service", "main-tower-metrics"]), {"metrics": 9100})
        doors, metrics = objects["NetworkPolicy", "main-tower"]["spec"]["ingress"]
        self.assertEqual(
            doors["ports"], [{"port": "https"}, {"port": "http"}, {"port": 6000, "endPort": 6003}]
        )
        self.assertEqual(doors["from"], [{"ipBlock": {"cidr": "10.0.0.0/8"}}])
        self.assertEqual(
            (metrics["ports"], metrics["from"]), ([{"port": "metrics"}], [{"namespaceSelector": {}}])
        )
        monitor = objects["ServiceMonitor", "main-tower"]
        self.assertEqual(monitor["metadata"]["labels"]["x"], "y")
        self.assertEqual(monitor["spec"]["endpoints"], [{"port": "metrics", "interval": "30s"}])
        labels = objects["Service", "main-tower-metrics"]["metadata"]["labels"]
        self.assertLessEqual(monitor["spec"]["selector"]["matchLabels"].items(), labels.items())
        others = objects["Service", "main-tower"]["metadata"]["labels"]
        self.assertFalse(monitor["spec"]["selector"]["matchLabels"].items() <= others.items())

    def test_volume(self) -> None:
        """The volume may be an existing claim's, or none; without `keep`, Helm removes the claim."""
        objects = self.objects("tower", PROXY, persistence={"existingClaim": "mine"})
        self.assertNotIn(("PersistentVolumeClaim", "main-tower-state"), objects)
        (volume,) = self.pod(objects, "main-tower")["volumes"]
        self.assertEqual(volume["persistentVolumeClaim"], {"claimName": "mine"})
        (volume,) = self.pod(self.objects("tower", PROXY, persistence={"enabled": False}), "main-tower")[
            "volumes"
        ]
        self.assertEqual(volume["emptyDir"], {})
        objects = self.objects("tower", PROXY, persistence={"keep": False})
        self.assertNotIn("annotations", objects["PersistentVolumeClaim", "main-tower-state"]["metadata"])

    def test_hosted(self) -> None:
        """With records in the host cluster there are standbys, and the Service selects the leader."""
        objects = self.objects("tower", HOSTED)
        kinds = sorted(kind for kind, _ in objects)
        roles = ["ClusterRole", "ClusterRoleBinding", "Role", "Role", "RoleBinding", "RoleBinding"]
        others = ["Deployment", "NetworkPolicy", "PodDisruptionBudget", "Service", "ServiceAccount"]
        hook = ["ClusterRole", "ClusterRoleBinding", "Job", "ServiceAccount"]
        self.assertEqual(kinds, sorted([*roles, *others, *hook]))
        deployment = objects["Deployment", "main-tower"]["spec"]
        self.assertEqual(deployment["replicas"], 3)
        self.assertNotIn("strategy", deployment)
        options = self.options(objects)
        self.assertEqual((options["store"], options["namespace"]), ("kubernetes", "system"))
        self.assertEqual(options["cluster-ports"], range(6000, 7001))
        pod = self.pod(objects, "main-tower")
        self.assertTrue(pod["automountServiceAccountToken"])
        (volume,), (container,) = pod["volumes"], pod["containers"]
        self.assertEqual(volume["emptyDir"], {"medium": "Memory"})
        self.assertEqual(
            {
                item["name"]: item["valueFrom"]["fieldRef"]["fieldPath"]
                for item in container["env"]
                if "valueFrom" in item
            },
            {"POD_NAME": "metadata.name", "POD_NAMESPACE": "metadata.namespace", "POD_IP": "status.podIP"},
        )
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        self.assertEqual(ports, {"https": 8443, "health": options["health-port"]})
        for probe, path in (("startup", "/livez"), ("liveness", "/livez"), ("readiness", "/readyz")):
            self.assertEqual(container[f"{probe}Probe"]["httpGet"], {"path": path, "port": "health"})
        service = objects["Service", "main-tower"]["spec"]
        leader = {"tower.kubesphere.io/leader": "true"}
        self.assertEqual(service["selector"], {**deployment["selector"]["matchLabels"], **leader})
        self.assertEqual(len(service["ports"]), 1)
        renamed = self.objects("tower", HOSTED, nameOverride="other")["Deployment", "main-other"]
        pods = renamed["spec"]["template"]["metadata"]["labels"]
        self.assertLessEqual(LEADER_SELECTOR.items(), {**pods, **leader}.items())

    def test_same_rights(self) -> None:
        """The proxy has the rights that `tower rbac host` prints, and its hook those of `tower rbac crds`."""

        def rules(objects: Iterable[dict[str, Any]]) -> dict[tuple[str, str], Any]:
            return {
                (item["kind"], item["metadata"]["name"].rpartition("-")[2]): item["rules"]
                for item in objects
                if item["kind"] in ("Role", "ClusterRole")
            }

        printed = [item for name in ("host", "crds") for item in yaml.safe_load_all(rbac_manifest(name))]
        wanted = {
            (kind, {"host": "tower"}.get(name, name)): found for (kind, name), found in rules(printed).items()
        }
        self.assertEqual(len(wanted), 4)
        self.assertEqual(rules(self.objects("tower", HOSTED).values()), wanted)

    def test_hook(self) -> None:
        """All objects that install the CRDs are hooks, also with the values of the proxy's pods."""
        objects = self.objects("tower", {**WHOLE, "clusterPorts": "", "store": "kubernetes"})
        hooks = {key: item for key, item in objects.items() if "crds" in key[1]}
        self.assertEqual(
            sorted(kind for kind, _ in hooks), ["ClusterRole", "ClusterRoleBinding", "Job", "ServiceAccount"]
        )
        for item in hooks.values():
            self.assertEqual(item["metadata"]["annotations"]["helm.sh/hook"], "pre-install,pre-upgrade")
        template = hooks["Job", "main-tower-crds"]["spec"]["template"]
        (container,) = template["spec"]["containers"]
        self.assertEqual(container["command"], ["tower-proxy", "--install-crds"])
        self.assertEqual(template["spec"]["serviceAccountName"], "main-tower-crds")
        selector = objects["Deployment", "main-tower"]["spec"]["selector"]["matchLabels"]
        self.assertFalse(selector.items() <= template["metadata"]["labels"].items())
        pod = self.pod(objects, "main-tower")
        for name in ("imagePullSecrets", "nodeSelector", "tolerations"):
            self.assertEqual(template["spec"][name], pod[name])
        without = self.objects("tower", HOSTED, crds={"install": False})
        self.assertFalse([name for _, name in without if "crds" in name])
        self.assertNotIn(("Job", "main-tower-crds"), self.objects("tower", PROXY))

    def test_kubesphere(self) -> None:
        """In KubeSphere's host cluster, only KubeSphere can connect to the ports without authentication."""
        objects = self.objects("tower", KUBESPHERE)
        options = self.options(objects)
        self.assertTrue(options["kubesphere-compat"])
        self.assertEqual(
            (options["kubesphere-ports"], options["kubesphere-host"]), (range(16000, 17001), "0.0.0.0")
        )
        doors, unsafe = objects["NetworkPolicy", "main-tower"]["spec"]["ingress"]
        self.assertEqual(doors["ports"], [{"port": "https"}, {"port": 6000, "endPort": 7000}])
        self.assertEqual(unsafe["ports"], [{"port": 16000, "endPort": 17000}])
        (peer,) = unsafe["from"]
        labels = peer["namespaceSelector"]["matchLabels"]
        self.assertEqual(labels, {"kubernetes.io/metadata.name": "kubesphere-system"})

    def test_spread(self) -> None:
        """Replicas are on different nodes if possible; a constraint of the values gets their labels."""
        self.assertNotIn("topologySpreadConstraints", self.pod(self.objects("tower", PROXY), "main-tower"))
        for values, key in (({}, "kubernetes.io/hostname"), ({"topologySpreadConstraints": [ZONES]}, "zone")):
            pod = self.pod(self.objects("tower", HOSTED, **values), "main-tower")
            (constraint,) = pod["topologySpreadConstraints"]
            self.assertEqual(constraint["topologyKey"], key)
            selector = constraint["labelSelector"]["matchLabels"]
            self.assertEqual(
                selector, {"app.kubernetes.io/name": "tower", "app.kubernetes.io/instance": "main"}
            )

    def test_manifest(self) -> None:
        """The replicas of `deploy/host-proxy.yaml` run as those of the chart."""
        made = {item["kind"]: item for item in yaml.safe_load_all(PROXY_MANIFEST.read_text())}
        deployment = made["Deployment"]["spec"]
        theirs, ours = deployment["template"], self.pod(self.objects("tower", HOSTED), "main-tower")
        service = made["Service"]["spec"]["selector"]
        self.assertLessEqual(LEADER_SELECTOR.items(), {**theirs["metadata"]["labels"], **service}.items())
        for selector in (deployment["selector"], made["PodDisruptionBudget"]["spec"]["selector"]):
            self.assertLessEqual(selector["matchLabels"].items(), theirs["metadata"]["labels"].items())
        for name in set(ours) - {"containers", "topologySpreadConstraints"}:
            self.assertEqual(theirs["spec"][name], {**ours, "serviceAccountName": "tower"}[name], name)
        (their, our) = (pod["containers"][0] for pod in (theirs["spec"], ours))
        for name in set(our) - {"image", "imagePullPolicy", "args", "env"}:
            self.assertEqual(their[name], our[name], name)

        def named(container: dict[str, Any]) -> dict[str, Any]:
            return {item["name"]: item for item in container["env"]}

        self.assertEqual(named(their), named(our))
        different = {"--namespace=kubesphere-system", "--namespace=system", "--log-format=text", "--v=0"}
        self.assertEqual(set(their["args"]) - different, set(our["args"]) - different)

    def test_authority(self) -> None:
        """The CA is in a Secret."""
        objects = self.objects("tower", PROXY, ca={"existingSecret": "company-ca"})
        pod = self.pod(objects, "main-tower")
        volume, mount = pod["volumes"][1], pod["containers"][0]["volumeMounts"][1]
        self.assertEqual(volume["secret"]["secretName"], "company-ca")
        for option, key in (("ca-cert", "tls.crt"), ("ca-key", "tls.key")):
            self.assertIn(f"--{option}={mount['mountPath']}/{key}", self.arguments(objects))

    def test_node_ports(self) -> None:
        """Users connect to the port that the proxy publishes, so it is the node's."""
        values = {"securePort": 30443, "service": {"type": "NodePort"}}
        (port,) = self.objects("tower", PROXY, **values)["Service", "main-tower"]["spec"]["ports"]
        self.assertEqual((port["port"], port["nodePort"]), (30443, 30443))

    def test_image(self) -> None:
        """An image may be named by its digest."""
        digest = "sha256:" + "a" * 64
        image = {"repository": "registry.example.org:5000/tower", "tag": "x", "digest": digest}
        pod = self.pod(self.objects("tower", PROXY, image=image), "main-tower")
        self.assertEqual(pod["containers"][0]["image"], f"registry.example.org:5000/tower@{digest}")

    def test_rejected(self) -> None:
        """A wrong value is named with its cure or its form."""
        for values, words in (
            ({"publishServiceAddress": ""}, ("publishServiceAddress is missing", "users and agents")),
            ({"publishServiceAddress": "https://tower"}, ("/publishServiceAddress", "pattern")),
            ({"publishServiceAddress": "tower:8443"}, ("publishServiceAddress tower:8443", "securePort")),
            ({"kubesphere": {"compat": True}}, ("kubesphere.compat", "require store kubernetes")),
            ({**KUBESPHERE, "networkPolicy": {"enabled": False}}, ("16000-17000", "networkPolicy.enabled")),
            ({"persistence": {"size": "10 GB"}}, ("/persistence/size", "pattern")),
            ({"proxyProtocolFrom": ["balancer"]}, ("/proxyProtocolFrom/0", "pattern")),
            ({"service": {"loadBalancerSourceRanges": ["10.0.0.1"]}}, ("/loadBalancerSourceRanges/0",)),
            (
                {"topologySpreadConstraints": [{"maxSkew": 1}]},
                ("/topologySpreadConstraints/0", "topologyKey"),
            ),
            ({"clusterPorts": "6000-7000"}, ("clusterPorts 6000-7000", "more than 64")),
            ({"clusterPorts": "6010-6000"}, ("clusterPorts 6010-6000", "swap")),
            ({"clusterPorts": "some"}, ("/clusterPorts", "pattern")),
            ({"securePort": 0}, ("/securePort", "minimum")),
            ({"securePort": 6001, "clusterPorts": "6000-6003"}, ("port 6001 is used twice",)),
            ({"service": {"type": "NodePort"}}, ("8443 is outside 30000-32767",)),
            ({"service": {"type": "ExternalName"}}, ("/service/type", "LoadBalancer")),
            ({"metrics": {"serviceMonitor": {"enabled": True}}}, ("requires metrics.enabled",)),
            ({"replicas": 2}, ("replicas 2 requires store kubernetes",)),
            ({"store": "etcd"}, ("/store", "kubernetes")),
            ({"replica": 2}, ("replica", "not allowed")),
            ({"image": {"digest": "latest"}}, ("/image/digest", "pattern")),
            ({"extraArgs": ["v=4"]}, ("/extraArgs/0", "pattern")),
        ):
            error = self.rejected("tower", {**PROXY, **values})
            for word in words:
                self.assertIn(word, error)

    def test_version(self) -> None:
        """The chart installs this version of Tower."""
        self.versions("tower")

    def test_lint(self) -> None:
        """Helm finds nothing to improve."""
        self.lint("tower", WHOLE)

    def test_accepted(self) -> None:
        """A real API server accepts all objects, whatever the values."""
        self.accepted(
            "tower",
            PROXY,
            WHOLE,
            HOSTED,
            {**WHOLE, **KUBESPHERE},
            {**HOSTED, "crds": {"install": False}, "rbac": {"create": False}},
            {**HOSTED, "podDisruptionBudget": {"maxUnavailable": "34%"}, "serviceAccount": {"create": False}},
            {**PROXY, "securePort": 30443, "plainPort": 30080, "service": {"type": "NodePort"}},
            {**PROXY, "service": {"type": "ClusterIP"}, "persistence": {"enabled": False}},
            {**PROXY, "service": {"loadBalancerSourceRanges": ["10.0.0.0/8"]}, "host": "::"},
            {**PROXY, "ca": {"existingSecret": "mine"}, "networkPolicy": {"enabled": False}},
            {**HOSTED, "nameOverride": "x" * 70, "fullnameOverride": "y" * 70},
            {**PROXY, "podSecurityContext": {"runAsUser": None, "runAsGroup": None, "fsGroup": None}},
        )

"""Clusters with KubeSphere's admission webhook, which dials the member at each update of their objects."""

from __future__ import annotations

import base64

from twisted.logger import capturedLogs, eventAsText

from tests.controller.case import TOKEN, ControllerTestCase
from tower.clusters.host.host_object import KUBESPHERE_FINALIZER
from tower.clusters.v1_tokens import id_of_token
from tower.controller.objects.host_cluster import FINALIZER, STAMP_ANNOTATION
from tower.controller.objects.host_conditions import INITIALIZED
from tower.controller.objects.service_objects import HostSettings
from tower.errors import ConfigurationError
from tower.escaping import reported
from tower.kube.client import APIError
from tower.kube.kubeconfig import read_kubeconfig
from tower.kube.rest.host_api import Object, ResourceType
from tower.kube.rest.well_known import CLUSTERS, SECRETS, SERVICES

MEMBER = "0b5d7a0e-kube-system"
HOUR = 3600.0


class WebhookTestCase(ControllerTestCase):
    """The webhook allows an update if the member answers through the kubeconfig in the new object.

    :ivar has_agent: whether an agent runs; it can connect once its token is known.
    :ivar denied: number of updates.
    """

    settings = HostSettings(is_compatible=True)

    def setUp(self) -> None:
        """Start the controller and the webhook; KubeSphere's objects have no status subresource."""
        super().setUp()
        self.has_agent = True
        self.denied = 0
        self.kit.host.without_status.add(CLUSTERS)
        self.kit.host.admission.append(self.judge)

    def judge(self, verb: str, resource: ResourceType, obj: Object) -> None:
        """Deny an update."""
        name = obj["metadata"]["name"]
        before = self.kit.host.object(CLUSTERS, name) if resource is CLUSTERS else None
        if before is None or "uid" not in before.get("status", {}) or self.answers(name, obj):
            return
        self.denied += 1
        text = reported(
            "the API server",
            'admission webhook "vcluster.kb.io" denied the request: the member does not answer',
        )
        raise APIError("PATCH", f"/clusters/{name}", 403, text, reason="Forbidden")

    def answers(self, name: str, obj: Object) -> bool:
        """Return whether the member answers through the kubeconfig in an object."""
        tokens = [each.id for each in self.kit.records.v1_tokens.tokens(name)]
        if not self.has_agent or id_of_token(TOKEN) not in tokens:
            return False
        try:
            access = read_kubeconfig(base64.b64decode(obj["spec"]["connection"].get("kubeconfig", "")))
        except ConfigurationError:
            return False
        address = self.kit.service(name)["spec"]["clusterIP"]
        return access.server == f"https://{address}:6443" and self.kit.clusters.require(name).enabled

    def adopt(self) -> None:
        """Start the controller with an object as KubeSphere and KubeSphere Tower have left it."""
        self.controller.stopService()
        connection = {
            "type": "proxy",
            "token": TOKEN,
            "kubernetesAPIServerPort": 6007,
            "kubesphereAPIServerPort": 16007,
            "kubeconfig": "b2xk",
        }
        self.kit.host.put(
            CLUSTERS,
            {
                "metadata": {"name": "alpha", "finalizers": [KUBESPHERE_FINALIZER], "annotations": {}},
                "spec": {"joinFederation": True, "connection": connection},
                "status": {"uid": MEMBER, "conditions": [{"type": "Ready", "status": "True"}]},
            },
        )
        self.controller = self.started()

    def finalizers(self) -> list[str]:
        """Return those of the object."""
        found: list[str] = self.kit.cluster()["metadata"].get("finalizers", [])
        return found

    def without(self, finalizer: str) -> None:
        """Remove a finalizer, as its owner does; an object without any ends."""
        cluster = self.kit.cluster()
        left = [each for each in self.finalizers() if each != finalizer]
        self.kit.host.put(CLUSTERS, {**cluster, "metadata": {**cluster["metadata"], "finalizers": left}})
        self.pump()
        self.pump(1)


class AdoptionTests(WebhookTestCase):
    """Objects of KubeSphere Tower, whose kubeconfigs do not work any more."""

    def test_adopted(self) -> None:
        """The first write has the new kubeconfig; port, token and all that KubeSphere wrote stay."""
        self.adopt()
        self.assertEqual(self.denied, 0)
        connection = self.kit.connection()
        self.assertNotEqual(connection["kubeconfig"], "b2xk")
        self.assertEqual((connection["token"], connection["kubernetesAPIServerPort"]), (TOKEN, 6007))
        self.assertEqual(self.kit.cluster()["status"]["uid"], MEMBER)
        self.assertEqual(self.finalizers(), [KUBESPHERE_FINALIZER])
        self.assertEqual(self.status(INITIALIZED)[0], "True")
        self.assertEqual(self.steady(), [])

    def test_agent_later(self) -> None:
        """Before the agent connects, its token and its port are known; then the object is written at once."""
        self.has_agent = False
        self.adopt()
        self.pump(100)
        self.assertEqual(self.kit.connection()["kubeconfig"], "b2xk")
        self.assertTrue(self.kit.records.v1_tokens.check("alpha", TOKEN))
        self.assertTrue(self.kit.clusters.ports.owns(self.kit.clusters.require("alpha")))
        self.has_agent = True
        self.controller.reached("alpha")
        self.pump()
        self.assertIn(STAMP_ANNOTATION, self.kit.cluster()["metadata"]["annotations"])
        self.assertEqual(len(self.kit.records.credentials.list("alpha")), 1)

    def test_agent_away(self) -> None:
        """Denied writes are not repeated in a loop, and logged once, with the reason and the cure."""
        self.has_agent = False
        with capturedLogs() as logs:
            self.adopt()
            for _ in range(int(HOUR / 10)):
                self.pump(10)
        self.assertLess(self.denied, HOUR / 30 + 20)
        lines = [eventAsText(each) for each in logs if each["log_level"].name in ("warn", "error")]
        (line,) = [each for each in lines if "webhook" in each]
        self.assertIn("while an agent is connected", line)
        self.assertNotIn("tower rbac", line)
        self.assertEqual(self.controller.problems, [])
        self.controller.reached("beta")  # unknown clusters are ignored

    def test_renewal(self) -> None:
        """A kubeconfig is renewed in place, and valid before the webhook sees it."""
        self.adopt()
        before = self.kit.connection()["kubeconfig"]
        for _ in range(24):
            self.pump(HOUR)
        self.assertNotEqual(self.kit.connection()["kubeconfig"], before)
        self.assertEqual(self.denied, 0)


class DeletionTests(WebhookTestCase):
    """KubeSphere cleans up in the member of a deleted cluster, then removes its finalizer."""

    def test_cleanup(self) -> None:
        """The cluster is served until then, and all objects go with it."""
        self.adopt()
        self.kit.host.remove(CLUSTERS, "alpha")
        self.pump(60)
        self.assertTrue(self.answers("alpha", self.kit.cluster()))
        self.without(KUBESPHERE_FINALIZER)
        for resource in (CLUSTERS, SERVICES, SECRETS):
            self.assertEqual(self.kit.host.objects(resource), [])
        self.assertIsNone(self.kit.clusters.get("alpha"))
        self.assertEqual(self.denied, 0)

    def test_disabled(self) -> None:
        """A deleted cluster that its users take out of service is not served meanwhile."""
        self.adopt()
        self.kit.host.remove(CLUSTERS, "alpha")
        cluster = self.kit.cluster()
        self.kit.host.put(CLUSTERS, {**cluster, "spec": {**cluster["spec"], "joinFederation": False}})
        self.pump()
        self.assertEqual(self.kit.host.objects(SERVICES), [])
        self.assertFalse(self.kit.clusters.require("alpha").enabled)

    def test_own_finalizer(self) -> None:
        """Tower's finalizer is last; for KubeSphere Tower, which does not know it, it is removed."""
        self.kit.host.admission.remove(self.judge)
        self.settings = HostSettings()
        self.adopt()
        self.assertEqual(self.finalizers(), [KUBESPHERE_FINALIZER, FINALIZER])
        self.controller.stopService()
        self.settings = HostSettings(is_compatible=True)
        self.controller = self.started()
        self.assertEqual(self.finalizers(), [KUBESPHERE_FINALIZER])
        self.controller.stopService()
        self.settings = HostSettings()
        self.controller = self.started()
        self.kit.host.remove(CLUSTERS, "alpha")
        self.pump(60)
        self.assertEqual(len(self.kit.host.objects(SERVICES)), 1)
        self.without(KUBESPHERE_FINALIZER)
        self.assertEqual(self.kit.host.objects(SERVICES) + self.kit.host.objects(CLUSTERS), [])

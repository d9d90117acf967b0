"""Tests of `tower.controller.controller`, with the reconciler and all other parts."""

from __future__ import annotations

import base64
import json

from twisted.logger import capturedLogs, eventAsText

from tests.controller.case import TOKEN, ControllerTestCase
from tests.controller.kit import DAY, MONTH, NAMESPACE, HostKit
from tower.clusters.v1_tokens import id_of_token
from tower.controller.cluster_services import ATTEMPTS
from tower.controller.controller import PATIENCE, RESYNC
from tower.controller.kubeconfig_issuer import CALLER
from tower.controller.objects.host_cluster import (
    ADDRESS_ANNOTATION,
    BALANCER_ANNOTATION,
    FINALIZER,
    SECRET_ANNOTATION,
)
from tower.controller.objects.host_conditions import EXTERNAL_ACCESS_READY, INITIALIZED
from tower.controller.objects.service_objects import CLUSTER_LABEL, SERVICE_NAMES, HostSettings
from tower.kube.kubeconfig import read_kubeconfig
from tower.kube.rest.host_api import Object, ResourceType
from tower.kube.rest.well_known import CLUSTERS, ENDPOINT_SLICES, EVENTS, NAMESPACES, SECRETS, SERVICES


class ServedTests(ControllerTestCase):
    """A cluster that is applied."""

    def test_applied(self) -> None:
        """A cluster gets its port, Service, endpoints, kubeconfig, token, finalizer and condition."""
        self.apply()
        service, connection = self.kit.service(), self.kit.connection()
        self.assertEqual(service["spec"]["ports"][0]["targetPort"], 6000)
        self.assertEqual(connection["kubernetesAPIServerPort"], 6000)
        self.assertEqual(connection["kubesphereAPIServerPort"], 16000)
        address = service["spec"]["clusterIP"]
        self.assertEqual(connection["kubernetesAPIEndpoint"], f"https://{address}:6443")
        self.assertEqual(connection["kubesphereAPIEndpoint"], f"http://{address}:80")
        self.assertEqual(self.kit.cluster()["metadata"]["finalizers"], [FINALIZER])
        self.assertEqual(self.status(INITIALIZED), ("True", "Initialized", "Cluster has been initialized"))
        self.assertEqual(self.status(EXTERNAL_ACCESS_READY)[0], "")
        self.assertEqual(self.kit.names, {"alpha": (address, *SERVICE_NAMES)})
        self.assertEqual(self.events(), ["Initialized"])

    def test_kubeconfig(self) -> None:
        """The kubeconfig leads to the Service, and its credential is valid for that cluster only."""
        self.apply()
        access = read_kubeconfig(self.kubeconfig())
        self.assertEqual(access.server, self.kit.connection()["kubernetesAPIEndpoint"])
        self.assertEqual(access.ca_data, self.kit.serving.pem)
        (credential,) = self.kit.records.credentials.list("alpha")
        self.assertEqual(
            (credential.kind, credential.user, credential.role), ("cert", CALLER, "trusted-caller")
        )
        self.assertTrue(credential.valid(self.kit.clock.seconds()))

    def test_observed_generation(self) -> None:
        """The status has the generation of the controller's last work."""
        self.apply()
        cluster = self.kit.cluster()
        self.assertEqual(cluster["status"]["observedGeneration"], cluster["metadata"]["generation"])
        self.apply(externalKubeAPIEnabled=True)
        cluster = self.kit.cluster()
        self.assertEqual(cluster["status"]["observedGeneration"], cluster["metadata"]["generation"])

    def test_without_status_subresource(self) -> None:
        """Without a status subresource, where each write is a generation, none is written, and it settles."""
        self.kit.host.without_status.add(CLUSTERS)
        self.apply()
        self.assertNotIn("observedGeneration", self.kit.cluster().get("status", {}))
        self.assertEqual(self.steady(), [])

    def test_steady(self) -> None:
        """A cluster that is right is not written."""
        self.apply()
        self.assertEqual(self.steady(), [])

    def test_resync(self) -> None:
        """A change that no watch reports is corrected when the cluster is compared again."""
        self.apply()
        self.kit.host.hold_events()
        self.kit.host.remove(SECRETS, "mc-alpha", NAMESPACE)
        self.pump(RESYNC - 10)
        self.assertIsNone(self.kit.host.object(SECRETS, "mc-alpha", NAMESPACE))
        self.pump(RESYNC / 2 + 10)
        self.assertIn("clusters:", self.kubeconfig().decode())

    def test_next_leader(self) -> None:
        """Another controller that starts later finds everything right and writes nothing."""
        self.apply()
        self.controller.stopService()
        self.started()
        self.assertEqual(self.steady(), [])

    def test_many(self) -> None:
        """Each of several clusters gets its own port and Service."""
        for number in range(9):
            self.kit.apply(f"c{number}")
        self.pump()
        self.pump()
        ports = {self.kit.connection(f"c{number}")["kubernetesAPIServerPort"] for number in range(9)}
        self.assertEqual(len(ports), 9)

    def test_other_types(self) -> None:
        """A cluster that KubeSphere reaches directly is not touched."""
        self.apply("host", connection={"type": "direct", "kubeconfig": "a3ViZQ=="})
        self.assertEqual(self.kit.host.writes, [])

    def test_foreign_kubeconfig(self) -> None:
        """A kubeconfig that is not Tower's is moved to the Secret, with an event, and stays there."""
        applied = json.dumps({"spec": {"connection": {"type": "proxy", "kubeconfig": "a3ViZQ=="}}})
        note = {"kubectl.kubernetes.io/last-applied-configuration": applied}
        self.kit.apply(annotations=note, connection={"kubeconfig": "a3ViZQ=="})
        self.pump()
        self.assertNotIn("a3ViZQ==", json.dumps(self.kit.host.objects(CLUSTERS)))
        self.assertEqual(self.events("Warning"), ["KubeconfigMoved"])
        self.assertIn(b"certificate-authority-data", self.kubeconfig())
        self.assertEqual(self.others(), ["a3ViZQ=="])
        self.assertEqual(self.steady(), [])
        self.apply(connection={"kubeconfig": "a3ViZQ=="})  # again
        self.apply(connection={"kubeconfig": "not base64!"})
        self.assertEqual(self.others(), ["a3ViZQ==", "bm90IGJhc2U2NCE="])
        self.apply(joinFederation=False)
        self.assertEqual(self.others(), ["a3ViZQ==", "bm90IGJhc2U2NCE="])
        self.assertNotIn("kubeconfig", self.kit.secret()["data"])

    def test_foreign_kubeconfigs_and_another_type(self) -> None:
        """If the cluster becomes a direct one, the newest of them is back in the object; none is lost."""
        for text in ("a3ViZQ==", "bmV3ZXI="):
            self.apply(connection={"kubeconfig": text})
        self.apply(connection={"type": "direct"})
        self.assertEqual(self.kit.connection()["kubeconfig"], "bmV3ZXI=")
        self.assertEqual(list(self.kit.secret()["data"].values()), ["a3ViZQ=="])
        self.assertEqual(self.steady(), [])

    def test_too_many_foreign_kubeconfigs(self) -> None:
        """A program that writes other kubeconfigs all the time is reported, and the last one stays."""
        texts = [base64.b64encode(bytes([number])).decode() for number in range(9)]
        for text in texts:
            self.apply(connection={"kubeconfig": text})
        self.assertEqual(self.others(), texts[:8])
        self.assertEqual(self.kit.connection()["kubeconfig"], texts[8])
        status, _, text = self.status(INITIALIZED)
        self.assertEqual(status, "False")
        self.assertIn("Secret kubesphere-system/mc-alpha already has 8 others: stop the program", text)

    def test_service_changed(self) -> None:
        """A Service that another program changed or deleted is put right."""
        self.apply()
        wanted = self.kit.service()["spec"]["ports"]
        self.kit.host.put(
            SERVICES, {**self.kit.service(), "spec": {**self.kit.service()["spec"], "ports": []}}
        )
        self.pump()
        self.assertEqual(self.kit.service()["spec"]["ports"], wanted)
        address = self.kit.service()["spec"]["clusterIP"]
        self.kit.host.remove(SERVICES, "mc-alpha", NAMESPACE)
        self.pump()
        self.assertEqual(self.kit.service()["spec"]["clusterIP"], address)
        self.assertEqual(self.kit.connection()["kubernetesAPIEndpoint"], f"https://{address}:6443")
        self.assertEqual(read_kubeconfig(self.kubeconfig()).server, f"https://{address}:6443")

    def test_secret_changed(self) -> None:
        """A Secret that another program changed or deleted is put right, with a new kubeconfig."""
        self.apply()
        secret = self.kit.secret()
        self.kit.host.put(SECRETS, {**secret, "data": {**secret["data"], "kubeconfig": "eA=="}})
        self.pump()
        self.assertIn(b"certificate-authority-data", self.kubeconfig())
        self.kit.host.remove(SECRETS, "mc-alpha", NAMESPACE)
        self.pump()
        self.assertIn(b"certificate-authority-data", self.kubeconfig())
        self.kit.records.v1_tokens.check("alpha", self.token())
        self.assertEqual(self.steady(), [])

    def test_port_replaced(self) -> None:
        """The event about a port that a cluster cannot have has the reason."""
        self.apply()
        self.apply("beta", connection={"kubernetesAPIServerPort": 6000})
        self.apply("gamma", connection={"kubernetesAPIServerPort": 9})
        messages = self.messages("PortReplaced")
        self.assertEqual(
            messages[0], "kubernetesAPIServerPort 6000: replaced by 6001: port 6000: cluster alpha has it"
        )
        self.assertIn("9: replaced by 6002: port 9: not in --cluster-ports 6000-6009", messages[1])

    def test_second_port_replaced(self) -> None:
        """The event about another port for KubeSphere has the rule, and the cluster that has the port."""
        self.apply()
        self.apply("beta", connection={"kubesphereAPIServerPort": 16000})
        rule = "it is always kubernetesAPIServerPort + 10000"
        self.assertEqual(
            self.messages("PortReplaced"),
            [f"kubesphereAPIServerPort 16000: replaced by 16001: {rule}; cluster alpha has port 16000"],
        )
        self.apply("gamma", connection={"kubesphereAPIServerPort": 77})
        self.assertIn(f"77: replaced by 16002: {rule}", "".join(self.messages("PortReplaced")))
        self.assertEqual(self.kit.connection("gamma")["kubesphereAPIServerPort"], 16002)

    def test_port_changed(self) -> None:
        """A port that users change is used, with an event; a taken one changes nothing."""
        self.apply()
        self.apply("beta")
        self.apply(connection={"kubernetesAPIServerPort": 6005})
        self.assertEqual(self.kit.service()["spec"]["ports"][0]["targetPort"], 6005)
        self.assertEqual(self.kit.connection()["kubesphereAPIServerPort"], 16005)
        self.assertEqual(self.messages("PortChanged"), ["Port 6000 was changed to 6005"])
        self.assertEqual(self.events("Warning"), [])
        self.apply(connection={"kubernetesAPIServerPort": 6001})
        self.assertEqual(self.kit.connection()["kubernetesAPIServerPort"], 6005)
        self.assertEqual(self.events("Warning"), ["PortReplaced"])
        self.assertEqual(self.steady(), [])

    def test_changed_range(self) -> None:
        """A port outside a changed range stays, with an event that has the cure."""
        self.apply()
        self.controller.stopService()
        self.kit.stop()
        host, store = self.kit.host, self.kit.store
        self.kit = HostKit(self.mktemp(), range(7000, 7010), self.kit.clock, store, host)
        self.addCleanup(self.kit.stop)
        self.controller = self.started()
        self.assertEqual(self.kit.connection()["kubernetesAPIServerPort"], 6000)
        (text,) = self.messages("PortOutOfRange")
        self.assertIn("Port 6000 is not in --cluster-ports 7000-7009 and stays: to replace it, remove", text)
        cluster = self.kit.cluster()
        del cluster["spec"]["connection"]["kubernetesAPIServerPort"]
        self.kit.host.put(CLUSTERS, cluster)
        self.pump()
        self.assertEqual(self.kit.connection()["kubernetesAPIServerPort"], 7000)

    def test_adopted_service(self) -> None:
        """A Service of KubeSphere Tower keeps its address, and gets the port and the labels."""
        self.kit.host.put(
            SERVICES,
            {
                "metadata": {"name": "mc-alpha", "namespace": NAMESPACE, "labels": {"app": "mc-alpha"}},
                "spec": {"clusterIP": "10.96.7.7", "selector": {"app": "tower"}, "ports": []},
            },
        )
        self.apply(connection={"kubernetesAPIServerPort": 6007})
        self.assertEqual(self.kit.connection()["kubernetesAPIEndpoint"], "https://10.96.7.7:6443")
        self.assertEqual(self.kit.service()["spec"]["ports"][0]["targetPort"], 6007)
        self.assertEqual(self.steady(), [])

    def test_renewal(self) -> None:
        """A kubeconfig is renewed in place before it ends, once."""
        self.apply()
        before = self.kubeconfig()
        self.pump(DAY * 0.6)
        self.assertEqual(self.kubeconfig(), before)
        self.pump(DAY * 0.1)
        after = self.kubeconfig()
        self.assertNotEqual(after, before)
        self.assertEqual(len(self.kit.records.credentials.list("alpha")), 2)
        self.pump(100)
        self.assertEqual(self.kubeconfig(), after)

    def test_user_edits_win(self) -> None:
        """A change by a user between the controller's read and its write is not lost."""
        self.apply()

        def change(verb: str, resource: ResourceType, obj: Object) -> None:
            if (verb, resource) == ("patch", SERVICES):
                self.kit.host.admission.remove(change)
                self.kit.apply(connection={"token": TOKEN})

        self.kit.host.admission.append(change)
        self.apply(externalKubeAPIEnabled=True)
        self.pump(1)
        self.assertEqual(self.token(), TOKEN)


class TokenTests(ControllerTestCase):
    """The token of ``kubesphere-v1`` agents."""

    def check(self, token: str) -> str:
        """Return the ID of a token that agents of alpha may use."""
        return self.kit.records.v1_tokens.check("alpha", token)

    def test_created(self) -> None:
        """A cluster without a token gets one, in its Secret only."""
        self.apply()
        self.assertEqual(self.check(self.token()), id_of_token(self.token()))
        self.assertNotIn(self.token(), json.dumps(self.kit.host.objects(CLUSTERS)))

    def test_given(self) -> None:
        """A token in the cluster's object is imported, and moved into the Secret."""
        applied = json.dumps({"spec": {"connection": {"type": "proxy", "token": TOKEN}}})
        note = "kubectl.kubernetes.io/last-applied-configuration"
        self.kit.apply(annotations={note: applied}, connection={"token": TOKEN})
        self.pump()
        self.assertEqual((self.token(), self.check(TOKEN)), (TOKEN, id_of_token(TOKEN)))
        self.assertNotIn(TOKEN, json.dumps(self.kit.host.objects(CLUSTERS)))

    def test_earlier_name(self) -> None:
        """A token in the field of earlier versions is moved, too."""
        self.apply(connection={"proxyToken": TOKEN})
        self.assertEqual(self.token(), TOKEN)
        self.assertNotIn(TOKEN, json.dumps(self.kit.host.objects(CLUSTERS)))

    def test_changed(self) -> None:
        """Another token in the object replaces the first, which is revoked at once."""
        self.apply(connection={"token": TOKEN})
        other = TOKEN[::-1]
        self.apply(connection={"token": other})
        self.assertEqual(self.token(), other)
        self.assertEqual(
            [each.id for each in self.kit.records.v1_tokens.tokens("alpha")], [id_of_token(other)]
        )

    def test_revoked(self) -> None:
        """A token that was revoked is not imported again, but replaced."""
        self.apply(connection={"token": TOKEN})
        self.successResultOf(self.kit.records.v1_tokens.revoke("alpha", id_of_token(TOKEN)))
        self.controller.stopService()
        self.started()
        self.assertNotEqual(self.token(), TOKEN)
        self.check(self.token())
        self.assertNotIn(id_of_token(TOKEN), [each.id for each in self.kit.records.v1_tokens.tokens("alpha")])

    def test_invalid(self) -> None:
        """A token that cannot be imported is reported with its cure, and no value of it."""
        self.apply(connection={"token": "short"})
        status, reason, text = self.status(INITIALIZED)
        self.assertEqual((status, reason), ("False", "ReconcileFailed"))
        self.assertIn("16 to 1024 printable", text)
        self.assertTrue(text.startswith("spec.connection.token: "), text)
        self.assertNotIn("short", text)
        self.apply(connection={"token": TOKEN})
        self.assertEqual(self.status(INITIALIZED)[0], "True")


class NoTokenTests(ControllerTestCase):
    """A proxy that rejects KubeSphere Tower agents."""

    uses_tokens = False

    def test_none(self) -> None:
        """A cluster has no token; one in the object is moved, but not valid."""
        self.apply()
        self.assertEqual(list(self.kit.secret()["data"]), ["kubeconfig"])
        self.apply(connection={"token": TOKEN})
        self.assertEqual(self.token(), TOKEN)
        self.assertNotIn("token", self.kit.connection())
        self.assertEqual(self.kit.records.v1_tokens.all(), [])


class CompatibleTests(ControllerTestCase):
    """Kubeconfig and token in the cluster's object, as KubeSphere's console expects them."""

    settings = HostSettings(is_compatible=True)

    def test_in_the_object(self) -> None:
        """Kubeconfig and token are in the object, and there is no Secret."""
        self.apply()
        access = read_kubeconfig(base64.b64decode(self.kit.connection()["kubeconfig"]))
        self.assertEqual(access.server, self.kit.connection()["kubernetesAPIEndpoint"])
        self.kit.records.v1_tokens.check("alpha", self.kit.connection()["token"])
        self.assertEqual(self.kit.host.objects(SECRETS), [])
        self.assertEqual(self.steady(), [])

    def test_foreign_kubeconfig(self) -> None:
        """A kubeconfig that is not Tower's is replaced and saved; Tower's own is not reported."""
        self.apply()
        self.pump(DAY)
        self.assertEqual(self.events("Warning"), [])
        self.apply(connection={"kubeconfig": "a3ViZQ=="})
        access = read_kubeconfig(base64.b64decode(self.kit.connection()["kubeconfig"]))
        self.assertEqual(access.server, self.kit.connection()["kubernetesAPIEndpoint"])
        self.assertEqual(self.kit.secret()["data"], {"other-kubeconfig-1": "a3ViZQ=="})
        self.assertEqual(self.events("Warning"), ["KubeconfigMoved"])
        self.assertEqual(self.steady(), [])

    def test_given_token(self) -> None:
        """A token of KubeSphere stays where it is."""
        self.apply(connection={"token": TOKEN})
        self.assertEqual(self.kit.connection()["token"], TOKEN)

    def test_off_and_on(self) -> None:
        """A cluster that does not join has no kubeconfig, but keeps its token."""
        self.apply()
        token, kubeconfig = self.kit.connection()["token"], self.kit.connection()["kubeconfig"]
        self.apply(joinFederation=False)
        self.assertNotIn("kubeconfig", self.kit.connection())
        self.apply()
        self.assertEqual(self.kit.connection()["token"], token)
        self.assertNotEqual(self.kit.connection()["kubeconfig"], kubeconfig)
        self.assertEqual(self.steady(), [])

    def test_to_secrets(self) -> None:
        """Without compatibility both move into the Secret, with the same token; and back."""
        self.apply()
        token = self.kit.connection()["token"]
        self.controller.stopService()
        self.settings = HostSettings()
        moved = self.started()
        self.assertNotIn("token", self.kit.connection())
        self.assertNotIn("kubeconfig", self.kit.connection())
        self.assertEqual(self.token(), token)
        self.assertEqual(self.steady(), [])
        moved.stopService()
        self.settings = HostSettings(is_compatible=True)
        self.started()
        self.assertEqual(self.kit.connection()["token"], token)
        self.assertEqual(self.kit.host.objects(SECRETS), [])


class LoadBalancerTests(ControllerTestCase):
    """A cluster that is exported."""

    def test_address(self) -> None:
        """The address of the load balancer is in the object and in the certificate's names at once."""
        self.apply(externalKubeAPIEnabled=True)
        self.assertEqual(self.status(EXTERNAL_ACCESS_READY)[:2], ("False", "LoadBalancerPending"))
        self.kit.set_ingress("alpha", {"hostname": "a.elb.example"})
        self.pump()
        connection = self.kit.connection()
        self.assertEqual(connection["externalKubernetesAPIEndpoint"], "https://a.elb.example:6443")
        self.assertEqual(
            self.status(EXTERNAL_ACCESS_READY),
            ("True", "Initialized", "Cluster external kubeapi has been initialized"),
        )
        self.assertIn("a.elb.example", self.kit.names["alpha"])
        self.kit.set_ingress("alpha", {"ip": "192.0.2.7"})
        self.pump()
        self.assertEqual(self.kit.connection()["externalKubernetesAPIEndpoint"], "https://192.0.2.7:6443")
        self.assertNotIn("a.elb.example", self.kit.names["alpha"])
        self.assertEqual(self.events(), ["ExternalAccessReady", "Initialized"])

    def test_annotation_changed(self) -> None:
        """A change of the annotation reaches the Service; a malformed one is in the condition."""
        self.kit.apply(annotations={BALANCER_ANNOTATION: '{"a":"b"}'}, externalKubeAPIEnabled=True)
        self.pump()
        self.assertEqual(self.kit.service()["metadata"]["annotations"]["a"], "b")
        self.kit.apply(annotations={BALANCER_ANNOTATION: '{"a":"c"}'}, externalKubeAPIEnabled=True)
        self.pump()
        self.assertEqual(self.kit.service()["metadata"]["annotations"]["a"], "c")
        self.kit.apply(annotations={BALANCER_ANNOTATION: "x"}, externalKubeAPIEnabled=True)
        self.pump()
        self.assertEqual(self.status(EXTERNAL_ACCESS_READY)[:2], ("False", "InvalidAnnotation"))
        self.assertNotIn("a", self.kit.service()["metadata"]["annotations"])


class RemovalTests(ControllerTestCase):
    """A cluster that is not to be served, or not any more."""

    def test_never_joined(self) -> None:
        """A cluster that was never joined has a condition and an event with the reason."""
        self.apply(joinFederation=False)
        status, reason, text = self.status(INITIALIZED)
        self.assertEqual((status, reason), ("False", "NotJoined"))
        self.assertIn("spec.joinFederation is not true", text)
        self.assertEqual(self.events(), ["NotJoined"])
        self.assertEqual(self.steady(), [])

    def test_not_enabled(self) -> None:
        """The reason follows the field that keeps a cluster from being served."""
        self.apply(enable=False)
        status, reason, text = self.status(INITIALIZED)
        self.assertEqual((status, reason), ("False", "Disabled"))
        self.assertIn("spec.enable is false", text)
        self.apply(joinFederation=False)
        self.assertEqual(self.status(INITIALIZED)[1], "NotJoined")

    def test_off_and_on(self) -> None:
        """`joinFederation` off takes Service, endpoints and kubeconfig away; on brings all back."""
        self.apply()
        port, token = self.kit.connection()["kubernetesAPIServerPort"], self.token()
        (credential,) = self.kit.records.credentials.list("alpha")
        self.apply(joinFederation=False)
        self.assertEqual(self.kit.host.objects(SERVICES), [])
        self.assertNotIn("kubernetesAPIEndpoint", self.kit.connection())
        self.assertEqual(list(self.kit.secret()["data"]), ["token"])
        self.assertTrue(self.kit.records.credentials.get(credential.id).revoked)  # type: ignore[union-attr]
        self.assertEqual(self.status(INITIALIZED)[:2], ("False", "NotJoined"))
        self.assertEqual((self.kit.names, self.kit.cluster()["metadata"]["finalizers"]), ({"alpha": ()}, []))
        self.assertEqual(self.steady(), [])
        self.apply()
        self.assertEqual(self.kit.connection()["kubernetesAPIServerPort"], port)
        self.assertEqual(self.status(INITIALIZED)[0], "True")
        self.assertEqual(self.token(), token)
        self.assertIn("kubernetesAPIEndpoint", self.kit.connection())
        self.kubeconfig()

    def test_address_stays(self) -> None:
        """A cluster that is joined again gets the ClusterIP of before, unless another Service has it."""
        self.apply()
        endpoint = self.kit.connection()["kubernetesAPIEndpoint"]
        self.apply(joinFederation=False)
        self.apply()
        self.assertEqual(self.kit.connection()["kubernetesAPIEndpoint"], endpoint)
        self.apply(joinFederation=False)
        self.refuse_address(ATTEMPTS)
        self.apply()
        self.retry()
        address = self.kit.service()["spec"]["clusterIP"]
        self.assertNotIn(f"//{address}:", endpoint)
        self.assertEqual(self.kit.connection()["kubernetesAPIEndpoint"], f"https://{address}:6443")
        self.assertEqual(self.status(INITIALIZED)[0], "True")

    def test_address_out_of_range(self) -> None:
        """A cluster whose ClusterIP is not allowed any more gets another one at once."""
        self.apply()
        self.apply(joinFederation=False)
        self.refuse_address(1, "the provided IP is not in the valid range")
        self.apply()
        self.assertEqual(self.kit.service()["spec"]["clusterIP"], "10.96.0.2")

    def test_deleted_service(self) -> None:
        """A Service that a user deletes gets its ClusterIP back, which is released late, without a report."""
        self.apply()
        address = self.kit.service()["spec"]["clusterIP"]
        before = self.messages("Initialized")
        self.refuse_address(ATTEMPTS - 1)
        with capturedLogs() as logs:
            self.kit.host.remove(SERVICES, "mc-alpha", NAMESPACE)
            self.retry()
        self.assertEqual(self.kit.service()["spec"]["clusterIP"], address)
        self.assertEqual(self.events("Warning"), [])
        self.assertEqual(self.messages("Initialized"), before)
        self.assertEqual([each for each in logs if each["log_level"].name in ("warn", "error")], [])
        self.assertEqual(self.steady(), [])

    def retry(self) -> None:
        """Let the controller try to get the ClusterIP."""
        for _ in range(ATTEMPTS):
            self.pump(1)

    def refuse_address(self, count: int, reason: str = "provided IP is already allocated") -> None:
        """Let the API server refuse the ClusterIP of the next Services, as Kubernetes does."""
        text = f'Service "mc-alpha" is invalid: spec.clusterIPs: Invalid value: ["10.96.0.1"]: {reason}'
        self.kit.host.fail_next(422, text, verbs=("create",), plural="services", count=count)

    def test_copied_address(self) -> None:
        """A copy of the object under another name gets its own ClusterIP."""
        self.apply()
        note = self.kit.cluster()["metadata"]["annotations"][ADDRESS_ANNOTATION]
        self.apply(joinFederation=False)
        self.kit.apply("beta", annotations={ADDRESS_ANNOTATION: note})
        self.pump()
        self.assertNotEqual(f"alpha/{self.kit.service('beta')['spec']['clusterIP']}", note)

    def test_deleted(self) -> None:
        """A deleted cluster goes with all its objects, and its port is in quarantine."""
        self.apply()
        self.kit.host.remove(CLUSTERS, "alpha")
        self.pump()
        for resource in (CLUSTERS, SERVICES, SECRETS):
            self.assertEqual(self.kit.host.objects(resource), [])
        self.assertIsNone(self.kit.clusters.get("alpha"))
        self.apply("beta")
        self.assertEqual(self.kit.connection("beta")["kubernetesAPIServerPort"], 6001)
        self.pump(MONTH)
        self.pump(1000)
        self.apply("gamma")
        self.assertEqual(self.kit.connection("gamma")["kubernetesAPIServerPort"], 6000)

    def test_other_finalizers(self) -> None:
        """An object that another program still needs loses its Service at once, too."""
        self.apply()
        metadata = self.kit.cluster()["metadata"]
        self.kit.host.put(
            CLUSTERS, {**self.kit.cluster(), "metadata": {**metadata, "finalizers": [FINALIZER, "other/x"]}}
        )
        self.pump()
        self.kit.host.remove(CLUSTERS, "alpha")
        self.pump()
        self.assertEqual(self.kit.host.objects(SERVICES), [])
        self.assertEqual(self.kit.cluster()["metadata"]["finalizers"], ["other/x"])

    def test_deleted_while_stopped(self) -> None:
        """A cluster that was deleted while no controller ran is cleaned up at the next start."""
        self.apply()
        self.controller.stopService()
        self.kit.host.remove(CLUSTERS, "alpha")
        self.started()
        self.assertEqual(self.kit.host.objects(CLUSTERS) + self.kit.host.objects(SERVICES), [])

    def test_forced_deletion(self) -> None:
        """Objects of a cluster that was removed without its finalizer are removed, too."""
        self.apply()
        cluster = self.kit.cluster()
        self.kit.host.put(CLUSTERS, {**cluster, "metadata": {**cluster["metadata"], "finalizers": []}})
        self.kit.host.remove(CLUSTERS, "alpha")
        self.pump()
        self.pump(1)
        self.assertEqual(self.kit.host.objects(SERVICES) + self.kit.host.objects(CLUSTERS), [])

    def test_other_type(self) -> None:
        """A cluster that becomes a direct one loses what Tower made, and keeps what its users wrote."""
        self.apply()
        self.apply(connection={"type": "direct", "kubeconfig": "a3ViZQ=="})
        self.assertEqual(self.kit.host.objects(SERVICES) + self.kit.host.objects(SECRETS), [])
        self.assertEqual(self.kit.connection()["kubeconfig"], "a3ViZQ==")
        self.assertEqual(self.kit.cluster()["metadata"]["finalizers"], [])
        self.assertNotIn("kubernetesAPIEndpoint", self.kit.connection())
        self.assertNotIn("kubesphereAPIEndpoint", self.kit.connection())
        self.assertEqual(self.kit.cluster()["status"]["conditions"], [])
        self.assertNotIn(SECRET_ANNOTATION, self.kit.cluster()["metadata"]["annotations"])
        self.assertEqual(self.events(), ["Initialized", "Withdrawn"])
        self.assertEqual(self.steady(), [])

    def test_other_type_and_endpoint(self) -> None:
        """An endpoint that came with the new type, and conditions of other programs, stay."""
        self.apply()
        other = {"type": "Ready", "status": "True"}
        cluster = self.kit.cluster()
        conditions = [*cluster["status"]["conditions"], other]
        self.kit.host.put(CLUSTERS, {**cluster, "status": {"conditions": conditions}})
        endpoint = "https://192.0.2.1:6443"
        self.apply(connection={"type": "direct", "kubernetesAPIEndpoint": endpoint})
        self.assertEqual(self.kit.connection()["kubernetesAPIEndpoint"], endpoint)
        self.assertEqual(self.kit.cluster()["status"]["conditions"], [other])


class OutsideTests(ControllerTestCase):
    """A proxy that is not in the host cluster."""

    settings = HostSettings(selector=None, addresses=("192.0.2.1",))

    def test_slices(self) -> None:
        """The Service has the proxy's address in an EndpointSlice, which goes with it."""
        self.apply()
        (found,) = self.kit.host.objects(ENDPOINT_SLICES)
        self.assertEqual(found["endpoints"][0]["addresses"], ["192.0.2.1"])
        self.assertEqual(found["ports"][0]["port"], 6000)
        self.assertEqual(self.steady(), [])
        self.kit.host.remove(ENDPOINT_SLICES, "mc-alpha-ipv4", NAMESPACE)
        self.pump()
        self.assertEqual(len(self.kit.host.objects(ENDPOINT_SLICES)), 1)
        self.apply(joinFederation=False)
        self.assertEqual(self.kit.host.objects(ENDPOINT_SLICES), [])

    def test_moved_outside(self) -> None:
        """A proxy that moves out of the host cluster removes the EndpointSlices of its former pods."""
        labels = {
            CLUSTER_LABEL: "alpha",
            "kubernetes.io/service-name": "mc-alpha",
            "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
        }
        left = {"metadata": {"name": "mc-alpha-x7k2p", "namespace": NAMESPACE, "labels": labels}}
        self.controller.stopService()
        self.settings = HostSettings()
        self.controller = self.started()
        self.apply()
        self.kit.host.put(ENDPOINT_SLICES, left)
        self.pump()
        self.assertEqual(self.slices(), ["mc-alpha-x7k2p"])
        self.controller.stopService()
        self.settings = OutsideTests.settings
        self.controller = self.started()
        self.assertEqual(self.slices(), ["mc-alpha-ipv4"])
        self.kit.host.put(ENDPOINT_SLICES, left)
        self.pump()
        self.assertEqual(self.slices(), ["mc-alpha-ipv4"])
        self.assertEqual(self.steady(), [])

    def slices(self) -> list[str]:
        """Return the names of the EndpointSlices."""
        return [each["metadata"]["name"] for each in self.kit.host.objects(ENDPOINT_SLICES)]

    def test_moved_inside(self) -> None:
        """A proxy that moves into the host cluster removes the EndpointSlices."""
        self.apply()
        self.controller.stopService()
        self.settings = HostSettings()
        self.started()
        self.assertEqual(self.kit.host.objects(ENDPOINT_SLICES), [])
        self.assertIn("app", self.kit.service()["spec"]["selector"])


class UnreachableTests(ControllerTestCase):
    """A proxy outside of the host cluster, without an address that the host can reach."""

    settings = HostSettings(selector=None)

    def test_no_slice(self) -> None:
        """A Service without endpoints has an event and a condition with the cure."""
        self.apply()
        status, reason, text = self.status(INITIALIZED)
        self.assertEqual((status, reason), ("True", "NoEndpoint"))
        self.assertIn("set --publish-service-address", text)
        self.assertEqual(self.kit.host.objects(ENDPOINT_SLICES), [])
        (event,) = [each for each in self.kit.host.objects(EVENTS) if each["type"] == "Warning"]
        self.assertEqual(event["reason"], "NoEndpoint")
        self.assertIn("set --publish-service-address", event["message"])

    def test_last_word(self) -> None:
        """After a change of the state, the event with the latest time has the current one."""
        self.apply()
        for _ in range(2):
            for is_joined, reasons in ((False, ["Withdrawn"]), (True, ["Initialized", "NoEndpoint"])):
                self.pump(10)
                self.apply(joinFederation=is_joined)
                events = self.kit.host.objects(EVENTS)
                latest = max(each["lastTimestamp"] for each in events)
                found = [each["reason"] for each in events if each["lastTimestamp"] == latest]
                self.assertEqual(sorted(found), reasons)
        counts = {each["reason"]: each["count"] for each in events}
        self.assertEqual((counts["Initialized"], counts["Withdrawn"]), (3, 2))
        self.assertEqual(self.steady(200), [])

    def test_repeated(self) -> None:
        """An event that only occurs again is written every few minutes."""
        self.apply()
        before = len(self.kit.host.writes)
        for _ in range(20):
            self.kit.host.remove(SERVICES, "mc-alpha", NAMESPACE)
            self.pump(20)
        written = [plural for _, plural, _ in self.kit.host.writes[before:]]
        self.assertEqual(written.count("services"), 20)
        self.assertEqual(written.count("events"), 1)

    def test_next_leader(self) -> None:
        """The next leader changes no event of the first one."""
        self.apply()
        before = self.kit.host.objects(EVENTS)
        self.pump(10)
        self.controller.stopService()
        self.started()
        self.apply(joinFederation=False)
        self.pump(10)
        self.apply()
        after = self.kit.host.objects(EVENTS)
        self.assertEqual([each for each in after if each in before], before)
        latest = [each["reason"] for each in sorted(after, key=lambda each: each["lastTimestamp"])[-2:]]
        self.assertEqual(sorted(latest), ["Initialized", "NoEndpoint"])


class KnownTests(ControllerTestCase):
    """Ports at the start of a controller that has served clusters before."""

    def setUp(self) -> None:
        """Stop the first controller, which has served two clusters."""
        super().setUp()
        self.apply()
        self.apply("beta", externalKubeAPIEnabled=True)
        self.kit.set_ingress("beta", {"hostname": "b.elb.example"})
        self.pump()
        self.apply("gamma", joinFederation=False)
        self.served = dict(self.kit.names)
        self.controller.stopService()
        self.kit.names.clear()

    def test_names(self) -> None:
        """The ports have the names of their Services at once, also if nothing can be written."""
        self.kit.host.fail_next(500, verbs=("create", "update", "patch"), count=1000)
        self.controller = self.started()
        self.successResultOf(self.controller.known)
        self.assertEqual({name for name, names in self.served.items() if names}, {"alpha", "beta"})
        self.assertIn("b.elb.example", self.served["beta"])
        self.assertEqual(self.kit.names, self.served)

    def test_patience(self) -> None:
        """A controller that cannot read the Services lets the ports open after a while."""
        self.kit.host.missing.add(SERVICES)
        self.controller = self.started()
        self.assertNoResult(self.controller.known)
        self.pump(PATIENCE)
        self.successResultOf(self.controller.known)
        self.assertEqual(self.kit.names, {})

    def test_stopped(self) -> None:
        """The end of a controller ends the wait for it."""
        self.kit.host.missing.add(SERVICES)
        self.controller = self.started()
        self.controller.stopService()
        self.successResultOf(self.controller.known)


class FailureTests(ControllerTestCase):
    """Requests that fail, and prerequisites that are missing."""

    def test_no_namespace(self) -> None:
        """A missing namespace is in log, condition, event and problems, with its cure, until it exists."""
        self.kit.host.remove(NAMESPACES, NAMESPACE)
        with capturedLogs() as logs:
            for name in ("alpha", "beta"):
                self.apply(name)
            self.pump(20)
        lines = [eventAsText(each) for each in logs if "create namespace" in eventAsText(each)]
        self.assertEqual(len(lines), 1)
        (problem,) = self.controller.problems
        self.assertIn("'kubectl create namespace kubesphere-system'", problem)
        self.assertEqual(self.status(INITIALIZED), ("False", "NamespaceMissing", problem))
        self.assertEqual(self.events("Warning"), ["NamespaceMissing", "NamespaceMissing"])
        self.kit.host.put(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        self.pump(3.1)
        self.assertEqual(self.controller.problems, [])
        for name in ("alpha", "beta"):
            self.assertEqual(self.status(INITIALIZED, name)[0], "True")

    def test_no_rights(self) -> None:
        """Missing rights are reported with the API server's answer, once, and used when they come."""
        self.kit.host.fail_next(
            403,
            'services is forbidden: User "tower" cannot create resource "services" in API group ""',
            verbs=("create",),
            plural="services",
            count=3,
        )
        with capturedLogs() as logs:
            self.apply()
            (problem,) = self.controller.problems
            self.assertIn(r"cannot create resource \"services\" in API group \"\": grant it", problem)
            self.pump(10)
        self.assertEqual(sum("cannot create" in eventAsText(each) for each in logs), 2)  # and solved
        self.assertEqual(self.status(INITIALIZED)[0], "True")
        self.assertEqual(self.controller.problems, [])

    def test_namespace_that_is_being_deleted(self) -> None:
        """Kubernetes rejects new objects then, although Tower has all rights."""
        text = (
            f'services "mc-alpha" is forbidden: ... in namespace {NAMESPACE} because it is being terminated'
        )
        self.kit.host.fail_next(403, text, verbs=("create",), plural="services")
        self.apply()
        self.assertEqual(self.events("Warning"), ["NamespaceMissing"])
        self.pump(4)
        self.assertEqual(self.status(INITIALIZED)[0], "True")

    def test_no_crd(self) -> None:
        """A missing CRD is among the problems; its clusters are served when it comes."""
        self.controller.stopService()
        self.kit.host.missing.add(CLUSTERS)
        self.controller = self.started()
        self.assertTrue(self.controller.problems)
        self.kit.host.missing.discard(CLUSTERS)
        self.kit.apply()
        self.pump(40)
        self.assertEqual(self.controller.problems, [])
        self.assertEqual(self.status(INITIALIZED)[0], "True")

    def test_failures_do_not_unset(self) -> None:
        """A server that fails for a while changes no condition of a cluster that is served."""
        self.apply()
        self.kit.host.fail_next(500, count=6)
        self.apply(externalKubeAPIEnabled=True)
        self.pump(5)
        self.assertEqual(self.status(INITIALIZED)[0], "True")
        self.steady(100)
        self.assertEqual(self.kit.service()["spec"]["type"], "LoadBalancer")

    def test_secret_that_cannot_be_written(self) -> None:
        """Attempts that fail after the kubeconfig was issued use the same one, and the same token."""
        self.kit.host.fail_next(500, verbs=("create",), plural="secrets", count=5)
        self.apply()
        self.steady(100)
        self.assertEqual((self.status(INITIALIZED))[0], "True")
        self.assertEqual(len(self.kit.records.credentials.list("alpha")), 1)
        self.assertEqual(len(self.kit.records.v1_tokens.tokens("alpha")), 1)

    def test_repeated_failures(self) -> None:
        """A failure that lasts is logged once, and so is its end."""
        self.kit.host.fail_next(500, "out of order", verbs=("create",), plural="services", count=5)
        with capturedLogs() as logs:
            self.apply()
            self.steady(100)
        levels = [each["log_level"].name for each in logs if "reconciled" in eventAsText(each)]
        self.assertEqual((levels.count("warn"), levels.count("info")), (1, 1))

    def test_invalid_name(self) -> None:
        """A cluster whose name Tower cannot serve has an event and conditions with the reason, once."""
        self.kit.ignored.add("a.b")
        self.apply("a.b")
        (event,) = self.kit.host.objects(EVENTS)
        self.assertIn("cluster name 'a.b': must be", event["message"])
        conditions = self.kit.cluster("a.b")["status"]["conditions"]
        self.assertEqual(
            sorted((each["type"], each["status"], each["reason"]) for each in conditions),
            [("Available", "False", "InvalidName"), ("Initialized", "False", "InvalidName")],
        )
        self.assertEqual([each for each in self.steady() if each[1] == "clusters"], [])
        self.assertEqual(self.kit.host.objects(SERVICES), [])

    def test_record_that_comes_late(self) -> None:
        """A cluster whose record is not known yet is served once it exists."""
        self.kit.ignored.add("alpha")
        self.apply()
        self.pump(1)
        self.assertEqual(self.kit.host.objects(SERVICES), [])
        self.kit.ignored.clear()
        self.apply(provider="x")
        self.assertEqual((self.status(INITIALIZED))[0], "True")

    def test_lost_answer(self) -> None:
        """A write whose answer was lost is found, not repeated."""
        self.kit.host.fail_next(0, verbs=("create",), plural="services", applied=True)
        self.apply()
        self.pump(1)
        self.assertEqual(len(self.kit.host.objects(SERVICES)), 1)
        self.assertEqual(self.status(INITIALIZED)[0], "True")

    def test_frozen(self) -> None:
        """A server that does not answer for a minute delays the work, and no more."""
        self.kit.host.freeze()
        self.kit.apply()
        self.pump(60)
        self.kit.host.thaw()
        self.pump(60)
        self.assertEqual(self.status(INITIALIZED)[0], "True")

    def test_no_ports(self) -> None:
        """With ``--cluster-ports none``, a cluster is not served, also with a port in its object."""
        self.controller.stopService()
        self.kit.stop()
        self.kit = HostKit(self.mktemp(), None)
        self.addCleanup(self.kit.stop)
        self.controller = self.started()
        self.apply(connection={"kubernetesAPIServerPort": 6000})
        status, reason, text = self.status(INITIALIZED)
        self.assertEqual((status, reason), ("False", "NoPort"))
        self.assertIn("(--cluster-ports none): set a range", text)
        self.assertEqual(self.kit.host.objects(SERVICES), [])

    def test_no_free_port(self) -> None:
        """A cluster that cannot get a port shows it, and is served when there is one."""
        self.controller.stopService()
        self.kit.stop()
        self.kit = HostKit(self.mktemp(), range(6000, 6001))
        self.addCleanup(self.kit.stop)
        self.controller = self.started()
        self.apply("alpha")
        self.apply("beta")
        status, reason, text = self.status(INITIALIZED, "beta")
        self.assertEqual((status, reason), ("False", "NoPort"))
        self.assertIn("set a larger range", text)

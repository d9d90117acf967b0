"""Writes of a former leader that the network delivers after those of the next one."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import capturedLogs

from tests.controller.case import TOKEN, ControllerTestCase
from tests.controller.kit import NAMESPACE
from tests.controller.late_host import LateHost
from tower.controller.controller import Controller
from tower.controller.objects.service_objects import HostSettings
from tower.kube.client import APIError
from tower.kube.rest.host_api import HostAPI, Object
from tower.kube.rest.well_known import ENDPOINT_SLICES, SECRETS, SERVICES

OTHER = TOKEN[::-1]


class LateTestCase(ControllerTestCase):
    """A leader outside of the host cluster, with a slow network."""

    settings = HostSettings(selector=None, addresses=("192.0.2.1",))

    def setUp(self) -> None:
        """Start the first leader, with one cluster."""
        super().setUp()
        self.controller.stopService()
        self.late = LateHost(self.kit.host)
        self.controller = self.led_through(self.late)
        self.apply()

    def led_through(self, api: HostAPI) -> Controller:
        """Return the controller of a leader that uses *api*."""
        self.api = lambda: api  # type: ignore[method-assign]
        return self.started()


class LateWriteTests(LateTestCase):
    """The next leader works when the requests of the first one arrive."""

    def follow(self) -> None:
        """End the first leader and start the next one."""
        self.controller.stopService()
        self.controller = self.led_through(self.kit.host)

    def refused(self, reason: str = "Conflict") -> None:
        """Check that the late request is refused."""
        error = self.failureResultOf(Deferred.fromCoroutine(self.late.arrive()), APIError).value
        self.assertEqual((error.code, error.reason), (409, reason))
        self.pump()

    def endpoint_slice(self) -> Object:
        """Return the EndpointSlice of alpha."""
        (found,) = self.kit.host.objects(ENDPOINT_SLICES)
        return found

    def test_service(self) -> None:
        """A late patch of a Service does not undo what the next leader has written."""
        self.late.held.add(("patch", "services"))
        self.apply(connection={"kubernetesAPIServerPort": 6005})
        self.follow()
        self.apply(connection={"kubernetesAPIServerPort": 6007})
        self.refused()
        self.assertEqual(self.kit.service()["spec"]["ports"][0]["targetPort"], 6007)

    def test_endpoint_slice(self) -> None:
        """The same holds for an EndpointSlice."""
        self.late.held.add(("patch", "endpointslices"))
        self.apply(connection={"kubernetesAPIServerPort": 6005})
        self.follow()
        self.apply(connection={"kubernetesAPIServerPort": 6007})
        self.refused()
        self.assertEqual(self.endpoint_slice()["ports"][0]["port"], 6007)

    def test_secret(self) -> None:
        """The same holds for a Secret."""
        self.late.held.add(("patch", "secrets"))
        self.apply(connection={"token": TOKEN})
        self.follow()
        self.apply(connection={"token": OTHER})
        self.refused()
        self.assertEqual(self.token(), OTHER)

    def test_status(self) -> None:
        """The same holds for the observed generation of a cluster."""
        self.late.held.add(("patch", "clusters"))
        self.change("x")
        self.follow()
        self.change("y")
        self.refused()
        cluster = self.kit.cluster()
        self.assertEqual(cluster["status"]["observedGeneration"], cluster["metadata"]["generation"])

    def change(self, provider: str) -> None:
        """Change a field that Tower ignores, and let the controller work on the cluster."""
        self.kit.apply(provider=provider)
        self.kit.host.remove(SERVICES, "mc-alpha", NAMESPACE)
        self.pump()

    def test_creation(self) -> None:
        """A late creation does not replace what the next leader has created."""
        self.late.held.add(("create", "services"))
        self.kit.host.remove(SERVICES, "mc-alpha", NAMESPACE)
        self.pump()
        self.follow()
        self.apply(connection={"kubernetesAPIServerPort": 6007})
        self.refused("AlreadyExists")
        self.assertEqual(self.kit.service()["spec"]["ports"][0]["targetPort"], 6007)

    def test_creation_after_withdrawal(self) -> None:
        """A Service that is created late for a cluster that is not served any more is removed."""
        self.late.held.add(("create", "services"))
        self.kit.host.remove(SERVICES, "mc-alpha", NAMESPACE)
        self.pump()
        self.follow()
        self.apply(joinFederation=False)
        self.successResultOf(Deferred.fromCoroutine(self.late.arrive()))
        self.pump()
        self.assertEqual(self.kit.host.objects(SERVICES), [])

    def test_deletion(self) -> None:
        """A late deletion spares what the next leader has written."""
        self.late.held.add(("delete", "services"))
        self.apply(joinFederation=False)
        self.follow_joined(connection={"kubernetesAPIServerPort": 6007})
        self.refused()
        self.assertEqual(self.kit.service()["spec"]["ports"][0]["targetPort"], 6007)

    def test_deletion_of_the_same(self) -> None:
        """A late deletion of a Service that the next leader only read is undone, with the same address."""
        before = self.kit.service()
        self.late.held.add(("delete", "services"))
        self.apply(joinFederation=False)
        self.follow_joined()
        self.successResultOf(Deferred.fromCoroutine(self.late.arrive()))
        self.pump()
        self.assertNotEqual(self.kit.service()["metadata"]["uid"], before["metadata"]["uid"])
        self.assertEqual(self.kit.service()["spec"], before["spec"])

    def follow_joined(self, **spec: Any) -> None:
        """End the first leader; let the next one start when the cluster is joined again."""
        self.controller.stopService()
        self.kit.apply(**spec)
        self.controller = self.led_through(self.kit.host)


class StaleViewTests(LateTestCase):
    """One leader, which receives the changes of Services late."""

    def test_conflicts(self) -> None:
        """Writes with an old version are repeated with pauses, not reported, and right in the end."""
        self.late.hide(SERVICES)
        service = self.kit.service()
        labels = {**service["metadata"]["labels"], "team": "blue"}
        self.kit.host.put(SERVICES, {**service, "metadata": {**service["metadata"], "labels": labels}})
        before = len(self.kit.host.writes)
        with capturedLogs() as logs:
            self.apply(connection={"kubernetesAPIServerPort": 6005})
            for _ in range(60):
                self.pump(1)
        patches = [each for each in self.kit.host.writes[before:] if each[:2] == ("patch", "services")]
        self.assertLess(len(patches), 12)
        self.assertGreater(len(patches), 3)
        self.assertEqual(self.kit.service()["spec"]["ports"][0]["targetPort"], 6000)
        self.late.show()
        self.pump()
        self.assertEqual(self.kit.service()["spec"]["ports"][0]["targetPort"], 6005)
        self.assertEqual(self.kit.service()["metadata"]["labels"], labels)
        self.assertEqual([each for each in logs if each["log_level"].name in ("warn", "error")], [])
        self.assertEqual(self.events("Warning"), [])
        self.assertEqual(self.steady(), [])

    def test_secret_changed_meanwhile(self) -> None:
        """A Secret that another program changed since it was read is written or deleted soon."""
        self.kit.host.fail_next(409, verbs=("patch",), plural="secrets")
        self.apply(connection={"token": TOKEN})
        self.pump(1)
        self.assertEqual(self.token(), TOKEN)
        self.kit.host.fail_next(409, verbs=("delete",), plural="secrets")
        self.apply(connection={"type": "direct"})
        self.pump(1)
        self.assertEqual(self.kit.host.objects(SECRETS), [])

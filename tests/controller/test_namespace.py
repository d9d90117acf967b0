"""The namespace of the records is deleted while the leader runs."""

from __future__ import annotations

from tests.controller.leader_kit import LeaderTestCase
from tests.store.kubernetes.kit import NAMESPACE
from tower.controller.objects.host_conditions import INITIALIZED
from tower.kube.rest.well_known import NAMESPACES, SECRETS, SERVICES
from tower.store.kubernetes.host_kinds import NAMES, own_type
from tower.store.kubernetes.store import KubernetesStore


class NamespaceTests(LeaderTestCase):
    """Each test has the cluster alpha."""

    def test_deleted(self) -> None:
        """The condition names the namespace; Services, Secrets, ports and tokens come back with it."""
        self.apply()
        port = self.clusters.require("alpha").kubernetes_port
        tokens = self.records.v1_tokens.tokens("alpha")
        token = self.token()
        self.host.remove(NAMESPACES, NAMESPACE)
        for resource in (SERVICES, SECRETS, *map(own_type, NAMES)):
            for each in self.host.objects(resource, NAMESPACE):
                self.host.remove(resource, each["metadata"]["name"], NAMESPACE)
        self.pump(10)
        self.assertEqual(self.reason(), "NamespaceMissing")
        self.assertTrue(self.clusters.ports.owns(self.clusters.require("alpha")))
        self.assertEqual(self.records.v1_tokens.tokens("alpha"), tokens)
        self.host.put(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        self.pump(60)
        self.assertEqual(self.condition(INITIALIZED), "True")
        for resource in (SERVICES, SECRETS):
            names = [each["metadata"]["name"] for each in self.host.objects(resource, NAMESPACE)]
            self.assertEqual(names, ["mc-alpha"])
        self.assertEqual(self.clusters.require("alpha").kubernetes_port, port)
        self.assertEqual((self.records.v1_tokens.tokens("alpha"), self.token()), (tokens, token))
        assert isinstance(self.bench.store, KubernetesStore)
        self.assertEqual(self.bench.store.failures + self.controller.problems, [])

    def token(self) -> str:
        """Return the token of alpha's agents."""
        (secret,) = self.host.objects(SECRETS, NAMESPACE)
        found: str = secret["data"]["token"]
        return found

    def reason(self) -> str:
        """Return the reason of the condition."""
        found = self.clusters.require("alpha").condition(INITIALIZED)
        return "" if found is None else found.reason

"""Tests of `tower.controller.ssh_clusters`, with the whole leader."""

from __future__ import annotations

import base64
import json
from typing import Any

from tests.controller.leader_kit import LeaderTestCase
from tests.fakes.certificates import authority
from tower.clusters.condition_types import AVAILABLE
from tower.controller.objects.host_conditions import INITIALIZED
from tower.kube.kubeconfig import kubeconfig
from tower.kube.rest.well_known import CLUSTERS, EVENTS, SECRETS, SERVICES


class SSHClusterTests(LeaderTestCase):
    """Clusters of type ssh that are applied in the host."""

    def apply_ssh(self, kubeconfig: str = "", **spec: Any) -> None:
        """Apply alpha."""
        connection: dict[str, Any] = {"type": "ssh", "ssh": {"user": "core", "nodes": ["192.0.2.1:22"]}}
        if kubeconfig:
            connection["kubeconfig"] = kubeconfig
        self.apply(connection=connection, **spec)

    def reasons(self) -> list[str]:
        """Return the reasons of the host's events."""
        return [each["reason"] for each in self.host.objects(EVENTS)]

    def initialized(self) -> tuple[str, str, str]:
        """Return status, reason and message of the condition."""
        for each in self.status()["conditions"]:
            if each["type"] == INITIALIZED:
                return each["status"], each["reason"], each.get("message", "")
        return "", "", ""

    def test_without_credential(self) -> None:
        """A cluster without a kubeconfig has its port, and a condition and an event with the cure."""
        self.apply_ssh()
        status, reason, text = self.initialized()
        self.assertEqual((status, reason), ("False", "CredentialMissing"))
        self.assertIn("spec.connection.kubeconfig, or run 'tower cluster set alpha --member-kubeconfig", text)
        self.assertEqual(self.cluster()["spec"]["connection"]["kubernetesAPIServerPort"], 6000)
        self.assertEqual(self.reasons(), ["CredentialMissing"])
        self.assertEqual(self.host.objects(SERVICES), [])
        self.pump(60)
        before = len(self.host.writes)
        self.pump(3600)
        self.assertEqual(self.writes(before), [])

    def test_kubeconfig(self) -> None:
        """A kubeconfig in the object is sealed and removed from it; a later one replaces it."""
        for number in (1, 2):
            text = kubeconfig(
                server=f"https://192.0.2.{number}:6443",
                ca_pem=authority("member", now=self.bench.clock.seconds()).pem,
                cluster="alpha",
                user="tower",
                token=f"secret-of-{number}",
            )
            encoded = base64.b64encode(text.encode()).decode()
            self.apply_ssh(encoded)
            record = self.clusters.require("alpha")
            facts = self.records.member_credentials.facts(record)
            assert facts is not None
            self.assertEqual((facts.server, facts.credential), (f"https://192.0.2.{number}:6443", "token"))
            self.assertNotIn(encoded, json.dumps(self.host.objects(CLUSTERS)))
            self.assertNotIn(f"secret-of-{number}", json.dumps(self.host.objects(SECRETS)))
        self.assertEqual(self.initialized()[:2], ("True", "Initialized"))
        self.assertIn("KubeconfigSealed", self.reasons())

    def test_invalid_kubeconfig(self) -> None:
        """A kubeconfig that cannot be used stays, and is reported with the field."""
        for text, cause in (("!", "base64"), ("a3ViZQ==", "kubeconfig")):
            self.apply_ssh(text)
            status, reason, message = self.initialized()
            self.assertEqual((status, reason), ("False", "ReconcileFailed"))
            self.assertTrue(message.startswith("spec.connection.kubeconfig: "), message)
            self.assertIn(cause, message)
        self.assertEqual(self.cluster()["spec"]["connection"]["kubeconfig"], "a3ViZQ==")

    def test_invalid_spec(self) -> None:
        """An object that the record cannot follow has the field in its conditions, until it is corrected."""
        self.apply(connection={"type": "ssh", "ssh": {"user": 7}})
        status, reason, message = self.initialized()
        self.assertEqual((status, reason), ("False", "ReconcileFailed"))
        self.assertIn("spec.connection.ssh.user", message)
        self.assertEqual(self.condition(AVAILABLE), "False")
        self.assertEqual(self.reasons(), ["ReconcileFailed"])
        self.apply_ssh()
        self.pump(60)
        self.assertEqual(self.initialized()[1], "CredentialMissing")

    def test_not_joined(self) -> None:
        """A cluster that is not joined has the reason."""
        self.apply_ssh(joinFederation=False)
        self.assertEqual(self.initialized()[:2], ("False", "NotJoined"))
        self.apply_ssh(enable=False)
        self.assertEqual(self.initialized()[:2], ("False", "Disabled"))

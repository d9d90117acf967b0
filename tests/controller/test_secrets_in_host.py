"""Issued secrets and the objects of the host, with the controller, the store and the records together."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from hashlib import sha256

from tests.controller.leader_kit import LeaderTestCase
from tower.kube.rest.host_api import Object
from tower.kube.rest.well_known import SECRETS


class SecretTests(LeaderTestCase):
    """A leader that has issued each kind of token."""

    def setUp(self) -> None:
        """Issue the tokens."""
        super().setUp()
        self.apply()
        records = self.records
        _, credential = self.successResultOf(records.credentials.issue_token("alpha", "jane", ["dev"], 600.0))
        self.issued = {
            "join token": self.successResultOf(records.tokens.mint("alpha")),
            "credential": credential,
            "token of kubesphere-v1": self.successResultOf(records.v1_tokens.mint("alpha")),
        }
        self.pump(5)

    def objects(self) -> list[Object]:
        """Return all objects of the host."""
        return list(self.host._stored.items.values())

    def test_digests(self) -> None:
        """The objects have the digest of each issued token, and not the token, plain or encoded."""
        kinds = {obj["kind"] for obj in self.objects()}
        self.assertGreaterEqual(kinds, {"Cluster", "Credential", "JoinToken", "Secret", "V1Token"})
        shown = json.dumps(self.objects())
        for name, token in self.issued.items():
            self.assertIn(sha256(token.encode()).hexdigest(), shown, name)
            for form in (token, b64encode(token.encode()).decode().rstrip("=")):
                self.assertNotIn(form, shown, name)

    def test_token_of_the_cluster(self) -> None:
        """The token and the kubeconfig for the host's programs are in the cluster's Secret only."""
        secret = self.host.object(SECRETS, "mc-alpha", "kubesphere-system")
        assert secret is not None
        others = json.dumps([obj for obj in self.objects() if obj["metadata"]["name"] != "mc-alpha"])
        for encoded in secret["data"].values():
            self.assertNotIn(encoded, others)
            self.assertNotIn(json.dumps(b64decode(encoded).decode()).strip('"'), others)

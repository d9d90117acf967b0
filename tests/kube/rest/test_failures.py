"""Tests of `tower.kube.rest.failures`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tower.errors import ConfigurationError
from tower.kube.client import APIError
from tower.kube.rest.failures import describe
from tower.kube.rest.well_known import CLUSTERS
from tower.net.connecting import ConnectFailed


class DescribeTests(SynchronousTestCase):
    """Cures of failures."""

    def text(self, code: int, cause: Exception | None = None) -> str:
        """Return the text for an error."""
        return describe(APIError("GET", "/x", code, str(cause or "no"), cause), CLUSTERS)

    def test_codes(self) -> None:
        """Known answers have a cure with the name of the type; others are unchanged."""
        self.assertEqual(
            self.text(404),
            "GET /x: answered 404: no; install the CRD clusters.cluster.kubesphere.io: "
            "tower crds | kubectl apply -f -, or tower-proxy --install-crds",
        )
        self.assertIn("grant get, list and watch of clusters.cluster.kubesphere.io", self.text(403))
        self.assertIn("renew the kubeconfig", self.text(401))
        self.assertEqual(self.text(500), "GET /x: answered 500: no")

    def test_causes(self) -> None:
        """Without an answer the cure is that of the cause."""
        self.assertIn("check that the API server runs", self.text(0))
        refused = ConnectFailed("refused", "10.0.0.1:6443: connection refused")
        self.assertIn("connection refused; check that the API server runs", self.text(0, refused))
        self.assertIn("check the certificate-authority", self.text(0, ConnectFailed("tls", "self-signed")))
        text = "kubeconfig x: the plugin was not found: install it"
        self.assertEqual(self.text(0, ConfigurationError(text)), text)

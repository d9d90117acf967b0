"""Tests of `tower.clusters.host.applied_object`; `test_host_object` uses it."""

from __future__ import annotations

import json

from twisted.trial.unittest import SynchronousTestCase

from tower.clusters.host.applied_object import without_secrets


class AppliedTests(SynchronousTestCase):
    """Annotations of ``kubectl apply``."""

    def test_secrets(self) -> None:
        """Each secret is removed, and all other fields stay."""
        connection = {"type": "proxy", "token": "a", "proxyToken": "b", "kubeconfig": "c"}
        applied = {"kind": "Cluster", "spec": {"config": "d", "provider": "QKE", "connection": connection}}
        shown = without_secrets(json.dumps(applied))
        assert shown is not None
        wanted = {"kind": "Cluster", "spec": {"provider": "QKE", "connection": {"type": "proxy"}}}
        self.assertEqual(json.loads(shown), wanted)

    def test_unchanged(self) -> None:
        """An object without secrets keeps its text."""
        for text in ('{"spec":  {"connection": {"type": "proxy"}}}\n', "{}"):
            self.assertEqual(without_secrets(text), text)

    def test_malformed(self) -> None:
        """A text that is not the object of a cluster is not shown."""
        for text in ("{", "[1]", '{"spec": 1}', '{"spec": {"connection": "secret"}}', "[" * 100_000):
            self.assertIsNone(without_secrets(text), text[:20])

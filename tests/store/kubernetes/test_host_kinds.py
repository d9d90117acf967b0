"""Tests of `tower.store.kubernetes.host_kinds`."""

from __future__ import annotations

import yaml
from twisted.trial.unittest import SynchronousTestCase

from tower.cli.manifest import rbac_manifest
from tower.store.kubernetes.host_kinds import GROUP, NAMES, TRANSACTIONS, own_type


class RightsTests(SynchronousTestCase):
    def test_all_kinds(self) -> None:
        """The proxy's role names each kind, so that a new one is not forgotten."""
        listed = [
            name
            for item in yaml.safe_load_all(rbac_manifest("host"))
            for rule in item.get("rules", ())
            if rule["apiGroups"] == [GROUP]
            for name in rule["resources"]
        ]
        self.assertEqual(
            sorted(listed), sorted({own_type(kind).plural for kind in NAMES} | {TRANSACTIONS.plural})
        )

"""The CRDs in ``deploy/crds`` are those of the kinds of records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from attrs import fields
from twisted.trial.unittest import SynchronousTestCase

from tower.clusters.agent_keys import LastAgent
from tower.clusters.cluster_events import ClusterEvent
from tower.clusters.credentials import Credential
from tower.clusters.host.host_object import ClusterCodec
from tower.clusters.ssh_spec_object import NAMES as SSH_FIELDS
from tower.kube.rest.host_api import ResourceType
from tower.kube.rest.well_known import SECRETS
from tower.store.kubernetes.host_kinds import TRANSACTIONS, own_codecs

_CRDS = Path(__file__).parents[3] / "deploy" / "crds"


def _crds() -> dict[str, dict[str, Any]]:
    found = [yaml.safe_load(path.read_text()) for path in sorted(_CRDS.glob("*.yaml"))]
    return {crd["metadata"]["name"]: crd for crd in found}


def _spec(crd: dict[str, Any]) -> dict[str, Any]:
    (version,) = crd["spec"]["versions"]
    found: dict[str, Any] = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return found


class CRDTests(SynchronousTestCase):
    """Tests of the files."""

    def test_types(self) -> None:
        """There is one file for each type, with its names and scope."""
        types = [codec.resource for codec in (ClusterCodec(), *own_codecs())]
        wanted = {each.name: each for each in (*types, TRANSACTIONS) if each != SECRETS}
        crds = _crds()
        self.assertEqual(sorted(crds), sorted(wanted))
        for name, each in wanted.items():
            spec = crds[name]["spec"]
            found = ResourceType(
                spec["group"],
                spec["versions"][0]["name"],
                spec["names"]["plural"],
                spec["names"]["kind"],
                spec["scope"] == "Namespaced",
            )
            self.assertEqual(found, each)

    def test_unknown_fields(self) -> None:
        """No field of a record is pruned."""
        for name, crd in _crds().items():
            self.assertTrue(_spec(crd)["x-kubernetes-preserve-unknown-fields"], name)

    def test_fields(self) -> None:
        """The schemas have the fields of the records."""
        crds = _crds()
        for name, kind, omitted in (
            ("credentials", Credential, {"id"}),
            ("clusterevents", ClusterEvent, {"name", "resource_version"}),
        ):
            known = {attribute.name for attribute in fields(kind)} - omitted
            self.assertEqual(set(_spec(crds[f"{name}.tower.kubesphere.io"])["properties"]), known)
        agent = _spec(crds["agentkeys.tower.kubesphere.io"])["properties"]["agent"]
        self.assertEqual(set(agent["properties"]), {attribute.name for attribute in fields(LastAgent)})
        connection = _spec(crds["clusters.cluster.kubesphere.io"])["properties"]["connection"]
        self.assertEqual(set(connection["properties"]["ssh"]["properties"]), set(SSH_FIELDS.values()))

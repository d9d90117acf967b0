"""Tests of `tower.kube.crds.manifests`."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import yaml
from twisted.trial.unittest import SynchronousTestCase

from tower.cli.manifest import rbac_manifest
from tower.kube.crds.manifests import crd_text, crds, revision_of
from tower.kube.rest.well_known import CLUSTERS

#: SHA-256 of the content of all CRDs, by their revision.
_RELEASED = {1: "c66ce43ff362d7b25abc3c244c2e36695f613ce475c0e83fd736999f08e183be"}


class ManifestTests(SynchronousTestCase):
    """The files."""

    def test_text(self) -> None:
        """The text has all files, also without the CRD that KubeSphere has."""
        files = sorted((Path(__file__).parents[3] / "deploy" / "crds").iterdir())
        names = [yaml.safe_load(path.read_text())["metadata"]["name"] for path in files]
        self.assertEqual(_names(crd_text()), sorted(names))
        others = [name for name in sorted(names) if name != CLUSTERS.name]
        self.assertEqual(_names(crd_text(with_clusters=False)), others)
        self.assertEqual([crd["metadata"]["name"] for crd in crds()], sorted(names))

    def test_revision(self) -> None:
        """A change of the CRDs increases the revision of all, else an older Tower would undo it."""
        (revision,) = {revision_of(crd) for crd in crds()}
        assert revision is not None
        content = json.dumps([crd["spec"] for crd in crds()], sort_keys=True).encode()
        self.assertEqual(
            hashlib.sha256(content).hexdigest(),
            _RELEASED[revision],
            "after a release, increase tower.kubesphere.io/crd-revision in all files of deploy/crds and add "
            "the digest; before, replace the digest",
        )

    def test_others(self) -> None:
        """CRDs of other programs, and those with a damaged annotation, have no revision."""
        for given in (None, {}, {"tower.kubesphere.io/crd-revision": "x"}):
            self.assertIsNone(revision_of({"metadata": {"annotations": given}}))

    def test_rights(self) -> None:
        """The rights to install them name exactly these CRDs."""
        role = next(yaml.safe_load_all(rbac_manifest("crds")))
        (create, change) = role["rules"]
        self.assertEqual(create["verbs"], ["create"])
        self.assertEqual(change["verbs"], ["get", "patch"])
        self.assertEqual(sorted(change["resourceNames"]), _names(crd_text()))


def _names(text: str) -> list[str]:
    return [each["metadata"]["name"] for each in yaml.safe_load_all(text)]

"""Tests of `tower.kube.crds.installer`."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.kube.rest.fake_host import FakeHost
from tower.kube.crds.installer import PATIENCE, CRDInstaller, Installed, InstallFailed
from tower.kube.crds.manifests import REVISION, crds
from tower.kube.rest.host_api import Object, ResourceType
from tower.kube.rest.well_known import CLUSTERS, CUSTOM_RESOURCE_DEFINITIONS

TOKENS = "jointokens.tower.kubesphere.io"


class InstallTests(SynchronousTestCase):
    """Installations in a host that establishes each CRD at once."""

    def setUp(self) -> None:
        """Make the host."""
        self.clock, self.host = Clock(), FakeHost()
        self.host.without_status.add(CUSTOM_RESOURCE_DEFINITIONS)
        self.conditions: list[dict[str, Any]] = [{"type": "Established", "status": "True"}]
        self.host.admission.append(self.establish)

    def establish(self, verb: str, resource: ResourceType, obj: Object) -> None:
        """Set the conditions."""
        obj["status"] = {"conditions": self.conditions}

    def begin(self) -> Deferred[list[Installed]]:
        """Start an installation."""
        return Deferred.fromCoroutine(CRDInstaller(self.host, self.clock).install())

    def install(self) -> dict[str, Installed]:
        """Return its results by name."""
        return {each.name: each for each in self.successResultOf(self.begin())}

    def refusal(self) -> str:
        """Return the error of an installation."""
        return str(self.failureResultOf(self.begin(), InstallFailed).value)

    def stored(self, name: str = TOKENS) -> Object:
        """Return a CRD of the host."""
        found = self.host.object(CUSTOM_RESOURCE_DEFINITIONS, name)
        assert found is not None
        return found

    def change(self, revision: str, name: str = TOKENS, **spec: Any) -> None:
        """Change a CRD as another program would."""
        found = self.stored(name)
        found["metadata"]["annotations"] = {REVISION: revision} if revision else {}
        self.host.put(CUSTOM_RESOURCE_DEFINITIONS, {**found, "spec": {**found["spec"], **spec}})

    def test_missing(self) -> None:
        """Missing CRDs are created; a second installation writes nothing."""
        done = self.install()
        self.assertEqual(sorted(done), [crd["metadata"]["name"] for crd in crds()])
        self.assertTrue(all(each.is_changed for each in done.values()))
        self.assertEqual(done[TOKENS].text, f"CRD {TOKENS} created")
        self.host.requests.clear()
        again = self.install()
        self.assertEqual(self.host.writes, [])
        self.assertFalse(any(each.is_changed for each in again.values()))
        self.assertEqual(again[TOKENS].text, f"CRD {TOKENS} is up to date (revision 1)")

    def test_older(self) -> None:
        """An older CRD, or a changed one of this revision, is updated."""
        self.install()
        (wanted,) = (crd["spec"] for crd in crds() if crd["metadata"]["name"] == TOKENS)
        old = {"name": "v1alpha1", "served": True, "storage": True, "schema": {}}
        for revision in ("", "0", "1"):
            self.change(revision, versions=[old])
            done = self.install()
            self.assertEqual(done[TOKENS].text, f"CRD {TOKENS} updated to revision 1")
            self.assertEqual(self.stored()["spec"], wanted)
            self.assertEqual(self.stored()["metadata"]["annotations"][REVISION], "1")
            self.assertEqual(sum(each.is_changed for each in done.values()), 1)

    def test_newer(self) -> None:
        """A newer CRD is kept."""
        self.install()
        self.change("2", versions=[{"name": "v1", "served": True}])
        before = self.stored()
        done = self.install()
        self.assertEqual(done[TOKENS].text, f"CRD {TOKENS} is newer (revision 2, this Tower has 1): kept")
        self.assertEqual(self.stored(), before)

    def test_kubesphere(self) -> None:
        """KubeSphere's CRD of clusters is kept; one without Tower's version cannot be used."""
        self.install()
        self.change("", CLUSTERS.name, versions=[{"name": "v1alpha1", "served": True}])
        before = self.stored(CLUSTERS.name)
        done = self.install()
        self.assertEqual(done[CLUSTERS.name].text, f"CRD {CLUSTERS.name} of KubeSphere is kept")
        self.assertEqual(self.stored(CLUSTERS.name), before)
        self.change("", CLUSTERS.name, versions=[{"name": "v1", "served": True}])
        self.assertIn("does not serve version v1alpha1, only v1: upgrade that program", self.refusal())

    def test_conflicts(self) -> None:
        """Two installations at once end well."""
        self.host.fail_next(409, "already exists", verbs=["create"])
        self.assertTrue(self.install()[TOKENS].is_changed)
        self.change("0")
        self.host.fail_next(409, "changed", verbs=["patch"])
        self.assertTrue(self.install()[TOKENS].is_changed)
        self.change("0")
        self.host.fail_next(409, "changed", verbs=["patch"], count=99)
        self.assertIn("another program changes it at the same time", self.refusal())

    def test_rights(self) -> None:
        """A missing right is named with the command that grants it."""
        for verb in ("get", "create"):
            self.host.fail_next(403, "forbidden: User tower", verbs=[verb])
            self.assertIn("grant the rights of 'tower rbac crds', or install", self.refusal())
        self.host.fail_next(500, "etcd", verbs=["get"])
        self.assertIn('answered 500: the API server reports: "etcd"', self.refusal())

    def test_deleted(self) -> None:
        """A CRD that is being deleted is not used."""
        self.install()
        found = self.stored()
        found["metadata"]["finalizers"] = ["customresourcecleanup.apiextensions.k8s.io"]
        self.host.put(CUSTOM_RESOURCE_DEFINITIONS, found)
        self.host.remove(CUSTOM_RESOURCE_DEFINITIONS, TOKENS)
        self.assertIn(f"CRD {TOKENS} is being deleted with its objects: wait", self.refusal())

    def test_establishing(self) -> None:
        """The installation ends when all are established, or after a time."""
        self.conditions = [{"type": "Established", "status": "False"}]
        waiting = self.begin()
        self.assertNoResult(waiting)
        self.clock.advance(PATIENCE)
        text = str(self.failureResultOf(waiting, InstallFailed).value)
        self.assertIn("is not established after 30 s: see 'kubectl describe crd", text)

    def test_other_names(self) -> None:
        """A CRD whose names belong to another one is an error at once."""
        self.conditions = [{"type": "NamesAccepted", "status": "False", "message": '"Cluster" is in use'}]
        self.assertIn('another CRD has its names: "Cluster" is in use: remove that one', self.refusal())

"""Tests for `tower.doctor.host`."""

from __future__ import annotations

from functools import cache

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from tests.kube.rest.fake_host import START, FakeHost
from tower.controller.leader.lease_record import LeaseRecord, new_lease
from tower.doctor.findings import Finding
from tower.doctor.host import examine_host
from tower.doctor.host_rights import HostRight, needed_rights
from tower.kube.client import APIError
from tower.kube.crds.manifests import crds
from tower.kube.rest.host_api import Object, ResourceType
from tower.kube.rest.well_known import LEASES, SECRETS

NAMESPACE = "kubesphere-system"


@cache
def _plurals() -> dict[str, set[str]]:
    """Return the names of the CRDs by group; their files take a while to parse."""
    found: dict[str, set[str]] = {}
    for crd in crds():
        found.setdefault(crd["spec"]["group"], set()).add(crd["spec"]["names"]["plural"])
    return found


class ReviewingHost(FakeHost):
    """A host that answers reviews and knows its types."""

    def __init__(self) -> None:
        super().__init__()
        self.denied: set[tuple[str, str]] = set()
        self.without: set[str] = set()
        self.asked: list[Object] = []
        self.error: APIError | None = None

    async def create(self, resource: ResourceType, obj: Object, namespace: str | None = None) -> Object:
        """Answer a review, which is not stored."""
        if self.error is not None:
            raise self.error
        if resource.kind == "SelfSubjectReview":
            return {"status": {"userInfo": {"username": "tower"}}}
        given = obj["spec"]["resourceAttributes"]
        self.asked.append(given)
        return {"status": {"allowed": (given["verb"], given["resource"]) not in self.denied}}

    async def plurals(self, group: str, version: str) -> set[str]:
        """Return the names of the CRDs of a group that are not left out."""
        return _plurals()[group] - self.without


class HostTests(SynchronousTestCase):
    """The checks."""

    def setUp(self) -> None:
        """Make the host of a proxy that leads."""
        self.host = ReviewingHost()
        lease = LeaseRecord().taken("tower-0", 30, START)
        self.host.put(LEASES, lease.written(new_lease(NAMESPACE, "tower")))
        secret = {"metadata": {"name": "tower-state"}, "data": {"ssh_host_ed25519_key": "c2VjcmV0", "x": ""}}
        self.host.put(SECRETS, secret, NAMESPACE)

    def look(self, now: float = START + 5, namespace: str = NAMESPACE, **environ: str) -> dict[str, Finding]:
        """Return the findings by check."""
        examining = examine_host(self.host, "10.0.0.1:6443", namespace, environ, lambda: now)
        found = self.successResultOf(Deferred.fromCoroutine(examining))
        return {each.check: each for each in found}

    def test_good(self) -> None:
        """A host with everything has no problem; no contents of the Secret are shown."""
        found = self.look()
        self.assertEqual({each.verdict.grade for each in found.values()}, {"ok"}, found)
        text = "\n".join(each.line for each in found.values())
        self.assertIn("10.0.0.1:6443 answers as tower", text)
        self.assertIn("tower-0 leads, and renewed the Lease 5 s ago", text)
        self.assertIn("Secret kubesphere-system/tower-state has ssh_host_ed25519_key", text)
        self.assertNotIn("c2VjcmV0", text)

    def test_rights(self) -> None:
        """Each right is checked, those for pods only in a pod; missing ones are named with the command."""
        self.look()
        self.assertNotIn("pods", {each["resource"] for each in self.host.asked})
        self.host.asked.clear()
        self.look(POD_NAME="tower-0")
        self.assertEqual(len(self.host.asked), len(needed_rights(NAMESPACE)))
        self.host.denied = {("patch", "clusters"), ("create", "events")}
        finding = self.look()["rights in the host cluster"]
        self.assertEqual(finding.verdict.grade, "FAIL")
        self.assertIn("patch clusters.cluster.kubesphere.io/status", finding.verdict.seen)
        self.assertIn("create events in default", finding.verdict.seen)
        self.assertEqual(finding.verdict.cure, "tower rbac host | kubectl apply -f -")
        self.host.denied = {(each.verb, each.resource) for each in needed_rights(NAMESPACE)}
        self.assertIn(" and ", self.look()["rights in the host cluster"].verdict.seen)

    def test_review(self) -> None:
        """A right is checked with its subresource, name and namespace."""
        right = HostRight("g", "things/status", "one", "get", "ns")
        _, review = right.review()
        self.assertEqual(
            review["spec"]["resourceAttributes"],
            {
                "group": "g",
                "resource": "things",
                "subresource": "status",
                "name": "one",
                "verb": "get",
                "namespace": "ns",
            },
        )
        self.assertEqual(str(right), "get things.g/status one in ns")
        self.assertEqual(needed_rights("x")[-1].namespace, "default")

    def test_kinds(self) -> None:
        """A missing CRD is named with the command that installs it."""
        self.host.without = {"settings"}
        finding = self.look()["CRDs"]
        self.assertEqual(finding.verdict.seen, "missing: settings.tower.kubesphere.io")
        self.assertIn("tower crds | kubectl apply -f -", finding.verdict.cure)

    def test_namespace(self) -> None:
        """A missing namespace is named; one that must not be read is not a problem."""
        found = self.look(namespace="other")
        self.assertIn("kubectl create namespace other", found["namespace"].verdict.cure)
        self.assertEqual(found["leader"].verdict.grade, "skip")
        self.host.fail_next(403, "forbidden", plural="namespaces")
        self.assertEqual(self.look()["namespace"].verdict.grade, "ok")

    def test_no_leader(self) -> None:
        """A Lease without a holder, a late one and a missing one are warnings."""
        late = self.look(now=START + 31)["leader"].verdict
        self.assertEqual(late.grade, "warn")
        self.assertIn("tower-0 has not renewed the Lease for 31 s", late.seen)
        self.assertIn("a proxy takes it over 30 s after its start: wait", late.cure)
        released = LeaseRecord().taken("tower-0", 30, START).released(START)
        self.host.put(LEASES, released.written(new_lease(NAMESPACE, "tower")))
        self.assertIn("no proxy leads", self.look()["leader"].verdict.seen)
        self.host.remove(LEASES, "tower", NAMESPACE)
        self.assertIn("there is no Lease tower", self.look()["leader"].verdict.seen)

    def test_first_start(self) -> None:
        """While CRDs are missing, the proxy cannot lead: their installation is the only cure."""
        self.host.without = {"settings"}
        for lease in (LeaseRecord().taken("tower-0", 30, START).released(START), None):
            if lease is None:
                self.host.remove(LEASES, "tower", NAMESPACE)
            else:
                self.host.put(LEASES, lease.written(new_lease(NAMESPACE, "tower")))
            verdict = self.look()["leader"].verdict
            self.assertEqual(verdict.cure, "install the CRDs: no proxy can lead without them")

    def test_keys(self) -> None:
        """A missing or incomplete Secret is named; without rights it is not checked."""
        self.host.fail_next(403, "forbidden", plural="secrets")
        self.assertEqual(self.look()["keys of the proxy"].verdict.grade, "skip")
        self.host.put(SECRETS, {"metadata": {"name": "tower-state"}, "data": {}}, NAMESPACE)
        self.assertIn("lacks ssh_host_ed25519_key", self.look()["keys of the proxy"].verdict.seen)
        self.host.remove(SECRETS, "tower-state", NAMESPACE)
        self.assertEqual(self.look()["keys of the proxy"].verdict.grade, "warn")

    def test_unreachable(self) -> None:
        """If the API server does not answer, nothing else is checked."""
        self.host.error = APIError("POST", "/apis", 0, "connection refused")
        found = self.look()
        self.assertEqual(found["host cluster"].verdict.grade, "FAIL")
        self.assertEqual({each.verdict.grade for each in found.values()}, {"FAIL", "skip"})
        self.host.error = APIError("POST", "/apis", 404, "not found")  # an old API server
        self.assertEqual(self.look()["host cluster"].verdict.seen, "10.0.0.1:6443 answers")

"""Tests of `tower.kube.audit.policy`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.audits import policy_of
from tower.kube.audit.policy import (
    DEFAULT_POLICY,
    KEPT_DECISIONS,
    KEPT_USERS,
    METADATA,
    NONE,
    REQUEST,
    REQUEST_RESPONSE,
    AuditDecision,
    CompiledPolicy,
)
from tower.kube.request_info import parse_request_info

RULES = """
omitStages: [RequestReceived]
omitManagedFields: true
rules:
- level: None
  users: [system:kube-proxy]
  verbs: [watch]
- level: Request
  userGroups: [devs, qa]
  namespaces: [demo, ""]
  resources: [{group: "", resources: [pods, "*/scale", "services/*"]}]
  omitStages: [Panic]
- level: RequestResponse
  resources:
  - {group: "", resources: [configmaps], resourceNames: [special]}
  - {group: "apps"}
  omitManagedFields: false
- level: Metadata
  nonResourceURLs: [/healthz*, /version]
- level: Request
  verbs: [post]
  nonResourceURLs: ["*"]
- level: Metadata
  resources: [{group: "*", resources: [secrets]}]
"""


class CompiledPolicyTests(SynchronousTestCase):
    """Tests of `CompiledPolicy`; rules as upstream's ``checker_test.go`` has them."""

    def setUp(self) -> None:
        """Compile the policy."""
        self.policy = policy_of(RULES)

    def decide(self, user: str, groups: str, method: bytes, target: bytes) -> AuditDecision:
        """Return the decision, twice."""
        info = parse_request_info(method, target)
        first = self.policy.decide(user, tuple(groups.split()), info)
        self.assertIs(self.policy.decide(user, tuple(groups.split()), info), first)
        return first

    def test_rules(self) -> None:
        """The first rule that matches decides."""
        pods = b"/api/v1/namespaces/demo/pods"
        for user, groups, method, target, level in (
            ("system:kube-proxy", "", b"GET", pods + b"?watch=1", NONE),
            ("system:kube-proxy", "devs", b"GET", pods, REQUEST),
            ("x", "other qa", b"GET", pods, REQUEST),
            ("x", "other", b"GET", pods, NONE),
            ("x", "devs", b"GET", b"/api/v1/pods", REQUEST),
            ("x", "devs", b"GET", b"/api/v1/namespaces/other/pods", NONE),
            ("x", "devs", b"GET", pods + b"/p/log", NONE),
            ("x", "devs", b"GET", b"/api/v1/namespaces/demo/replicationcontrollers/r/scale", REQUEST),
            ("x", "devs", b"GET", b"/api/v1/namespaces/demo/services/s", REQUEST),
            ("x", "devs", b"GET", b"/api/v1/namespaces/demo/services/s/status", REQUEST),
            ("x", "devs", b"GET", b"/apis/metrics.k8s.io/v1/namespaces/demo/pods", NONE),
            ("x", "", b"PUT", b"/api/v1/namespaces/demo/configmaps/special", REQUEST_RESPONSE),
            ("x", "", b"PUT", b"/api/v1/namespaces/demo/configmaps/other", NONE),
            ("x", "", b"PUT", b"/apis/apps/v1/namespaces/demo/deployments/d/status", REQUEST_RESPONSE),
            ("x", "", b"GET", b"/healthz/etcd", METADATA),
            ("x", "", b"GET", b"/version", METADATA),
            ("x", "", b"GET", b"/version/x", NONE),
            ("x", "", b"POST", b"/version/x", REQUEST),
            ("x", "", b"GET", b"/api/v1/secrets", METADATA),
        ):
            found = self.decide(user, groups, method, target)
            self.assertEqual(found.level, level, (user, groups, method, target))

    def test_options(self) -> None:
        """Omitted stages are those of policy and rule; managed fields those of the rule, else the policy."""
        found = self.decide("x", "devs", b"GET", b"/api/v1/namespaces/demo/pods")
        self.assertEqual(found.omitted, {"RequestReceived", "Panic"})
        self.assertTrue(found.omits_managed_fields)
        found = self.decide("x", "", b"PUT", b"/apis/apps/v1/namespaces/demo/deployments/d")
        self.assertEqual((found.omitted, found.omits_managed_fields), ({"RequestReceived"}, False))
        found = self.decide("x", "", b"GET", b"/none")
        self.assertEqual((found.level, found.omitted), (NONE, {"RequestReceived"}))

    def test_explicit(self) -> None:
        """A rule is explicit only if it names the resource."""
        for entry, is_explicit in (
            ("secrets", True),
            ('"secrets/*", secrets', True),
            ('"*"', False),
            ('"*", secrets', True),
        ):
            self.policy = policy_of(
                f"rules: [{{level: Request, resources: [{{group: '', resources: [{entry}]}}]}}]"
            )
            found = self.decide("x", "", b"GET", b"/api/v1/namespaces/demo/secrets/s")
            self.assertEqual((found.level, found.is_explicit), (REQUEST, is_explicit), entry)
        self.policy = policy_of("rules: [{level: Request}]")
        self.assertFalse(self.decide("x", "", b"GET", b"/api/v1/secrets").is_explicit)

    def test_default(self) -> None:
        """Without a file, the metadata of everything is recorded."""
        self.policy = CompiledPolicy(DEFAULT_POLICY)
        self.assertEqual(self.decide("x", "", b"GET", b"/x"), AuditDecision(METADATA))

    def test_bounded(self) -> None:
        """Neither many users nor many requests of one fill the memory."""
        info = parse_request_info(b"GET", b"/api/v1/pods")
        for number in range(KEPT_USERS + 10):
            self.policy.decide(f"user{number}", (), info)
        self.assertEqual(len(self.policy._users), KEPT_USERS)
        for number in range(KEPT_DECISIONS + 10):
            self.policy.decide("x", (), parse_request_info(b"GET", b"/api/v1/namespaces/n%d/pods" % number))
        self.assertLessEqual(len(self.policy._users["x", ()].kept), KEPT_DECISIONS)
        many = [parse_request_info(b"GET", b"/api/v1/namespaces/n/pods/p%d" % each) for each in range(50)]
        self.policy = policy_of("rules: [{level: Metadata}]")
        for each in many:
            self.policy.decide("x", (), each)
        self.assertEqual(len(self.policy._users["x", ()].kept), 1)  # names do not matter

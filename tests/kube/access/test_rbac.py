"""Tests of `tower.kube.access.rbac`; `tests.integration.test_authorizers` has a real API server."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tower.kube.access.rbac import Binding, RbacRole, RbacSubject, Rule, aggregated
from tower.kube.request_info import RequestInfo


class RuleTests(SynchronousTestCase):
    """Rules and requests."""

    def test_objects(self) -> None:
        """A rule is read from an object and written to one."""
        value = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"]}
        self.assertEqual(Rule.of(value).as_object(), value)
        self.assertEqual(Rule.of({"verbs": ["get"], "nonResourceURLs": ["/a"]}).urls, ("/a",))
        text = '{APIGroups:[""], Resources:["pods"], ResourceNames:["a"], Verbs:["get"]}'
        self.assertEqual(str(Rule.of(value)), text)

    def test_subresources(self) -> None:
        """``*/log`` stands for the logs of anything, a resource does not include what is below."""
        info = RequestInfo("get", "", "", "v1", "a", "pods", "log", "p", is_resource=True)
        for resource, expected in (("*/log", True), ("pods/log", True), ("pods", False), ("*/lo", False)):
            self.assertEqual(Rule(("get",), ("",), (resource,)).allows(info), expected, resource)


class BindingTests(SynchronousTestCase):
    """Bindings and their subjects."""

    def test_subjects(self) -> None:
        """A service account without a namespace is of the binding's."""
        account = RbacSubject("ServiceAccount", "robot")
        self.assertEqual(account.key("a"), ("User", "system:serviceaccount:a:robot"))
        self.assertIsNone(account.key(""))
        self.assertIsNone(RbacSubject("Robot", "x").key("a"))
        self.assertEqual(account.described("a"), 'ServiceAccount "robot/a"')

    def test_described(self) -> None:
        """The description has the namespace after the name."""
        value = {
            "metadata": {"name": "b", "namespace": "n", "annotations": {"k": "v"}},
            "roleRef": {"kind": "Role", "name": "r"},
            "subjects": [{"kind": "Group", "name": "other"}, {"kind": "User", "name": "jane"}],
        }
        binding = Binding.of(value)
        subject = binding.subject_of("jane", ())
        assert subject is not None
        self.assertEqual(binding.described(subject), 'RoleBinding "b/n" of Role "r" to User "jane"')
        self.assertEqual(binding.annotations, {"k": "v"})
        self.assertIsNone(binding.subject_of("joe", ("others",)))


class AggregationTests(SynchronousTestCase):
    """ClusterRoles that consist of others."""

    def role(self, name: str, *labels: str, selects: str = "", rules: tuple[Rule, ...] = ()) -> RbacRole:
        """Return a role with labels that are ``true``."""
        selectors = ({"matchLabels": {selects: "true"}},) if selects else ()
        return RbacRole(name, rules, labels=dict.fromkeys(labels, "true"), selectors=selectors)

    def test_nested(self) -> None:
        """Roles of roles count once each, in the order of names; a cycle ends."""
        read, write, own = Rule(("get",)), Rule(("put",)), Rule(("own",))
        roles = [
            self.role("admin", selects="to-admin", rules=(own,)),
            self.role("edit", "to-admin", selects="to-edit"),
            self.role("view", "to-edit", selects="to-view"),
            self.role("b", "to-edit", rules=(write, read)),
            self.role("a", "to-view", rules=(read,)),
            self.role("one", "to-two", selects="to-one"),
            self.role("two", "to-one", selects="to-two"),
        ]
        found = aggregated(roles)
        self.assertEqual(found["admin"], (write, read))
        self.assertEqual(found["view"], (read,))
        self.assertEqual((found["a"], found["one"], found["two"]), ((read,), (), ()))

    def test_selectors(self) -> None:
        """All operators of label selectors."""
        rule = Rule(("get",))
        for expression, expected in (
            ({"key": "k", "operator": "In", "values": ["v", "w"]}, True),
            ({"key": "k", "operator": "In", "values": ["w"]}, False),
            ({"key": "k", "operator": "NotIn", "values": ["w"]}, True),
            ({"key": "x", "operator": "NotIn", "values": ["w"]}, True),
            ({"key": "k", "operator": "NotIn", "values": ["v"]}, False),
            ({"key": "k", "operator": "Exists"}, True),
            ({"key": "x", "operator": "Exists"}, False),
            ({"key": "x", "operator": "DoesNotExist"}, True),
            ({"key": "k", "operator": "DoesNotExist"}, False),
            ({"key": "k", "operator": "Other"}, False),
        ):
            value = {
                "metadata": {"name": "all"},
                "aggregationRule": {"clusterRoleSelectors": [{"matchExpressions": [expression]}]},
            }
            found = aggregated([RbacRole.of(value), RbacRole("r", (rule,), labels={"k": "v"})])
            self.assertEqual(found["all"], (rule,) if expected else (), expression)

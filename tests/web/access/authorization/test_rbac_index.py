"""Tests of `tower.web.access.authorization.rbac_index`, against a model that reads all bindings."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tower.kube.access.rbac import Binding, RbacRole, RbacSubject, RoleReference, Rule
from tower.kube.request_info import RequestInfo
from tower.web.access.authentication.identity import UserInfo
from tower.web.access.authorization.attributes import Attributes
from tower.web.access.authorization.cluster_scope import ANNOTATION, ClusterScope
from tower.web.access.authorization.decision import Decision, Ruling
from tower.web.access.authorization.rbac_index import RbacIndex

NAMES = ("jane", "joe", "dev")
SPACES = ("", "a", "b")
RULES = st.builds(
    Rule,
    st.lists(st.sampled_from(["get", "put", "*"]), max_size=2).map(tuple),
    st.just(("",)),
    st.lists(st.sampled_from(["pods", "nodes"]), max_size=2).map(tuple),
)
ROLES = st.lists(
    st.builds(
        RbacRole, st.sampled_from(["r", "s"]), st.lists(RULES, max_size=2).map(tuple), st.sampled_from(SPACES)
    ),
    max_size=4,
    unique_by=lambda each: (each.namespace, each.name),
)
SUBJECTS = st.one_of(
    st.builds(RbacSubject, st.sampled_from(["User", "Group", "Other"]), st.sampled_from(NAMES)),
    st.builds(RbacSubject, st.just("ServiceAccount"), st.just("robot"), st.sampled_from(SPACES)),
)
BINDINGS = st.lists(
    st.builds(
        Binding,
        st.sampled_from(["x", "y", "z"]),
        st.builds(RoleReference, st.sampled_from(["Role", "ClusterRole", "Odd"]), st.sampled_from("rst")),
        st.lists(SUBJECTS, max_size=2).map(tuple),
        st.sampled_from(SPACES),
        st.sampled_from([{}, {ANNOTATION: "alpha"}, {ANNOTATION: "x,b*"}]),
    ),
    max_size=6,
    unique_by=lambda each: (each.namespace, each.name),
)
REQUESTS = st.builds(
    Attributes,
    st.builds(
        UserInfo,
        st.sampled_from([*NAMES, "system:serviceaccount:a:robot"]),
        st.lists(st.sampled_from(NAMES), max_size=2).map(tuple),
    ),
    st.builds(
        RequestInfo,
        st.sampled_from(["get", "put"]),
        st.just("/"),
        st.just(""),
        st.just("v1"),
        st.sampled_from(SPACES),
        st.sampled_from(["pods", "nodes"]),
        is_resource=st.just(True),
    ),
    st.sampled_from(["alpha", "beta"]),
)


def model(roles: list[RbacRole], bindings: list[Binding], request: Attributes) -> Decision:
    """Return the decision as upstream makes it, from lists."""
    errors = []
    namespace = request.request.namespace
    for place in ("", namespace) if namespace else ("",):
        for binding in sorted(bindings, key=lambda each: each.name):
            subject = binding.subject_of(request.user.name, request.user.groups)
            scope = ClusterScope.of(binding.annotations)
            if binding.namespace != place or subject is None or not scope.includes(request.cluster):
                continue
            reference = binding.role
            if reference.kind == "Odd":
                errors.append('unsupported role reference kind: "Odd"')
                continue
            where = place if reference.kind == "Role" else ""
            found = [each for each in roles if (each.namespace, each.name) == (where, reference.name)]
            if not found or (reference.kind == "Role" and not where):
                errors.append(
                    f'{reference.kind.lower()}.rbac.authorization.k8s.io "{reference.name}" not found'
                )
            elif any(rule.allows(request.request) for rule in found[0].rules):
                return Decision(Ruling.ALLOW, f"RBAC: allowed by {binding.described(subject)}")
    distinct = list(dict.fromkeys(errors))
    if not distinct:
        return Decision(Ruling.NO_OPINION)
    text = f"[{', '.join(distinct)}]" if len(distinct) > 1 else distinct[0]
    return Decision(Ruling.NO_OPINION, f"RBAC: {text}")


class RbacIndexTests(SynchronousTestCase):
    """Decisions."""

    @given(ROLES, BINDINGS, REQUESTS)
    def test_model(self, roles: list[RbacRole], bindings: list[Binding], request: Attributes) -> None:
        """The index decides as the model, unless a role that did not allow is bound twice."""
        found, expected = RbacIndex(roles, bindings).authorize(request), model(roles, bindings, request)
        self.assertEqual(found, expected)

    @given(ROLES, BINDINGS, ROLES, BINDINGS, REQUESTS)
    def test_changes(
        self,
        old_roles: list[RbacRole],
        old: list[Binding],
        roles: list[RbacRole],
        bindings: list[Binding],
        request: Attributes,
    ) -> None:
        """An index that has changed decides as a new one."""
        index = RbacIndex(old_roles, old)
        index.authorize(request)
        for role in old_roles:
            if role.name not in {each.name for each in roles if each.namespace == role.namespace}:
                self.assertTrue(index.remove_role(role.namespace, role.name))
        for binding in old:
            self.assertTrue(index.remove_binding(binding.namespace, binding.name))
            self.assertFalse(index.remove_binding(binding.namespace, binding.name))
        for role in roles:
            index.put_role(role)
            self.assertFalse(index.put_role(role))
        for binding in bindings:
            self.assertTrue(index.put_binding(binding))
            self.assertFalse(index.put_binding(binding))
        self.assertEqual(index.authorize(request), model(roles, bindings, request))

    def test_rules_for(self) -> None:
        """All rules of a user, and the errors."""
        rule = Rule(("get",), ("",), ("pods",))
        bindings = [
            Binding("one", RoleReference("ClusterRole", "r"), (RbacSubject("User", "jane"),)),
            Binding("two", RoleReference("ClusterRole", "s"), (RbacSubject("Group", "dev"),)),
        ]
        index = RbacIndex([RbacRole("r", (rule,))], bindings)
        rules, errors = index.rules_for(UserInfo("jane", ("dev",)), "", "alpha")
        self.assertEqual((rules, errors), ([rule], ['clusterrole.rbac.authorization.k8s.io "s" not found']))
        self.assertEqual(index.rules_for(UserInfo("joe"), "", "alpha"), ([], []))

"""Tests of `tower.kube.access.held_rights`; `tests.integration.test_authorizers` has a real API server."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tower.kube.access.held_rights import COMPARISON_LIMIT, HeldRights
from tower.kube.access.rbac import ALL_RIGHTS, Rule
from tower.kube.request_info import RequestInfo

VERBS = ("get", "list", "*")
RESOURCES = ("pods", "pods/log", "*/log", "*", "nodes")
RULES = st.one_of(
    st.builds(
        Rule,
        st.lists(st.sampled_from(VERBS), max_size=2).map(tuple),
        st.lists(st.sampled_from(["", "apps", "*"]), max_size=2).map(tuple),
        st.lists(st.sampled_from(RESOURCES), max_size=2).map(tuple),
        st.lists(st.sampled_from(["a", "b"]), max_size=2).map(tuple),
    ),
    st.builds(
        Rule,
        st.lists(st.sampled_from(VERBS), max_size=2).map(tuple),
        urls=st.lists(st.sampled_from(["/a", "/a/*", "*", "/"]), max_size=2).map(tuple),
    ),
)
REQUESTS = st.one_of(
    st.builds(
        RequestInfo,
        st.sampled_from(["get", "list", "delete"]),
        st.just("/"),
        st.sampled_from(["", "apps"]),
        st.just("v1"),
        st.just(""),
        st.sampled_from(["pods", "nodes"]),
        st.sampled_from(["", "log"]),
        st.sampled_from(["", "a", "c"]),
        is_resource=st.just(True),
    ),
    st.builds(RequestInfo, st.sampled_from(["get", "list"]), st.sampled_from(["/", "/a", "/a/b", "/b"])),
)


def _expanded(rule: Rule) -> list[Rule]:
    """Return rules with one verb, resource, name and path each, as kube-apiserver makes them."""
    names: list[tuple[str, ...]] = [(name,) for name in rule.resource_names] or [()]
    found = product(rule.verbs, rule.api_groups, rule.resources, names)
    return [Rule((verb,), (group,), (resource,), name) for verb, group, resource, name in found] + [
        Rule((verb,), urls=(url,)) for verb, url in product(rule.verbs, rule.urls)
    ]


class HeldRightsTests(SynchronousTestCase):
    """Rights that are missing."""

    @given(st.lists(RULES, max_size=3), st.lists(RULES, max_size=2), REQUESTS)
    def test_requests(self, own: list[Rule], granted: list[Rule], info: RequestInfo) -> None:
        """A request that the role allows and the user's rules do not is allowed by a missing right."""
        missing = HeldRights.of(own).missing(granted)
        if any(each.allows(info) for each in granted) and not any(each.allows(info) for each in own):
            self.assertTrue(any(each.allows(info) for each in missing))
        self.assertEqual(HeldRights.of(granted).missing(granted), [])

    @given(st.lists(RULES, max_size=3), st.lists(RULES, max_size=2))
    def test_expanded(self, own: list[Rule], granted: list[Rule]) -> None:
        """The missing rights are those of kube-apiserver, which compares expanded rules one by one."""
        held = HeldRights.of(own)
        missing = {each for rule in granted for each in _expanded(rule) if held.missing([each])}
        found = {each for rule in held.missing(granted) for each in _expanded(rule)}
        self.assertEqual(found, missing)

    def test_texts(self) -> None:
        """Verbs of one resource are in one rule; paths stay apart."""
        granted = [Rule(("get", "list"), ("",), ("pods",)), Rule(("get", "post"), urls=("/a",))]
        self.assertEqual(
            [str(each) for each in HeldRights.of([]).missing(granted)],
            [
                '{APIGroups:[""], Resources:["pods"], Verbs:["get" "list"]}',
                '{NonResourceURLs:["/a"], Verbs:["get"]}',
                '{NonResourceURLs:["/a"], Verbs:["post"]}',
            ],
        )
        self.assertEqual(HeldRights.of(ALL_RIGHTS).missing(granted), [])

    def test_comparisons(self) -> None:
        """Rules that one held rule covers are not expanded; others with too many combinations are counted."""
        many = tuple(map(str, range(150)))
        huge = Rule(many, many, many, many)
        self.assertLess(HeldRights.of(ALL_RIGHTS).comparisons([huge]), 10)
        self.assertEqual(HeldRights.of(ALL_RIGHTS).missing([huge]), [])
        self.assertEqual(HeldRights.of([huge]).missing([huge]), [])
        self.assertGreater(HeldRights.of([]).comparisons([huge]), COMPARISON_LIMIT)
        some = Rule(many[:10], many[:10], many[:50])
        self.assertLess(HeldRights.of([Rule((one,)) for one in many]).comparisons([some]), COMPARISON_LIMIT)
        self.assertGreater(
            HeldRights.of([Rule(("get",), urls=many)]).comparisons([Rule(("get",))] * 10_000),
            COMPARISON_LIMIT,
        )

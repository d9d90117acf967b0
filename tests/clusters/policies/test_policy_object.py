"""Tests of `tower.clusters.policies.policy_object`."""

from __future__ import annotations

import contextlib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.anything import ANYTHING
from tower.clusters.policies.access_policy import PolicySpec, Subject, keys_of
from tower.clusters.policies.label_selector import LabelRequirement, LabelSelector
from tower.clusters.policies.member_names import MemberNames
from tower.clusters.policies.policy_object import read_spec, warnings_of
from tower.clusters.policies.time_window import TimeWindow
from tower.errors import Invalid

GROUP = {"kind": "Group", "name": "dev"}


def spec(**more: Any) -> dict[str, Any]:
    """Return a valid spec with changes; None removes a field."""
    value = {"subjects": [GROUP], "clusters": {"names": ["alpha"]}, **more}
    return {key: part for key, part in value.items() if part is not None}


class PolicyObjectTests(SynchronousTestCase):
    """Reading of specs."""

    def test_least(self) -> None:
        """The rest has defaults: the API server, all requests, always, with the same names."""
        self.assertEqual(read_spec(spec()), PolicySpec((Subject("Group", "dev"),), ("alpha",)))
        found = read_spec(spec())
        self.assertEqual((found.targets, found.access, found.ttl), (("kubernetes",), "full", 0.0))

    def test_all(self) -> None:
        """Every field is read."""
        subjects = [
            GROUP,
            {"kind": "User", "name": "jane@example.org"},
            {"kind": "ServiceAccount", "namespace": "build", "name": "ci"},
            {"kind": "Claim", "name": "example.org/team", "value": "sea"},
        ]
        found = read_spec(
            {
                "subjects": subjects,
                "clusters": {
                    "names": ["*"],
                    "selector": {
                        "matchLabels": {"env": "test"},
                        "matchExpressions": [
                            {"key": "region", "operator": "In", "values": ["berlin"]},
                            {"key": "old", "operator": "DoesNotExist"},
                        ],
                    },
                },
                "as": {"user": "co:{user}", "groups": ["*", "x"], "groupMapping": {"a": "b"}},
                "targets": ["kubernetes", "grafana"],
                "access": "read-only",
                "ttl": "8h",
                "timeWindow": {"days": ["Tue", "Mon"], "from": "07:30", "to": "24:00", "timeZone": "UTC"},
            }
        )
        self.assertEqual([each.kind for each in found.subjects], ["Group", "User", "ServiceAccount", "Claim"])
        requirements = (
            LabelRequirement("region", "In", ("berlin",)),
            LabelRequirement("old", "DoesNotExist"),
        )
        self.assertEqual(found.selector, LabelSelector({"env": "test"}, requirements))
        self.assertEqual(found.names, MemberNames("co:{user}", ("*", "x"), {"a": "b"}))
        self.assertEqual(
            (found.targets, found.access, found.ttl), (("kubernetes", "grafana"), "read-only", 28800)
        )
        self.assertEqual(found.window, TimeWindow((0, 1), 450, 1440, "UTC"))
        keys = keys_of("system:serviceaccount:build:ci", ["dev"], [("example.org/team", ["sea", "air"])])
        self.assertEqual(
            set(keys) & {each.key for each in found.subjects},
            {each.key for each in found.subjects if each.kind != "User"},
        )

    def test_groups_with_a_mapping(self) -> None:
        """With a mapping, other groups of the user are dropped unless a star keeps them."""
        found = read_spec(spec(**{"as": {"groupMapping": {"a": "b"}}}))
        self.assertEqual(found.names.groups, ())

    def refused(self, value: Any, *parts: str) -> None:
        """Check that a spec is rejected with these parts in the error."""
        with self.assertRaises(Invalid) as caught:
            read_spec(value)
        for part in parts:
            self.assertIn(part, str(caught.exception))

    def test_required(self) -> None:
        """Subjects and clusters are required, and none is too broad by accident."""
        self.refused({}, "spec.clusters: required")
        self.refused(spec(subjects=None), "spec.subjects: required", "kind: Group")
        self.refused(spec(clusters={}), "spec.clusters: required", "names: ['*']")
        self.refused(spec(clusters={"selector": {}}), "selector: is empty", "names: ['*']")
        self.refused("x", "spec: 'x': must be an object")

    def test_unknown_fields(self) -> None:
        """A misspelled field is rejected at every level."""
        self.refused(spec(acces="read-only"), "spec.acces: unknown; the fields are access,")
        self.refused(spec(subjects=[{**GROUP, "namespace": "x"}]), "spec.subjects[0].namespace: unknown")
        self.refused(spec(clusters={"names": ["a"], "label": "x"}), "spec.clusters.label: unknown")
        self.refused(spec(**{"as": {"users": "x"}}), "spec.as.users: unknown")
        self.refused(spec(timeWindow={"timezone": "UTC"}), "spec.timeWindow.timezone: unknown")

    def test_values(self) -> None:
        """An error names the field, the value and the valid ones."""
        for more, text in (
            ({"access": "readonly"}, "spec.access: 'readonly': must be full, edit, no-exec or read-only"),
            ({"access": ["full"]}, "spec.access: ['full']: must be"),
            ({"subjects": [{"kind": "Role", "name": "x"}]}, "spec.subjects[0].kind: 'Role': must be User,"),
            ({"subjects": [{"kind": "User", "name": "*"}]}, "patterns are not supported"),
            ({"subjects": [{"kind": "User", "name": " x"}]}, "without blanks at the ends"),
            ({"subjects": [{"kind": "User", "name": "a\nb"}]}, "printable"),
            ({"subjects": [{"kind": "Group", "name": "tower:admins"}]}, "Tower's own"),
            ({"subjects": [{"kind": "ServiceAccount", "name": "ci"}]}, "namespace: None: required"),
            ({"subjects": [GROUP] * 1001}, "spec.subjects: 1001 entries: at most 1000"),
            (
                {"clusters": {"names": ["Alpha"]}},
                "spec.clusters.names: 'Alpha': must be the name of a cluster",
            ),
            (
                {"clusters": {"selector": {"matchLabels": {"a": 1}}}},
                "matchLabels.a: 1: must be a label's value",
            ),
            (
                {"clusters": {"selector": {"matchExpressions": [{"key": "a", "operator": "in"}]}}},
                "matchExpressions[0].operator: 'in': must be In, NotIn, Exists or DoesNotExist",
            ),
            (
                {"clusters": {"selector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}},
                "values: required with the operator In",
            ),
            ({"targets": []}, "spec.targets: is empty"),
            ({"targets": ["Grafana"]}, "spec.targets: 'Grafana': must be the name of a target"),
            ({"ttl": "soon"}, "spec.ttl: 'soon': is not a duration"),
            ({"ttl": 0}, "spec.ttl: 0: must be 1s or more"),
            ({"ttl": True}, "spec.ttl: True: is not a duration"),
            (
                {"timeWindow": {"from": "8:00", "timeZone": "UTC"}},
                "spec.timeWindow.from: '8:00': must be a time",
            ),
            ({"timeWindow": {"from": 480, "timeZone": "UTC"}}, "in quotes"),
            ({"timeWindow": {"from": "24:00", "timeZone": "UTC"}}, "from is 24:00"),
            ({"timeWindow": {"from": "00:00", "to": "00:00", "timeZone": "UTC"}}, "are equal"),
            ({"timeWindow": {"days": ["Monday"], "timeZone": "UTC"}}, "days: 'Monday': must be Mon,"),
            ({"timeWindow": {}}, "spec.timeWindow.timeZone: None: required: a name such as Europe/Berlin"),
            ({"timeWindow": {"timeZone": "../../etc/passwd"}}, "timeZone"),
            ({"as": {"user": "{name}"}}, "spec.as.user: '{name}': the only placeholder is {user}"),
            ({"as": {"user": "tower:x"}}, "reserved for Tower"),
            ({"as": {"groups": ["a*"]}}, "patterns are not supported"),
            ({"as": {"groups": ["system:authenticated"]}}, "omit it"),
            ({"as": {"groupMapping": {"a": "tower:admins"}}}, "spec.as.groupMapping.a: 'tower:admins'"),
            ({"as": {"serviceAccountPrefix": "system:"}}, "choose another prefix"),
            ({"as": {"groups": ["ä"]}}, "printable ASCII"),
        ):
            self.refused(spec(**more), text)

    @given(
        fields=st.dictionaries(
            st.sampled_from(["subjects", "clusters", "as", "targets", "access", "ttl", "timeWindow", "x"]),
            ANYTHING,
        )
    )
    def test_anything(self, fields: dict[str, Any]) -> None:
        """Any other value is rejected as invalid."""
        for value in (fields, {**spec(), **fields}):
            with contextlib.suppress(Invalid):
                read_spec(value)

    def test_warnings(self) -> None:
        """Groups that are reserved in most clusters have a warning with the cure."""
        found = read_spec(spec(**{"as": {"groups": ["system:masters", "dev"]}}))
        (text,) = warnings_of(found)
        self.assertIn("'system:masters' is reserved", text)
        self.assertIn("--allow-system-identity system:masters", text)
        self.assertEqual(warnings_of(read_spec(spec())), [])

    def test_reserved_names(self) -> None:
        """Users and groups that clusters reserve have a warning, also administrators of distributions."""
        for names, text in (
            ({"user": "system:admin"}, "spec.as: the user 'system:admin' is reserved"),
            ({"user": "system:{user}"}, "spec.as: the user 'system:{user}' is reserved"),
            (
                {"groupMapping": {"dev": "kubeadm:cluster-admins"}},
                "group 'kubeadm:cluster-admins' is reserved",
            ),
            ({"groups": ["kube:admin"]}, "group 'kube:admin' is reserved"),
        ):
            (found,) = warnings_of(read_spec(spec(**{"as": names})))
            self.assertIn(text, found)
        self.assertEqual(warnings_of(read_spec(spec(**{"as": {"user": "co:{user}", "groups": ["*"]}}))), [])

    def test_subjects_without_users(self) -> None:
        """Subjects that no user can be have a warning, and anonymous users, unless they get another name."""
        anonymous = {"kind": "Group", "name": "system:unauthenticated"}
        for subject, text in (
            (
                {"kind": "Group", "name": "system:masters"},
                "group system:masters: the front door authenticates",
            ),
            ({"kind": "User", "name": "kube:admin"}, "user kube:admin: the front door authenticates no user"),
            (
                {"kind": "User", "name": "system:anonymous"},
                "user system:anonymous: clusters reserve the name",
            ),
            (anonymous, "group system:unauthenticated: clusters reserve the name of anonymous users"),
        ):
            (found,) = warnings_of(read_spec(spec(subjects=[GROUP, subject])))
            self.assertIn(text, found)
        for value in (
            spec(subjects=[anonymous], **{"as": {"user": "guest"}}),
            spec(subjects=[{"kind": "Group", "name": "system:authenticated"}]),
            spec(subjects=[{"kind": "Group", "name": "system:serviceaccounts:build"}]),
            spec(subjects=[{"kind": "User", "name": "system:serviceaccount:build:ci"}]),
            spec(subjects=[{"kind": "ServiceAccount", "namespace": "build", "name": "ci"}]),
            spec(subjects=[{"kind": "Claim", "name": "system:x", "value": "system:masters"}]),
        ):
            self.assertEqual(warnings_of(read_spec(value)), [], value)

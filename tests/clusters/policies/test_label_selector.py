"""Tests of `tower.clusters.policies.label_selector`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tower.clusters.policies.label_selector import LabelRequirement, LabelSelector, Operator


class LabelSelectorTests(SynchronousTestCase):
    """Selectors select as in Kubernetes."""

    def test_operators(self) -> None:
        """Each operator, with the value, another value, and without the label."""
        cases: list[tuple[Operator, tuple[bool, bool, bool]]] = [
            ("In", (True, False, False)),
            ("NotIn", (False, True, True)),
            ("Exists", (True, True, False)),
            ("DoesNotExist", (False, False, True)),
        ]
        for operator, expected in cases:
            values = ("a", "b") if "In" in operator else ()
            requirement = LabelRequirement("k", operator, values)
            found = tuple(requirement.matches(labels) for labels in ({"k": "b"}, {"k": "c"}, {}))
            self.assertEqual(found, expected, operator)

    def test_all_must_hold(self) -> None:
        """Exact values and requirements are combined by and."""
        selector = LabelSelector({"a": "1", "b": "2"}, (LabelRequirement("c", "Exists"),))
        self.assertTrue(selector.matches({"a": "1", "b": "2", "c": ""}))
        for labels in ({"a": "1", "b": "2"}, {"a": "1", "b": "3", "c": ""}, {"a": "1", "c": ""}, {}):
            self.assertFalse(selector.matches(labels))

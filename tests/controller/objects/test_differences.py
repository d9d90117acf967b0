"""Tests of `tower.controller.objects.differences`."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tower.controller.objects.differences import difference, exactly, without_removals

PORT = {"name": "a", "port": 80, "targetPort": 6000}


class DifferenceTests(SynchronousTestCase):
    """Patches from a current to a wanted object."""

    def test_equal(self) -> None:
        """An object that has the wanted fields, and others, needs no patch."""
        current = {"spec": {"ports": [{**PORT, "nodePort": 30000}], "clusterIP": "10.0.0.1"}, "kind": "S"}
        self.assertEqual(difference(current, {"spec": {"ports": [PORT]}}), {})

    def test_fields(self) -> None:
        """Only the fields that differ are in the patch, at any depth."""
        current = {"a": {"b": 1, "c": {"d": 2}}, "e": "f"}
        wanted = {"a": {"b": 1, "c": {"d": 3}}, "e": "f", "g": {"h": "i"}}
        self.assertEqual(difference(current, wanted), {"a": {"c": {"d": 3}}, "g": {"h": "i"}})

    def test_removals(self) -> None:
        """None removes a field that exists, and is ignored for others."""
        self.assertEqual(difference({"a": {"b": 1}}, {"a": {"b": None, "c": None}}), {"a": {"b": None}})
        self.assertEqual(difference({}, {"a": {"b": None}, "c": {}}), {})

    def test_lists(self) -> None:
        """A list is replaced as a whole; its items keep what the API server added to them."""
        current: dict[str, Any] = {"ports": [{**PORT, "nodePort": 30000}, {"name": "b", "nodePort": 30001}]}
        wanted = {"ports": [{**PORT, "targetPort": 6001}, {"name": "c"}]}
        expected = [{**PORT, "targetPort": 6001, "nodePort": 30000}, {"name": "c"}]
        self.assertEqual(difference(current, wanted), {"ports": expected})
        self.assertEqual(difference(current, {"ports": [PORT]})["ports"], [{**PORT, "nodePort": 30000}])
        self.assertEqual(difference({"x": ["a"]}, {"x": ["a"]}), {})
        self.assertEqual(difference({"x": "a"}, {"x": ["a"]}), {"x": ["a"]})

    def test_other_types(self) -> None:
        """A value of another type is replaced."""
        self.assertEqual(difference({"a": "text"}, {"a": {"b": 1}}), {"a": {"b": 1}})
        self.assertEqual(difference({"a": {"b": 1}}, {"a": "text"}), {"a": "text"})

    def test_exactly(self) -> None:
        """A map that is Tower's alone loses its other keys."""
        wanted = {"selector": exactly({"app": "x", "old": "y"}, {"app": "x"})}
        self.assertEqual(
            difference({"selector": {"app": "x", "old": "y"}}, wanted), {"selector": {"old": None}}
        )
        self.assertEqual(exactly(None, {"a": "b"}), {"a": "b"})

    def test_new_object(self) -> None:
        """A new object has no field that is None."""
        wanted = {"a": None, "b": {"c": None, "d": 1}, "e": [1]}
        self.assertEqual(without_removals(wanted), {"b": {"d": 1}, "e": [1]})

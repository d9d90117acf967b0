"""Walks along schemas."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tower.web.api.fields.schema import ABSENT, compare, duplicates, field_set, merge, pruned, remove
from tower.web.api.fields.sets import to_tree

TEXT = {"type": "string"}
SCHEMA: dict[str, Any] = {
    "properties": {
        "name": TEXT,
        "labels": {"additionalProperties": TEXT},
        "numbers": {"type": "array", "items": {"type": "integer"}},
        "names": {"type": "array", "items": TEXT, "x-kubernetes-list-type": "set"},
        "whole": {"properties": {"a": TEXT}, "x-kubernetes-map-type": "atomic"},
        "parts": {
            "type": "array",
            "items": {"properties": {"id": TEXT, "size": TEXT}},
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["id"],
        },
    }
}
A = 'k:{"id":"a"}'


def part(name: str, size: str) -> dict[str, str]:
    """Return an item of `parts`."""
    return {"id": name, "size": size}


class SchemaTests(SynchronousTestCase):
    """Values as structured-merge-diff sees them."""

    def tree(self, value: Any) -> dict[str, Any]:
        """Return the field set of *value* as a tree."""
        return to_tree(field_set(value, SCHEMA))

    def test_field_set(self) -> None:
        """Objects, maps and associative lists are granular; other values are one field."""
        self.assertEqual(
            self.tree({"name": "x", "labels": {"a": "1"}}), {"f:name": {}, "f:labels": {"f:a": {}}}
        )
        self.assertEqual(self.tree({"labels": {}}), {"f:labels": {}})
        self.assertEqual(
            self.tree({"numbers": [1, 2], "whole": {"a": "1"}}), {"f:numbers": {}, "f:whole": {}}
        )
        self.assertEqual(self.tree({"names": ["x"]}), {"f:names": {'v:"x"': {}}})
        self.assertEqual(
            self.tree({"parts": [part("a", "1")]}), {"f:parts": {A: {".": {}, "f:id": {}, "f:size": {}}}}
        )
        self.assertEqual(self.tree({"parts": "odd"}), {"f:parts": {}})

    def test_compare(self) -> None:
        """Additions include the containers that were absent; True is not 1."""
        change = compare({"name": "x"}, {"name": "y", "labels": {"a": "1"}}, SCHEMA)
        self.assertEqual(to_tree(change.modified), {"f:name": {}})
        self.assertEqual(to_tree(change.added), {"f:labels": {".": {}, "f:a": {}}})
        change = compare({"parts": [part("a", "1")]}, {"parts": [part("b", "1")]}, SCHEMA)
        self.assertEqual(to_tree(change.removed), {"f:parts": {A: {".": {}, "f:id": {}, "f:size": {}}}})
        change = compare({"numbers": [1]}, {"numbers": [True]}, SCHEMA)
        self.assertEqual(to_tree(change.modified), {"f:numbers": {}})
        same = {"names": ["a", "b"], "parts": [part("a", "1"), part("b", "1")]}
        turned = {"names": ["b", "a"], "parts": [part("b", "1"), part("a", "1")]}
        self.assertEqual(compare(same, turned, SCHEMA), (frozenset(),) * 3)

    def test_merge(self) -> None:
        """Granular values are united, others replaced; items keep their order."""
        self.assertEqual(
            merge(
                {"labels": {"a": "1", "b": "1"}, "numbers": [1], "parts": [part("a", "1"), part("b", "1")]},
                {"labels": {"b": "2"}, "numbers": [2], "parts": [part("c", "1"), part("a", "2")]},
                SCHEMA,
            ),
            {
                "labels": {"a": "1", "b": "2"},
                "numbers": [2],
                "parts": [part("a", "2"), part("b", "1"), part("c", "1")],
            },
        )
        self.assertEqual(merge({"names": ["a"]}, {"names": ["b", "a"]}, SCHEMA), {"names": ["a", "b"]})

    def test_remove(self) -> None:
        """Fields are removed, with the containers that become empty."""
        value = {"name": "x", "labels": {"a": "1"}, "parts": [part("a", "1"), part("b", "1")]}
        paths = frozenset({("f:labels", "f:a"), ("f:parts", A), ("f:absent",)})
        self.assertEqual(remove(value, paths, SCHEMA), {"name": "x", "parts": [part("b", "1")]})
        self.assertIs(remove({"name": "x"}, frozenset({("f:name",)}), SCHEMA), ABSENT)

    def test_pruned(self) -> None:
        """Unknown fields are named by their path, also in lists; nulls are dropped."""
        value = {"x": 1, "parts": [{"id": "a", "y": {"deep": 1}}], "labels": {"any": None}, "name": None}
        self.assertEqual(pruned(value, SCHEMA), ({"parts": [{"id": "a"}], "labels": {}}, ["x", "parts[0].y"]))

    def test_duplicates(self) -> None:
        """Items with the same key, or without one, are found."""
        for value in ([part("a", "1"), part("a", "2")], [{"size": "1"}], ["a"]):
            self.assertEqual(list(duplicates({"parts": value}, SCHEMA)), [("f:parts",)])
        self.assertEqual(list(duplicates({"names": ["a", "a"]}, SCHEMA)), [("f:names",)])
        self.assertEqual(list(duplicates({"parts": [part("a", "1")], "names": ["a"]}, SCHEMA)), [])

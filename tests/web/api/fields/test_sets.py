"""Field sets."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tower.errors import Invalid
from tower.web.api.fields.sets import from_tree, shown_path, to_tree

CONDITION = 'k:{"type":"Ready"}'


class FieldSetTests(SynchronousTestCase):
    """The form `fieldsV1`, and paths in errors."""

    def test_round_trip(self) -> None:
        """A set becomes a tree and the same set again; members above others have a dot."""
        paths = frozenset(
            {
                ("f:metadata", "f:labels", "f:a"),
                ("f:metadata", "f:finalizers", 'v:"x"'),
                ("f:status", "f:conditions", CONDITION),
                ("f:status", "f:conditions", CONDITION, "f:status"),
            }
        )
        tree = to_tree(paths)
        self.assertEqual(
            tree,
            {
                "f:metadata": {"f:labels": {"f:a": {}}, "f:finalizers": {'v:"x"': {}}},
                "f:status": {"f:conditions": {CONDITION: {".": {}, "f:status": {}}}},
            },
        )
        self.assertEqual(from_tree(tree), paths)

    def test_malformed(self) -> None:
        """Values other than objects, and excessive depth, are rejected; unknown elements are ignored."""
        deep: dict[str, object] = {"f:a": {}}
        for _ in range(100):
            deep = {"f:a": deep}
        for tree in ({"f:a": [1]}, {"f:a": "x"}, deep):
            self.assertRaises(Invalid, from_tree, tree)
        self.assertEqual(from_tree({"i:0": {}}), frozenset())

    def test_shown(self) -> None:
        """Errors name a field as kube-apiserver does."""
        self.assertEqual(
            shown_path(("f:status", "f:conditions", CONDITION, "f:reason")),
            '.status.conditions[type="Ready"].reason',
        )
        self.assertEqual(shown_path(("f:metadata", "f:finalizers", 'v:"x"')), '.metadata.finalizers[="x"]')

"""Updates and applies by several managers, as kube-apiserver does them.

`tests/integration/test_api_differential.py` compares with a real one.
"""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tower.errors import Invalid
from tower.kube.status import StatusError
from tower.web.api.fields.kinds import CLUSTER
from tower.web.api.fields.managers import (
    ANCIENT,
    BEFORE_FIRST_APPLY,
    MANAGER_LIMIT,
    UPDATE_LIMIT,
    ManagerKey,
    Managers,
    Owned,
    after_update,
    apply,
    read_managers,
    show_managers,
)
from tower.web.api.fields.sets import to_tree


def labels(**values: str) -> dict[str, Any]:
    """Return an object with labels."""
    return {"metadata": {"labels": values}}


class ManagersTests(SynchronousTestCase):
    """One object and its managers."""

    def setUp(self) -> None:
        """Make an empty object."""
        self.value: dict[str, Any] = {}
        self.managers: Managers = {}
        self.time = 0

    def apply(self, name: str, config: dict[str, Any], *, force: bool = False) -> None:
        """Apply *config*."""
        key = ManagerKey("Apply", name)
        self.value, self.managers = apply(
            self.value, config, CLUSTER, self.managers, key, self.now(), force=force
        )

    def update(self, name: str, value: dict[str, Any]) -> None:
        """Replace the object."""
        key = ManagerKey("Update", name)
        self.managers = after_update(self.value, value, CLUSTER, self.managers, key, self.now())
        self.value = value

    def now(self) -> str:
        """Return a later time."""
        self.time += 1
        return f"2026-01-01T00:00:{self.time:02}Z"

    def owned(self, name: str, operation: str = "Apply") -> dict[str, Any]:
        """Return the fields of a manager."""
        owned = self.managers.get(ManagerKey(operation, name))
        return {} if owned is None else to_tree(owned.fields)

    def test_what_is_no_longer_applied_is_removed(self) -> None:
        """A field that its only owner omits disappears, with its container."""
        self.apply("a", {**labels(x="1", y="1"), "spec": {"enable": False}})
        self.apply("a", {"spec": {"enable": False}})
        self.assertEqual(self.value, {"spec": {"enable": False}})
        self.assertEqual(self.owned("a"), {"f:spec": {"f:enable": {}}})

    def test_what_others_own_stays(self) -> None:
        """A field that another manager applied or updated stays, and changes its owners."""
        self.apply("a", labels(x="1", y="1", z="1"))
        self.apply("b", labels(x="1"))
        self.update("c", labels(x="1", y="2", z="1"))
        self.apply("a", {})
        self.assertEqual(self.value, labels(x="1", y="2"))
        self.assertEqual(self.owned("b"), {"f:metadata": {"f:labels": {"f:x": {}}}})
        self.assertEqual(self.owned("c", "Update"), {"f:metadata": {"f:labels": {"f:y": {}}}})
        self.assertEqual(self.owned("a"), {})

    def test_conflict(self) -> None:
        """Another value is a conflict with each owner, unless forced; the same value shares the field."""
        self.apply("a", {**labels(x="1"), "spec": {"enable": True}})
        self.update("editor", {**labels(x="2"), "spec": {"enable": True}})
        self.apply("b", {"spec": {"enable": True}})
        error = self.assertRaises(StatusError, self.apply, "c", {**labels(x="3"), "spec": {"enable": False}})
        self.assertEqual((error.code, error.reason), (409, "Conflict"))
        self.assertEqual(
            [(cause["reason"], cause["field"]) for cause in error.details["causes"]],
            [
                ("FieldManagerConflict", ".spec.enable"),
                ("FieldManagerConflict", ".spec.enable"),
                ("FieldManagerConflict", ".metadata.labels.x"),
            ],
        )
        self.assertIn('conflict with "editor" using cluster.kubesphere.io/v1alpha1 at 2026', str(error))
        self.apply("c", {**labels(x="3"), "spec": {"enable": False}}, force=True)
        self.assertEqual(self.value, {**labels(x="3"), "spec": {"enable": False}})
        for name, operation in (("a", "Apply"), ("b", "Apply"), ("editor", "Update")):
            self.assertEqual(self.owned(name, operation), {})

    def test_update_takes_fields(self) -> None:
        """An update owns all that it changes, and takes from others all that it removes."""
        self.update("a", {**labels(x="1"), "spec": {"enable": True}})
        self.assertEqual(
            self.owned("a", "Update"),
            {"f:metadata": {"f:labels": {".": {}, "f:x": {}}}, "f:spec": {".": {}, "f:enable": {}}},
        )
        self.update("b", {"spec": {"enable": False}})
        self.assertEqual(self.owned("a", "Update"), {"f:spec": {}})
        self.assertEqual(self.owned("b", "Update"), {"f:spec": {"f:enable": {}}})

    def test_nothing_new(self) -> None:
        """The same apply or update again changes nothing, not even the time."""
        self.apply("a", labels(x="1"))
        self.update("b", labels(x="1", y="1"))
        before = show_managers(self.managers)
        self.apply("a", labels(x="1"))
        self.update("b", labels(x="1", y="1"))
        self.assertEqual(show_managers(self.managers), before)

    def test_items(self) -> None:
        """Managers own their finalizers and conditions item by item."""
        ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
        done = {"status": {"conditions": [{"type": "Done", "status": "True"}]}}
        self.apply("a", {**ready, "metadata": {"finalizers": ["a.org/x"]}})
        self.apply("b", {**done, "metadata": {"finalizers": ["b.org/x"]}})
        self.apply("a", {})
        self.assertEqual(self.value, {**done, "metadata": {"finalizers": ["b.org/x"]}})
        twice = {"status": {"conditions": done["status"]["conditions"] * 2}}
        self.assertIn("status.conditions", str(self.assertRaises(Invalid, self.apply, "a", twice)))

    def test_before_first_apply(self) -> None:
        """Fields from before managers were recorded have an owner at the first apply."""
        self.value = labels(x="1")
        self.apply("a", labels(y="1"))
        self.assertEqual(
            self.owned(BEFORE_FIRST_APPLY, "Update"), {"f:metadata": {"f:labels": {".": {}, "f:x": {}}}}
        )
        self.assertRaises(StatusError, self.apply, "a", labels(x="2", y="1"))

    def test_many_updates(self) -> None:
        """The managers of the oldest updates are joined."""
        for number in range(UPDATE_LIMIT + 5):
            self.update(f"m{number}", labels(**{f"x{n}": "1" for n in range(number + 1)}))
        self.assertEqual(len(self.managers), UPDATE_LIMIT)
        self.assertIn("f:x0", self.owned(ANCIENT, "Update")["f:metadata"]["f:labels"])
        self.assertEqual(self.owned("m14", "Update"), {"f:metadata": {"f:labels": {"f:x14": {}}}})

    def test_too_many_applies(self) -> None:
        """Applying managers are limited."""
        for number in range(MANAGER_LIMIT + 1):
            self.apply(f"m{number}", labels(x="1"))
        self.assertRaises(Invalid, show_managers, self.managers)

    def test_form(self) -> None:
        """`managedFields` is read as it was written; applies come first."""
        self.update("b", labels(x="1"))
        self.apply("a", labels(x="1"))
        shown = show_managers(self.managers)
        self.assertEqual([entry["manager"] for entry in shown], ["a", "b"])
        self.assertEqual(read_managers(shown), self.managers)
        for entry in (1, {}, {"operation": "Update", "manager": 1}, {"operation": "Apply", "fieldsV1": [1]}):
            self.assertRaises(Invalid, read_managers, [entry])
        key = ManagerKey("Update", "s", "status")
        self.assertEqual(show_managers({key: Owned(frozenset({("f:status",)}))})[0]["subresource"], "status")

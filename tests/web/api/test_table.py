"""Tests for `tower.web.api.table`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tower.web.api.table import (
    TABLES,
    Column,
    age,
    age_column,
    name_column,
    seconds_since,
    table,
)

NOW = 1_700_000_000.0
ALPHA = {
    "kind": "Cluster",
    "metadata": {"name": "alpha", "creationTimestamp": "2023-11-14T22:12:20Z"},
    "spec": {"enable": True},
}
COLUMNS = (
    name_column("The name."),
    Column("Enabled", "Whether.", lambda item, _: item["spec"]["enable"], type="boolean", priority=1),
    age_column(),
)


class TableTests(SynchronousTestCase):
    """`table` makes the tables that kubectl prints."""

    def test_cells(self) -> None:
        """Cells are in the order of the columns; ages are relative to the given time."""
        got = table(COLUMNS, [ALPHA], NOW, metadata={"resourceVersion": "17"})
        self.assertEqual(got["apiVersion"], "meta.k8s.io/v1")
        self.assertEqual(got["metadata"], {"resourceVersion": "17"})
        self.assertEqual([c["name"] for c in got["columnDefinitions"]], ["Name", "Enabled", "Age"])
        self.assertEqual(got["columnDefinitions"][1]["priority"], 1)
        self.assertEqual(got["rows"][0]["cells"], ["alpha", True, "60s"])

    def test_what_a_row_carries(self) -> None:
        """A row has its object's metadata, the object, or nothing, as requested."""
        (row,) = table(COLUMNS, [ALPHA], NOW)["rows"]
        self.assertEqual(row["object"]["kind"], "PartialObjectMetadata")
        self.assertEqual(row["object"]["metadata"]["name"], "alpha")
        (row,) = table(COLUMNS, [ALPHA], NOW, include="Object")["rows"]
        self.assertEqual(row["object"], ALPHA)
        (row,) = table(COLUMNS, [ALPHA], NOW, include="None")["rows"]
        self.assertNotIn("object", row)

    def test_old_form(self) -> None:
        """The v1beta1 form differs only in its apiVersion."""
        got = table(COLUMNS, [ALPHA], NOW, media=TABLES[1])
        self.assertEqual(got["apiVersion"], "meta.k8s.io/v1beta1")
        self.assertEqual(got["rows"][0]["object"]["apiVersion"], "meta.k8s.io/v1beta1")


class DurationTests(SynchronousTestCase):
    """Ages have kubectl's format."""

    def test_timestamps(self) -> None:
        """RFC 3339 with and without fractions is supported; a missing or invalid time is unknown."""
        self.assertEqual(seconds_since("2023-11-14T22:13:20Z", NOW), 0)
        self.assertEqual(seconds_since("2023-11-14T22:13:19.500000+00:00", NOW), 0.5)
        self.assertIsNone(seconds_since("yesterday", NOW))
        self.assertEqual(age(None, NOW), "<unknown>")

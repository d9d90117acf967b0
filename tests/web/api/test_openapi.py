"""Tests for `tower.web.api.openapi`."""

from __future__ import annotations

import json
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tower.web.api import openapi


def group_document() -> dict[str, Any]:
    """Return the document of Tower's own group."""
    found = openapi.document("apis/cluster.kubesphere.io/v1alpha1")
    assert found is not None
    return found


class OpenAPITests(SynchronousTestCase):
    """The documents for validation and `kubectl explain`."""

    def test_index_leads_to_the_document(self) -> None:
        """The index has the group's document, with a URL that changes with it."""
        entries = openapi.index()["paths"]
        for key in entries:
            self.assertIsNotNone(openapi.document(key))
        entry = next(iter(entries.items()))
        self.assertEqual(entry[0], "apis/cluster.kubesphere.io/v1alpha1")
        self.assertRegex(
            entry[1]["serverRelativeURL"],
            r"^/openapi/v3/apis/cluster\.kubesphere\.io/v1alpha1\?hash=[0-9a-f]{32}$",
        )

    def test_patch_declares_field_validation(self) -> None:
        """Kubectl has the server validate when the patch of the kind takes `fieldValidation`."""
        paths = group_document()["paths"]
        patch = paths["/apis/cluster.kubesphere.io/v1alpha1/clusters/{name}"]["patch"]
        self.assertEqual(patch["x-kubernetes-group-version-kind"]["kind"], "Cluster")
        self.assertIn("fieldValidation", [parameter["name"] for parameter in patch["parameters"]])

    def test_references_resolve(self) -> None:
        """Every referenced schema exists."""
        document = group_document()
        text = json.dumps(document)
        for name in {part.partition('"')[0] for part in text.split("#/components/schemas/")[1:]}:
            self.assertIn(name, document["components"]["schemas"])

    def test_old_clients(self) -> None:
        """Version 2 is available as JSON and as protobuf."""
        media, body = openapi.version_two("application/json")
        self.assertEqual((media, json.loads(body)["swagger"]), ("application/json", "2.0"))
        for mark in ".@":  # the second one is not returned: it is not a valid media type for Go
            asked = f"application/com.github.proto-openapi.spec.v2{mark}v1.0+protobuf"
            media, body = openapi.version_two(asked)
            self.assertEqual(media, "application/com.github.proto-openapi.spec.v2.v1.0+protobuf")
            self.assertTrue(body.startswith(b"\x0a\x032.0\x12"))
            self.assertIn(b"io.kubesphere.cluster.v1alpha1.Cluster", body)

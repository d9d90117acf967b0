"""Media types of bodies and answers."""

from __future__ import annotations

from typing import Final

JSON: Final = "application/json"
YAML: Final = ("application/yaml", "text/yaml", "application/x-yaml")

MERGE_PATCH: Final = "application/merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"

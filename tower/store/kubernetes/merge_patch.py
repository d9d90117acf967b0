"""JSON merge patches (RFC 7396) between two objects.  Sans-IO."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def merge_patch(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Return the patch that leads from *old* to *new*, which has no nulls that *old* has not."""
    patch: dict[str, Any] = {key: None for key in old if key not in new}
    for key, part in new.items():
        before = old.get(key)
        if isinstance(before, dict) and isinstance(part, dict):
            if below := merge_patch(before, part):
                patch[key] = below
        elif key not in old or before != part or type(before) is not type(part):
            patch[key] = part
    return patch

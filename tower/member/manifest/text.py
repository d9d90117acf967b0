"""Kubernetes objects as YAML."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import yaml


def manifest_text(head: str, objects: Sequence[dict[str, Any]]) -> str:
    """Return the comment *head* and *objects* as YAML, without a final newline."""
    text: str = yaml.dump_all(objects, Dumper=_Dumper, sort_keys=False, width=1000)
    return head + text.rstrip("\n")


class _Dumper(yaml.SafeDumper):
    """Writes readable manifests: without references, and texts of several lines as blocks."""

    def ignore_aliases(self, _data: Any) -> bool:
        """Write no references."""
        return True

    def text(self, data: str) -> yaml.ScalarNode:
        """Write a text of several lines as a block."""
        style = "|" if "\n" in data else None
        return self.represent_scalar("tag:yaml.org,2002:str", data, style)


_Dumper.add_representer(str, _Dumper.text)

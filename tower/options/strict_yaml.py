"""YAML loaders equivalent to Kubernetes' strict and lenient decoders; both reject aliases.

The strict one also rejects repeated keys.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from yaml import AliasEvent, MappingNode, Node, SafeLoader, SequenceNode, YAMLError, load


class _JSONLoader(SafeLoader):
    """Loads values that have a JSON form."""

    yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
        for first, resolvers in SafeLoader.yaml_implicit_resolvers.items()
    }

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Return the next node; reject aliases, whose expansion is unlimited."""
        if self.check_event(AliasEvent):
            raise YAMLError("aliases are not supported (write the value again)")
        return super().compose_node(parent, index)


class _StrictLoader(_JSONLoader):
    """Rejects keys that are not texts or are given twice."""

    def construct_mapping(self, node: MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Return a map."""
        found: set[str] = set()
        for each, _ in node.value:
            key = each.value
            if not isinstance(key, str) or key in found:
                raise YAMLError(f"strict decoding error: {_repeated(each)}")
            found.add(key)
        return super().construct_mapping(node, deep)


def load_strictly(data: bytes) -> Any:
    """Return the only document in *data*.

    :raise YAMLError: it is not YAML, or not of this form.
    """
    return load(data.decode(), _StrictLoader)  # noqa: S506 - a safe loader


def load_leniently(data: bytes) -> Any:
    """Return the only document in *data*; the last value of a repeated key is used."""
    return load(data.decode(), _JSONLoader)  # noqa: S506 - a safe loader


def repeated_keys(data: bytes) -> list[str]:
    """Return the keys that a map has already, with upstream's text; *data* can be loaded leniently."""
    nodes = [_JSONLoader(data.decode()).get_single_node()]
    repeated: list[Node] = []
    while nodes:
        node = nodes.pop()
        if isinstance(node, SequenceNode):
            nodes += node.value
        elif isinstance(node, MappingNode):
            found: set[Hashable] = set()
            for key, value in node.value:
                if key.value in found:
                    repeated.append(key)
                found.add(key.value)
                nodes.append(value)
    return [_repeated(key) for key in sorted(repeated, key=lambda key: key.start_mark.index)]


def _repeated(key: Node) -> str:
    return f'line {key.start_mark.line + 1}: key "{key.value}" already set in map'

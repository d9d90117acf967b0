"""YAML as Kubernetes' strict decoder reads it: a key given twice is an error, and an alias too."""

from __future__ import annotations

from typing import Any

from yaml import AliasEvent, MappingNode, SafeLoader, YAMLError, load


class _StrictLoader(SafeLoader):
    """Loads values that have a JSON form."""

    yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
        for first, resolvers in SafeLoader.yaml_implicit_resolvers.items()
    }

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Return the next node; reject aliases, whose expansion is unlimited."""
        if self.check_event(AliasEvent):
            raise YAMLError("aliases are not supported")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Return a map; reject keys that are not texts or are given twice."""
        found: set[str] = set()
        for each, _ in node.value:
            key = each.value
            if not isinstance(key, str) or key in found:
                line = each.start_mark.line + 1
                raise YAMLError(f'strict decoding error: line {line}: key "{key}" already set in map')
            found.add(key)
        return super().construct_mapping(node, deep)


def load_strictly(data: bytes) -> Any:
    """Return the only document in *data*.

    :raise YAMLError: it is not YAML, or not of this form.
    """
    return load(data.decode(), _StrictLoader)  # noqa: S506 - a safe loader

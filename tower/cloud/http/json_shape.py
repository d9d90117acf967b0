"""What JSON from a cloud has to look like before anybody looks into it."""

from __future__ import annotations

from typing import Any, TypeAlias

#: A type; ``[shape]`` of each item of a list; ``{name: shape}`` of those fields of an object that it has,
#: where ``...`` in place of a name means all of them.
Shape: TypeAlias = "type | list[Shape] | dict[Any, Shape]"


def fits(value: Any, shape: Shape) -> bool:
    """Tell whether a value has a shape; a field that is null counts as one that is not there."""
    if isinstance(shape, type):
        return isinstance(value, shape)
    if isinstance(shape, list):
        return isinstance(value, list) and all(fits(each, shape[0]) for each in value)
    if not isinstance(value, dict):
        return False
    everywhere = shape.get(...)
    return all(
        each is None or fits(each, wanted)
        for name, each in value.items()
        if (wanted := shape.get(name, everywhere)) is not None
    )

"""JSON of clouds: checks of its shape, and a reader of long texts, value by value.

The reader uses the standard library's parser in C.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Iterator, Mapping
from typing import Any, TypeAlias

from tower.cloud.http.answer import Answer

#: A type; ``[shape]`` for the items of a list; ``{name: shape}`` for the fields that an object has, with the
#: name
#: ``...`` for all other fields.
Shape: TypeAlias = "type | list[Shape] | dict[Any, Shape]"

#: The path of a value: the names of the members that contain it.
Path: TypeAlias = tuple[str, ...]

#: Instead of a name: each value of a list, each member of an object.
EACH = "[]"
ANY = "*"

_BLANKS = re.compile(r"[ \t\n\r]*")
_read = json.JSONDecoder().raw_decode


def fits(value: Any, shape: Shape) -> bool:
    """Return whether a value has a shape; null fields of objects are ignored."""
    if isinstance(shape, type):
        return isinstance(value, shape)
    if isinstance(shape, list):
        return isinstance(value, list) and all(fits(each, shape[0]) for each in value)
    if not isinstance(value, dict):
        return False
    default = shape.get(...)
    return all(
        each is None or fits(each, wanted)
        for name, each in value.items()
        if (wanted := shape.get(name, default)) is not None
    )


class _UnexpectedShape(Exception):
    """A value does not have the expected shape."""


def walk(answer: Answer, shapes: Mapping[Path, Shape]) -> Iterator[tuple[Path, Any]]:
    """Yield path and value of everything in an answer's body that *shapes* lists, in its order.

    So only one value is in memory at a time, and the consumer may pause.  Null values are skipped.

    :param shapes: by path.  For ``dict`` and ``list``, an empty one is yielded, then its values one by one;
        other values are yielded whole.
    :raise CloudError: during the iteration: the body is not JSON, or a value has another shape.
    """
    try:
        text = answer.body.decode(json.detect_encoding(answer.body))
        end = yield from _Walk(text, shapes).value(_after_blanks(text, 0), (), ())
        if _after_blanks(text, end) != len(text):
            raise ValueError("text after the value")
    except (ValueError, IndexError, RecursionError):
        raise answer.not_json() from None
    except _UnexpectedShape:
        raise answer.unexpected() from None


_Steps: TypeAlias = Generator[tuple[Path, Any], None, int]


class _Walk:
    """One pass through a text; each method starts at a position and returns the position after it."""

    def __init__(self, text: str, shapes: Mapping[Path, Shape]) -> None:
        self._text = text
        self._shapes = shapes

    def value(self, at: int, path: Path, kind: Path) -> _Steps:
        """Read a value; *kind* is its path in the shapes."""
        shape = self._shapes.get(kind)
        opening = self._text[at]
        if (shape is dict and opening == "{") or (shape is list and opening == "["):
            yield path, {} if opening == "{" else []
            return (yield from self._members(at, path, kind, is_list=opening == "["))
        value, end = _read(self._text, at)
        if shape is not None and (value is not None or kind[-1:] == (EACH,)):
            if shape in (dict, list) or not fits(value, shape):
                raise _UnexpectedShape
            yield path, value
        return end

    def _members(self, at: int, path: Path, kind: Path, *, is_list: bool) -> _Steps:
        text = self._text
        closing = "]" if is_list else "}"
        any_kind = (*kind, ANY)
        at = _after_blanks(text, at + 1)
        if text[at] == closing:
            return at + 1
        while True:
            name = EACH
            if not is_list:
                name, at = _read(text, at)
                at = _after_blanks(text, at)
                if not isinstance(name, str) or text[at] != ":":
                    raise ValueError("a member has no name")
                at = _after_blanks(text, at + 1)
            own_kind = any_kind if any_kind in self._shapes else (*kind, name)
            at = _after_blanks(text, (yield from self.value(at, (*path, name), own_kind)))
            if text[at] == closing:
                return at + 1
            if text[at] != ",":
                raise ValueError("a comma is missing")
            at = _after_blanks(text, at + 1)


def _after_blanks(text: str, at: int) -> int:
    match = _BLANKS.match(text, at)
    return at if match is None else match.end()

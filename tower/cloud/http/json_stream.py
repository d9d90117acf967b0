"""JSON that is too long to be read in one go: read value by value, by the standard library's parser."""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Iterator, Mapping
from typing import Any, TypeAlias

from tower.cloud.errors import CloudError
from tower.cloud.http.answer import Answer
from tower.cloud.http.json_shape import Shape, fits

#: Where a value is: the names of the members that lead to it.
Path: TypeAlias = tuple[str, ...]

#: In place of a name: each value of a list, each member of an object.
EACH = "[]"
ANY = "*"

_BLANKS = re.compile(r"[ \t\n\r]*")
_read = json.JSONDecoder().raw_decode


class _Misfit(Exception):
    """Something is of another shape than it should be."""


def walk(answer: Answer, shapes: Mapping[Path, Shape]) -> Iterator[tuple[Path, Any]]:
    """Yield path and value of all in an answer's body that *shapes* tell of, in its order.

    So no more than one value is in memory at a time, and whoever takes them may pause.  What is null counts
    as not there.

    :param shapes: by path.  Where one is ``dict`` or ``list`` that comes empty, and then what is in it, each
        value by itself; all else comes whole.
    :raise CloudError: on the way: it is no JSON, or something has another shape.
    """
    try:
        text = answer.body.decode(json.detect_encoding(answer.body))
        end = yield from _Walk(text, shapes).value(_after_blanks(text, 0), (), ())
        if _after_blanks(text, end) != len(text):
            raise ValueError("there is more behind it")
    except (ValueError, IndexError, RecursionError):
        raise CloudError(f"{answer.url} answered {answer.code} with something that is not JSON") from None
    except _Misfit:
        raise CloudError(f"{answer.url} answered with something that cannot be read") from None


_Steps: TypeAlias = Generator[tuple[Path, Any], None, int]


class _Walk:
    """The way through a text; each step goes on from a position, and returns the one that it comes to."""

    def __init__(self, text: str, shapes: Mapping[Path, Shape]) -> None:
        self._text = text
        self._shapes = shapes

    def value(self, at: int, path: Path, kind: Path) -> _Steps:
        """Take a value.

        :param kind: its path as the shapes have it.
        """
        shape = self._shapes.get(kind)
        opening = self._text[at]
        if (shape is dict and opening == "{") or (shape is list and opening == "["):
            yield path, {} if opening == "{" else []
            return (yield from self._members(at, path, kind, is_list=opening == "["))
        value, end = _read(self._text, at)
        if shape is not None and (value is not None or kind[-1:] == (EACH,)):
            if shape in (dict, list) or not fits(value, shape):
                raise _Misfit
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

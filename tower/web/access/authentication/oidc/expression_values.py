"""The functions and operators of expressions; see `tower.web.access.authentication.oidc.expressions`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import attrs

Variables: TypeAlias = Mapping[str, Any]

#: Finds a value; raises `ExpressionError`.
Value: TypeAlias = Callable[[Variables], Any]


class ExpressionError(Exception):
    """An expression cannot be read, or has no value for these variables."""


class MissingField(ExpressionError):
    """A field does not exist."""


@attrs.frozen
class OptionalValue:
    """A value that may be missing."""

    value: Any
    exists: bool


def constant(value: Any) -> Value:
    """Return the value that is always *value*."""
    return lambda _: value


def applied(function: Callable[..., Any], *arguments: Value) -> Value:
    """Return the value of *function* with these arguments."""
    return lambda variables: function(*(each(variables) for each in arguments))


def chosen(condition: Value, first: Value, second: Value) -> Value:
    """Return the value of ``condition ? first : second``."""
    return lambda variables: (first if boolean(condition(variables)) else second)(variables)


def joined(left: Value, right: Value, *, ends: bool) -> Value:
    """Return the value of ``||`` (*ends* is True) or ``&&``."""

    def find(variables: Variables) -> bool:
        return ends if boolean(left(variables)) is ends else boolean(right(variables))

    return find


def boolean(value: Any) -> bool:
    """Return *value*, which must be a boolean."""
    if not isinstance(value, bool):
        raise ExpressionError("a condition is not a boolean")
    return value


def is_equal(left: Any, right: Any) -> bool:
    """Return the value of ``==``; values of different types differ."""
    if isinstance(left, OptionalValue) or isinstance(right, OptionalValue):
        raise ExpressionError("an optional value is compared: add .orValue(...)")
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    return bool(left == right)


def is_different(left: Any, right: Any) -> bool:
    """Return the value of ``!=``."""
    return not is_equal(left, right)


def is_within(item: Any, values: Any) -> bool:
    """Return the value of ``in``."""
    if isinstance(values, dict):
        return item in values
    if not isinstance(values, list):
        raise ExpressionError("'in' requires a list")
    return any(is_equal(item, each) for each in values)


def total(left: Any, right: Any) -> Any:
    """Return the value of ``+``."""
    if isinstance(left, str) and isinstance(right, str):
        return left + right
    if isinstance(left, list) and isinstance(right, list):
        return [*left, *right]
    if _are_numbers(left, right):
        return left + right
    raise ExpressionError("'+' requires two texts, two lists or two numbers")


def difference(left: Any, right: Any) -> Any:
    """Return the value of ``-``."""
    if not _are_numbers(left, right):
        raise ExpressionError("'-' requires two numbers")
    return left - right


def negative(value: Any) -> Any:
    """Return the value of ``-`` before a number."""
    return difference(0, value)


def _are_numbers(*values: Any) -> bool:
    return all(isinstance(each, int | float) and not isinstance(each, bool) for each in values)


def _order(test: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def compare(left: Any, right: Any) -> bool:
        if _are_numbers(left, right) or (isinstance(left, str) and isinstance(right, str)):
            return test(left, right)
        raise ExpressionError("an order requires two numbers or two texts")

    return compare


def member(value: Any, name: Any) -> Any:
    """Return a field, which must exist."""
    if isinstance(value, OptionalValue):
        return optional_member(value, name)
    if isinstance(value, list):
        if not _are_numbers(name) or not 0 <= name < len(value) or name != int(name):
            raise ExpressionError(f"index {name!r} of a list of {len(value)} items")
        return value[int(name)]
    if not isinstance(value, dict):
        raise ExpressionError(f"{name!r} is read from a value that has no fields")
    if name not in value:
        raise MissingField(f"no such key: {name}")
    return value[name]


def optional_member(value: Any, name: Any) -> OptionalValue:
    """Return a field that may be missing."""
    if isinstance(value, OptionalValue):
        if not value.exists:
            return value
        value = value.value
    if isinstance(value, dict) and name in value:
        return OptionalValue(value[name], exists=True)
    return OptionalValue(None, exists=False)


def _or_value(value: Any, default: Any) -> Any:
    if not isinstance(value, OptionalValue):
        raise ExpressionError("orValue requires an optional value, such as claims.?name")
    return value.value if value.exists else default


def _of_texts(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*texts: Any) -> Any:
        if not all(isinstance(each, str) for each in texts):
            raise ExpressionError("a function of texts has another value")
        return function(*texts)

    return call


def _split(text: str, separator: str) -> list[str]:
    return text.split(separator) if separator else list(text)


def _join(values: Any, separator: Any = "") -> str:
    if not isinstance(values, list) or not all(isinstance(each, str) for each in (*values, separator)):
        raise ExpressionError("join() requires a list of texts")
    return str(separator).join(values)


def _lower_ascii(text: str) -> str:
    return "".join(each.lower() if each.isascii() else each for each in text)


def size_of(value: Any) -> int:
    """Return the number of characters, items or fields."""
    if not isinstance(value, str | list | dict):
        raise ExpressionError("size() requires a text, a list or a map")
    return len(value)


#: Functions of a value, with the least and the greatest number of arguments.
METHODS: dict[str, tuple[Callable[..., Any], int, int]] = {
    "orValue": (_or_value, 1, 1),
    "startsWith": (_of_texts(str.startswith), 1, 1),
    "endsWith": (_of_texts(str.endswith), 1, 1),
    "contains": (_of_texts(lambda value, part: part in value), 1, 1),
    "split": (_of_texts(_split), 1, 1),
    "join": (_join, 0, 1),
    "lowerAscii": (_of_texts(_lower_ascii), 0, 0),
    "size": (size_of, 0, 0),
}

#: Functions of a list and of the values that an expression has for its items.
QUANTIFIERS: dict[str, Callable[[list[Any], list[Any]], Any]] = {
    "all": lambda _, found: all(list(map(boolean, found))),
    "exists": lambda _, found: any(list(map(boolean, found))),
    "exists_one": lambda _, found: list(map(boolean, found)).count(True) == 1,
    "filter": lambda items, found: [item for item, each in zip(items, found, strict=True) if boolean(each)],
    "map": lambda _, found: found,
}

#: Operators that compare two values.
RELATIONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": is_equal,
    "!=": is_different,
    "in": is_within,
    "<=": _order(lambda left, right: left <= right),
    ">=": _order(lambda left, right: left >= right),
    "<": _order(lambda left, right: left < right),
    ">": _order(lambda left, right: left > right),
}

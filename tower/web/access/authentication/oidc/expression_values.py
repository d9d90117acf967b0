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
    raise ExpressionError("'+' requires two texts or two lists")


def member(value: Any, name: Any) -> Any:
    """Return a field, which must exist."""
    if isinstance(value, OptionalValue):
        return optional_member(value, name)
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


def _text_method(test: Callable[[str, str], bool]) -> Callable[[Any, Any], bool]:
    def call(value: Any, argument: Any) -> bool:
        if not isinstance(value, str) or not isinstance(argument, str):
            raise ExpressionError("a function of texts has another value")
        return test(value, argument)

    return call


def size_of(value: Any) -> int:
    """Return the number of characters, items or fields."""
    if not isinstance(value, str | list | dict):
        raise ExpressionError("size() requires a text, a list or a map")
    return len(value)


#: Functions of a value and an argument.
METHODS: dict[str, Callable[[Any, Any], Any]] = {
    "orValue": _or_value,
    "startsWith": _text_method(str.startswith),
    "endsWith": _text_method(str.endswith),
    "contains": _text_method(lambda value, part: part in value),
}

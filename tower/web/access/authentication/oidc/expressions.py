"""A part of CEL, the language of expressions in ``AuthenticationConfiguration``.

There are ``claims.NAME`` or ``user.NAME``, ``['NAME']``, ``.?NAME``, ``orValue``, ``has``, ``==``, ``!=``,
``in``, ``<``, ``<=``, ``>``, ``>=``, ``+``, ``-``, ``!``, ``&&``, ``||``, ``? :``, parentheses, lists and
their indexes, texts, integers, ``true``, ``false``, the functions in `METHODS` and `QUANTIFIERS`, and
``size``.  An expression with anything else is rejected when it is read.  Unlike in CEL, an error on one side
of ``&&`` or ``||`` is an error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import attrs

from tower.web.access.authentication.oidc.expression_values import (
    METHODS,
    QUANTIFIERS,
    RELATIONS,
    ExpressionError,
    MissingField,
    OptionalValue,
    Value,
    Variables,
    applied,
    boolean,
    chosen,
    constant,
    difference,
    joined,
    member,
    negative,
    optional_member,
    size_of,
    total,
)

#: Longest expression, characters.
EXPRESSION_LIMIT = 4096

# Most nested parts.
_DEPTH_LIMIT = 40

_TOKEN = re.compile(
    r"""\s*(?:(?P<text>'[^'\\\n]*'|"[^"\\\n]*")|(?P<number>[0-9]+)|(?P<name>[A-Za-z_][A-Za-z0-9_]*)"""
    r"""|(?P<sign>[=!<>]=|&&|\|\||\.\?|[][(){}.,?:!+<>-]))"""
)
_CONSTANTS = {"true": True, "false": False, "null": None}


@attrs.frozen
class Expression:
    """An expression with one variable; equal if the texts are."""

    text: str
    _value: Value = attrs.field(eq=False, repr=False)

    def evaluate(self, variable: str, value: Mapping[str, Any]) -> Any:
        """Return the value of the expression.

        :raise ExpressionError: it has none.
        """
        found = self._value({variable: value})
        if isinstance(found, OptionalValue):
            raise ExpressionError("the value is optional: end it with .orValue(...)")
        return found


def parsed_expression(text: str, variable: str) -> Expression:
    """Return the expression *text*, whose only variable is *variable*.

    :raise ExpressionError: Tower does not know a part of it, which the error names.
    """
    if len(text) > EXPRESSION_LIMIT:
        raise ExpressionError(f"has {len(text)} characters, and {EXPRESSION_LIMIT} are the limit")
    return Expression(text, _ExpressionParser(text, variable).whole())


class _ExpressionParser:
    """Reads one expression; each method reads a part, and returns a function that finds its value."""

    def __init__(self, text: str, variable: str) -> None:
        self._tokens = _tokens(text)
        self._at = 0
        self._names = [variable]
        self._depth = 0

    def whole(self) -> Value:
        value = self._choice()
        if self._at < len(self._tokens):
            raise self._unknown()
        return value

    def _choice(self) -> Value:
        self._depth += 1
        if self._depth > _DEPTH_LIMIT:
            raise ExpressionError(f"is nested more than {_DEPTH_LIMIT} times")
        condition = self._either()
        if self._takes("?"):
            first = self._choice()
            self._require(":")
            second = self._choice()
            condition = chosen(condition, first, second)
        self._depth -= 1
        return condition

    def _either(self) -> Value:
        value = self._both()
        while self._takes("||"):
            value = joined(value, self._both(), ends=True)
        return value

    def _both(self) -> Value:
        value = self._comparison()
        while self._takes("&&"):
            value = joined(value, self._comparison(), ends=False)
        return value

    def _comparison(self) -> Value:
        left = self._sum()
        for sign, compare in RELATIONS.items():
            if self._takes(sign):
                return applied(compare, left, self._sum())
        return left

    def _sum(self) -> Value:
        value = self._unary()
        while True:
            if self._takes("+"):
                value = applied(total, value, self._unary())
            elif self._takes("-"):
                value = applied(difference, value, self._unary())
            else:
                return value

    def _unary(self) -> Value:
        if self._takes("-"):
            return applied(negative, self._postfix())
        negations = 0
        while self._takes("!"):
            negations += 1
        value = self._postfix()
        if not negations:
            return value
        return applied(lambda found: boolean(found) ^ bool(negations % 2), value)

    def _postfix(self) -> Value:
        value = self._primary()
        while True:
            if self._takes("["):
                value = applied(member, value, self._choice())
                self._require("]")
            elif self._takes(".?"):
                value = applied(optional_member, value, constant(self._name()))
            elif self._takes("."):
                name = self._name()
                value = (
                    self._call(name, value) if self._takes("(") else applied(member, value, constant(name))
                )
            else:
                return value

    def _call(self, name: str, value: Value) -> Value:
        if name in QUANTIFIERS:
            return self._quantified(name, value)
        function, least, most = METHODS.get(name, (None, 0, 0))
        if function is not None:
            arguments = [value]
            while not self._takes(")"):
                if len(arguments) > 1:
                    self._require(",")
                arguments.append(self._choice())
            if not least <= len(arguments) - 1 <= most:
                raise ExpressionError(f"has {name}() with {len(arguments) - 1} arguments")
            return applied(function, *arguments)
        raise ExpressionError(f"has the function {name}, which Tower does not support")

    def _quantified(self, name: str, values: Value) -> Value:
        variable = self._name()
        self._require(",")
        self._names.append(variable)
        condition = self._choice()
        self._names.pop()
        self._require(")")

        def find(variables: Variables) -> Any:
            found = values(variables)
            if not isinstance(found, list):
                raise ExpressionError(f"{name} requires a list")
            return QUANTIFIERS[name](found, [condition({**variables, variable: each}) for each in found])

        return find

    def _primary(self) -> Value:
        if self._takes("("):
            value = self._choice()
            self._require(")")
            return value
        if self._takes("["):
            return self._list()
        kind, text = self._next()
        if kind == "text":
            return constant(text[1:-1])
        if kind == "number":
            return constant(int(text))
        if kind == "name" and text in _CONSTANTS:
            return constant(_CONSTANTS[text])
        if kind == "name" and text == "has" and self._takes("("):
            return self._has()
        if kind == "name" and text == "size" and self._takes("("):
            value = self._choice()
            self._require(")")
            return applied(size_of, value)
        if kind == "name" and text in self._names:
            return lambda variables: variables[text]
        self._at -= 1
        raise self._unknown()

    def _has(self) -> Value:
        start, value = self._at, self._postfix()
        self._require(")")
        if self._tokens[start][1] not in self._names or self._tokens[self._at - 3][1] != ".":
            raise ExpressionError("has() requires a field, such as has(claims.email)")

        def find(variables: Variables) -> bool:
            try:
                value(variables)
            except MissingField:
                return False
            return True

        return find

    def _list(self) -> Value:
        items: list[Value] = []
        while not self._takes("]"):
            items.append(self._choice())
            if not self._takes(","):
                self._require("]")
                break
        return lambda variables: [each(variables) for each in items]

    def _name(self) -> str:
        kind, text = self._next()
        if kind != "name":
            self._at -= 1
            raise self._unknown()
        return text

    def _takes(self, text: str) -> bool:
        if self._at < len(self._tokens) and self._tokens[self._at][1] == text:
            self._at += 1
            return True
        return False

    def _require(self, text: str) -> None:
        if not self._takes(text):
            raise self._unknown(f", where {text!r} is expected")

    def _next(self) -> tuple[str, str]:
        if self._at >= len(self._tokens):
            raise self._unknown()
        self._at += 1
        return self._tokens[self._at - 1]

    def _unknown(self, end: str = "") -> ExpressionError:
        if self._at >= len(self._tokens):
            return ExpressionError(f"ends too early{end}")
        return ExpressionError(f"has {self._tokens[self._at][1]!r}, which Tower does not support there{end}")


def _tokens(text: str) -> list[tuple[str, str]]:
    found, at = [], 0
    while text[at:].strip():
        match = _TOKEN.match(text, at)
        if match is None:
            raise ExpressionError(f"has {text[at:].strip()[:20]!r}, which Tower does not support")
        kind = match.lastgroup or ""
        found.append((kind, match[kind]))
        at = match.end()
    return found

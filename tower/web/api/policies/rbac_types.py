"""The check of the types in roles and bindings, so that further checks need not care."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from attrs import frozen

from tower.kube.status import StatusError

_Check: TypeAlias = Callable[[str, Any], None]


@frozen
class _Wrong(Exception):
    """A value of a wrong type."""

    where: str
    wanted: str


def check_types(kind: str, fields: Mapping[str, Any]) -> None:
    """Check the types in the *fields* of an object, whose names are known.

    :raise StatusError: one is wrong.
    """
    try:
        for key, value in fields.items():
            _CHECKS[key](key, value)
    except _Wrong as e:
        text = f"{kind} in version v1 cannot be handled as a {kind}: {e.where} must be {e.wanted}"
        raise StatusError(400, text) from None


def _text(where: str, value: Any) -> None:
    if not isinstance(value, str | None):
        raise _Wrong(where, "a string")


def _list(check: _Check) -> _Check:
    def checked(where: str, value: Any) -> None:
        if value is None:
            return
        if not isinstance(value, list):
            raise _Wrong(where, "a list")
        for number, each in enumerate(value):
            check(f"{where}[{number}]", each)

    return checked


def _object(check: _Check, **checks: _Check) -> _Check:
    def checked(where: str, value: Any) -> None:
        if value is None:
            return
        if not isinstance(value, dict):
            raise _Wrong(where, "an object")
        for key, part in value.items():
            checks.get(key, check)(f"{where}.{key}", part)

    return checked


def _strict(check: _Check) -> _Check:
    def checked(where: str, value: Any) -> None:
        if value is None:
            raise _Wrong(where, "an object")
        check(where, value)

    return checked


_TEXTS = _list(_strict(_text))
_STRINGS = _object(_strict(_text))
_SELECTOR = _object(
    _STRINGS, matchLabels=_STRINGS, matchExpressions=_list(_strict(_object(_text, values=_TEXTS)))
)
_CHECKS: dict[str, _Check] = {
    "rules": _list(_strict(_object(_TEXTS))),
    "subjects": _list(_strict(_object(_text))),
    "roleRef": _object(_text),
    "aggregationRule": _object(_list(_strict(_SELECTOR))),
}

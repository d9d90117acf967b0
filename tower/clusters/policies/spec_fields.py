"""Fields of the objects of policies.  Errors name the field, its value and the cure.  Sans-IO."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from tower.errors import Invalid
from tower.escaping import shortened

#: Most entries of a list.
ENTRY_LIMIT = 64

#: Longest name of a user, group or claim, characters.
NAME_LIMIT = 512


def read_object(value: Any, path: str) -> dict[str, Any]:
    """Return *value*, an object.

    :raise Invalid: it is another value.
    """
    if not isinstance(value, dict):
        raise Invalid(f"{path}: {shown(value)}: must be an object")
    return value


def read_list(value: Any, path: str, limit: int) -> Sequence[Any]:
    """Return *value*, a list of at most *limit* entries; none is an empty one."""
    if value is None:
        return ()
    if not isinstance(value, list):
        raise Invalid(f"{path}: {shown(value)}: must be a list")
    if len(value) > limit:
        raise Invalid(f"{path}: {len(value)} entries: at most {limit} are allowed; use more policies")
    return value


def read_name(value: Any, path: str) -> str:
    """Return *value*, the name of a user, group or claim."""
    if not (
        isinstance(value, str)
        and 0 < len(value) <= NAME_LIMIT
        and value.isprintable()
        and value == value.strip()
    ):
        raise Invalid(
            f"{path}: {shown(value)}: must be 1 to {NAME_LIMIT} printable characters, without blanks at the "
            "ends"
        )
    return value


def check_known(part: Mapping[str, Any], known: Collection[str], path: str) -> None:
    """Reject fields of *part* that are not in *known*: a misspelled one might have been a limit."""
    if unknown := sorted(map(str, set(part) - set(known))):
        raise Invalid(
            f"{path}.{shortened(unknown[0], 64)}: unknown; the fields are {', '.join(sorted(known))}"
        )


def either(names: Collection[str]) -> str:
    """Return *names* as ``a, b or c``."""
    *most, last = names
    return f"{', '.join(most)} or {last}"


def shown(value: Any) -> str:
    """Return *value* for an error."""
    return shortened(repr(value), 100)

"""Problems of an object's fields, with kube-apiserver's texts and causes."""

from __future__ import annotations

from collections.abc import Iterable

from attrs import frozen

from tower.escaping import quoted
from tower.kube.status import StatusError

#: Kinds of problems: the reason of a cause, and the beginning of the text.
REQUIRED, INVALID, UNSUPPORTED, FORBIDDEN = (
    ("FieldValueRequired", "Required value"),
    ("FieldValueInvalid", "Invalid value"),
    ("FieldValueNotSupported", "Unsupported value"),
    ("FieldValueForbidden", "Forbidden"),
)


@frozen
class FieldProblem:
    """One problem of an object: the field's path, the reason of a cause, and the text."""

    field: str
    reason: str
    text: str

    def __str__(self) -> str:
        return f"{self.field}: {self.text}"

    def as_cause(self) -> dict[str, str]:
        """Return its form in the details of a Status."""
        return {"reason": self.reason, "message": self.text, "field": self.field}


def field_problem(field: str, kind: tuple[str, str], detail: str, value: str | None = None) -> FieldProblem:
    """Return a problem.

    :param kind: `REQUIRED`, `INVALID`, `UNSUPPORTED` or `FORBIDDEN`.
    :param value: of the field, in JSON; None: the text has no value.
    """
    reason, text = kind
    parts = (text, *(() if value is None else (value,)), *((detail,) if detail else ()))
    return FieldProblem(field, reason, ": ".join(parts))


def unsupported_value(field: str, value: str, *supported: str) -> FieldProblem:
    """Return the problem of a field that has none of the *supported* values.

    :param value: of the field, in JSON.
    """
    names = ", ".join(map(quoted, supported))
    return field_problem(field, UNSUPPORTED, f"supported values: {names}", value)


def invalid_text(kind: str, name: str, problems: Iterable[FieldProblem]) -> str:
    """Return the message of the Status for an object with problems.

    :param kind: of the object, with its API group: ``Role.rbac.authorization.k8s.io``.
    """
    texts = list(dict.fromkeys(map(str, problems)))
    listed = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    return f"{kind} {quoted(name)} is invalid: {listed}"


def check_problems(kind: str, name: str, problems: Iterable[FieldProblem]) -> None:
    """Reject an object if it has problems.

    :param kind: as in `invalid_text`.
    :raise StatusError: 422, with a cause for each problem.
    """
    found = list(problems)
    if found:
        causes = [each.as_cause() for each in found]
        raise StatusError(422, invalid_text(kind, name, found), details={"causes": causes})

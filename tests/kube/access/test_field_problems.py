"""Tests of `tower.kube.access.field_problems`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tower.kube.access.field_problems import (
    REQUIRED,
    check_problems,
    field_problem,
    invalid_text,
    unsupported_value,
)
from tower.kube.status import StatusError

KIND = "Role.rbac.authorization.k8s.io"


class FieldProblemTests(SynchronousTestCase):
    """Texts and causes."""

    def test_text(self) -> None:
        """Several problems are listed in brackets, equal ones once."""
        name, kind = field_problem("name", REQUIRED, ""), unsupported_value("kind", '"x"', "User", "Group")
        text = 'kind: Unsupported value: "x": supported values: "User", "Group"'
        self.assertEqual(invalid_text(KIND, "r", [kind]), f'{KIND} "r" is invalid: {text}')
        both = invalid_text(KIND, "r", [name, kind, name])
        self.assertEqual(both, f'{KIND} "r" is invalid: [name: Required value, {text}]')

    def test_check(self) -> None:
        """An object with problems is rejected with a cause for each; one without is accepted."""
        check_problems(KIND, "r", [])
        with self.assertRaises(StatusError) as caught:
            check_problems(KIND, "r", iter([field_problem("verbs", REQUIRED, "give one")]))
        self.assertEqual(caught.exception.code, 422)
        cause = {"reason": "FieldValueRequired", "message": "Required value: give one", "field": "verbs"}
        self.assertEqual(caught.exception.details, {"causes": [cause]})

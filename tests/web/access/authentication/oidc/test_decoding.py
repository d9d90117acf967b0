"""Tests of `tower.web.access.authentication.oidc.decoding`."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tower.web.access.authentication.oidc.decoding import ListOf, Struct, check_strictly

INNER = Struct("Inner", {"text": str, "yes": bool, "many": ListOf(str)})
OUTER = Struct("Outer", {"inner": INNER, "list": ListOf(INNER)})


class DecodingTests(SynchronousTestCase):
    """Values and their types."""

    def test_good(self) -> None:
        """Null is the empty value of each type."""
        values: list[dict[str, Any]] = [
            {},
            {"inner": None, "list": None},
            {"inner": {"text": "a", "yes": True, "many": ["a", None]}, "list": [None, {}]},
        ]
        for value in values:
            check_strictly(value, OUTER)

    def test_errors(self) -> None:
        """The texts of Kubernetes' decoder."""
        errors: list[tuple[Any, str]] = [
            ({"inner": {"text": 7}}, "number into Go struct field Inner.inner.text of type string"),
            ({"inner": {"yes": "a"}}, "string into Go struct field Inner.inner.yes of type bool"),
            ({"inner": {"many": "a"}}, "string into Go struct field Inner.inner.many of type []string"),
            ({"inner": {"many": [{}]}}, "object into Go struct field Inner.inner.many of type string"),
            ({"list": {}}, "object into Go struct field Outer.list of type []v1.Inner"),
            ({"list": [1]}, "number into Go struct field Outer.list of type v1.Inner"),
            ([], "array into Go value of type v1.Outer"),
        ]
        for value, text in errors:
            error = self.assertRaises(ValueError, check_strictly, value, OUTER)
            self.assertEqual(str(error), f"json: cannot unmarshal {text}")

    def test_unknown(self) -> None:
        """All unknown fields are named."""
        error = self.assertRaises(ValueError, check_strictly, {"a": 1, "list": [{"b": 1}, {"c": 2}]}, OUTER)
        names = ", ".join(f'unknown field "{path}"' for path in ("a", "list[0].b", "list[1].c"))
        self.assertEqual(str(error), f"strict decoding error: {names}")

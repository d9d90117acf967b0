"""Tests for `tower.web.api.selectors`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tower.web.api.selectors import BadSelector, Selection, parse_fields, parse_labels

PROD = {"env": "prod", "example.com/team": "a"}


class LabelTests(SynchronousTestCase):
    """`parse_labels` accepts the syntax of kubectl -l."""

    def test_shapes(self) -> None:
        """Each operator, true and false."""
        for selector, expected in (
            ("env=prod", True),
            ("env==prod", True),
            ("env=test", False),
            ("env!=test", True),
            ("other!=x", True),
            ("env in (prod, test)", True),
            ("env notin (prod,test)", False),
            ("env", True),
            ("!env", False),
            ("! other", True),
            ("env=prod,example.com/team=a", True),
            (" env in (prod) , example.com/team != b ", True),
            ("env=prod,other", False),
            ("", True),
        ):
            got = all(holds(PROD) for holds in parse_labels(selector))
            self.assertEqual(got, expected, selector)

    def test_unreadable(self) -> None:
        """An invalid selector is rejected, never ignored."""
        for selector in ("env=a b", "env in prod", "=x", ",", "env=prod,,", "env in (a", "env > 3"):
            self.assertRaises(BadSelector, parse_labels, selector)


class FieldTests(SynchronousTestCase):
    """`parse_fields` accepts the syntax of kubectl --field-selector."""

    fields = {"metadata.name": lambda item: str(item["metadata"]["name"])}

    def test_name(self) -> None:
        """The name is supported, equal and not equal."""
        item = {"metadata": {"name": "alpha"}}
        for selector, expected in (
            ("metadata.name=alpha", True),
            ("metadata.name!=alpha", False),
            ("", True),
        ):
            selection = Selection({"fieldSelector": selector}, self.fields)
            self.assertEqual(selection.matches_fields(item), expected, selector)

    def test_others(self) -> None:
        """Another field or an invalid syntax is rejected."""
        for selector in ("spec.enable=true", "metadata.name", "metadata.name in (alpha)"):
            self.assertRaises(BadSelector, parse_fields, selector, self.fields)

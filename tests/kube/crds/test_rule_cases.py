"""Tests of the validation rules in `deploy/crds`; `tests.integration.test_kubernetes_store` applies them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.kube.crds.rule_cases import RULE_CASES
from tower.kube.crds.manifests import crds


class RuleTests(SynchronousTestCase):
    """The rules."""

    def test_tested(self) -> None:
        """Each rule has a case, which a real API server judges, and each case has a rule."""
        found = {
            (crd["spec"]["names"]["plural"], rule["message"])
            for crd in crds()
            for rule in _rules(crd["spec"])
        }
        self.assertEqual(found, {(case.plural, case.message) for case in RULE_CASES})

    def test_messages(self) -> None:
        """No two rules of a kind have the same message, which names the rule in a case."""
        for crd in crds():
            messages = [rule["message"] for rule in _rules(crd["spec"])]
            self.assertEqual(len(messages), len({*messages}), crd["metadata"]["name"])


def _rules(part: Any) -> Iterator[dict[str, str]]:
    """Yield the validation rules of a schema or a part of it."""
    if isinstance(part, list):
        for each in part:
            yield from _rules(each)
    elif isinstance(part, dict):
        yield from part.get("x-kubernetes-validations", ())
        for each in part.values():
            yield from _rules(each)

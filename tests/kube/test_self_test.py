"""Tests of `tower.kube.self_test`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

from twisted.trial.unittest import SynchronousTestCase

from tower import agent, proxy
from tower.errors import ConfigurationError
from tower.kube import head_policy
from tower.kube.head_fields import CheckedFields, Upstream
from tower.kube.head_policy import HeadPolicy, Refusal, Rewritten
from tower.kube.self_test import check_head_policy
from tower.kube.system_identities import SystemIdentities


class Everything(HeadPolicy):
    """Accepts all heads."""

    def rewrite(self, head: bytes) -> Rewritten | Refusal:
        """Take it."""
        return Rewritten(head)


class Nothing(HeadPolicy):
    """Rejects all heads."""

    def rewrite(self, head: bytes) -> Rewritten | Refusal:
        """Refuse it."""
        return Refusal("no")


class Forgetful(HeadPolicy):
    """Takes what it has seen before."""

    def __init__(self, upstream: Callable[[], Upstream]) -> None:
        super().__init__(upstream)
        self._seen: set[bytes] = set()

    def rewrite(self, head: bytes) -> Rewritten | Refusal:
        """Take it if it comes again."""
        again = head in self._seen
        self._seen.add(head)
        answer = super().rewrite(head)
        return Rewritten(head) if again and isinstance(answer, Refusal) else answer


def every_group(upstream: Callable[[], Upstream]) -> HeadPolicy:
    """Return a policy for which no identity is the system's."""
    return HeadPolicy(upstream, identities=SystemIdentities(allow_all=True))


def anybody(block: bytes, *rules: Any) -> CheckedFields:
    """Stand for a check that an interpreter got wrong."""
    lines = block.split(b"\r\n")[:-2]
    return CheckedFields(lines, [], [], upgrade=False)


class SelfTestTests(SynchronousTestCase):
    def test_good(self) -> None:
        """The policy as it is passes."""
        check_head_policy()

    def test_broken(self) -> None:
        """A policy that takes too much, too little, or another one the second time does not pass."""
        for make in (Everything, Nothing, Forgetful, every_group):
            error = self.assertRaises(ConfigurationError, check_head_policy, make)
            self.assertRegex(
                str(error), r"failed on Python 3\.\d+\.\d+.*run Tower on another build of Python"
            )

    def test_programs(self) -> None:
        """Neither program starts where the check is broken: it ends with one line and has touched nothing."""
        for name, module in (("tower-agent", agent), ("tower-proxy", proxy)):
            with patch.object(head_policy, "check_fields", anybody):
                error = self.assertRaises(SystemExit, module.makeService, {}, object())
            self.assertRegex(str(error), f"^{name}: the self-test of the request policy failed on Python ")
            self.assertNotIn("\n", str(error))

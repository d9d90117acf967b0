"""Tests of `tower.v1.neighbor`."""

from __future__ import annotations

import json
from typing import Any, cast

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.log_lines import logged_lines
from tower.kube.client import APIClient, APIError, APIResponse
from tower.v1.neighbor import OldAgentCheck


class FakeMember:
    """Answers every request alike."""

    def __init__(self, answer: APIResponse | None) -> None:
        self.answer = answer
        self.paths: list[str] = []
        self.closed = 0

    async def request(self, method: str, path: str) -> APIResponse:
        """Answer."""
        self.paths.append(f"{method} {path}")
        if self.answer is None:
            raise APIError(method, path, 0, "refused")
        return self.answer

    def close(self) -> None:
        """Count it."""
        self.closed += 1


class OldAgentCheckTests(SynchronousTestCase):
    """Tests of `OldAgentCheck`."""

    def warned(self, answer: APIResponse | None, hostname: str = "machine") -> bool:
        """Return whether the check logs a warning."""
        lines = logged_lines(self)
        member = FakeMember(answer)
        self.successResultOf(OldAgentCheck(Clock(), cast(APIClient, member), hostname).run())
        self.assertEqual(member.closed, len(member.paths))
        return any("an old agent next to this one" in line for line in lines)

    @staticmethod
    def deployment(spec: Any, **status: int) -> APIResponse:
        """Return the answer with a Deployment."""
        return APIResponse(200, json.dumps({"spec": spec, "status": status}).encode())

    def test_runs(self) -> None:
        """A Deployment with pods, or that will have some, is named with the command that stops it."""
        lines = logged_lines(self)
        self.assertTrue(self.warned(self.deployment({"replicas": 1}, replicas=1)))
        self.assertTrue(self.warned(self.deployment({"replicas": 0}, replicas=2)))
        self.assertTrue(self.warned(self.deployment({})))
        self.assertIn("kubectl -n kubesphere-system scale deployment cluster-agent --replicas=0", lines[0])

    def test_does_not_run(self) -> None:
        """A stopped Deployment, none, no right to read it and no answer cause no warning."""
        self.assertFalse(self.warned(self.deployment({"replicas": 0}, replicas=0)))
        for code in (404, 403, 401):
            self.assertFalse(self.warned(APIResponse(code, b'{"spec":{"replicas":3}}')))
        self.assertFalse(self.warned(None))
        for body in (b"", b"[]", b'{"spec":[]}', b'{"spec":{"replicas":"x"},"status":5}'):
            self.assertFalse(self.warned(APIResponse(200, body)))

    def test_repeated(self) -> None:
        """The same pods are warned of every ten minutes, and pods that come back at once."""
        lines = logged_lines(self)
        clock, member = Clock(), FakeMember(self.deployment({"replicas": 1}))
        check = OldAgentCheck(clock, cast(APIClient, member))
        counts = []
        for seconds in (0, 60, 539, 1, 60):
            clock.advance(seconds)
            self.successResultOf(check.run())
            counts.append(len(lines))
        self.assertEqual(counts, [1, 1, 1, 2, 2])
        member.answer = self.deployment({"replicas": 0})
        self.successResultOf(check.run())
        member.answer = self.deployment({"replicas": 1})
        self.successResultOf(check.run())
        self.assertEqual(len(lines), 3)

    def test_own_deployment(self) -> None:
        """An agent that is a pod of that Deployment is not warned about itself."""
        self.assertFalse(self.warned(self.deployment({"replicas": 1}), "cluster-agent-7d4b9c-x2x7q"))

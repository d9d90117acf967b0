"""Tests for `tower.doctor.agent_machine`; `tests.integration.test_doctor` has more of them."""

from __future__ import annotations

from pathlib import Path

from twisted.internet.defer import Deferred

from tests.doctor.kit import DoctorTestCase
from tests.fakes.certificates import NOW
from tower.doctor.agent_machine import examine_agent
from tower.doctor.findings import Finding
from tower.net.connecting import ConnectFailed


class AgentTests(DoctorTestCase):
    """An agent's options."""

    def look(self, *arguments: str, **environ: str) -> dict[str, Finding]:
        """Return the findings."""
        return self.found(examine_agent(self.network, arguments, environ, lambda: NOW))

    def test_options(self) -> None:
        """Invalid options are the only finding; the environment counts."""
        findings = self.look("--name", "alpha", "--host-key", "SHA256:" + "A" * 43)
        self.assertEqual(list(findings), ["options"])
        self.assertIn("--proxy-server is missing", self.failed(findings))
        self.assertIn("TOWER_NAMEE", self.failed(self.look(TOWER_NAMEE="x")))
        several = Deferred.fromCoroutine(examine_agent(self.network, [], {}, lambda: NOW))
        self.assertEqual(len(self.successResultOf(several)), 3)

    def test_courses(self) -> None:
        """Tunnel and API server are checked independently; a damaged key is named by its file."""
        state = Path(self.mktemp())
        words = ["--name", "alpha", "--proxy-server", "wss://tower.example:1", "--state-dir", str(state)]
        words += ["--host-key", "SHA256:" + "A" * 43, "--ca-hash", "sha256:" + "0" * 64]
        self.network.failures = {"tower.example": ConnectFailed("refused", "refused")}
        findings = self.look(*words, TOWER_TOKEN="tower-x")
        failed = [name for name, each in findings.items() if each.verdict.grade == "FAIL"]
        self.assertEqual(failed, ["connection", "access to the cluster"])
        self.assertIn("--kubeconfig FILE", findings["access to the cluster"].verdict.cure)
        self.assertEqual(findings["enrollment"].verdict.grade, "skip")
        state.mkdir(mode=0o700)
        (state / "agent-key").write_text("x")
        (state / "agent-key").chmod(0o600)
        self.assertIn(f"{state}/agent-key: not an unencrypted", self.look(*words)["agent key"].line)

"""Tests for `tower.doctor.agent_machine`; `tests.integration.test_doctor` has more of them."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred

from tests.doctor.kit import DoctorTestCase
from tests.fakes.certificates import NOW
from tests.fakes.ssh_pairs import AGENT_KEY
from tower.doctor import agent_machine
from tower.doctor.agent_machine import examine_agent
from tower.doctor.findings import Finding
from tower.kube.client import APIError
from tower.kube.member_status import MemberStatus
from tower.net.connecting import ConnectFailed


class FakeSecretAPI:
    """A client of an API server that has one Secret.

    :ivar entries: of the Secret; None: it does not exist.
    """

    def __init__(self) -> None:
        self.entries: dict[str, bytes] | None = None

    async def get(self, path: str) -> Any:
        """Return the Secret."""
        if self.entries is None:
            raise APIError("GET", path, 404, "not found")
        data = {name: base64.b64encode(content).decode() for name, content in self.entries.items()}
        return {"metadata": {"resourceVersion": "1"}, "data": data}

    def close(self) -> None:
        """No-op."""


class FakeChecker:
    """A checker that finds nothing."""

    async def check(self) -> MemberStatus:
        """Return that nothing is known."""
        return MemberStatus()


class AgentTests(DoctorTestCase):
    """An agent's options."""

    def look(self, *arguments: str, **environ: str) -> dict[str, Finding]:
        """Return the findings."""
        return self.found(examine_agent(self.network, arguments, environ, lambda: NOW))

    def test_options(self) -> None:
        """Invalid options are the only finding; the environment counts."""
        words = ["--name", "alpha", "--host-key", "SHA256:" + "A" * 43]
        findings = self.look(*words)
        self.assertEqual(list(findings), ["options"])
        self.assertIn("--proxy-server is missing", self.failed(findings))
        self.assertIn(
            "TOWER_NAMEE",
            self.failed(self.look(*words, "--proxy-server", "wss://tower.example:1", TOWER_NAMEE="x")),
        )
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

    def test_key_secret(self) -> None:
        """The key is read from its Secret, and nothing is written; a missing Secret has its cure."""
        folder = Path(self.mktemp())
        folder.mkdir()
        words = ["--name=alpha", "--proxy-server=wss://tower.example:1", "--key-secret=tower-system/key"]
        words += ["--host-key", "SHA256:" + "A" * 43, "--ca-hash", "sha256:" + "0" * 64]
        self.assertIn("KUBERNETES_SERVICE_HOST", self.look(*words)["agent key"].line)
        user = {"name": "u", "user": {"token": "s3cret"}}
        config = {
            "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": "https://member.example:6443"}}],
            "users": [user],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        }
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(json.dumps(config))
        words.append(f"--kubeconfig={kubeconfig}")
        api = FakeSecretAPI()
        self.patch(agent_machine, "create_client", lambda *_: api)
        self.patch(agent_machine, "create_checker", lambda *_, **__: FakeChecker())
        key = self.look(*words)["agent key"]
        self.assertIn("kubectl -n tower-system create secret generic key", key.verdict.cure)
        api.entries = {"agent-key": b"x"}
        self.assertIn(
            "Secret tower-system/key/agent-key: not an unencrypted", self.look(*words)["agent key"].line
        )
        api.entries = {"agent-key": AGENT_KEY.to_openssh()}
        findings = self.look(*words)
        self.assertNotIn("agent key", findings)
        self.assertNotIn("state directory", findings)
        self.assertIn("enrollment", findings)

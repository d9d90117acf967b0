"""Tests of `tower.member.member_access`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.agent_options import Unresolving
from tower.kube.apiserver import APIServer
from tower.kube.member_check import TIMEOUT
from tower.kube.member_cures import agent_texts
from tower.member.member_access import create_checker

NOW = 1_800_000_000.0


class AccessTests(SynchronousTestCase):
    def test_no_answer(self) -> None:
        """The checker uses the address and the credential of the kubeconfig, and leaves nothing open."""
        folder = Path(self.mktemp())
        folder.mkdir()
        path = folder / "kubeconfig"
        config = {
            "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": "https://member.example:6443"}}],
            "users": [{"name": "u", "user": {"token": "h.eyJleHAiOjE5MDAwMDAwMDB9.s"}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        }
        path.write_text(json.dumps(config))
        reactor: Any = MemoryReactorClock()
        self.patch(reactor, "nameResolver", Unresolving())
        server = APIServer.from_kubeconfig(str(path))
        checker = create_checker(
            reactor,
            reactor,
            server,
            agent_texts(str(path), server.access),
            epoch=lambda: NOW,
            impersonate=True,
        )
        checking = Deferred.fromCoroutine(checker.check())
        reactor.pump([TIMEOUT, 0.0])
        status = self.successResultOf(checking)
        self.assertEqual((status.api_server.status, status.api_server.reason), ("False", "Timeout"))
        self.assertIn("member.example:6443", status.api_server.message)
        self.assertEqual(status.credential_expires, 1_900_000_000.0)
        self.assertEqual(reactor.getDelayedCalls(), [])

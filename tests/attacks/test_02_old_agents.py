"""2: no user acts as the cluster itself through an agent of kubesphere-v1, with any credential."""

from __future__ import annotations

import json

from tests.attacks.head_server import NAMES
from tests.holes.case import OldAgentTestCase
from tests.holes.towerkit import AGENT_TOKEN, done, status_of
from tower.kube.status import StatusError


class OldAgentTests(OldAgentTestCase):
    """An old agent sends the proxy its credential, so it is the proxy that denies requests."""

    def test_credentials(self) -> None:
        """A credential with such a name, as user or as group, opens nothing; the answer names it."""
        agent = self.old()
        for name in (*NAMES, "tower:admins"):
            for user, groups in ((name, ["dev"]), ("jane", ["dev", name])):
                _, secret = done(self.tower.credentials.issue_token("alpha", user, groups, 60))
                answer = self.ask_alpha(b"Authorization: Bearer " + secret.encode())
                self.assertEqual(status_of(answer), 403, name)
                status = json.loads(answer.partition(b"\r\n\r\n")[2])
                self.assertIn(repr(name), status["message"])
                self.assertNotIn(AGENT_TOKEN.encode(), answer)
        self.assertEqual((agent.servers, agent.dialed), ([], []))
        self.ask_alpha(self.jane)
        self.assertIn(b"\r\nImpersonate-User: jane\r\n", agent.servers[0].taken())

    def test_heads(self) -> None:
        """If one passed, its head would not get the agent's credential."""
        self.old()
        (tunnel,) = self.tower.tunnels.live("alpha")
        rewrite = tunnel.rewrite_for("kubernetes")
        assert rewrite is not None
        for name in NAMES:
            for lines in (
                f"Impersonate-User: {name}\r\n",
                f"Impersonate-User: jane\r\nImpersonate-Group: dev\r\nImpersonate-Group: {name}\r\n",
            ):
                with self.assertRaises(StatusError) as caught:
                    rewrite(f"GET /api HTTP/1.1\r\n{lines}Host: x\r\n\r\n".encode(), False)
                self.assertEqual(caught.exception.code, 403)
                self.assertIn(f'not allow users to act as "{name}"', str(caught.exception))

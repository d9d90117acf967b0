"""Holes 9, 17, 18, 19, 21, 31 and 32, with agents of kubesphere-v1 at our proxy."""

from __future__ import annotations

import json
from typing import Any

from tests.fakes.gateway import get, ok
from tests.fakes.pipes import FakePipe
from tests.holes.case import OldAgentTestCase
from tests.holes.oldkit import SecureServer
from tests.holes.towerkit import status_of

SWITCHED = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n"


class RequestTests(OldAgentTestCase):
    """Holes 9, 17, 18, 19, 21 and 32: requests."""

    def assert_reported(self, answer: bytes, code: int, text: str) -> None:
        """Assert that *answer* is a Status with that code and text."""
        self.assertEqual(status_of(answer), code, answer)
        self.assertIn(text, json.loads(answer.partition(b"\r\n\r\n")[2])["message"])

    def test_hole_09_and_18_an_api_server_that_is_not_reached(self) -> None:
        """Holes 9 and 18: an old agent accepts before it dials; that it did not reach anything is a 503."""
        agent = self.old()

        def refuse() -> Any:
            raise ConnectionRefusedError

        agent.reach = refuse
        self.assert_reported(self.ask_alpha(self.jane), 503, "could not connect")
        self.assertEqual(agent.dialed, ["10.96.0.1:443"])

    def test_hole_09_an_api_server_that_is_another(self) -> None:
        """Hole 9: a certificate for another name is a 503 with the reason; nothing was sent to it."""
        agent = self.old()
        agent.reach = lambda: SecureServer("10.96.0.99")
        self.assert_reported(self.ask_alpha(self.jane), 503, "certificate")
        self.assertEqual(agent.servers[0].taken(), b"")

    def test_hole_09_an_answer_that_breaks(self) -> None:
        """Hole 9: a connection lost before its answer is a 502, one lost within it a cut."""
        agent = self.old()
        user = self.tower.user(6000)
        self.tower.ask(user, get(b"/api", self.jane))
        agent.servers[0].lose()
        self.tower.pump()
        self.assert_reported(user.taken(), 502, "alpha")
        self.tower.ask(user, get(b"/api", self.jane))
        agent.servers[1].deliver(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        agent.servers[1].lose()
        self.tower.pump()
        self.assertTrue(user.taken().endswith(b"half"))
        self.assertTrue(user.lost)

    def test_hole_17_the_tail_after_a_half_close(self) -> None:
        """Hole 17: an old agent ends both directions at the first end, so the user's is held back."""
        agent = self.old()
        user = self.tower.user(6000)
        self.tower.ask(user, get(b"/exec", self.jane, b"Connection: Upgrade", b"Upgrade: SPDY/3.1"))
        server = agent.servers[0]
        server.deliver(SWITCHED)
        self.tower.pump()
        self.assertEqual(status_of(user.taken()), 101)
        server.taken()
        user.deliver(b"stdin")
        user.end()
        self.tower.pump()
        self.assertEqual((server.taken(), server.finished, server.lost), (b"stdin", True, False))
        server.deliver(b"o" * 300_000)
        self.tower.pump()
        self.assertEqual(user.taken(), b"o" * 300_000)

    def test_hole_19_the_port_that_old_agents_leave_out(self) -> None:
        """Hole 19: their default for KubeSphere has no port; the proxy adds port 80, which answers."""
        agent = self.old()
        agent.reach = FakePipe
        user = self.tower.user()
        self.tower.ask(user, get(b"/clusters/alpha/targets/kubesphere/kapis", self.jane))
        self.assertEqual(agent.dialed, ["ks-apiserver.kubesphere-system.svc:80"])
        agent.servers[0].deliver(ok())
        self.tower.pump()
        self.assertEqual(status_of(user.taken()), 200)

    def test_hole_21_parallel_requests_find_a_connection(self) -> None:
        """Hole 21: channels and the TLS in them are kept: 96 requests, 32 at once, 32 handshakes."""
        agent = self.old()
        users = [self.tower.user(6000) for _ in range(32)]
        for _ in range(3):
            for user in users:
                user.deliver(get(b"/api", self.jane))
            self.tower.pump()
            for server in agent.servers:
                server.deliver(ok())
            self.tower.pump()
            self.assertEqual([status_of(user.taken()) for user in users], [200] * 32)
        self.assertEqual(len(agent.dialed), 32)

    def test_hole_31_a_line_end_behind_the_token(self) -> None:
        """Hole 31: an old agent sends the token file unchanged; the line end is not part of the token."""
        agent = self.old(bearer=b"word\r\n\n")
        self.ask_alpha(self.jane)
        self.assertEqual(agent.servers[0].taken().count(b"\r\nAuthorization: Bearer word\r\n"), 1)

    def test_hole_31_an_invalid_token(self) -> None:
        """Hole 31: an invalid token is refused when the agent registers, not at each request."""
        agent = self.old(bearer=b"two words")
        self.assertIn("bearer token", agent.refused or "")
        self.assertTrue(agent.gone)

    def test_hole_32_a_handshake_that_never_ends(self) -> None:
        """Hole 32: a silent address behind an old agent is a 504 after 10 s."""
        agent = self.old()
        agent.reach = FakePipe
        user = self.tower.user(6000)
        self.tower.ask(user, get(b"/api", self.jane))
        self.tower.sweep(9)
        self.assertEqual(user.taken(), b"")
        self.tower.sweep(2)
        self.assertEqual(status_of(user.taken()), 504)

    def test_hole_32_no_answer(self) -> None:
        """Hole 32: an API server that answers nothing is a 504 after two minutes."""
        agent = self.old()
        user = self.tower.user(6000)
        self.tower.ask(user, get(b"/api", self.jane))
        self.tower.sweep(122)
        self.assertEqual(status_of(user.taken()), 504)
        self.assertTrue(agent.servers[0].lost)

"""Tests of tower.v2.hello."""

from __future__ import annotations

import json

from twisted.trial.unittest import SynchronousTestCase

from tower.conch.transport.fields import Malformed
from tower.v2.hello import LONGEST_HELLO, AgentHello, ProxyHello


class HelloTests(SynchronousTestCase):
    """Both hellos."""

    def test_round_trip(self) -> None:
        """Each hello is decoded as it was encoded."""
        agent = AgentHello("1.2", "host-0", ("kubernetes", "db"), ("x",), "10.0.0.1:6443/k8s")
        proxy = ProxyHello("1.2", ("x",), ("wss://p:1",), ("SHA256:abc",), 10.0)
        self.assertEqual(AgentHello.decode(agent.encode()), agent)
        self.assertEqual(ProxyHello.decode(proxy.encode()), proxy)

    def test_names(self) -> None:
        """The keys are those of docs/protocol."""
        self.assertEqual(
            set(json.loads(AgentHello().encode())), {"version", "name", "targets", "capabilities", "server"}
        )
        self.assertEqual(
            set(json.loads(ProxyHello().encode())),
            {"version", "capabilities", "proxies", "hostKeys", "caHashes", "keepalive"},
        )

    def test_unknown_and_missing(self) -> None:
        """Unknown keys are ignored, and missing ones have a default."""
        self.assertEqual(AgentHello.decode(b'{"future": [1, {}]}'), AgentHello())
        self.assertEqual(ProxyHello.decode(b"{}"), ProxyHello())

    def test_malformed(self) -> None:
        """A text that is not a JSON object, or has another type under a known key, is rejected."""
        for text in (
            b"",
            b"[]",
            b"{",
            b"\xff\xfe",
            b"[" * 5000,
            b'{"version": 1}',
            b'{"version": "%b"}' % (b"v" * 257),
            b'{"version": "line\\nbreak"}',
            b'{"capabilities": "x"}',
            b'{"capabilities": [1]}',
            json.dumps({"capabilities": ["x"] * 257}).encode(),
            b'{"version": "%b"}' % (b" " * LONGEST_HELLO),
        ):
            with self.assertRaises(Malformed):
                AgentHello.decode(text)
            with self.assertRaises(Malformed):
                ProxyHello.decode(text)
        for value in ("true", '"10"', "-1", "1e9", "NaN", "Infinity", "[]", "null"):
            with self.assertRaises(Malformed):
                ProxyHello.decode(b'{"keepalive": %b}' % value.encode())

"""Holes 3, 4, 6, 11, 12, 16, 17, 18 and 23, with our agent at a proxy of kubesphere-v1."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.testing import MemoryReactorClock
from twisted.logger import capturedLogs, eventAsText
from twisted.python.failure import Failure
from twisted.python.usage import UsageError

from tests.fakes.agent_options import FINGERPRINT, Unresolving
from tests.fakes.receivers import Recorder
from tests.fakes.v1_proxies import refusal
from tests.holes.machinekit import Line
from tests.holes.oldproxykit import (
    SWITCHED,
    TOKEN,
    MemoryV1Agent,
    OldProxyTestCase,
    kubeconfig_with,
)
from tests.holes.towerkit import GOODBYE, KEEPALIVE
from tower.agent import Agent, makeService
from tower.errors import StreamRefused
from tower.net.connecting import ConnectFailed

KUBERNETES = "10.0.0.1:6443"


class TrustTests(OldProxyTestCase):
    """Holes 3, 4 and 6: the credentials of an old proxy, and their use."""

    def test_hole_03_credentials_for_unknown_proxies_only_on_request(self) -> None:
        """Hole 3: the agent gives nothing to a proxy without a known key, unless it is set explicitly."""
        for arguments in ([], ["--protocol=v1"], ["--protocol=v2"]):
            self.assertIn("key", str(self.assertRaises(UsageError, self.parsed, *arguments)))
        self.assertFalse(self.parsed(f"--host-key={FINGERPRINT}").may_speak_v1)
        self.assertTrue(self.parsed("--insecure-v1-any-host-key").may_speak_v1)
        self.assertRaises(UsageError, self.parsed, "--insecure-v1-any-host-key", f"--host-key={FINGERPRINT}")

    def test_hole_03_another_key(self) -> None:
        """Hole 3: with a key that is known, another proxy gets neither password, token nor credential."""
        agent = self.agent(pinned=(FINGERPRINT,))
        self.assertIn("not your proxy", agent.service.state)
        self.assertEqual((self.proxy.end.shown, self.proxy.end.requests), ([], []))

    def test_hole_03_and_06_the_log(self) -> None:
        """Holes 3 and 6: the agent logs a warning about its credentials, without their values."""
        folder = Path(self.mktemp()).absolute()
        folder.mkdir()
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(json.dumps(kubeconfig_with({"token": "s3cret-of-the-agent"})))
        options = self.parsed(
            "--insecure-v1-any-host-key",
            "--protocol=v1",
            f"--kubeconfig={kubeconfig}",
            f"--state-dir={folder / 'state'}",
        )
        reactor: Any = MemoryReactorClock()
        self.patch(reactor, "nameResolver", Unresolving())
        with capturedLogs() as events:
            agent = makeService(options, reactor)
            assert isinstance(agent, Agent)
            agent.startService()
        self.successResultOf(agent.stopService())
        text = "\n".join(map(eventAsText, events))
        self.assertIn("sends its credential for the API server (a bearer token) to the proxy", text)
        loud = [eventAsText(e) for e in events if e["log_level"].name == "critical"]
        self.assertEqual(len(loud), 1, loud)
        self.assertIn("--insecure-v1-any-host-key", loud[0])
        for secret in (TOKEN, "s3cret-of-the-agent"):
            self.assertNotIn(secret, text + repr(events))

    def test_hole_04_an_old_proxy_names_no_address(self) -> None:
        """Hole 4: an old proxy gets the two addresses that were registered, and no other."""
        agent = self.agent()
        for address in (
            "127.0.0.1:22",
            "169.254.169.254:80",
            "10.0.0.1:6444",
            "10.0.0.1:06443",
            "kubernetes",
            "x" * 3000,
            "",
        ):
            self.failureResultOf(self.proxy.open(address), StreamRefused)
        for kind in (b"direct-tcpip", b"session", b"stream@tower.kubesphere.io"):
            self.failureResultOf(self.proxy.open(KUBERNETES, kind), StreamRefused)
        self.assertEqual(agent.dialed, [])
        self.successResultOf(self.proxy.open(KUBERNETES))
        self.successResultOf(self.proxy.open("ks-apiserver:80"))
        self.assertEqual(agent.dialed, [("10.0.0.1", 6443), ("ks-apiserver", 80)])


class StreamTests(OldProxyTestCase):
    """Holes 17 and 18: streams that an old proxy opens."""

    def test_hole_17_the_tail_after_a_half_close(self) -> None:
        """Hole 17: our agent passes each end on by itself, so no tail is lost on its side."""
        agent = self.agent()
        channel = self.successResultOf(self.proxy.open(KUBERNETES))
        receiver = Recorder()
        channel.receiver = receiver
        channel.resume()
        channel.send(b"query")
        channel.finish()
        self.proxy.pump()
        (server,) = agent.servers
        self.assertEqual((server.taken(), server.finished, server.closing), (b"query", True, False))
        server.deliver(b"a" * 300_000)
        server.end()
        self.proxy.pump()
        self.assertEqual(bytes(receiver.got), b"a" * 300_000)
        self.assertIn("ended", receiver.log)

    def test_hole_18_open_means_reached(self) -> None:
        """Hole 18: the old proxy's channel opens when the target has answered, and fails if it does not."""
        agent = self.agent()
        dialing: Deferred[Any] = Deferred()
        agent.reach = lambda: dialing
        opening = self.proxy.open(KUBERNETES)
        self.assertNoResult(opening)
        dialing.errback(Failure(ConnectFailed("refused", "10.0.0.1:6443: connection refused")))
        self.proxy.pump()
        self.assertIn("connection refused", str(self.failureResultOf(opening, StreamRefused).value))


class LifeTests(OldProxyTestCase):
    """Holes 11, 12 and 16: an old proxy that is silent, refuses, or is something else."""

    def test_hole_11_a_stopped_proxy_is_noticed(self) -> None:
        """Hole 11: an old proxy that answers no ping any more is left within three of them."""
        agent = self.agent()
        self.proxy.wait(60)
        self.assertEqual(agent.tries, 1)
        for line in self.proxy.lines:
            line.frozen = True
        self.proxy.wait(int(3 * KEEPALIVE) + GOODBYE)
        self.assertEqual((agent.tries, agent.service.state), (2, "connected"))

    def test_hole_12_a_refused_agent_closes(self) -> None:
        """Hole 12: old proxies leave a refused connection open, so the agent closes it, each time."""
        self.proxy.reply = refusal(b"Unauthorized agent")
        agent = MemoryV1Agent(self.proxy)
        agent.start()
        self.assertEqual((agent.tries, self.proxy.lines), (1, []))
        self.proxy.wait(120)
        self.assertGreater(agent.tries, 10)
        self.assertIn("Unauthorized agent", agent.service.state)
        self.assertEqual(self.proxy.lines, [])
        agent.service.stopService()
        self.assertEqual(self.proxy.clock.getDelayedCalls(), [])

    def test_hole_12_and_23_no_answer_to_the_config(self) -> None:
        """Holes 12 and 23: an old proxy that stays silent about the config is left after 10 s."""
        self.proxy.reply = None
        agent = self.agent()
        self.proxy.wait(9)
        self.assertEqual((agent.tries, agent.service.state), (1, "connecting"))
        (first, _) = self.proxy.lines
        with capturedLogs() as events:
            self.proxy.wait(2)
        logged = "\n".join(map(eventAsText, events))
        self.assertIn("did not answer the registration within 10 s", logged)
        self.assertTrue(first.gone)

    def test_hole_16_no_handshake_error_ends_the_agent(self) -> None:
        """Hole 16: after any failure before the registration the agent tries again, until it succeeds."""
        agent = MemoryV1Agent(self.proxy)
        self.addCleanup(agent.service.stopService)
        played = ["lost", "rejected", "no SSH", "refused"]
        serve = self.proxy._serve

        def served(near: Line) -> None:
            play = played.pop(0) if played else ""
            self.proxy.reply = refusal(b"certificate has expired") if play == "refused" else (81, b"")
            if play == "lost":
                near.lose()
                return
            if play == "no SSH":
                near.send(SWITCHED + b"\x82\x07goodbye")
                near.close()
                return
            serve(near)
            if play == "rejected":
                self.proxy.end.lets_in = False

        self.patch(self.proxy, "_serve", served)
        agent.start()
        self.proxy.wait(20)
        self.assertEqual((agent.gave_up, agent.service.state, played), (0, "connected", []))
        self.assertEqual(agent.tries, 5)

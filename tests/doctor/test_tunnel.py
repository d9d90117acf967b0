"""Tests for `tower.doctor.tunnel`."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from tests.doctor.kit import SERVING, DoctorTestCase
from tests.fakes.certificates import NOW
from tests.fakes.pipes import FakePipe
from tests.fakes.receivers import Recorder
from tests.fakes.ssh_pairs import AGENT_KEY, HOST_KEY, Ends, Gate
from tests.fakes.tunnels import FakeSSHTunnel
from tower.clusters.agent_rejection import DISABLED, REVOKED, AgentRejected
from tower.conch.transport.keys import KeyPair
from tower.doctor import tunnel
from tower.doctor.findings import Course, Finding
from tower.doctor.route import ServerRoute, Trust
from tower.doctor.tunnel import KeyProbe, TunnelChecks
from tower.net.proxy_environment import parse_server_url
from tower.v2.peers import HostKeyMismatch
from tower.v2.transport import ServerTransport
from tower.websocket.dialer import DialFailed, SubprotocolRefused

PINNED = {HOST_KEY.fingerprint}


class ProbeTests(DoctorTestCase):
    """The probe against the proxy's end, in memory."""

    def setUp(self) -> None:
        """Make a gatekeeper."""
        super().setUp()
        self.gate = Gate()

    def connect(self, pinned: set[str], key: KeyPair | None) -> KeyProbe:
        """Return a probe after the handshake."""
        self.gate.enrolled.add(("alpha", AGENT_KEY.fingerprint))
        clock = Clock()
        probe = KeyProbe(clock, pinned, "alpha", key)
        self.server = ServerTransport(clock, [HOST_KEY], self.gate)
        self.ends = Ends(self.server, probe)
        self.ends.connect()
        self.addCleanup(self.server.ready.addErrback, lambda _: None)
        self.addCleanup(self.ends.lose)
        return probe

    def test_enrolled(self) -> None:
        """An enrolled key is accepted, and the proxy never sees a hello."""
        probe = self.connect(PINNED, AGENT_KEY)
        self.assertTrue(self.successResultOf(probe.ready))
        self.assertEqual(probe.seen, HOST_KEY.fingerprint)
        self.assertNoResult(self.server.ready)

    def test_not_enrolled(self) -> None:
        """An unknown key is rejected, and no join token is used."""
        probe = self.connect(PINNED, KeyPair.generate())
        self.assertFalse(self.successResultOf(probe.ready))
        self.assertEqual(probe.notice, "")
        self.assertEqual([question[0] for question in self.gate.asked], ["key"])

    def test_notice(self) -> None:
        """The reason for which an enrolled key is rejected is kept."""
        self.gate.rejection = AgentRejected(DISABLED, "the cluster is disabled")
        probe = self.connect(PINNED, AGENT_KEY)
        self.assertFalse(self.successResultOf(probe.ready))
        self.assertEqual(probe.notice, DISABLED)

    def test_without_key(self) -> None:
        """Without a key, only the host key is verified."""
        self.assertFalse(self.successResultOf(self.connect(PINNED, None).ready))
        self.assertEqual(self.gate.asked, [])

    def test_other_host_key(self) -> None:
        """Another host key is an error before authentication."""
        probe = self.connect({"SHA256:other"}, AGENT_KEY)
        self.failureResultOf(probe.ready, HostKeyMismatch)
        self.assertEqual(probe.seen, HOST_KEY.fingerprint)
        self.assertEqual(self.gate.asked, [])


class ChecksTests(DoctorTestCase):
    """The checks of a tunnel."""

    def setUp(self) -> None:
        """Replace the dialer and the handshake."""
        super().setUp()
        self.error: Exception | None = None
        self.accepted: bool | Exception = True
        self.notice = ""
        self.protocols: list[str] = []
        self.probes: list[KeyProbe] = []
        self.tunnels: list[FakeSSHTunnel] = []
        test = self

        class Dialing:
            """A dialer of `FakePipe`s."""

            def __init__(self, *_: object, **__: object) -> None:
                pass

            async def dial(self, protocol: str) -> tuple[Any, bytes]:
                test.protocols.append(protocol)
                if test.error is not None:
                    raise test.error
                pipe = FakePipe()
                pipe.receiver = Recorder()
                return pipe, b""

        def make(_: object, __: object, probe: KeyProbe) -> FakeSSHTunnel:
            self.probes.append(probe)
            self.tunnels.append(FakeSSHTunnel())
            return self.tunnels[-1]

        def start(_: object, __: object, ready: object, ___: object) -> Deferred[bool]:
            self.probes[-1].notice = self.notice
            done: Deferred[bool] = Deferred()
            if isinstance(self.accepted, Exception):
                done.errback(self.accepted)
            else:
                done.callback(self.accepted)
            return done

        self.patch(tunnel, "Dialer", Dialing)
        self.patch(tunnel, "tunnel_to_proxy", make)
        self.patch(tunnel, "start", start)

    def look(
        self, key: KeyPair | None = AGENT_KEY, *, has_token: bool = False, is_v1: bool = False
    ) -> dict[str, Finding]:
        """Return the findings."""
        url = parse_server_url("wss://tower.example:8443")
        route = ServerRoute(self.network, url, {}, Trust([SERVING.hash]), lambda: NOW)
        checks = TunnelChecks(route, "alpha", PINNED, key, has_token, is_v1)
        return self.found(Course(checks.steps()).run())

    def test_sound(self) -> None:
        """An enrolled agent has no failure."""
        findings = self.look()
        self.assertEqual(self.grades(findings), {"ok"})
        self.assertIn(
            f"key {AGENT_KEY.fingerprint} is enrolled for cluster alpha", findings["enrollment"].line
        )
        self.assertEqual(self.protocols, ["tower-v2", "tower-v2"])
        self.assertEqual([each.calls for each in self.tunnels], [["close"], ["close"]])

    def test_websocket(self) -> None:
        """A refused upgrade, and a server that is not a Tower proxy, have different cures."""
        for error, cure in (
            (DialFailed("cannot open a tunnel: HTTP status 502"), "pass WebSocket upgrades"),
            (SubprotocolRefused("cannot open a tunnel: HTTP status 404"), "tower join alpha"),
        ):
            self.error = error
            line = self.failed(self.look())
            self.assertIn("WebSocket: cannot open a tunnel: HTTP status", line)
            self.assertIn(cure, line)

    def test_host_key(self) -> None:
        """Another host key is named with the option that would accept it."""
        self.accepted = HostKeyMismatch("SHA256:other", PINNED)
        line = self.failed(self.look())
        self.assertIn(f"host key: the proxy's host key is SHA256:other, not {HOST_KEY.fingerprint}", line)
        self.assertIn("--host-key SHA256:other", line)

    def test_enrolment(self) -> None:
        """A key that is not enrolled is a failure, unless the agent has a token."""
        self.accepted = False
        self.assertIn("is not enrolled for cluster alpha -> run 'tower join alpha'", self.failed(self.look()))
        self.assertEqual(self.look(has_token=True)["enrollment"].verdict.grade, "warn")
        self.assertIn("neither a key nor a join token", self.failed(self.look(None)))
        self.assertEqual(self.look(None, has_token=True)["enrollment"].verdict.grade, "ok")

    def test_notices(self) -> None:
        """A disabled cluster and a revoked key are named, with their cures, also with a token."""
        self.accepted = False
        name = f"key {AGENT_KEY.fingerprint}"
        for notice, text, cure in (
            (DISABLED, f"{name} is enrolled, but cluster alpha is disabled", "tower cluster enable alpha"),
            (REVOKED, f"{name} was revoked for cluster alpha", "tower join alpha"),
        ):
            self.notice = notice
            for has_token in (True, False):
                line = self.failed(self.look(has_token=has_token))
                self.assertIn(f"enrollment: {text}", line)
                self.assertIn(cure, line)

    def test_v1(self) -> None:
        """An agent of kubesphere-v1 has neither key."""
        self.assertEqual(list(self.look(is_v1=True)), ["WebSocket"])
        self.assertEqual(self.protocols, ["kubesphere-v1"])

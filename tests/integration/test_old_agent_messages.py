"""Messages of agents of ``kubesphere-v1``, valid or not, and their effects, which others do not notice."""

from __future__ import annotations

import contextlib
import json
import re
import threading
import time
from collections.abc import Callable

from attrs import evolve
from twisted.conch.ssh.common import NS
from twisted.trial.unittest import SynchronousTestCase

from tests.integration.asking import Asking
from tests.integration.neighbours import Neighbour, Pings
from tests.integration.old_tower import old_tower
from tests.integration.old_users import HalfClosing, Reading
from tests.integration.programs import LOOPBACK, wait_for
from tests.integration.raw_old_agent import (
    ACCEPTED,
    GLOBAL_REQUEST,
    REFUSED,
    RawOldAgent,
    RawServer,
    authenticated_agent,
)
from tests.integration.raw_peer import CLOSE, CONFIRM, OPEN, REFUSE, Gone, number
from tower.v1.config import CHANNEL, CONFIG, LONGEST_CONFIG, PING, AgentConfig

MIB = 2**20
LATE = 4.0  # s after which a config comes; an agent has ten
HANDSHAKE = 10.0  # s that a handshake with an API server may take
SOON = 8.0  # s in which a failed connection is closed; that must not wait for the limit of configs

SECRET = "s3cret-of-no-agent"


class OldAgentTestCase(SynchronousTestCase):
    """An agent of beta by hand; alpha has one of Go, whose users may notice nothing."""

    def setUp(self) -> None:
        """Begin to watch."""
        self.old = old_tower()
        self.tower = self.old.tower
        self.proxy = self.tower.proxy
        if not self.old.agents:
            agent = self.old.agent()
            agent.program.start()
            agent.wait_until_ready()
        (self.agent,) = self.old.agents
        self.neighbour, self.victim = (
            self.tower.person("alpha", "jane", "--via", "port"),
            self.tower.person("beta", "joe", "--via", "port"),
        )
        self.before = len(self.proxy.output())
        watching = Neighbour(Pings(self.neighbour), self.proxy)
        watching.__enter__()
        self.addCleanup(self._judge, watching)

    def _judge(self, watching: Neighbour) -> None:
        watching.__exit__(None, None, None)
        self.assertTrue(self.proxy.running(), self.proxy.tail())
        self.assertEqual(self.agent.connections(), 1)
        self.assertNotIn("Traceback", self.logged())
        self.assertNotIn(SECRET, self.logged())
        self.assertEqual(self.old.leaks(), [])

    def logged(self) -> str:
        """Return the proxy's log since the test began."""
        return self.proxy.output()[self.before :]

    def peer(self) -> RawOldAgent:
        """Return an authenticated agent, before its config."""
        peer = authenticated_agent(self.tower.port)
        self.addCleanup(peer.close)
        return peer

    def registered(self, peer: RawOldAgent | None = None, config: AgentConfig | None = None) -> RawOldAgent:
        """Return an agent of beta that is registered."""
        peer = peer or self.peer()
        self.assertEqual(peer.register(config or self.old.config()), bytes((ACCEPTED,)))
        return peer

    def assertRefused(self, answer: bytes, peer: RawOldAgent) -> str:
        """An answer is a refusal with a text, and the connection is closed; return the text."""
        self.assertEqual(answer[0], REFUSED)
        self.assertNotEqual(answer[1:], b"")
        self.assertLess(peer.seconds_until_closed(), SOON)
        return answer[1:].decode()

    def assertLogged(self, pattern: str) -> None:
        """A log line about a rejected agent, or about a tunnel of beta's, matches."""
        wait_for(f"the line {pattern!r}", lambda: re.search(pattern, self.logged()))

    def asked(self, peer: RawOldAgent, method: str = "GET", size: int = 0) -> tuple[Asking, RawServer]:
        """Send a request as joe; return it, and the API server of the channel that is opened for it."""
        asking = Asking(self.victim, method, size)
        self.addCleanup(asking.close)
        return asking, self.server(peer)

    def server(self, peer: RawOldAgent, clients: str = "") -> RawServer:
        """Return the API server of the next channel."""
        return RawServer(peer, self.old.folder / "backend.crt", self.old.folder / "backend.key", clients)

    def assertServes(self, peer: RawOldAgent, body: bytes = b"ok") -> None:
        """A request goes through an agent."""
        asking, server = self.asked(peer)
        server.shake()
        fields = server.request().split(b"\r\n")
        self.assertIn(b"Authorization: Bearer " + self.old.bearer.read_bytes().strip(), fields)
        self.assertIn(b"Impersonate-User: joe", fields)
        server.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        self.assertEqual(asking.answer(), 200)
        self.assertTrue(asking.body == body)
        asking.close()


class ConfigTests(OldAgentTestCase):
    """Its config."""

    def test_silent(self) -> None:
        """A silent agent, at any point, is dropped after ten seconds; a late config is in time."""
        silent, late = RawOldAgent(self.tower.port), self.peer()
        mute, half, chatty = RawOldAgent(self.tower.port), self.peer(), self.peer()
        self.addCleanup(silent.close)
        self.addCleanup(mute.close)
        mute.frame(b"SSH-kubesphere-v1-client\r\n")
        packet = half.ssh.sealer.seal(
            bytes((GLOBAL_REQUEST,)) + NS(CONFIG) + b"\1" + self.old.config().encode()
        )
        half.frame(packet[: len(packet) // 2])
        began = time.monotonic()
        while time.monotonic() - began < LATE:
            chatty.say(b"\x02" + NS(b"wait for me"))
            time.sleep(0.5)
        self.registered(late)
        for peer in (silent, mute, half, chatty):
            with contextlib.suppress(Gone):
                peer.end()
        self.assertServes(late)
        reason = "was rejected: not authenticated within 10 s"
        wait_for(f"four times {reason!r}", lambda: self.logged().count(reason) == 4)

    def test_garbage(self) -> None:
        """An invalid config is answered with an error, closed, and not shown."""
        good = json.loads(self.old.config().encode())

        def with_(**changes: object) -> bytes:
            return json.dumps({**good, **changes}).encode()

        cases: dict[bytes, str] = {
            b"": "not JSON",
            b"\xff\xfe\0" + SECRET.encode(): "not JSON",
            b'{"Token": "' + SECRET.encode(): "not JSON",
            b"[" * 200_000: "not JSON",
            b'["' + SECRET.encode() + b'"]': "not a JSON object",
            with_(Token=7): "Token",
            with_(Name=["beta"]): "Name",
            with_(Name="be\nta"): "Name",
            with_(Version="x" * 2000): "Version",
            with_(BearerToken=SECRET + "!"): "BearerToken is not base64",
            with_(BearerToken="dHdvIHdvcmRz"): "bearer token",
            with_(CAData="bm8gUEVN"): "certificate authority",
            with_(CertData="bm8gUEVN"): "CertData without KeyData",
            with_(KeyData="bm8gUEVN"): "KeyData without CertData",
            with_(CertData="bm8gUEVN", KeyData="bm8gUEVN"): "client certificate",
            with_(KubernetesSvcHost="http://x/"): "KubernetesSvcHost",
            with_(KubernetesSvcHost=""): "KubernetesSvcHost",
            with_(Filler="x" * (LONGEST_CONFIG - 1000)): "exceeds the limit",
        }
        for data, text in cases.items():
            peer = self.peer()
            self.assertIn(text, self.assertRefused(peer.register(data), peer))
            peer.close()

    def test_long(self) -> None:
        """A config of 8 MiB is not waited for; one of 200 KiB is taken."""
        peer = self.peer()
        peer.frame(number(8 * MIB) + bytes(100_000))
        self.assertLess(peer.seconds_until_closed(), SOON)
        self.assertLogged("was rejected: .*8388608|was rejected: .*packet")
        good = self.old.config()
        count = 150_000 // len(good.authority)
        self.assertServes(self.registered(config=evolve(good, authority=good.authority * count)))

    def test_spelling(self) -> None:
        """Keys in other case, unknown keys, and null are read as Go reads them."""
        words = json.loads(self.old.config().encode())
        for spell in (str.lower, str.upper, str.swapcase):
            spelt = {spell(key): value for key, value in words.items()}
            peer = self.peer()
            answer = peer.register(
                json.dumps(
                    {**spelt, "CertData": None, "keydata": None, "More": {"a": [1]}}, indent=1
                ).encode()
            )
            self.assertEqual(answer, bytes((ACCEPTED,)))
            self.assertServes(peer)
            peer.close()

    def test_second(self) -> None:
        """A second config is refused, with any content, and ends the tunnel: it must not change anything."""
        for config in (self.old.config(), self.old.config("alpha"), b"{}"):
            peer = self.registered()
            self.assertIn("already", self.assertRefused(peer.register(config), peer))
            peer.close()

    def test_another_first(self) -> None:
        """An agent that begins with another request gets an error; one that begins with a channel is cut."""
        for name in (PING, b"keepalive@openssh.com", b"drain@tower.kubesphere.io", b""):
            peer = self.peer()
            peer.ask(name)
            self.assertEqual(self.assertRefused(peer.answered(), peer), "expecting config request")
        for payload in (
            bytes((OPEN,)) + NS(CHANNEL) + number(1, MIB, MIB) + b"127.0.0.1:22",
            bytes((CONFIRM,)) + number(0, 0, MIB, MIB),
        ):
            peer = self.peer()
            peer.say(payload)
            self.assertLess(peer.seconds_until_closed(), SOON)

    def test_alike(self) -> None:
        """Wrong token, no token, unknown and disabled cluster and another's token look alike."""
        good = self.old.config()
        seen = set()
        for config in (
            evolve(good, token="wrong" * 9),
            evolve(good, token=""),
            evolve(good, name="nobody"),
            evolve(good, name=""),
            evolve(good, name="../beta"),
            evolve(good, name="alpha"),
        ):
            peer = self.peer()
            seen.add((self.assertRefused(peer.register(config), peer), peer.reason))
            peer.close()
        self.assertEqual(seen, {("Unauthorized agent", "Unauthorized agent")})
        self.assertLogged("unknown cluster")
        self.assertLogged("unknown token")


class MessageTests(OldAgentTestCase):
    """How its bytes may come."""

    def test_text(self) -> None:
        """Text messages are treated as binary ones, and the log reports it."""
        peer = RawOldAgent(self.tower.port)
        self.addCleanup(peer.close)
        peer.text = True
        peer.authenticate()
        self.assertServes(self.registered(peer))
        self.assertLogged("sends text messages")

    def test_go(self) -> None:
        """Messages of 4,096 bytes in frames of 1,024, pings in between, from the first byte on."""
        peer = RawOldAgent(self.tower.port)
        self.addCleanup(peer.close)
        peer.go = True
        peer.authenticate()
        self.assertServes(self.registered(peer), b"go" * 200_000)

    def test_new_keys(self) -> None:
        """Keys that change in the middle of an answer, from either side's wish, change no byte."""
        peer = self.registered()
        asking, server = self.asked(peer)
        server.shake()
        server.request()
        half = b"half of it" * 20_000
        server.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (2 * len(half), half))
        peer.rekey()
        server.send(half)
        self.assertEqual((asking.answer(), asking.body == 2 * half), (200, True))

    def test_ping(self) -> None:
        """Its pings only get successes; unknown requests are refused without a text."""
        peer = self.registered()
        for _ in range(3):
            peer.ask(PING)
            self.assertEqual(peer.answered(), bytes((ACCEPTED,)))
        for name in (b"keepalive@openssh.com", b"tcpip-forward"):
            peer.ask(name)
            self.assertEqual(peer.answered(), bytes((REFUSED,)))


class ServerTests(OldAgentTestCase):
    """Bytes from its target."""

    def test_ends(self) -> None:
        """An answer that lasts until the end is whole after close_notify, and cut without it (hole 17)."""
        body = b"to the end" * 10_000
        for ends in (True, False):
            peer = self.registered()
            reading = Reading(self.victim)
            server = self.server(peer)
            server.shake()
            server.request()
            server.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + body)
            if ends:
                server.end()
            server.close()
            self.assertTrue(reading.all().endswith(b"\r\n\r\n" + body))
            self.assertEqual(reading.was_cut, not ends)
            peer.close()

    def test_half_close(self) -> None:
        """A user who ends their side still gets the data in transit and the later answer (hole 17)."""
        peer = self.registered()
        user = HalfClosing(self.victim)
        self.addCleanup(user.close)
        user.send(b"GET /api HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
        server = self.server(peer)
        server.shake()
        server.request()
        server.send(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
        user.until(b"\r\n\r\n")
        user.send(b"that is all")
        user.end()
        got = b""
        while data := server.read():
            got += data
        self.assertEqual(got, b"that is all")
        answer = b"then this is, too" * 30_000
        server.send(answer)
        server.end()
        server.close()
        self.assertTrue(user.rest() == answer)

    def test_certificate(self) -> None:
        """A client certificate is shown to the API server, and no bearer token with it."""
        certificate, key, der = self.old.pair
        peer = self.registered(config=evolve(self.old.config(), certificate=certificate, key=key))
        asking = Asking(self.victim)
        self.addCleanup(asking.close)
        server = self.server(peer, certificate.decode())
        server.shake()
        self.assertNotIn(b"\r\nAuthorization:", server.request())
        self.assertEqual(server.shown(), der)
        server.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        self.assertEqual(asking.answer(), 200)

    def test_early_answer(self) -> None:
        """An answer that comes before the upload is through reaches the user (hole 9)."""
        peer = self.registered()
        asking, server = self.asked(peer, "PUT", 64 * MIB)
        server.shake()
        server.request()
        server.send(
            b"HTTP/1.1 507 Insufficient Storage\r\nContent-Length: 4\r\nConnection: close\r\n\r\nfull"
        )
        server.end()
        server.close()
        self.assertEqual((asking.answer(), asking.body), (507, b"full"))

    def test_not_reached(self) -> None:
        """Unreachable targets and targets without TLS are reported (holes 9 and 18)."""

        def closes(peer: RawOldAgent, server: RawServer) -> None:
            server.close()

        def is_http(peer: RawOldAgent, server: RawServer) -> None:
            peer.data(server.remote, b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request\n")

        def breaks_off(peer: RawOldAgent, server: RawServer) -> None:
            peer.data(server.remote, b"\x16\x03\x03\x00\x80")
            server.close()

        cases: dict[Callable[[RawOldAgent, RawServer], None], str] = {
            closes: "could not connect",
            is_http: "wrong version number",
            breaks_off: "closed during the TLS handshake",
        }
        for act, text in cases.items():
            peer = self.registered()
            asking, server = self.asked(peer)
            act(peer, server)
            self.assertEqual(asking.answer(), 503)
            self.assertIn(text, json.loads(asking.body)["message"])
            peer.close()

    def test_wrong_certificate(self) -> None:
        """A server whose certificate the agent's authority did not sign does not get a credential."""
        peer = self.registered(config=evolve(self.old.config(), kubernetes="10.0.0.1:6443"))
        asking, server = self.asked(peer)
        self.assertEqual(server.target, b"10.0.0.1:6443")
        with contextlib.suppress(Exception):
            server.shake()
        self.assertEqual(asking.answer(), 503)
        self.assertIn("certificate verify failed", json.loads(asking.body)["message"])

    def test_silent_server(self) -> None:
        """One that never gets to the end of the handshake costs its user ten seconds, no more (hole 32)."""
        peer = self.registered()
        asking, server = self.asked(peer)
        began = time.monotonic()
        with contextlib.suppress(Gone, TimeoutError):
            while not asking.status and time.monotonic() - began < 3 * HANDSHAKE:
                peer.ask(PING)
                peer.answered()
                threading.Event().wait(0.2)
        # 503 if the proxy's check of the API server ended before
        self.assertIn(asking.status, (503, 504))
        self.assertEqual(server.target, f"{LOOPBACK}:6443".encode())


class FloodTests(OldAgentTestCase):
    """Too much of it."""

    def test_opens(self) -> None:
        """Every channel that it opens is refused (hole 4); it is dropped if it ignores the refusals."""
        peer = self.registered()
        for kind, target in ((CHANNEL, b"127.0.0.1:22"), (b"direct-tcpip", NS(b"x"))):
            opening = bytes((OPEN,)) + NS(kind) + number(1, MIB, MIB) + target
            for _ in range(20):
                peer.say(*[opening] * 20)
                for _ in range(20):
                    self.assertEqual(peer.next(REFUSE)[5:9], number(1))
        self.assertServes(peer)
        self.assertFalse(peer.storm(opening, 400_000))
        peer.close()
        self.assertLogged("agent of beta at .* disconnected: .*does not read the replies to its requests")

    def test_requests(self) -> None:
        """More than so many global requests at once are too many, before the config and after it."""
        for registered in (False, True):
            for name in (PING, b"tcpip-forward", CONFIG):
                peer = self.registered() if registered else self.peer()
                peer.storm(bytes((GLOBAL_REQUEST,)) + NS(name) + b"\0", 1000, 100)
                self.assertLess(peer.seconds_until_closed(), SOON)
                peer.close()

    def test_pings(self) -> None:
        """An agent that pings forever and does not read the pongs is dropped."""
        peer = self.registered()
        pings = b"".join(peer.writer.wrap(b"x" * 125, 9) for _ in range(500))
        peer.flood(pings for _ in range(2000))
        peer.close()
        self.assertLogged("agent of beta at .* disconnected: .*does not read the replies to its requests")

    def test_closed_at_once(self) -> None:
        """Channels that are closed as soon as they open end each request, and nothing more."""
        peer = self.registered()
        for _ in range(20):
            asking, server = self.asked(peer)
            server.close()
            self.assertEqual(asking.answer(), 503)
            peer.next(CLOSE)
        self.assertServes(peer)

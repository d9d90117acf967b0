"""Tests of `tower.v1.client`."""

from __future__ import annotations

from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from twisted.conch.ssh.common import NS
from twisted.conch.ssh.keys import Key
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.ssh_pairs import Mux, Pair, Wire
from tests.fakes.v1_proxies import ACCEPTED, ECDSA_KEY, EMPTY_FAILURE, OLD_KEY, OldProxyEnd, Reply, refusal
from tower.conch.connection.global_requests import MSG_REQUEST_FAILURE, MSG_REQUEST_SUCCESS
from tower.conch.connection.liveness import PeerDead
from tower.conch.transport.keys import KeyPair
from tower.errors import PeerError
from tower.v1.client import (
    CONFIG_TIMEOUT,
    RegistrationRefused,
    RegistrationUnanswered,
    V1ClientTransport,
)
from tower.v1.config import AgentConfig
from tower.v2.peers import HostKeyMismatch

CONFIG = AgentConfig(
    version="1", name="alpha", token="t0ken-of-alpha", kubernetes="10.0.0.1:6443", bearer=b"b3arer-of-alpha"
)


class AnyKind:
    """A key with any signature algorithm.

    :param blob: its public key blob.
    """

    def __init__(self, key: Key, blob: bytes | None = None) -> None:
        self._key = key
        self._blob = blob

    def blob(self) -> bytes:
        """See Key."""
        blob: bytes = self._key.blob()
        return self._blob or blob

    def sign(self, data: bytes, signatureType: bytes) -> bytes:
        """See Key."""
        signature: bytes = self._key.sign(data)
        return signature


class OldPair(Pair):
    """An old proxy's end and ours, connected."""

    def __init__(
        self,
        reply: Reply = ACCEPTED,
        *,
        key: Key | KeyPair | None = None,
        pinned: tuple[str, ...] | None = None,
        keepalive: float = 10.0,
    ) -> None:
        super().__init__()
        self.proxy = OldProxyEnd(self.clock, reply, *([] if key is None else [key]))
        self.agent = V1ClientTransport(self.clock, CONFIG, pinned, keepalive=keepalive)
        self.agent.connection.mux = Mux()
        self.ends = (self.proxy, self.agent)
        self.up: list[str] = []
        self.failure: Exception | None = None
        self.agent.ready.addCallbacks(self.up.append, self._failed)
        self.agent.lost.addCallback(self._note, self.agent)
        self.proxy.lost.addCallback(self._note, self.proxy)

    def _failed(self, failure: Any) -> None:
        self.failure = failure.value


class V1ClientTests(SynchronousTestCase):
    def pair(self, reply: Reply = ACCEPTED, **options: Any) -> OldPair:
        """Return two ends that have talked."""
        pair = OldPair(reply, **options)
        pair.connect()
        return pair

    def failed(self, pair: OldPair, kind: type[Exception]) -> str:
        """Return why there is no tunnel; nothing may be left."""
        assert isinstance(pair.failure, kind), pair.failure
        self.assertEqual(pair.up, [])
        pair.lose()
        self.assertEqual(pair.clock.getDelayedCalls(), [])
        self.assertNotIn(CONFIG.token, str(pair.failure))
        self.assertNotIn("b3arer", str(pair.failure))
        return str(pair.failure)

    def test_up(self) -> None:
        """With an ECDSA host key, an empty password and a config the tunnel is up."""
        pair = self.pair()
        self.assertEqual(pair.up, [pair.proxy.fingerprint])
        self.assertEqual(pair.proxy.requests, [(b"config", CONFIG.encode())])
        self.assertEqual(
            pair.proxy.shown, [NS(b"") + NS(b"ssh-connection") + NS(b"password") + b"\0" + NS(b"")]
        )
        self.assertEqual(pair.proxy.otherVersionString, b"SSH-kubesphere-v1-client")
        self.assertEqual(pair.agent.otherVersionString, b"SSH-kubesphere-v1-server")

    def test_cipher(self) -> None:
        """The first cipher offered is aes128-gcm."""
        self.assertEqual(V1ClientTransport.supportedCiphers[0], b"aes128-gcm@openssh.com")

    def test_ed25519(self) -> None:
        """A proxy may have an ed25519 key as well."""
        self.assertEqual(self.pair(key=OLD_KEY).up, [OLD_KEY.fingerprint])

    def test_pinned(self) -> None:
        """A pinned key is the only one that is taken, and no other proxy gets the config."""
        for key in (None, OLD_KEY):
            good = OldPair(key=key)
            pair = self.pair(key=key, pinned=(good.proxy.fingerprint,))
            self.assertEqual(len(pair.up), 1)
            pair = self.pair(key=key, pinned=("SHA256:" + "A" * 43,))
            self.assertIn("--host-key", self.failed(pair, HostKeyMismatch))
            self.assertEqual((pair.proxy.shown, pair.proxy.requests), ([], []))

    def test_other_key(self) -> None:
        """A key of a type that was not negotiated is rejected."""
        for agreed, key in ((OLD_KEY, ECDSA_KEY), (None, OLD_KEY.conch_key)):
            pair = OldPair(key=agreed)
            pair.proxy._key = AnyKind(key)
            pair.connect()
            self.failed(pair, PeerError)
            self.assertEqual(pair.proxy.requests, [])

    def test_forged(self) -> None:
        """A proxy that shows a key which it does not hold is refused."""
        for key, other in (
            (None, Key(ec.generate_private_key(ec.SECP256R1()))),
            (OLD_KEY, KeyPair.generate()),
        ):
            pair = OldPair(key=key)
            shown = pair.proxy._key
            pair.proxy._key = AnyKind(other.conch_key if isinstance(other, KeyPair) else other, shown.blob())
            pair.connect()
            self.assertIn("did not sign", self.failed(pair, PeerError))

    def test_version(self) -> None:
        """Any SSH- line is accepted as a version, as deployed agents do; other lines are not."""
        for line, good in (
            (b"SSH-2.0-Go", True),
            (b"SSH-x", True),
            (b"HTTP/1.1 400", False),
            (b"SSH-", False),
        ):
            pair = OldPair()
            pair.proxy.ourVersionString = line
            pair.connect()
            self.assertEqual((line, bool(pair.up)), (line, good))

    def test_replies(self) -> None:
        """A reply with a text is a rejection; one without text, of either kind, is not."""
        for reply in (ACCEPTED, EMPTY_FAILURE):
            self.assertEqual(len(self.pair(reply).up), 1)
        for reply, text in (
            (refusal(b"Unauthorized agent"), '(the proxy reports: "Unauthorized agent")'),
            (refusal(b"expecting config request"), '(the proxy reports: "expecting config request")'),
            ((MSG_REQUEST_SUCCESS, b"but not today"), '(the proxy reports: "but not today")'),
            (refusal(b"\0\1\2"), '(the proxy reports: "[3 B, not text]")'),
            (refusal(b"two\nlines\x1b[2J"), '(the proxy reports: "twolines[2J")'),
        ):
            pair = self.pair(reply)
            self.assertIn(text, self.failed(pair, RegistrationRefused))
            self.assertEqual(str(pair.proxy.reason), 'the peer reports: "not registered"')

    def test_bounded(self) -> None:
        """A long text is cut, and one with our secrets in it is not shown."""
        text = self.failed(self.pair(refusal(b"x" * 200_000)), RegistrationRefused)
        self.assertLess(len(text), 400)
        for secret in (b"why t0ken-of-alpha?", CONFIG.encode(), b"b3arer-of-alpha"):
            self.assertIn("redacted", self.failed(self.pair(refusal(secret)), RegistrationRefused))

    def test_disconnect(self) -> None:
        """The text of a proxy that disconnects is redacted too."""
        pair = OldPair(reply=None)
        pair.connect()
        pair.proxy.fail(PeerError("t0ken-of-alpha is bad"))
        pair.pump()
        self.assertIn("redacted", self.failed(pair, PeerError))
        pair = OldPair(reply=None)
        pair.connect()
        pair.proxy.fail(PeerError("too many agents"))
        pair.pump()
        self.assertIn("too many agents", self.failed(pair, PeerError))

    def test_silent(self) -> None:
        """A proxy that does not answer the config is given up after ten seconds; the text has the reason."""
        pair = self.pair(None)
        pair.clock.advance(CONFIG_TIMEOUT - 0.1)
        self.assertIsNone(pair.failure)
        pair.clock.advance(0.2)
        pair.pump()
        self.assertIn("within 10 s", self.failed(pair, RegistrationUnanswered))

    def test_slow_handshake(self) -> None:
        """A proxy that sends nothing is given up after ten seconds."""
        pair = OldPair()
        pair.agent.makeConnection(Wire())
        pair.clock.advance(10.1)
        pair.agent.connectionLost(None)
        self.assertIsInstance(pair.failure, PeerError)
        self.assertEqual(pair.clock.getDelayedCalls(), [])

    def test_not_let_in(self) -> None:
        """A server that requires more than an empty password is not an old proxy."""
        pair = OldPair()
        pair.proxy.lets_in = False
        pair.connect()
        self.assertIn("not a proxy of kubesphere-v1", self.failed(pair, RegistrationRefused))
        self.assertEqual(pair.proxy.requests, [])

    def test_early_channels(self) -> None:
        """A proxy may open channels before it answers the config, but not before authentication."""
        pair = OldPair()
        mux = Mux()
        pair.agent.connection.mux = None
        pair.agent.on_admitted = lambda: setattr(pair.agent.connection, "mux", mux)
        pair.proxy.before_reply = lambda: pair.proxy.sendPacket(90, b"channel")
        pair.connect()
        self.assertEqual((len(pair.up), mux.got), (1, [(90, b"\x5achannel")]))

    def test_pings(self) -> None:
        """It is probed by ping, one at a time, with each keepalive interval."""
        pair = self.pair()
        for _ in range(5):
            pair.clock.advance(10)
            pair.pump()
        self.assertEqual(set(pair.proxy.requests[1:]), {(b"ping", b"")})
        self.assertGreaterEqual(len(pair.proxy.requests), 5)
        self.assertIsNotNone(pair.agent.round_trip)

    def test_one_ping_at_a_time(self) -> None:
        """As long as one is not answered there is no other, even if the proxy sends something else."""
        pair = self.pair()
        pair.proxy.answers_pings = False
        for _ in range(5):
            pair.clock.advance(10)
            pair.proxy.sendPacket(90, b"channel")
            pair.pump()
        self.assertEqual([name for name, _ in pair.proxy.requests], [b"config", b"ping"])

    def test_dead(self) -> None:
        """A proxy that stopped is noticed within three intervals."""
        pair = self.pair()
        pair.proxy.answers_pings = False
        for _ in range(3):
            pair.clock.advance(10)
        pair.pump()
        self.assertIsInstance(pair.lost[pair.agent], PeerDead)

    def test_requests(self) -> None:
        """Requests of an old proxy are refused, as deployed agents do, within the rate limit."""
        pair = self.pair()
        answers: list[int] = []
        pair.proxy.connection._replied = lambda kind, packet: answers.append(kind)  # type: ignore[method-assign]
        for name in (b"config", b"keepalive@openssh.com", b"drain@tower.kubesphere.io", b"tcpip-forward"):
            pair.proxy.sendPacket(80, NS(name) + b"\1")
        pair.pump()
        self.assertEqual(answers, [MSG_REQUEST_FAILURE] * 4)

    def test_flood(self) -> None:
        """A flood of requests ends the connection."""
        pair = self.pair()
        for _ in range(300):
            pair.proxy.sendPacket(80, NS(b"x") + b"\0")
        pair.pump()
        self.assertIn("too many", str(pair.lost[pair.agent]))

    def test_drain(self) -> None:
        """No drain message is sent to an old proxy, which does not know it."""
        pair = self.pair()
        pair.agent.drain()
        pair.pump()
        self.assertEqual(len(pair.proxy.requests), 1)

    def test_rekey(self) -> None:
        """Keys are changed by either side."""
        pair = self.pair()
        for end in (pair.proxy, pair.agent):
            end.start_rekey()
            pair.pump()
        self.assertEqual(pair.lost, {})
        pair.clock.advance(10)
        pair.pump()
        self.assertEqual(pair.proxy.requests[-1][0], b"ping")

"""Tests of tower.conch.transport.transport: packets, key exchange, limits and the end of a connection."""

from __future__ import annotations

import gc
import random
import weakref
from collections.abc import Callable

from twisted.conch.ssh.common import NS
from twisted.conch.ssh.transport import DISCONNECT_TOO_MANY_CONNECTIONS
from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.ssh_pairs import HOST_KEY, Gate, Mux, Pair, Wire, raiser
from tower.conch.transport.ciphers import CIPHERS
from tower.conch.transport.kex import STRICT_CLIENT, make_kexinit
from tower.conch.transport.limits import (
    EXCHANGE_WORTH,
    EXCHANGES_A_SECOND,
    EXCHANGES_AT_ONCE,
    Closed,
    Disconnected,
    HandshakeTimeout,
    TooManyConnections,
    TransportLimits,
)
from tower.conch.transport.packets import LONGEST_PACKET, BadPacket, ClearSealer, PacketTooLong
from tower.conch.transport.transport import SecureTransport
from tower.errors import PeerError
from tower.v2.transport import ServerTransport

VERSION = b"SSH-2.0-Test\r\n"
DATA = 94


def kexinit(*markers: bytes) -> bytes:
    """Return a KEXINIT that suits the server."""
    return make_kexinit(
        [b"curve25519-sha256", *markers], [b"ssh-ed25519"], list(CIPHERS), [b"hmac-sha2-256"], [b"none"]
    )


class Raw:
    """A server whose client is written by hand."""

    def __init__(self, limits: TransportLimits | None = None, *, connect: bool = True) -> None:
        self.clock = Clock()
        self.server = ServerTransport(self.clock, [HOST_KEY], Gate(), limits=limits)
        self.server.ready.addErrback(lambda _: None)
        self.wire = Wire()
        self.sealer = ClearSealer(0)
        if connect:
            self.server.makeConnection(self.wire)

    def send(self, *payloads: bytes) -> None:
        """Send messages in the clear."""
        for payload in payloads:
            self.server.dataReceived(self.sealer.seal(payload))

    @property
    def reason(self) -> str | None:
        """Why the server closed, or None while it has not."""
        if not self.wire.disconnecting:
            return None
        reasons: list[Exception] = []
        self.server.lost.addCallback(reasons.append)
        self.server.connectionLost()
        return str(reasons[0])


class VersionTests(SynchronousTestCase):
    """The version lines."""

    def test_any_split(self) -> None:
        """Lines and packets do not depend on how the network cut the stream."""
        for cut in (1, 2, 3, 5, 16, 17, 1000):
            pair = Pair()
            pair.cut = cut
            pair.connect()
            self.assertEqual(pair.lost, {})
            self.successResultOf(pair.server.ready)
            self.successResultOf(pair.client.ready)

    def test_ours(self) -> None:
        """Our version line is the first thing we send."""
        self.assertTrue(Raw().wire.value().startswith(b"SSH-2.0-Tower_"))

    def test_accepted(self) -> None:
        """A bare LF, comments and 1.99 are accepted."""
        for line in (b"SSH-2.0-x\n", b"SSH-2.0-x y z\r\n", b"SSH-1.99-x\r\n"):
            raw = Raw()
            raw.server.dataReceived(line)
            self.assertEqual(raw.server.otherVersionString, line.rstrip())
            self.assertIsNone(raw.reason)

    def test_refused(self) -> None:
        """Other protocols, old versions, control characters and long lines end the connection."""
        for line in (
            b"GET / HTTP/1.1\r\n",
            b"SSH-1.5-x\r\n",
            b"SSH-2.0-\r\n",
            b"SSH-2.0-a\x1b[m\r\n",
            b"SSH-2.0-a\0b\r\n",
            b"SSH-2.0-" + b"x" * 250 + b"\r\n",
            b"x" * 256,
            b"SSH-2.0-" + b"x" * 300,
        ):
            raw = Raw()
            raw.server.dataReceived(line)
            self.assertIn("SSH version", raw.reason or "")

    def test_preface(self) -> None:
        """A server may send other lines before its version, up to a limit."""
        pair = Pair()
        for end in pair.ends:
            end.makeConnection(Wire())
        pair.client.dataReceived(b"welcome\r\nto the ssh-\r\n")
        pair.pump()
        self.assertEqual(pair.lost, {})
        pair = Pair()
        for end in pair.ends:
            end.makeConnection(Wire())
        for _ in range(5):
            pair.client.dataReceived(b"x" * 900 + b"\r\n")
        self.assertTrue(pair.wire(pair.client).disconnecting)


class StrictTests(SynchronousTestCase):
    """Strict key exchange (Terrapin)."""

    def test_both_announce_it(self) -> None:
        """Two Towers do it: the sequence numbers begin again with each key."""
        pair = Pair()
        pair.connect()
        numbers = []
        for _ in range(2):
            pair.server.start_rekey()
            pair.pump()
            numbers.append([sealer.sequence for end in pair.ends for sealer in (end.sealer, end.opener)])
        self.assertEqual(numbers, [[0, 0, 0, 0]] * 2)

    def test_a_packet_before(self) -> None:
        """A packet in front of a strict KEXINIT ends the connection."""
        raw = Raw()
        raw.server.dataReceived(VERSION)
        raw.send(b"\2" + NS(b"x"), kexinit(STRICT_CLIENT))
        self.assertIn("20", raw.reason or "")

    def test_a_packet_within(self) -> None:
        """So does one inside the exchange."""
        for stray in (b"\2" + NS(b"x"), b"\3\0\0\0\0", b"\4\0" + NS(b"") + NS(b""), b"\x5ex", b"\7\0\0\0\0"):
            raw = Raw()
            raw.server.dataReceived(VERSION)
            raw.send(kexinit(STRICT_CLIENT), stray)
            self.assertIn("is not allowed now", raw.reason or "")

    def test_without(self) -> None:
        """A peer without it may ignore, and its sequence numbers go on."""
        raw = Raw()
        raw.server.dataReceived(VERSION)
        raw.send(b"\2" + NS(b"x"), kexinit(), b"\2" + NS(b"x"))
        self.assertIsNone(raw.reason)
        raw.send(b"\x1e" + NS(b"\x09" + bytes(31)))
        self.assertEqual(raw.server.sealer.sequence, 3)

    def test_only_once(self) -> None:
        """The marker is announced in the first KEXINIT alone."""
        pair = Pair()
        pair.connect()
        said = b"".join(data for end, data in pair.carried if end is pair.server)
        self.assertIn(b"kex-strict-s", said)
        pair.server.start_rekey()
        self.assertNotIn(b"kex-strict", pair.server.ourKexInitPayload)


class KexTests(SynchronousTestCase):
    """Key exchanges, the first and the later ones."""

    def test_every_combination(self) -> None:
        """Each exchange works with each cipher, through several changes of keys."""
        for exchange in SecureTransport.supportedKeyExchanges:
            for cipher in CIPHERS:
                pair = Pair()
                pair.client.supportedKeyExchanges = [exchange]
                pair.client.supportedCiphers = [cipher]
                pair.connect()
                for end in (*pair.ends, *pair.ends):
                    end.start_rekey()
                    pair.pump()
                self.assertEqual((pair.lost, pair.server.kexAlg), ({}, exchange))

    def test_a_cipher_for_each_direction(self) -> None:
        """The lists of the two directions are independent, and the client's order counts."""
        pair = Pair()
        pair.client.supportedCiphers = list(reversed(CIPHERS))
        pair.connect()
        self.assertEqual(type(pair.client.sealer).__name__, "ChaChaSealer")
        self.assertEqual(type(pair.server.sealer).__name__, "ChaChaSealer")

    def test_nothing_in_common(self) -> None:
        """Without a common algorithm both ends get the reason."""
        for name in ("supportedKeyExchanges", "supportedCiphers", "supportedMACs", "supportedPublicKeys"):
            pair = Pair()
            setattr(pair.client, name, [b"other"])
            pair.connect()
            self.assertIn("couldn't match", " ".join(map(str, pair.lost.values())))

    def test_both_at_once(self) -> None:
        """Both sides may begin in the same moment."""
        pair = Pair()
        pair.connect()
        before = [end.sealer for end in pair.ends]
        for end in pair.ends:
            end.start_rekey()
        pair.pump()
        self.assertEqual(pair.lost, {})
        for end, sealer in zip(pair.ends, before, strict=True):
            self.assertIsNot(end.sealer, sealer)
            self.assertFalse(end.in_key_exchange)

    def test_by_bytes(self) -> None:
        """Enough bytes in either direction change the keys, counted by either end."""
        for sender in (0, 1):
            for counter in (0, 1):
                pair = Pair()
                limits = [TransportLimits(), TransportLimits()]
                limits[counter] = TransportLimits(rekey_bytes=10_000)
                for end, limit in zip(pair.ends, limits, strict=True):
                    end.limits = limit
                mux = Mux()
                pair.server.connection.mux = pair.client.connection.mux = mux
                pair.connect()
                first = pair.ends[sender].sealer
                for _ in range(12):
                    pair.ends[sender].sendPacket(DATA, b"x" * 1000)
                    pair.pump()
                self.assertIsNot(pair.ends[sender].sealer, first)
                self.assertEqual((pair.lost, len(mux.got)), ({}, 12))

    def test_by_time(self) -> None:
        """The keys are changed every hour."""
        pair = Pair()
        pair.connect()
        for _ in range(3):
            before = pair.server.sealer
            pair.clock.advance(3600)
            pair.pump()
            self.assertIsNot(pair.server.sealer, before)
        self.assertEqual(pair.lost, {})

    def test_held_back(self) -> None:
        """Messages sent during an exchange wait for its end and keep their order; both hooks are called."""
        pair = Pair()
        pair.connect()
        pair.client.connection.mux = mux = Mux()
        events: list[str] = []
        pair.server.on_exchange = lambda: events.append("exchange")
        pair.server.on_keys = lambda: events.append("keys")
        pair.server.start_rekey()
        self.assertTrue(pair.server.in_key_exchange)
        for letter in (b"a", b"b", b"c"):
            pair.server.sendPacket(DATA, letter)
        self.assertEqual(events, ["exchange"])
        pair.pump()
        self.assertEqual(events, ["exchange", "keys"])
        self.assertEqual(mux.got, [(DATA, b"\x5e" + letter) for letter in (b"a", b"b", b"c")])

    def test_secret(self) -> None:
        """A secret arrives like any other message, in order; no copy is left in its buffer."""
        pair = Pair()
        pair.connect()
        pair.client.connection.mux = mux = Mux()
        first, second = bytearray(b"first"), bytearray(b"second")
        pair.server.send_secret(DATA, first)
        pair.server.start_rekey()
        pair.server.sendPacket(DATA, b"between")
        pair.server.send_secret(DATA, second)
        self.assertEqual((first, second), (bytearray(5), bytearray(6)))
        pair.pump()
        self.assertEqual([each for _, each in mux.got], [b"\x5efirst", b"\x5ebetween", b"\x5esecond"])

    def test_held_back_is_bounded(self) -> None:
        """Too much waiting for a peer that does not exchange keys ends the connection."""
        pair = Pair(limits=TransportLimits(held=10_000))
        pair.connect()
        pair.server.start_rekey()
        for _ in range(11):
            pair.server.sendPacket(DATA, b"x" * 1000)
        pair.pump()
        self.assertIn("wait for the end", str(pair.lost[pair.server]))

    def test_data_until_the_peers_kexinit(self) -> None:
        """The peer may send until it has seen our KEXINIT, and we take it."""
        pair = Pair()
        pair.connect()
        pair.server.connection.mux = mux = Mux()
        pair.server.start_rekey()
        pair.client.sendPacket(DATA, b"x")
        pair.pump()
        self.assertEqual((len(mux.got), pair.lost), (1, {}))

    def test_data_within_the_peers_exchange(self) -> None:
        """After its KEXINIT a peer that sends data breaks the protocol."""
        pair = Pair()
        pair.connect()
        pair.server.connection.mux = Mux()
        pair.client.start_rekey()
        pair.wire(pair.client).write(pair.client.sealer.seal(b"\x5ex"))
        pair.pump()
        self.assertIn("94 instead of 30", str(pair.lost[pair.server]))

    def test_unfinished(self) -> None:
        """A peer that never comes to new keys is dropped."""
        pair = Pair()
        pair.connect()
        pair.server.start_rekey()
        pair.clock.advance(60)
        self.assertTrue(pair.wire(pair.server).disconnecting)
        pair.lose()
        self.assertIn("no new keys within 60 s", str(pair.lost[pair.server]))

    def test_without_end(self) -> None:
        """A peer may change keys many times in a row, but not for ever."""
        for which in (0, 1):
            pair = Pair()
            pair.connect()
            liar, victim = pair.ends[which], pair.ends[not which]
            for _ in range(int(EXCHANGES_AT_ONCE)):
                self.assertEqual(pair.lost, {})
                liar.start_rekey()
                pair.pump()
            for _ in range(50):
                if not pair.lost:
                    liar.start_rekey()
                    pair.pump()
            self.assertEqual(str(pair.lost[victim]), "too many key exchanges")

    def test_often(self) -> None:
        """It may start exchanges repeatedly if time passes or bytes move in between, and so may we."""
        pair = Pair()
        pair.connect()
        pair.server.connection.mux = pair.client.connection.mux = Mux()
        for _ in range(int(EXCHANGES_AT_ONCE) + 50):
            pair.client.sendPacket(DATA, bytes(EXCHANGE_WORTH))
            pair.pump()
            pair.client.start_rekey()
            pair.pump()
        for _ in range(int(EXCHANGES_AT_ONCE) + 50):
            pair.clock.advance(1 / EXCHANGES_A_SECOND)
            pair.client.start_rekey()
            pair.pump()
        self.assertEqual(pair.lost, {})

    def test_sensible(self) -> None:
        """However seldom or often one wants new keys: within what the peer bears and the cipher does."""
        for wanted, done in ((0, EXCHANGE_WORTH), (1 << 20, 1 << 20), (1 << 60, 8 << 30)):
            self.assertEqual(TransportLimits(rekey_bytes=wanted).rekey_bytes, done)

    def test_ours_are_not_counted(self) -> None:
        """The answer to our exchange does not count as one of the peer's."""
        pair = Pair()
        pair.connect()
        for _ in range(30):
            pair.server.start_rekey()
            pair.pump()
        self.assertIsNone(pair.server._exchanges)
        self.assertEqual(pair.lost, {})

    def test_before_authentication(self) -> None:
        """A second exchange before authentication is refused, and ours does not begin."""
        gate = Gate()
        gate.pending = []
        pair = Pair(gate=gate)
        pair.connect()
        before = pair.server.sealer
        pair.server.start_rekey()
        self.assertFalse(pair.server.in_key_exchange)
        self.assertIs(pair.server.sealer, before)
        pair.client.sendKexInit()
        pair.pump()
        self.assertIn("before authentication", str(pair.lost[pair.server]))

    def test_messages_between_the_two_newkeys(self) -> None:
        """Messages that the server sends between its NEWKEYS and the client's use the new key."""
        pair = Pair()
        pair.connect()
        pair.client.start_rekey()
        while pair.server.sealer.sequence != 0:
            self.assertTrue(pair.turn())
        pair.server.sendIgnore(b"x")
        pair.server.sendPacket(80, NS(b"unknown") + b"\0")
        pair.pump()
        self.assertEqual(pair.lost, {})

    def test_authentication_is_not_asked_again(self) -> None:
        """Conch's hook for a secure connection is called at each change of keys; ours once."""
        pair = Pair()
        pair.connect()
        asked = len(pair.gate.asked)
        pair.client.start_rekey()
        pair.pump()
        self.assertEqual((len(pair.gate.asked), pair.lost), (asked, {}))

    def test_wrong_guess(self) -> None:
        """A wrongly guessed first packet is ignored (RFC 4253 section 7)."""
        raw = Raw()
        raw.server.dataReceived(VERSION)
        lists = make_kexinit(
            [b"other", b"curve25519-sha256"], [b"ssh-ed25519"], list(CIPHERS), [b"hmac-sha1"], [b"none"]
        )
        raw.send(lists[:-5] + b"\1" + lists[-4:], b"\x1erubbish")
        self.assertIsNone(raw.reason)
        before = raw.server.sealer
        raw.send(b"\x1e" + NS(b"\x09" + bytes(31)))
        self.assertIsNot(raw.server.sealer, before)

    def test_nonsense(self) -> None:
        """Values that no key can come of end the connection."""
        for exchange in (b"curve25519-sha256", b"mlkem768x25519-sha256"):
            for value in (
                b"",
                b"x",
                b"x" * 1215,
                b"x" * 1217,
                bytes(32),
                b"\xff" * 1184 + b"x" * 32,
                bytes(1216),
            ):
                raw = Raw()
                raw.server.dataReceived(VERSION)
                lists = make_kexinit([exchange], [b"ssh-ed25519"], list(CIPHERS), [b"hmac-sha1"], [b"none"])
                raw.send(lists, b"\x1e" + NS(value))
                self.assertIsNotNone(raw.reason)
        raw = Raw()
        raw.server.dataReceived(VERSION)
        raw.send(kexinit(), b"\x1e\0\0")
        self.assertIn("shorter", raw.reason or "")


class NonsenseTests(SynchronousTestCase):
    """Peers that send anything."""

    def test_broken_messages(self) -> None:
        """A message that was changed before it was sealed ends in a PeerError, or is accepted."""
        chance = random.Random(7)
        for _ in range(400):
            pair = Pair()
            victim, liar = chance.sample(pair.ends, 2)
            honest = liar.sendPacket

            def lie(kind: int, payload: bytes, honest: Callable[[int, bytes], None] = honest) -> None:
                if chance.random() < 0.2:
                    kind, payload = broken(chance, kind, payload)
                honest(kind, payload)

            liar.sendPacket = lie  # type: ignore[method-assign, assignment]
            pair.connect()
            for _ in range(3):
                if not pair.lost:
                    liar.start_rekey()
                    lie(chance.randrange(1, 256), chance.randbytes(chance.randrange(40)))
                    pair.pump()
            self.assertIsInstance(pair.lost.get(victim, PeerError()), PeerError | ConnectionDone)


def broken(chance: random.Random, kind: int, payload: bytes) -> tuple[int, bytes]:
    """Return a message with a byte changed, some removed, some added, or a length that is wrong."""
    message = bytearray(b"%c%b" % (kind, payload))
    place = chance.randrange(len(message))
    match chance.randrange(4):
        case 0:
            message[place] = chance.randrange(256)
        case 1:
            del message[place + 1 : place + chance.randrange(20)]
        case 2:
            message[place:place] = chance.randbytes(chance.randrange(20))
        case _:
            message[place : place + 4] = chance.choice((0, 1, 35_000, 2**31, 2**32 - 1)).to_bytes(4, "big")
    return message[0], bytes(message[1:])


class PacketTests(SynchronousTestCase):
    """Packets in and out."""

    def test_small_before_authentication(self) -> None:
        """A long packet is refused on its length before authentication, and allowed after it."""
        raw = Raw()
        raw.server.dataReceived(VERSION + (35_008 - 4 + 8).to_bytes(4, "big"))
        self.assertIn("exceeds the limit of 35000 B", raw.reason or "")
        pair = Pair()
        pair.connect()
        pair.server.connection.mux = mux = Mux()
        pair.client.sendPacket(DATA, b"x" * (256 * 1024))
        pair.pump()
        self.assertEqual((len(mux.got), pair.lost), (1, {}))
        pair.client.start_rekey()
        pair.pump()
        self.assertEqual(pair.server.opener.limit, LONGEST_PACKET)
        pair.client.sendPacket(DATA, b"x" * LONGEST_PACKET)
        pair.pump()
        self.assertIsInstance(pair.lost[pair.server], PacketTooLong)

    def test_little_before_authentication(self) -> None:
        """So is a long stream of short ones."""
        raw = Raw(TransportLimits(early_bytes=10_000))
        raw.server.dataReceived(VERSION)
        for _ in range(11):
            raw.send(b"\2" + NS(b"x" * 1000))
        self.assertIn("too much before authentication", raw.reason or "")

    def test_forged(self) -> None:
        """A packet changed in transit ends the connection, for each cipher and any bit."""
        for cipher in CIPHERS:
            for position in (0, 3, 4, 20, -1):
                pair = Pair()
                pair.client.supportedCiphers = [cipher]
                pair.connect()
                wire = bytearray(pair.client.sealer.seal(b"\2" + NS(b"x" * 40)))
                wire[position] ^= 1
                pair.server.dataReceived(bytes(wire) + bytes(1 << 17))
                pair.lose()
                self.assertIsInstance(pair.lost[pair.server], BadPacket | PacketTooLong)

    def test_unknown_messages(self) -> None:
        """They are answered with their sequence number (RFC 4253 section 11.4), not for ever."""
        pair = Pair()
        pair.connect()
        number = pair.client.sealer.sequence
        pair.carried.clear()
        pair.wire(pair.client).write(pair.client.sealer.seal(b"\xc0what"))
        seen = pair.client.opener.packets
        pair.pump()
        self.assertEqual(pair.client.opener.packets, seen + 1)
        sent: list[bytes] = []
        pair.client.ssh_UNIMPLEMENTED = sent.append  # type: ignore[method-assign, assignment]
        pair.wire(pair.client).write(pair.client.sealer.seal(b"\xc0what"))
        pair.pump()
        self.assertEqual(sent, [(number + 1).to_bytes(4, "big")])
        for _ in range(99):
            pair.wire(pair.client).write(pair.client.sealer.seal(b"\xc0what"))
        pair.pump()
        self.assertIn("too many unknown", str(pair.lost[pair.server]))

    def test_encrypted(self) -> None:
        """Conch's questions about the connection are answered."""
        pair = Pair()
        for end in pair.ends:
            end.makeConnection(Wire())
        self.assertFalse(pair.server.isEncrypted("in") or pair.server.isEncrypted("out"))
        pair.pump()
        for end in pair.ends:
            self.assertTrue(end.isEncrypted() and end.isEncrypted("both") and end.isVerified("in"))


class EndTests(SynchronousTestCase):
    """How connections end."""

    def assert_clean(self, pair: Pair) -> None:
        """Nothing is left on the clock."""
        self.assertEqual(pair.clock.getDelayedCalls(), [])

    def test_closed(self) -> None:
        """The closing end sends the reason, and the other side gets it; nothing is left behind."""
        pair = Pair(keepalive=10)
        pair.connect()
        pair.server.close("shutting down")
        pair.pump()
        self.assertIsInstance(pair.lost[pair.server], Closed)
        self.assertIsInstance(pair.lost[pair.client], Disconnected)
        self.assertIn("shutting down", str(pair.lost[pair.client]))
        self.assert_clean(pair)

    def test_no_room(self) -> None:
        """Only what is sealed counts as the peer's word that there is no room."""
        for connected, kind in ((True, TooManyConnections), (False, Disconnected)):
            pair = Pair()
            for end in pair.ends:
                end.makeConnection(Wire())
            if connected:
                pair.pump()
            pair.server.fail(PeerError("full"), DISCONNECT_TOO_MANY_CONNECTIONS)
            pair.pump()
            self.assertIs(type(pair.lost[pair.client]), kind)
            self.assertIn("full", str(pair.lost[pair.client]))

    def test_lost(self) -> None:
        """A connection that breaks is reported with the network's error."""
        pair = Pair(keepalive=10)
        pair.connect()
        pair.lose()
        for end in pair.ends:
            self.assertIsInstance(pair.lost[end], ConnectionDone)
        self.assert_clean(pair)

    def test_lost_in_the_middle(self) -> None:
        """Wherever in the handshake it breaks, both ends report it once and leave nothing behind."""
        for turns in range(12):
            pair = Pair(keepalive=10)
            for end in pair.ends:
                end.makeConnection(Wire())
            for _ in range(turns):
                pair.turn()
            pair.lose()
            self.assertEqual(len(pair.lost), 2)
            self.assert_clean(pair)

    def test_not_flushed(self) -> None:
        """A peer that does not read does not keep a closed connection open."""
        raw = Raw()
        raw.server.close("bye")
        raw.wire.disconnecting = False
        raw.clock.advance(5)
        self.assertTrue(raw.wire.disconnecting)
        raw.server.connectionLost()
        self.assertEqual(raw.clock.getDelayedCalls(), [])

    def test_lost_under_the_goodbye(self) -> None:
        """The connection may break while we send the reason: the end comes once, with that reason."""
        raw = Raw()
        lost = self.breaks_at(raw, 1)
        raw.server.fail(PeerError("nonsense"))
        self.assertEqual(list(map(str, lost)), ["nonsense"])
        self.assertEqual(raw.clock.getDelayedCalls(), [])

    def test_lost_under_an_exchange(self) -> None:
        """It may also break while a key exchange begins: then nothing waits for its end."""
        for write in (1, 2):
            raw = Raw(connect=False)
            lost = self.breaks_at(raw, write)
            raw.server.makeConnection(raw.wire)
            self.assertEqual(len(lost), 1)
            self.assertEqual(raw.clock.getDelayedCalls(), [])

    def breaks_at(self, raw: Raw, write: int) -> list[Exception]:
        """Break the connection in the given write; return why it was lost."""
        lost: list[Exception] = []
        raw.server.lost.addCallback(lost.append)
        left = write

        def broken(data: bytes) -> None:
            nonlocal left
            left -= 1
            if not left:
                raw.server.connectionLost(Failure(ConnectionDone()))

        raw.wire.write = broken  # type: ignore[method-assign]
        return lost

    def test_silence_after_the_end(self) -> None:
        """Nothing is sent, taken or started after the end."""
        pair = Pair()
        pair.connect()
        pair.server.close("bye")
        pair.wire(pair.server).clear()
        pair.server.sendPacket(2, NS(b"x"))
        pair.server.dispatch(b"\x50rubbish")
        pair.server.dataReceived(b"rubbish")
        pair.server.start_rekey()
        pair.server.close("again")
        pair.server.fail(PeerError("again"))
        self.assertEqual(pair.wire(pair.server).value(), b"")

    def test_deadline(self) -> None:
        """A peer that is not authenticated in time is disconnected, at any point of the handshake."""
        for turns in range(4):
            gate = Gate()
            gate.pending = []
            pair = Pair(gate=gate)
            for end in pair.ends:
                end.makeConnection(Wire())
            for _ in range(turns):
                pair.turn()
            pair.clock.advance(10)
            pair.pump()
            self.assertIn(HandshakeTimeout, {type(reason) for reason in pair.lost.values()})
            self.assert_clean(pair)

    def test_no_deadline_after_the_hello(self) -> None:
        """The deadline is over with the handshake."""
        pair = Pair()
        pair.connect()
        pair.clock.advance(100)
        pair.pump()
        self.assertEqual(pair.lost, {})

    def test_what_a_peer_says_is_printable(self) -> None:
        """The text of a disconnect goes to logs: no control characters, and not much of it."""
        pair = Pair()
        pair.connect()
        text = b"\x1b[31m\n\xff" + b"x" * 5000
        pair.wire(pair.client).write(pair.client.sealer.seal(b"\1\0\0\0\2" + NS(text) + NS(b"")))
        pair.pump()
        said = str(pair.lost[pair.server])
        self.assertTrue(said.isprintable())
        self.assertLess(len(said), 400)

    def test_no_cycles(self) -> None:
        """An end that is over is freed at once, however it ended: no collector is needed."""

        def closed(pair: Pair) -> None:
            pair.server.close("bye")
            pair.pump()

        def confused(pair: Pair) -> None:
            pair.client.sendPacket(90, b"too early")
            pair.pump()

        gc.collect()
        gc.disable()
        self.addCleanup(gc.enable)
        for end in (closed, confused, Pair.lose):
            for gate in (None, Gate()):
                pair = Pair(keepalive=10, gate=gate)
                pair.connect()
                end(pair)
                ends = [weakref.ref(transport) for transport in pair.ends]
                del pair
                self.assertEqual([reference() for reference in ends], [None, None], end)

    def test_our_own_mistakes_are_not_the_peers(self) -> None:
        """An error that is not a PeerError is not handled as one."""
        pair = Pair()
        pair.connect()
        pair.server.connection.answers = {b"broken": raiser(RuntimeError("ours"))}
        with self.assertRaises(RuntimeError):
            pair.server.dispatch(b"\x50" + NS(b"broken") + b"\1")

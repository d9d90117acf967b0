"""Agents that break the protocol lose their own tunnel, without any effect on others."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable

from twisted.conch.ssh.common import NS

from tests.integration.asking import Asking
from tests.integration.hostile_agent import HostileAgentTestCase
from tests.integration.offences import EARLY_OFFENCES, MOST, OFFENCES, STREAM
from tests.integration.programs import wait_for
from tests.integration.raw_peer import (
    ADJUST,
    CLOSE,
    CONFIRM,
    DATA,
    END,
    EXTENDED,
    FAILURE,
    OPEN,
    REFUSE,
    SUCCESS,
    RawPeer,
    agent_peer,
    number,
    open_socket,
)
from tower.conch.transport.keys import KeyPair
from tower.conch.transport.packets import LONGEST_PACKET
from tower.websocket.frames import PING

MIB = 2**20


class OffenceTests(HostileAgentTestCase):
    """Single protocol errors."""

    def test_authenticated(self) -> None:
        """After authentication each of `OFFENCES` ends the tunnel, and the log has the reason."""
        for name, (offend, reason) in OFFENCES.items():
            peer = self.bench.peer()
            offend(peer)
            self.assertDropped(peer, reason, name)

    def test_unauthenticated(self) -> None:
        """Before it, each of `EARLY_OFFENCES` ends the connection."""
        for name, (offend, reason) in EARLY_OFFENCES.items():
            peer = RawPeer(open_socket(self.bench.tower.port), None, from_client=False)
            with contextlib.suppress(ConnectionError):
                offend(peer)
            self.assertDropped(peer, reason, name, known=False)


class StreamTests(HostileAgentTestCase):
    """Streams of users, to an agent that is hostile."""

    def asked(
        self, window: int = MIB, longest: int = MIB, method: str = "GET", size: int = 0
    ) -> tuple[Asking, RawPeer, int]:
        """Send a request as joe; return it, the agent, and the proxy's number of the stream for it."""
        peer = self.bench.peer()
        self.addCleanup(peer.close)
        asking = Asking(self.bench.victim, method, size)
        self.addCleanup(asking.close)
        return asking, peer, peer.confirm(window, longest)

    def test_offences(self) -> None:
        """Violations of RFC 4254 on an open stream end the tunnel; waiting users get an answer."""
        offences: dict[str, tuple[Callable[[RawPeer, int], object], str]] = {
            "more than the window": (
                lambda peer, it: peer.say(*[bytes((DATA,)) + number(it) + NS(bytes(65536))] * 20),
                "B granted",
            ),
            "a window of more than 2**32 - 1": (
                lambda peer, it: peer.say(bytes((ADJUST,)) + number(it, MOST)),
                "a window of more than",
            ),
            "data after the end": (
                lambda peer, it: peer.say(bytes((END,)) + number(it), bytes((DATA,)) + number(it) + NS(b"x")),
                "data after the end|which is not open",
            ),
            "two ends": (lambda peer, it: peer.say(*[bytes((END,)) + number(it)] * 2), "a second end"),
            "data after a close": (
                lambda peer, it: peer.say(
                    bytes((CLOSE,)) + number(it), bytes((DATA,)) + number(it) + NS(b"x")
                ),
                "data for channel [0-9]+, which is not open",
            ),
            "two closes": (
                lambda peer, it: peer.say(*[bytes((CLOSE,)) + number(it)] * 2),
                "message 97 for channel [0-9]+, which is not open",
            ),
            "a second confirmation": (
                lambda peer, it: peer.say(bytes((CONFIRM,)) + number(it, 7, MIB, MIB)),
                "which is not being opened",
            ),
            "extended data": (
                lambda peer, it: peer.say(bytes((EXTENDED,)) + number(it, 1) + NS(b"x")),
                "extended data",
            ),
            "an answer to a request": (
                lambda peer, it: peer.say(bytes((SUCCESS,)) + number(it)),
                "a reply to a channel request",
            ),
        }
        for name, (offend, reason) in offences.items():
            asking, peer, stream = self.asked()
            offend(peer, stream)
            self.assertDropped(peer, reason, name)
            asking.close()

    def test_packets_of_nothing(self) -> None:
        """An agent that accepts packets of 0 B is dropped; one that accepts a GiB gets smaller ones."""
        for longest in (0, 1, 1023):
            _, peer, _ = self.asked(longest=longest)
            self.assertDropped(peer, f"packets of at most {longest} B")
        asking, peer, stream = self.asked(window=MOST, longest=MOST)
        self.assertIn(b"Impersonate-User: joe\r\n", peer.next(DATA))
        peer.data(stream, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        self.assertEqual((asking.answer(), asking.body), (200, b"ok"))

    def test_no_credit(self) -> None:
        """Without a window nothing is sent; when the user disconnects, the stream is closed."""
        asking, peer, stream = self.asked(window=0)
        peer.say(b"\x50" + NS(b"x") + b"\1")
        self.assertEqual(peer.next(FAILURE, DATA, 82)[0], 82)  # no data before it
        asking.close()
        self.assertEqual(peer.next(DATA, CLOSE)[0], CLOSE)
        peer.say(bytes((CLOSE,)) + number(stream))

    def test_upload_into_the_void(self) -> None:
        """With a window of 4 GiB and an agent that reads nothing, the upload and memory stop growing."""
        asking, peer, _ = self.asked(window=MOST, longest=MOST, method="PUT", size=256 * MIB)
        wait_for("joe's upload to stand still", lambda: self.stands_still(asking), every=0.2)
        self.assertEqual(asking.status, 0)
        peer.close()
        self.assertNotIn(asking.answer(), (0, 200))

    def stands_still(self, asking: Asking) -> bool:
        """Return whether the proxy takes none of joe's bytes for a while."""
        before = self.proxy.memory()
        threading.Event().wait(0.5)
        return abs(self.proxy.memory() - before) < MIB // 4 and asking.status == 0

    def test_invalid_answers(self) -> None:
        """Answers that are not HTTP end only the stream, and its user gets 502."""
        answers = {
            "no HTTP": b"SSH-2.0-x\r\n\r\n",
            "an endless line": b"HTTP/1.1 200 " + b"x" * 100_000,
            "endless fields": b"HTTP/1.1 200 OK\r\n" + b"X-Y: z\r\n" * 20_000,
            "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            "a negative length": b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
            "an unrequested switch": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
            "heads without end": b"HTTP/1.1 100 Continue\r\n\r\n" * 10_000,
        }
        for name, answer in answers.items():
            asking, peer, stream = self.asked()
            with contextlib.suppress(ConnectionError):
                for begin in range(0, len(answer), 30_000):
                    peer.data(stream, answer[begin : begin + 30_000])
            self.assertEqual(asking.answer(), 502, name)
            peer.close()

    def test_broken_bodies(self) -> None:
        """A body that is cut, or is not chunked as declared, cuts the user's connection."""
        for body in (b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n", b"Content-Length: 10\r\n\r\nshort"):
            asking, peer, stream = self.asked()
            peer.data(stream, b"HTTP/1.1 200 OK\r\n" + body)
            peer.say(bytes((CLOSE,)) + number(stream))
            self.assertEqual(asking.answer(), -1)
            peer.close()

    def test_answer_before_the_question(self) -> None:
        """Unsolicited bytes close the stream that waits for its next request."""
        asking, peer, stream = self.asked()
        answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
        peer.data(stream, answer)
        self.assertEqual((asking.answer(), asking.body), (200, b"ok"))
        peer.data(stream, b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwrong")
        self.assertEqual(peer.next(CLOSE)[0], CLOSE)
        peer.say(bytes((CLOSE,)) + number(stream))
        again = Asking(self.bench.victim)
        self.addCleanup(again.close)
        peer.data(peer.confirm(MIB, MIB, 8), answer)
        self.assertEqual((again.answer(), again.body), (200, b"ok"))


class FloodTests(HostileAgentTestCase):
    """Too many of things that are allowed once."""

    def test_opens(self) -> None:
        """Every stream that an agent opens is refused; one that does not read the refusals is dropped."""
        opening = bytes((OPEN,)) + STREAM + number(1, MIB, MIB) + NS(b"kubernetes")
        peer = self.bench.peer()
        for _ in range(50):
            peer.say(*[opening] * 20)
            for _ in range(20):
                self.assertEqual(peer.next(REFUSE)[5:9], number(1))
        self.assertFalse(peer.storm(opening, 400_000))
        self.assertDropped(peer, "does not read the replies to its requests")

    def test_global_requests(self) -> None:
        """Too many concurrent global requests end the tunnel."""
        for payload in (b"\x50" + NS(b"x") + b"\1", b"\x50" + NS(b"keepalive@openssh.com") + b"\1"):
            peer = self.bench.peer()
            peer.storm(payload, 1000, 100)
            self.assertDropped(peer, "too many global requests")

    def test_unknown_messages(self) -> None:
        """Unknown messages beyond a limit end the tunnel."""
        for payload in (b"\xc0nobody knows", b"\x07", b"\x57"):
            peer = self.bench.peer()
            peer.storm(payload, 1000, 100)
            self.assertDropped(peer, "too many unknown messages")

    def test_ignored_messages(self) -> None:
        """Messages to be ignored are ignored, in any number."""
        peer = self.bench.peer()
        for payload in (
            b"\x02" + NS(bytes(50)),
            b"\x04\0" + NS(b"debug") + NS(b""),
            b"\x03" + number(1),
            b"\x33",
        ):
            self.assertTrue(peer.storm(payload, 20_000))
        self.assertAlive(peer)

    def assertAlive(self, peer: RawPeer) -> None:
        """The tunnel is up: a request is answered."""
        peer.say(b"\x50" + NS(b"are you there") + b"\1")
        self.assertEqual(peer.next(82), b"\x52")
        peer.close()

    def test_pings(self) -> None:
        """A peer that pings and does not read the pongs is dropped, authenticated or not."""
        for known in (True, False):
            peer = self.bench.peer() if known else RawPeer(self.socket(), None, from_client=False)
            pings = b"".join(peer.writer.wrap(os.urandom(125), PING) for _ in range(500))
            peer.flood(pings for _ in range(2000))
            reason = "does not read the replies to its requests" if known else "too much before the hello"
            self.assertDropped(peer, reason, known=known)

    def socket(self) -> socket.socket:
        """Return a new WebSocket."""
        return open_socket(self.bench.tower.port)

    def test_before_authentication(self) -> None:
        """Before authentication the number of packets and frames is limited."""
        peer = RawPeer(self.socket(), None, from_client=False)
        peer.flood(peer.writer.wrap(b"x" * 1000) for _ in range(1000))
        self.assertDropped(peer, "no SSH version line", known=False)
        key = KeyPair.generate()
        unauthenticated = agent_peer(self.bench.tower.port, "evil", key, self.bench.host_key)
        unauthenticated.begin()
        unauthenticated.until(lambda: unauthenticated.ssh.sessionID is not None)
        unauthenticated.storm(b"\x02" + NS(bytes(50)), 20_000)
        self.assertDropped(unauthenticated, "too much before authentication|is not allowed now", known=False)

    def test_empty_frames(self) -> None:
        """Empty frames, and a frame for each byte, only take their time."""
        peer = self.bench.peer()
        self.assertTrue(peer.flood(peer.writer.wrap(b"") * 1000 for _ in range(100)))
        packets = b"".join(peer.ssh.sealer.seal(b"\x02" + NS(b"drop by drop")) for _ in range(50))
        drops = [peer.writer.wrap(packets[at : at + 1]) for at in range(len(packets))]
        self.assertTrue(peer.flood(drops))
        peer.raw(b"\x02\x80" + bytes(4) + (b"\x00\x80" + bytes(4)) * 10_000 + b"\x80\x80" + bytes(4))
        self.assertAlive(peer)

    def test_keys(self) -> None:
        """Repeated changes of keys only take their time."""
        peer = self.bench.peer()
        for _ in range(100):
            peer.rekey()
        self.assertAlive(peer)

    def test_credit(self) -> None:
        """Window increments of single bytes are only counted."""
        peer = self.bench.peer()
        asking = Asking(self.bench.victim)
        self.addCleanup(asking.close)
        stream = peer.confirm(0, MIB)
        self.assertTrue(peer.storm(bytes((ADJUST,)) + number(stream, 0), 50_000))
        self.assertTrue(peer.storm(bytes((ADJUST,)) + number(stream, 1), 2000))
        peer.next(DATA)
        self.assertAlive(peer)


class KeyExchangeTests(HostileAgentTestCase):
    """Messages that are not allowed during a key exchange (RFC 4253 section 7.1)."""

    def begun(self) -> RawPeer:
        """Return an agent that has sent only its KEXINIT."""
        peer = self.bench.peer()
        peer.ssh.start_rekey()
        peer._flush()
        return peer

    def test_forbidden(self) -> None:
        """Between KEXINIT and NEWKEYS no channel message, no request and no second KEXINIT is allowed."""
        stream = bytes((OPEN,)) + STREAM + number(1, MIB, MIB) + NS(b"kubernetes")
        for payload in (
            stream,
            bytes((ADJUST,)) + number(0, 1),
            b"\x50" + NS(b"x") + b"\1",
            b"\x05" + NS(b"x"),
        ):
            peer = self.begun()
            peer.say(payload)
            self.assertDropped(peer, f"message {payload[0]} instead of 30 is not allowed now")
        peer = self.begun()
        peer.say(peer.ssh.ourKexInitPayload)
        self.assertDropped(peer, "message 20 instead of 30 is not allowed now")

    def test_bad_halves(self) -> None:
        """A half of a key exchange that is not a valid key, or a weak one, ends the tunnel."""
        for half in (b"", bytes(32), bytes(1216), b"\1" + bytes(31)):
            peer = self.begun()
            peer.say(b"\x1e" + NS(half))
            self.assertDropped(peer, "Invalid C_INIT length|Invalid peer X25519 public key")

    def test_nothing_in_common(self) -> None:
        """A KEXINIT without common algorithms ends the tunnel."""
        for names, reason in (
            (b"none", "couldn't match all kex parts"),
            (b",".join([b"x" * 60] * 400), "couldn't match all kex parts"),
            (b"", "a KEXINIT with an empty list"),
        ):
            peer = self.bench.peer()
            peer.say(b"\x14" + bytes(16) + NS(names) * 10 + bytes(5))
            self.assertDropped(peer, reason)


class StallTests(HostileAgentTestCase):
    """Agents that start a message and do not finish it."""

    options = ()

    def test_partial_packet(self) -> None:
        """A packet that does not end does not count as sign of life, and costs at most its buffer."""
        peers = []
        for _ in range(6):  # one key may have 8
            peers.append(peer := self.bench.peer())
            peer.frame(number(LONGEST_PACKET) + bytes(LONGEST_PACKET - 100))  # at once, before the time limit
        for peer in peers:
            self.assertDropped(peer, "the peer sent nothing")

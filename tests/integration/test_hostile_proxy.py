"""A proxy that has the pinned host key and breaks the protocol: the agent drops it, and comes back."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import time

from twisted.conch.ssh.common import NS

from tests.integration.hostile_proxy import HostileProxyTestCase
from tests.integration.offences import EARLY_OFFENCES, MOST, OFFENCES, STREAM
from tests.integration.opening import MIB, opening
from tests.integration.programs import wait_for
from tests.integration.raw_peer import (
    ADJUST,
    CLOSE,
    CONFIRM,
    DATA,
    END,
    OPEN,
    REFUSE,
    Gone,
    RawPeer,
    number,
)
from tower.conch.transport.packets import LONGEST_PACKET
from tower.http.requests import HEAD_LIMIT
from tower.member.outgoing import DIAL_LIMIT
from tower.websocket.frames import PING

DRAIN = b"\x50" + NS(b"drain@tower.kubesphere.io") + b"\0"


class DialTests(HostileProxyTestCase):
    """Bad answers to the WebSocket handshake."""

    def test_answers(self) -> None:
        """The agent logs what is wrong with each and tries again."""
        upgraded = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        for answer in (
            b"",
            b"SSH-2.0-x\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
            b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
            upgraded + b"Sec-WebSocket-Accept: wrong\r\nSec-WebSocket-Protocol: tower-v2\r\n\r\n",
            b"HTTP/1.1 101 " + b"x" * 100_000,
            upgraded + b"X-Y: z\r\n" * 20_000,
        ):
            sock, _ = self.bench.proxy.bare()
            with sock, contextlib.suppress(OSError):  # the agent may have disconnected already
                sock.sendall(answer)
                sock.shutdown(socket.SHUT_WR)
                while sock.recv(4096):
                    pass
            wait_for(
                f"line about {answer[:80]!r}",
                lambda: re.search(r"attempt \d+ to connect failed: ", self.logged()),
            )
            self.before = len(self.agent.output())


class OffenceTests(HostileProxyTestCase):
    """One wrong word."""

    def test_authenticated(self) -> None:
        """After authentication each of `OFFENCES` ends the tunnel, and the log has the reason."""
        for name, (offend, reason) in OFFENCES.items():
            peer = self.accepted()
            offend(peer)
            self.assertDropped(peer, reason, name)

    def test_unauthenticated(self) -> None:
        """In place of a handshake, each of `EARLY_OFFENCES` is a failed try; each error is logged once."""
        logged = set()
        for name, (offend, reason) in EARLY_OFFENCES.items():
            if name == "HTTP":
                continue  # a client has to bear some lines before the version
            peer = self.bench.proxy.accept()
            with contextlib.suppress(ConnectionError):
                offend(peer)
            if reason in logged:
                peer.end()
                peer.close()
                continue
            self.assertDropped(peer, reason, name, known=False)
            logged.add(reason)

    def test_streams(self) -> None:
        """Violations of RFC 4254 on an open stream end the tunnel."""
        for name, payloads, reason in (
            ("more than the window", [bytes((DATA,)) + b"%b" + NS(bytes(65537))], "65537 B received"),
            (
                "a window of more than 2**32 - 1",
                [bytes((ADJUST,)) + b"%b" + number(MOST)] * 2,
                "a window of more",
            ),
            ("two ends", [bytes((END,)) + b"%b"] * 2, "a second end|which is not open"),
            (
                "data after the end",
                [bytes((END,)) + b"%b", bytes((DATA,)) + b"%b" + NS(b"x")],
                "end|not open",
            ),
            ("two closes", [bytes((CLOSE,)) + b"%b"] * 2, "message 97 for channel"),
        ):
            peer = self.accepted()
            stream = number(self.opened(peer, "slow"))
            peer.say(*(payload.replace(b"%b", stream) for payload in payloads))
            self.assertDropped(peer, reason, name)


class StreamTests(HostileProxyTestCase):
    """Streams of a proxy that means its agents ill."""

    def test_what_is_refused(self) -> None:
        """Invalid streams, unlisted targets, and packets that are too short are refused."""
        peer = self.accepted()
        other = bytes((OPEN,)) + NS(b"direct-tcpip") + number(1, MIB, MIB) + NS(b"10.0.0.1") + number(22)
        nameless = bytes((OPEN,)) + STREAM + number(1, MIB, MIB)
        for payload, code in (
            (other, b"not-allowed: "),
            (nameless, b"not-allowed: "),
            (opening("kubernetes") + b"more", b"not-allowed: "),
            (opening("raw", longest=1023), b"not-allowed: "),
            (opening("nobody"), b"no-such-target: "),
            (opening("10.0.0.1:22"), b"no"),
            (opening("x" * 100_000), b"no"),
        ):
            peer.say(payload)
            self.assertIn(code, peer.next(REFUSE, CONFIRM))
        self.serve(peer)

    def test_too_many_dials(self) -> None:
        """Streams beyond the limit of concurrent dials are refused because the agent is busy; none leaks."""
        before = self.agent.descriptors()
        peer = self.accepted()
        peer.say(*(opening("full", ours=one) for one in range(DIAL_LIMIT + 50)))
        for _ in range(50):
            self.assertIn(b"busy: ", peer.next(REFUSE, CONFIRM))
        self.assertGreater(self.agent.descriptors(), before + DIAL_LIMIT // 2)
        peer.close()
        wait_for("the dials to end", lambda: self.agent.descriptors() <= before + 1)

    def test_heads(self) -> None:
        """A head that has not the one form is answered with 403, or 431, and nothing reaches the backend."""
        served = self.bench.backend.report()["served"]
        path = b"/marks/jane@alpha/1?size=1 HTTP/1.1\r\n"
        for head in (
            b"GET " + path + b"Host: x\r\n\r\n",
            b"GET " + path + b"Impersonate-User: system:masters\r\nHost: x\r\n\r\n",
            b"GET " + path + b"Impersonate-User: jane\r\nHost: x\r\nAuthorization: Bearer x\r\n\r\n",
            b"GET " + path + b"Impersonate-User: jane\r\nHost: x\r\nimpersonate_user: joe\r\n\r\n",
            b"GET " + path + b"Impersonate-User: jane\nHost: x\r\n\r\n",
            b"GET " + path + b"Impersonate-User: jane\r\nHost: x\r\nX: " + b"y" * 70_000,
        ):
            peer = self.accepted()
            stream = self.opened(peer)
            for begin in range(0, len(head), 30_000):
                peer.data(stream, head[begin : begin + 30_000])
            code = b"431" if len(head) > HEAD_LIMIT else b"403"
            self.assertIn(b"HTTP/1.1 %b " % code, peer.next(DATA))
            self.assertEqual(peer.next(END, DATA)[0], END)
            peer.close()
        self.assertEqual(self.bench.backend.report()["served"], served)

    def test_smuggled(self) -> None:
        """The bytes after a body are a head and are checked as one."""
        peer = self.accepted()
        stream = self.opened(peer)
        fields = b"Impersonate-User: jane\r\nHost: x\r\n\r\n"
        smuggled = b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n"
        peer.data(stream, b"POST /ping HTTP/1.1\r\nContent-Length: 2\r\n" + fields + b"ok" + smuggled)
        came = peer.next(DATA)
        while peer.next(DATA, END)[0] == DATA:
            came += peer.next(DATA)
        self.assertNotIn(b"pong", came)

    def test_no_credit(self) -> None:
        """Without a window the agent stops reading, also after a grant of 2**32 - 1 that is not used."""
        for window in (0, MOST):
            peer = self.accepted()
            peer.say(*(opening("slow", window, MOST, one) for one in range(20)))
            for _ in range(20):
                self.assertEqual(peer.next(CONFIRM, REFUSE)[0], CONFIRM)
            wait_for("the target to stand still", self.stands_still, every=0)
            peer.close()

    def stands_still(self) -> bool:
        """Return whether nothing more is read from the target for a while."""
        before = self.bench.backend.report()["flooded"]
        time.sleep(0.3)
        return bool(self.bench.backend.report()["flooded"] == before)


class FloodTests(HostileProxyTestCase):
    """Too many of things that are allowed once."""

    def test_opens(self) -> None:
        """A peer that opens streams and does not read the refusals is dropped."""
        peer = self.accepted()
        self.assertFalse(peer.storm(opening("nobody"), 400_000))
        self.assertDropped(peer, "does not read the replies to its requests")

    def test_requests(self) -> None:
        """More than so many global requests at once are too many, and unknown messages likewise."""
        for payload, reason in (
            (b"\x50" + NS(b"keepalive@openssh.com") + b"\1", "too many global requests"),
            (DRAIN, "too many global requests"),
            (b"\xc0nobody knows", "too many unknown messages"),
        ):
            peer = self.accepted()
            peer.storm(payload, 1000, 100)
            self.assertDropped(peer, reason)

    def test_pings(self) -> None:
        """A peer that pings and does not read the pongs is dropped."""
        peer = self.accepted()
        pings = b"".join(peer.writer.wrap(os.urandom(125), PING) for _ in range(500))
        self.assertFalse(peer.flood(pings for _ in range(2000)))
        self.assertDropped(peer, "does not read the replies to its requests")

    def test_ignored_messages(self) -> None:
        """Messages to be ignored are ignored, and repeated changes of keys only take their time."""
        peer = self.accepted()
        for payload in (b"\x02" + NS(bytes(50)), b"\x04\0" + NS(b"debug") + NS(b""), b"\x33"):
            self.assertTrue(peer.storm(payload, 20_000))
        self.assertTrue(peer.flood(peer.writer.wrap(b"") * 1000 for _ in range(100)))
        for _ in range(50):
            peer.rekey()
        self.serve(peer)

    def test_new_keys(self) -> None:
        """Keys that change without end, and with nothing in between, cost the tunnel."""
        peer = self.accepted()
        with contextlib.suppress(Gone, ConnectionError):
            for _ in range(1000):
                peer.rekey()
        self.assertDropped(peer, "too many key exchanges")

    def test_drains(self) -> None:
        """A proxy that drains every tunnel does not make the agent hold more and more of them."""
        before = self.agent.descriptors()
        for _ in range(20):
            self.accepted().say(DRAIN)
            self.assertLess(self.agent.descriptors(), before + 12)
        self.assertIn("drained more than", self.logged())


class KeyExchangeTests(HostileProxyTestCase):
    """Messages that are not allowed during a key exchange (RFC 4253 section 7.1)."""

    def begun(self) -> RawPeer:
        """Return a tunnel on which we sent our KEXINIT and nothing more."""
        peer = self.accepted()
        peer.ssh.start_rekey()
        peer._flush()
        return peer

    def test_forbidden(self) -> None:
        """Between KEXINIT and NEWKEYS nothing about streams, no request and no second KEXINIT may come."""
        for payload in (opening("raw"), bytes((ADJUST,)) + number(0, 1), DRAIN):
            peer = self.begun()
            peer.say(payload)
            self.assertDropped(peer, f"message {payload[0]} instead of 31 is not allowed now")
        peer = self.begun()
        peer.say(peer.ssh.ourKexInitPayload)
        self.assertDropped(peer, "message 20 instead of 31 is not allowed now")


class StallTests(HostileProxyTestCase):
    """A proxy that begins and does not go on."""

    keepalive = "--keepalive=1s"

    def test_partial_packet(self) -> None:
        """A packet that does not end does not count as sign of life."""
        peer = self.accepted()
        peer.frame(number(LONGEST_PACKET) + bytes(LONGEST_PACKET - 100))
        self.assertDropped(peer, "the peer sent nothing")

"""Tests of `tower.tunnels.tls_pipe`, over channels of two muxes that are joined in memory."""

from __future__ import annotations

import gc
import random
from typing import cast

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fakes.living import living
from tests.fakes.pipes import FakePipe
from tests.fakes.receivers import Recorder
from tests.fakes.sockets import HOST, client_context
from tests.fakes.tls_pipes import VERSIONS, Ends, Server
from tower.conch.connection.channel import Channel
from tower.net.tls.connection import TLSFailed
from tower.net.tls.resumption import Resumption
from tower.net.tls.session import UNSAID, TLSSession
from tower.tunnels.tls_handshake import TLSHandshake
from tower.tunnels.tls_pipe import TLSPipe

BULK = random.Random(5).randbytes(3 << 20)


class Leaving:
    """An owner that may be draining."""

    draining = False


class Talkative:
    """A session whose peer requests many messages of TLS itself.

    :ivar answer: the message sent each time.
    """

    answer = bytes(1000)
    more = waiting = False
    session_reused = True

    @property
    def object(self) -> Talkative:
        """As little of OpenSSL's as is needed."""
        return self

    def decrypt(self, cipher_text: memoryview, buffer: memoryview) -> int:
        """Get nothing out of it."""
        return 0

    def take(self) -> bytes:
        """Answer."""
        return self.answer


class StreamTests(Ends):
    """Carries bytes."""

    def test_both_ways(self) -> None:
        """Bulk goes both ways, whole; drained comes once each time."""
        for version in VERSIONS:
            recorder = Recorder()
            pipe, server = self.secured(recorder, version=version)
            full = 0
            for _ in range(3):
                full += not pipe.send(BULK)
                server.send(BULK[: 1 << 20])
                self.muxes.pump()
            self.assertTrue(server.got == BULK * 3)
            self.assertTrue(recorder.got == BULK[: 1 << 20] * 3)
            self.assertGreater(full, 0)
            self.assertEqual(recorder.log.count("drained"), full)
            self.assertTrue(pipe.send(b""))

    def test_small(self) -> None:
        """A small request is one write to the channel, and many received records are one delivery."""
        recorder = Recorder()
        pipe, server = self.secured(recorder)
        before = server.pieces
        self.assertTrue(pipe.send(b"GET / HTTP/1.1\r\n\r\n"))
        self.muxes.pump()
        self.assertEqual(server.pieces - before, 1)
        sizes: list[int] = []
        recorder.on["received"] = lambda: sizes.append(len(recorder.got))
        server.send(BULK[:60_000])
        self.muxes.pump()
        self.assertEqual(sizes, [60_000])

    def test_full(self) -> None:
        """A full channel is reported, and `drained` follows when it has room again."""
        recorder = Recorder()
        pipe, server = self.secured(recorder)
        server.channel.pause()
        while pipe.send(BULK[:50_000]):
            self.muxes.pump()
        self.assertFalse(pipe.send(b"more"))
        self.muxes.pump()
        self.assertEqual(recorder.log, [])
        server.channel.resume()
        self.muxes.pump()
        self.assertEqual(recorder.log, ["drained"])
        self.assertTrue(server.got.endswith(b"more"))

    def test_pause(self) -> None:
        """While paused nothing is delivered; it comes, in order, and so does the end."""
        recorder = Recorder()
        pipe, server = self.secured(recorder)
        recorder.on["received"] = pipe.pause
        for start in range(0, 50_000, 1000):
            server.send(BULK[start : start + 1000])
        server.end()
        turns = 0
        self.muxes.pump()
        while "ended" not in recorder.log:
            self.assertEqual(recorder.log, ["received"])
            pipe.resume()
            self.muxes.pump()
            turns += 1
        self.assertTrue(recorder.got == BULK[:50_000])
        self.assertGreater(turns, 1)

    def test_paused_sender_stops(self) -> None:
        """Data that a paused receiver does not accept stays at the far end."""
        recorder = Recorder()
        pipe, server = self.secured(recorder)
        pipe.pause()
        server.send(BULK * 2)
        self.muxes.pump()
        self.assertGreater(server.channel.queued, len(BULK))
        pipe.resume()
        self.muxes.pump()
        self.assertTrue(recorder.got == BULK * 2)
        self.assertEqual(server.channel.queued, 0)

    def test_paused_and_resumed(self) -> None:
        """A receiver may pause and resume at once, without getting bytes while it has others in hand."""
        depth = 0

        def both() -> None:
            nonlocal depth
            depth += 1
            self.assertEqual(depth, 1)
            pipe.pause()
            pipe.resume()
            depth -= 1

        recorder = Recorder(received=both)
        pipe, server = self.secured(recorder)
        pipe.pause()
        server.send(BULK[:400_000])
        server.send(BULK[400_000:])
        self.muxes.pump()
        pipe.resume()
        self.muxes.pump()
        self.assertTrue(recorder.got == BULK)

    @settings(max_examples=30, deadline=None)
    @given(st.lists(st.integers(1, 40_000), max_size=6), st.data())
    def test_any_split(self, sizes: list[int], data: st.DataObject) -> None:
        """Plain text does not depend on how cipher text is cut, nor on pauses."""
        self.setUp()
        recorder = Recorder()
        pipe, server = self.secured(recorder)
        wire = b"".join(server.session.encrypt(BULK[:size]) for size in sizes) + server.session.end()
        if data.draw(st.booleans()):
            recorder.on["received"] = pipe.pause
        while wire:
            cut = data.draw(st.integers(1, min(len(wire), 30_000)))
            server.channel.send(wire[:cut])
            wire = wire[cut:]
            self.muxes.pump()
            if data.draw(st.booleans()):
                pipe.resume()
        if data.draw(st.booleans()):
            server.channel.close()
        while "ended" not in recorder.log:
            self.muxes.pump()
            pipe.resume()
        self.assertTrue(recorder.got == b"".join(BULK[:size] for size in sizes))
        self.assertLess(recorder.log.index("ended"), len(recorder.log))

    def test_new_keys(self) -> None:
        """Tickets and alerts that carry no bytes are not taken for bytes or an end."""
        recorder = Recorder()
        _, server = self.secured(recorder)
        self.assertEqual(recorder.log, [])
        for byte in server.session.encrypt(b"x"):
            server.channel.send(bytes([byte]))
            self.muxes.pump()
        self.assertEqual((recorder.log, recorder.got), (["received"], b"x"))

    def test_tampered(self) -> None:
        """Cipher text that is not authentic ends it without an end."""
        recorder = Recorder()
        _, server = self.secured(recorder)
        wire = bytearray(server.session.encrypt(b"x" * 100))
        wire[50] ^= 1
        server.channel.send(wire)
        self.muxes.pump()
        self.assertEqual(recorder.log, ["closed"])
        self.assertIsInstance(recorder.reason, TLSFailed)
        self.assertEqual(server.alert, "SSLV3_ALERT_BAD_RECORD_MAC")
        self.assertIsNotNone(server.lost)

    def test_is_large(self) -> None:
        """It is as large as its channel."""
        pipe, _ = self.secured(Recorder())
        self.assertFalse(pipe.is_large)
        pipe.send(BULK * 2)
        self.muxes.pump()
        self.assertTrue(pipe.is_large)

    def test_is_leaving(self) -> None:
        """The pipe is leaving if its channel or its owner is."""
        owner = Leaving()
        near, far = self.channels()
        server = Server(far, VERSIONS[1])
        server.channel.resume()
        handshake = TLSHandshake(near, client_context(), HOST, self.clock, owner=owner)
        self.muxes.pump()
        pipe = self.successResultOf(handshake.secured)
        self.assertFalse(pipe.is_leaving)
        owner.draining = True
        self.assertTrue(pipe.is_leaving)
        owner.draining, self.muxes.near.draining = False, True
        self.assertTrue(pipe.is_leaving)

    def test_answers_that_nobody_takes(self) -> None:
        """Messages of TLS itself do not accumulate for a server that does not read."""
        channel, session = FakePipe(), Talkative()
        pipe = TLSPipe(channel, cast(TLSSession, session), Resumption(), None)
        pipe.receiver = recorder = Recorder()
        pipe.resume()
        most = UNSAID // len(session.answer)
        for full in (False, True):
            channel.full = full
            for _ in range(most):
                channel.deliver(b"new keys")
            channel.drain()
        self.assertIsNone(recorder.reason)
        channel.full = True
        for _ in range(most + 1):
            channel.deliver(b"new keys")
        self.assertEqual(str(recorder.reason), "the peer requests TLS messages but does not read them")
        self.assertTrue(channel.closing)


class EndTests(Ends):
    """Ends."""

    def test_half_close(self) -> None:
        """Either side may end first; the other goes on, and when both have ended the channel is closed."""
        for version in VERSIONS:
            for first in ("client", "server"):
                recorder = Recorder()
                pipe, server = self.secured(recorder, version=version)
                if first == "client":
                    pipe.send(b"question")
                    pipe.finish()
                    self.muxes.pump()
                    self.assertEqual((server.got, server.has_ended), (b"question", True))
                    server.send(b"answer")
                    server.end()
                else:
                    server.send(b"answer")
                    server.end()
                    self.muxes.pump()
                    self.assertEqual((recorder.got, recorder.log), (b"answer", ["received", "ended"]))
                    self.assertTrue(pipe.send(b"question"))
                    pipe.finish()
                self.muxes.pump()
                self.assertEqual((server.got, recorder.got), (b"question", b"answer"))
                self.assertEqual(recorder.log, ["received", "ended", "closed"])
                self.assertEqual(str(recorder.reason), "both sides are done")
                self.assertEqual((self.muxes.near.mux.channels, server.has_ended), ({}, True))

    def test_dropped_after_finish(self) -> None:
        """After the end nothing more is sent."""
        pipe, server = self.secured(Recorder())
        pipe.finish()
        pipe.finish()
        self.assertFalse(pipe.send(b"late"))
        self.muxes.pump()
        self.assertEqual((server.got, server.has_ended, server.lost), (b"", True, None))

    def test_close(self) -> None:
        """Closing sends queued data, then ends both ways; later data is dropped."""
        recorder = Recorder()
        pipe, server = self.secured(recorder)
        server.channel.pause()
        pipe.send(BULK)
        pipe.close()
        pipe.close()
        server.send(b"late")
        self.muxes.pump()
        self.assertEqual(recorder.log, [])
        server.channel.resume()
        self.muxes.pump()
        self.assertTrue(server.got == BULK)
        self.assertEqual((server.has_ended, recorder.log), (True, ["closed"]))
        self.assertEqual(self.muxes.near.mux.channels, {})

    def test_abort(self) -> None:
        """Aborting is at once, and a cut to the peer; it may come from within anything."""
        recorder = Recorder()
        pipe, server = self.secured(recorder)
        pipe.send(b"x")
        pipe.abort()
        pipe.abort()
        self.assertEqual(recorder.log, ["closed"])
        self.muxes.pump()
        self.assertFalse(server.has_ended)
        self.assertIsNotNone(server.lost)
        for event in ("received", "ended"):
            recorder = Recorder()
            pipe, server = self.secured(recorder)
            recorder.on[event] = pipe.abort
            server.send(b"x")
            server.send(b"y")
            server.end()
            self.muxes.pump()
            self.assertEqual(recorder.log, ["received", "closed"] if event == "received" else [*LOG])

    def test_cut(self) -> None:
        """The channel's end is a cut unless TLS ended before."""
        for how in ("finish", "close"):
            recorder = Recorder()
            _, server = self.secured(recorder)
            server.send(b"part")
            getattr(server.channel, how)()
            self.muxes.pump()
            self.assertEqual((recorder.got, recorder.log), (b"part", ["received", "closed"]))

    def test_gone_while_paused(self) -> None:
        """Data received before the channel closed is delivered when the receiver resumes, then the end."""
        for ends in (True, False):
            recorder = Recorder()
            pipe, server = self.secured(recorder)
            recorder.on["received"] = pipe.pause
            wire = server.session.encrypt(b"a" * 700_000) + (server.session.end() if ends else b"")
            for start in range(0, len(wire), 262_144):
                server.channel.send(wire[start : start + 262_144])
            server.channel.close()
            self.muxes.pump()
            while "closed" not in recorder.log:
                self.assertLess(len(recorder.got), 700_001)
                pipe.resume()
                self.muxes.pump()
            self.assertEqual(recorder.got, b"a" * 700_000)
            self.assertEqual(
                recorder.log, ["received", "ended", "closed"] if ends else ["received", "closed"]
            )

    def test_given_up_while_paused(self) -> None:
        """A receiver that closes instead of reading waiting data is notified at once."""
        for act in ("close", "abort"):
            recorder = Recorder()
            pipe, server = self.secured(recorder)
            recorder.on["received"] = pipe.pause
            server.channel.send(b"".join(server.session.encrypt(b"a" * 90_000) for _ in range(2)))
            server.channel.close()
            self.muxes.pump()
            self.assertEqual(recorder.log, ["received"])
            getattr(pipe, act)()
            self.assertEqual(recorder.log, ["received", "closed"])

    def test_no_cycles(self) -> None:
        """However it ends, nothing of it is left to the garbage collector."""

        def aborted(pipe: TLSPipe, server: Server) -> None:
            self.muxes.pump()
            server.send(b"x")
            self.muxes.pump()
            pipe.abort()

        def done(pipe: TLSPipe, server: Server) -> None:
            self.muxes.pump()
            server.end()
            pipe.finish()

        def cut(pipe: TLSPipe, server: Server) -> None:
            self.muxes.pump()
            server.channel.close()

        gc.collect()
        gc.disable()
        self.addCleanup(gc.enable)
        for end in (aborted, done, cut):
            before = living(Channel)
            pipe, server = self.secured(recorder := Recorder())
            end(pipe, server)
            self.muxes.pump()
            self.assertEqual(recorder.log[-1], "closed")
            del pipe, server
            self.assertEqual(living(Channel), before, end)

    def test_late_receiver(self) -> None:
        """A receiver set after the pipe closed is notified when it resumes."""
        pipe, server = self.secured(Recorder())
        server.channel.abort()
        self.muxes.pump()
        pipe.receiver = recorder = Recorder()
        self.assertEqual(recorder.log, [])
        self.assertFalse(pipe.send(b"x"))
        pipe.finish()
        pipe.close()
        pipe.resume()
        self.assertEqual(recorder.log, ["closed"])


LOG = ("received", "ended", "closed")

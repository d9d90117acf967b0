"""Tests of `tower.tlspipe`, over channels of two muxes that are joined in memory."""

from __future__ import annotations

import gc
import random
import ssl
import weakref
from collections.abc import Callable
from typing import cast

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.defer import CancelledError
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.conch.muxes import KIND, MuxPair
from tests.pipes import FakePipe
from tests.receivers import Recorder
from tests.sockets import HOST, client_context, server_context
from tower.conch.channel import Channel
from tower.conch.opening import TunnelLost
from tower.connecting import ConnectFailed
from tower.resumption import LOOKS, Resumption
from tower.tls import PIECE, TLSEnded, TLSSession
from tower.tlsconnection import TLSFailed
from tower.tlspipe import HANDSHAKE_TIMEOUT, TLSPipe

BULK = random.Random(5).randbytes(3 << 20)

VERSIONS = (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)


class Leaving:
    """An owner that may soon be gone."""

    draining = False


class Server:
    """The API server's end: TLS by hand on a channel; it reads all that comes.

    :ivar got: what it read.
    :ivar has_ended: whether the client said that it sends no more.
    :ivar pieces: how many pieces came on the channel.
    :ivar alert: what the client had against it.
    :ivar lost: why the channel went.
    """

    def __init__(self, channel: Channel, version: ssl.TLSVersion) -> None:
        self.channel = channel
        self.session = TLSSession(server_context(version), server_side=True)
        self.got = bytearray()
        self.is_ready = self.has_ended = False
        self.pieces = 0
        self.alert = ""
        self.lost: Exception | None = None
        channel.receiver = self

    def received(self, data: memoryview) -> None:
        """Take cipher text."""
        self.pieces += 1
        try:
            self._take(data)
        except ssl.SSLError as e:
            self.alert = e.reason

    def _take(self, data: memoryview) -> None:
        self.session.feed(memoryview(bytes(data)))
        if not self.is_ready:
            self.is_ready = self.session.handshake()
            self.channel.send(self.session.take())
        if self.is_ready and not self.has_ended:
            buffer = memoryview(bytearray(1 << 20))
            try:
                while count := self.session.read_into(buffer):
                    self.got += buffer[:count]
            except TLSEnded:
                self.has_ended = True

    def ended(self) -> None:
        """There is no EOF of the channel."""
        raise AssertionError("an old agent would close both ways")

    def drained(self) -> None:
        """What is queued is queued."""

    def closed(self, reason: Exception) -> None:
        """Note that it is gone."""
        self.lost = reason

    def send(self, data: bytes) -> None:
        """Send all of it."""
        for start in range(0, len(data), PIECE):
            self.channel.send(self.session.encrypt(data[start : start + PIECE]))

    def end(self) -> None:
        """Say that this was all."""
        self.channel.send(self.session.end())


class Ends(SynchronousTestCase):
    """Has a pipe and the server at the far end of its channel."""

    def setUp(self) -> None:
        """Have two muxes."""
        self.muxes = MuxPair()
        self.clock = Clock()

    def open(
        self,
        recorder: Recorder | None = None,
        *,
        version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3,
        context: ssl.SSLContext | None = None,
    ) -> tuple[TLSPipe, Server]:
        """Return both, before the handshake; the pipe is resumed when there is a *recorder*."""
        near, far = self.channels()
        server = Server(far, version)
        far.resume()
        pipe = TLSPipe(near, context or client_context(), HOST, self.clock)
        if recorder is not None:
            pipe.receiver = recorder
            pipe.resume()
        return pipe, server

    def channels(self) -> tuple[Channel, Channel]:
        """Return both ends of a channel, paused, without receivers."""
        opening = self.muxes.near.mux.open(KIND, b"")
        self.muxes.pump()
        far = self.muxes.far.incoming.pop().accept()
        self.muxes.pump()
        return self.successResultOf(opening), far

    def secured(
        self, recorder: Recorder, *, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3
    ) -> tuple[TLSPipe, Server]:
        """Return both after the handshake."""
        pipe, server = self.open(recorder, version=version)
        self.muxes.pump()
        self.assertIs(self.successResultOf(pipe.secured), pipe)
        return pipe, server

    def failure(self, pipe: TLSPipe) -> ConnectFailed:
        """Return why there is no TLS; nothing is left of it."""
        self.muxes.pump()
        error = self.failureResultOf(pipe.secured, ConnectFailed).value
        self.assertEqual((self.clock.getDelayedCalls(), self.muxes.near.mux.channels), ([], {}))
        assert isinstance(error, ConnectFailed)
        return error


class HandshakeTests(Ends):
    """Shakes hands."""

    def test_secured(self) -> None:
        """The handshake goes on by itself, paused or not, and nothing is read before resume."""
        for version in VERSIONS:
            recorder = Recorder()
            pipe, server = self.open(version=version)
            self.muxes.pump()
            self.assertIs(self.successResultOf(pipe.secured), pipe)
            self.assertEqual(self.clock.getDelayedCalls(), [])
            pipe.receiver = recorder
            server.send(b"hello")
            self.muxes.pump()
            self.assertEqual(recorder.log, [])
            pipe.resume()
            self.assertEqual(recorder.got, b"hello")

    def test_sent_before(self) -> None:
        """What is sent during the handshake goes after it, then there is room."""
        recorder = Recorder()
        pipe, server = self.open(recorder)
        self.assertFalse(pipe.send(b"first "))
        self.assertFalse(pipe.send(memoryview(b"second")))
        self.muxes.pump()
        self.assertEqual((server.got, recorder.log), (b"first second", ["drained"]))
        pipe, server = self.open(Recorder())
        pipe.send(BULK)
        pipe.finish()
        self.muxes.pump()
        self.assertTrue(server.got == BULK and server.has_ended)

    def test_resumed(self) -> None:
        """The second handshake with a server is a short one, and so are those after it."""
        resumption = Resumption()
        for version in VERSIONS:
            reused = []
            for _ in range(3):
                near, far = self.channels()
                server = Server(far, version)
                far.resume()
                pipe = TLSPipe(near, client_context(), HOST, self.clock, resumption)
                pipe.receiver = recorder = Recorder()
                pipe.resume()
                self.muxes.pump()
                server.send(b"x")
                self.muxes.pump()
                self.assertEqual(recorder.got, b"x")
                reused.append(server.session.object.session_reused)
                pipe.abort()
            self.assertEqual(reused, [False, True, True])

    def test_looks(self) -> None:
        """Sessions are looked at where there may be a new ticket, and not too often: it costs memory."""

        class Session:
            has_ticket = False

        class Looked:
            session_reused, looks = False, 0

            @property
            def session(self) -> Session:
                self.looks += 1
                return Session()

        resumption, tls = Resumption(), Looked()
        for _ in range(LOOKS + 50):
            resumption.learn(cast(ssl.SSLObject, tls), None)
        self.assertEqual((tls.looks, resumption.session), (LOOKS, None))
        resumption, tls = Resumption(), Looked()
        tls.session_reused = True
        resumption.learn(cast(ssl.SSLObject, tls), None)
        tls.session_reused = False
        resumption.learn(cast(ssl.SSLObject, tls), cast(ssl.SSLSession, object()))
        self.assertEqual(tls.looks, 0)

    def test_closed_before(self) -> None:
        """Closing during the handshake sends what there is first; else there is nothing to do."""
        recorder = Recorder()
        pipe, server = self.open(recorder)
        pipe.send(b"all")
        pipe.close()
        self.muxes.pump()
        self.assertEqual((server.got, server.has_ended, recorder.log), (b"all", True, ["closed"]))
        recorder = Recorder()
        pipe, server = self.open(recorder)
        pipe.close()
        self.assertEqual(recorder.log, ["closed"])
        self.failure_of_any_kind(pipe)

    def failure_of_any_kind(self, pipe: TLSPipe) -> Exception:
        """Return why there is no TLS."""
        error = self.failureResultOf(pipe.secured).value
        assert isinstance(error, Exception)
        self.assertEqual(self.clock.getDelayedCalls(), [])
        return error

    def test_untrusted(self) -> None:
        """A server nobody vouches for is refused in words, and hears it."""
        pipe, server = self.open(context=client_context(trusting=False))
        error = self.failure(pipe)
        self.assertEqual(
            (error.kind, str(error)), ("tls", "certificate verify failed: self-signed certificate")
        )
        self.assertEqual(server.alert, "TLSV1_ALERT_UNKNOWN_CA")
        self.assertIsNotNone(server.lost)

    def test_other_name(self) -> None:
        """A certificate for somebody else is refused."""
        near, far = self.channels()
        Server(far, VERSIONS[1])
        far.resume()
        error = self.failure(TLSPipe(near, client_context(), "other.example", self.clock))
        self.assertIn("Hostname mismatch", str(error))

    def test_no_tls(self) -> None:
        """A peer that speaks something else is refused."""
        near, far = self.channels()
        pipe = TLSPipe(near, client_context(), HOST, self.clock)
        far.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        error = self.failure(pipe)
        self.assertEqual((error.kind, str(error)), ("tls", "wrong version number"))

    def test_unreachable(self) -> None:
        """An old agent that cannot connect closes what it accepted; later it is another case."""
        near, far = self.channels()
        pipe = TLSPipe(near, client_context(), HOST, self.clock)
        far.close()
        error = self.failure(pipe)
        self.assertEqual(error.kind, "unreachable")
        near, far = self.channels()
        pipe = TLSPipe(near, client_context(), HOST, self.clock)
        far.send(b"\x16\x03\x03\x00\x80")
        far.finish()
        error = self.failure(pipe)
        self.assertEqual(
            (error.kind, str(error)), ("tls", "the connection was closed during the TLS handshake")
        )

    def test_channel_gone(self) -> None:
        """A channel that is gone already fails at once."""
        near, far = self.channels()
        far.abort()
        self.muxes.pump()
        self.assertEqual(self.failure(TLSPipe(near, client_context(), HOST, self.clock)).kind, "unreachable")

    def test_deadline(self) -> None:
        """A server that never gets to the end of the handshake is given up, whatever waits."""
        for act in (lambda _: None, lambda pipe: pipe.send(b"x") or pipe.close()):
            near, far = self.channels()
            pipe = TLSPipe(near, client_context(), HOST, self.clock)
            pipe.receiver = recorder = Recorder()
            act(pipe)
            far.send(b"\x16\x03\x03\x00\x80")
            self.muxes.pump()
            self.clock.advance(HANDSHAKE_TIMEOUT - 0.1)
            self.assertNoResult(pipe.secured)
            self.clock.advance(0.2)
            self.assertEqual(recorder.log, ["closed"])
            far.close()
            error = self.failure(pipe)
            self.assertEqual((error.kind, str(error)), ("timeout", "the TLS handshake took longer than 10 s"))

    def test_tunnel_lost(self) -> None:
        """A tunnel that is lost says so, which is no failure of the API server."""
        pipe, _ = self.open(recorder := Recorder())
        self.muxes.near.mux.lost(TunnelLost("gone"))
        self.assertIsInstance(self.failure_of_any_kind(pipe), TunnelLost)
        self.assertEqual(recorder.log, ["closed"])

    def test_cancelled(self) -> None:
        """Cancelling aborts, and so does abort."""
        pipe, server = self.open()
        pipe.secured.cancel()
        self.assertIsInstance(self.failure_of_any_kind(pipe), CancelledError)
        self.muxes.pump()
        self.assertIsNotNone(server.lost)
        pipe, server = self.open()
        pipe.abort()
        self.assertEqual(str(self.failure_of_any_kind(pipe)), "aborted on our side")

    def test_when_secured(self) -> None:
        """Whoever waits for the handshake may do anything: abort, close, send, set another receiver."""

        def act(name: str) -> Callable[[TLSPipe], None]:
            def secured(pipe: TLSPipe) -> None:
                pipe.receiver = late
                if name == "send":
                    pipe.send(b"hello")
                    pipe.resume()
                else:
                    getattr(pipe, name)()

            return secured

        for name, log, got in (
            ("abort", ["closed"], b""),
            ("close", ["closed"], b"first "),
            ("finish", ["received"], b"first "),
            ("pause", ["drained"], b"first "),
            ("send", ["drained", "received"], b"first hello"),
        ):
            late = Recorder()
            pipe, server = self.open(Recorder())
            pipe.send(b"first ")
            pipe.secured.addCallback(act(name))
            self.muxes.pump()
            if name != "abort":
                self.assertEqual(server.got, got)
            server.send(b"answer")
            self.muxes.pump()
            self.assertEqual(late.log, log)


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
        """A small request is one piece on the channel, and so is what comes back from many records."""
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
        """A full channel is said to be, and drained comes when it takes bytes again."""
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
        """What a paused receiver does not take stays at the far end."""
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
        channel = FakePipe()
        pipe = TLSPipe(channel, client_context(), HOST, self.clock)
        pipe.secured.addErrback(lambda failure: failure.trap(Exception) and None)
        self.assertFalse(pipe.is_large)
        channel.is_large = True
        self.assertTrue(pipe.is_large)

    def test_is_leaving(self) -> None:
        """It is not to be used again when its channel will be gone, or when its owner says so."""
        channel, owner = FakePipe(), Leaving()
        pipe = TLSPipe(channel, client_context(), HOST, self.clock, owner=owner)
        pipe.secured.addErrback(lambda failure: failure.trap(Exception) and None)
        self.assertFalse(pipe.is_leaving)
        owner.draining = True
        self.assertTrue(pipe.is_leaving)
        owner.draining, channel.is_leaving = False, True
        self.assertTrue(pipe.is_leaving)
        pipe.abort()


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
        self.assertTrue(pipe.send(b"late"))
        self.muxes.pump()
        self.assertEqual((server.got, server.has_ended, server.lost), (b"", True, None))

    def test_close(self) -> None:
        """Closing sends what there is, then ends both ways; what still comes is dropped."""
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
        """What came before the channel went is delivered when the receiver takes it, then the end."""
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
        """A receiver that wants nothing of what waits any more is told the end at once."""
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

        def too_late(pipe: TLSPipe, server: Server) -> None:
            self.clock.advance(HANDSHAKE_TIMEOUT)

        def cancelled(pipe: TLSPipe, server: Server) -> None:
            pipe.secured.cancel()

        gc.collect()
        gc.disable()
        self.addCleanup(gc.enable)
        for end in (aborted, done, cut, too_late, cancelled):
            pipe, server = self.open(recorder := Recorder())
            pipe.secured.addCallbacks(lambda _: None, lambda _: None)
            end(pipe, server)
            self.muxes.pump()
            self.assertEqual(recorder.log[-1], "closed")
            channel = weakref.ref(pipe._pipe)
            del pipe, server
            self.assertIsNone(channel(), end)

    def test_late_receiver(self) -> None:
        """A receiver that was set after the pipe was gone hears so when it resumes."""
        pipe, server = self.secured(Recorder())
        server.channel.abort()
        self.muxes.pump()
        pipe.receiver = recorder = Recorder()
        self.assertEqual(recorder.log, [])
        self.assertTrue(pipe.send(b"x"))
        pipe.finish()
        pipe.close()
        pipe.resume()
        self.assertEqual(recorder.log, ["closed"])


LOG = ("received", "ended", "closed")

"""Tests of `tower.tunnels.tls_handshake`, over channels of two muxes that are joined in memory."""

from __future__ import annotations

import gc
import ssl
from collections.abc import Callable
from typing import cast

from twisted.internet.defer import CancelledError

from tests.fakes.living import living
from tests.fakes.receivers import Recorder
from tests.fakes.sockets import HOST, client_context
from tests.fakes.tls_pipes import VERSIONS, Ends, Server
from tower.conch.connection.channel import Channel
from tower.errors import TunnelLost
from tower.kube.head_fields import Upstream
from tower.net.tls.resumption import LOOKS, Resumption
from tower.tunnels.apiserver_gate import APIServerGate
from tower.tunnels.tls_handshake import HANDSHAKE_TIMEOUT, TLSHandshake
from tower.tunnels.tls_pipe import TLSPipe


class HandshakeTests(Ends):
    """Shakes hands."""

    def test_secured(self) -> None:
        """The handshake goes on by itself, and nothing is read after it before resume."""
        for version in VERSIONS:
            recorder = Recorder()
            handshake, server = self.open(version=version)
            self.muxes.pump()
            pipe = self.successResultOf(handshake.secured)
            self.assertEqual(self.clock.getDelayedCalls(), [])
            pipe.receiver = recorder
            server.send(b"hello")
            self.muxes.pump()
            self.assertEqual(recorder.log, [])
            pipe.resume()
            self.assertEqual(recorder.got, b"hello")

    def test_resumed(self) -> None:
        """The second handshake with a server is a short one, and so are those after it."""
        resumption = Resumption()
        for version in VERSIONS:
            reused = []
            for _ in range(3):
                near, far = self.channels()
                server = Server(far, version)
                far.resume()
                handshake = TLSHandshake(near, client_context(), HOST, self.clock, resumption)
                self.muxes.pump()
                pipe = self.successResultOf(handshake.secured)
                pipe.receiver = recorder = Recorder()
                pipe.resume()
                server.send(b"x")
                self.muxes.pump()
                self.assertEqual(recorder.got, b"x")
                reused.append(server.session.object.session_reused)
                pipe.abort()
            self.assertEqual(reused, [False, True, True])

    def test_verified(self) -> None:
        """A check of the API server never resumes a session, which would hide an expired certificate."""
        upstream = Upstream(b"", b"", b"")
        for version in VERSIONS:
            gate = APIServerGate(
                self.clock, client_context(), HOST, lambda: upstream, Resumption(), why_not=""
            )
            reused = []
            for secure in (gate.secure, gate.secure, gate.verify, gate.secure_unverified):
                near, far = self.channels()
                server = Server(far, version)
                far.resume()
                securing = secure(near)
                self.muxes.pump()
                pipe = self.successResultOf(securing)
                pipe.receiver = recorder = Recorder()
                pipe.resume()
                server.send(b"x")
                self.muxes.pump()
                self.assertEqual(recorder.got, b"x")
                reused.append(server.session.object.session_reused)
                pipe.abort()
            self.assertEqual(reused, [False, True, False, False])

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

    def failure_of_any_kind(self, handshake: TLSHandshake) -> Exception:
        """Return why there is no TLS."""
        error = self.failureResultOf(handshake.secured).value
        assert isinstance(error, Exception)
        self.assertEqual(self.clock.getDelayedCalls(), [])
        return error

    def test_untrusted(self) -> None:
        """An untrusted server is rejected with the reason, and receives an alert."""
        handshake, server = self.open(context=client_context(trusting=False))
        error = self.failure(handshake)
        self.assertEqual(
            (error.kind, str(error)), ("tls", "certificate verify failed: self-signed certificate")
        )
        self.assertEqual(server.alert, "TLSV1_ALERT_UNKNOWN_CA")
        self.assertIsNotNone(server.lost)

    def test_other_name(self) -> None:
        """A certificate for another name is rejected."""
        near, far = self.channels()
        Server(far, VERSIONS[1])
        far.resume()
        error = self.failure(TLSHandshake(near, client_context(), "other.example", self.clock))
        self.assertIn("Hostname mismatch", str(error))

    def test_no_tls(self) -> None:
        """A peer that speaks something else is refused."""
        near, far = self.channels()
        handshake = TLSHandshake(near, client_context(), HOST, self.clock)
        far.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        error = self.failure(handshake)
        self.assertEqual((error.kind, str(error)), ("tls", "wrong version number"))

    def test_unreachable(self) -> None:
        """An old agent that cannot connect closes what it accepted; later it is another case."""
        near, far = self.channels()
        handshake = TLSHandshake(near, client_context(), HOST, self.clock)
        far.close()
        error = self.failure(handshake)
        self.assertEqual(error.kind, "unreachable")
        near, far = self.channels()
        handshake = TLSHandshake(near, client_context(), HOST, self.clock)
        far.send(b"\x16\x03\x03\x00\x80")
        far.finish()
        error = self.failure(handshake)
        self.assertEqual(
            (error.kind, str(error)), ("tls", "the connection was closed during the TLS handshake")
        )

    def test_channel_gone(self) -> None:
        """A channel that is closed already fails at once."""
        near, far = self.channels()
        far.abort()
        self.muxes.pump()
        self.assertEqual(
            self.failure(TLSHandshake(near, client_context(), HOST, self.clock)).kind, "unreachable"
        )

    def test_deadline(self) -> None:
        """A server that never gets to the end of the handshake is given up."""
        near, far = self.channels()
        handshake = TLSHandshake(near, client_context(), HOST, self.clock)
        far.send(b"\x16\x03\x03\x00\x80")
        self.muxes.pump()
        self.clock.advance(HANDSHAKE_TIMEOUT - 0.1)
        self.assertNoResult(handshake.secured)
        self.clock.advance(0.2)
        far.close()
        error = self.failure(handshake)
        self.assertEqual((error.kind, str(error)), ("timeout", "the TLS handshake took longer than 10 s"))

    def test_tunnel_lost(self) -> None:
        """The error of a lost tunnel is not one of the API server."""
        handshake, _ = self.open()
        self.muxes.near.mux.lost(TunnelLost("gone"))
        self.assertIsInstance(self.failure_of_any_kind(handshake), TunnelLost)

    def test_cancelled(self) -> None:
        """Cancelling aborts."""
        handshake, server = self.open()
        handshake.secured.cancel()
        self.assertIsInstance(self.failure_of_any_kind(handshake), CancelledError)
        self.muxes.pump()
        self.assertIsNotNone(server.lost)

    def test_when_secured(self) -> None:
        """The receiver of the result may use the pipe from within the callback."""

        def act(name: str) -> Callable[[TLSPipe], None]:
            def secured(pipe: TLSPipe) -> None:
                pipe.receiver = late
                pipe.send(b"hello")
                getattr(pipe, name)()

            return secured

        for name, log, got in (
            ("abort", ["closed"], b""),
            ("close", ["closed"], b"hello"),
            ("finish", [], b"hello"),
            ("pause", [], b"hello"),
            ("resume", ["received"], b"hello"),
        ):
            late = Recorder()
            handshake, server = self.open()
            handshake.secured.addCallback(act(name))
            self.muxes.pump()
            if name != "abort":
                self.assertEqual(server.got, got)
            server.send(b"answer")
            self.muxes.pump()
            self.assertEqual(late.log, log)

    def test_no_cycles(self) -> None:
        """However it fails, nothing of it is left to the garbage collector."""

        def too_late(handshake: TLSHandshake) -> None:
            self.clock.advance(HANDSHAKE_TIMEOUT)

        def cancelled(handshake: TLSHandshake) -> None:
            handshake.secured.cancel()

        def done(handshake: TLSHandshake) -> None:
            self.muxes.pump()

        gc.collect()
        gc.disable()
        self.addCleanup(gc.enable)
        for end in (too_late, cancelled, done):
            before = living(Channel)
            near, far = self.channels()
            handshake = TLSHandshake(near, client_context(), HOST, self.clock)
            server = Server(far, VERSIONS[1])
            far.resume()
            handshake.secured.addCallbacks(lambda pipe: pipe.abort(), lambda _: None)
            end(handshake)
            self.muxes.pump()
            del near, far, server, handshake
            self.assertEqual(living(Channel), before, end)

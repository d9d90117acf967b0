"""Tests of `tower.net.tls.connection`, on socket pairs."""

from __future__ import annotations

import random
import socket
import ssl
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.receivers import BufferRecorder, Recorder
from tests.fakes.sockets import HOST, SocketReactor, client_context, server_context, socket_pair, take
from tower.net.connection import STALLED, ConnectionEnded
from tower.net.lingering_close import LINGER
from tower.net.tls.connection import TLS_TURNS, CertificateRejected, TLSConnection, TLSFailed
from tower.net.tls.session import TLSSession

BULK = random.Random(3).randbytes(3 << 20)


class InternetSocket(socket.socket):
    """A socket that has an address while it is open, unlike those of a socket pair."""

    def getpeername(self) -> tuple[str, int]:
        """Return the address."""
        super().getpeername()
        return "192.0.2.7", 4711


class Ends(SynchronousTestCase):
    """A client's and a server's connection, each with a recorder."""

    reactor: SocketReactor

    def setUp(self) -> None:
        """Make a reactor."""
        self.reactor = SocketReactor()
        self.secure: list[str] = []

    def over(self, sock: socket.socket, *, server: bool, **options: Any) -> TLSConnection:
        """Return one end."""
        if server:
            version = options.pop("version", ssl.TLSVersion.TLSv1_3)
            context = options.pop("context", server_context(version))
        else:
            context = options.pop("context", client_context())
            options["server_hostname"] = HOST
        name = "server" if server else "client"
        options.setdefault("on_secure", lambda: self.secure.append(name))
        connection = TLSConnection(self.reactor, sock, context, server_side=server, **options)
        self.addCleanup(connection.abort)
        return connection

    def join(
        self, near: Recorder, far: Recorder, send_buffer: int | None = None, **options: Any
    ) -> tuple[TLSConnection, TLSConnection]:
        """Return a client and a server with their receivers, resumed, before the handshake."""
        one, two = socket_pair(send_buffer)
        client = self.over(one, server=False, **options.pop("client", {}))
        server = self.over(two, server=True, **options)
        client.receiver, server.receiver = near, far
        client.resume()
        server.resume()
        return client, server

    def assert_nothing_left(self) -> None:
        """Nothing is left in the reactor."""
        left = (self.reactor.readers, self.reactor.writers, self.reactor.getDelayedCalls())
        self.assertEqual(left, ([], [], []))


class HandshakeTests(Ends):
    """Shakes hands."""

    def test_secure(self) -> None:
        """Both ends get the end of the handshake, and each other's certificates."""
        context = client_context(showing=True)
        client, server = self.join(Recorder(), Recorder(), client={"context": context})
        self.reactor.run()
        self.assertEqual(sorted(self.secure), ["client", "server"])
        self.assertEqual(self.reactor.getDelayedCalls(), [])
        assert client.tls is not None
        self.assertEqual(client.tls.version(), "TLSv1.3")
        self.assertIsNotNone(client.peer_certificate())
        self.assertEqual(server.peer_certificate(), client.peer_certificate())  # the test has but one

    def test_paused(self) -> None:
        """A paused connection shakes hands too, but reads nothing after that until it is resumed."""
        one, two = socket_pair()
        client, server = self.over(one, server=False), self.over(two, server=True)
        client.receiver, server.receiver = Recorder(), (recorder := Recorder())
        client.send(b"hello")
        self.reactor.run()
        self.assertEqual(sorted(self.secure), ["client", "server"])
        self.assertEqual((self.reactor.readers, recorder.log), ([], []))
        server.resume()
        self.assertEqual(recorder.log, [])
        self.reactor.run()
        self.assertEqual(recorder.got, b"hello")

    def test_sent_before(self) -> None:
        """Bytes sent during the handshake are sent after it, then there is room."""
        near, far = Recorder(), Recorder()
        client, server = self.join(near, far)
        self.assertFalse(client.send(BULK))
        self.assertFalse(server.send(b"welcome"))
        self.reactor.run()
        self.assertEqual((far.got == BULK, near.got), (True, b"welcome"))
        self.assertEqual((near.log.count("drained"), far.log.count("drained")), (1, 1))
        self.assertEqual(client.bytes_out, len(BULK))
        self.assertEqual(server.bytes_in, len(BULK))

    def test_finish_before(self) -> None:
        """An end before the handshake comes after it, with and without bytes."""
        for data in (b"", b"all"):
            near, far = Recorder(), Recorder()
            client, _ = self.join(near, far)
            if data:
                client.send(data)
            client.finish()
            self.reactor.run()
            self.assertEqual((far.got, far.log[-1]), (data, "ended"))
            self.assertNotIn("closed", near.log)

    def test_close_before(self) -> None:
        """Closing before the end of the handshake sends the queue first; without one, it closes at once."""
        near, far = Recorder(), Recorder()
        client, _ = self.join(near, far)
        client.send(b"all")
        client.close()
        self.reactor.run()
        self.assertEqual((far.got, far.log), (b"all", ["received", "ended"]))
        self.assertEqual(near.log, ["closed"])
        self.reactor.advance(LINGER)
        client, server = self.join(near, far)
        server.close()
        self.assertEqual(far.log[-1], "closed")
        self.reactor.run()
        self.assertEqual(near.log[-1], "closed")

    def test_deadline(self) -> None:
        """A peer that does not finish it is dropped, even with a queue."""
        for queued, closing in ((False, False), (True, False), (True, True)):
            one, two = socket_pair()
            self.addCleanup(one.close)
            server = self.over(two, server=True, handshake_timeout=7)
            server.receiver = recorder = Recorder()
            if queued:
                server.send(b"x")
            if closing:
                server.close()
            one.sendall(b"\x16\x03\x01\x02\x00")
            self.reactor.run()
            self.reactor.advance(6.9)
            self.assertEqual(recorder.log, [])
            self.reactor.advance(0.2)
            self.assertEqual(recorder.log, ["closed"])
            self.assertIsInstance(recorder.reason, TLSFailed)
            self.assertNotIn("server", self.secure)
            self.assert_nothing_left()

    def test_no_tls(self) -> None:
        """A peer that speaks something else is dropped."""
        one, two = socket_pair()
        self.addCleanup(one.close)
        server = self.over(two, server=True)
        server.receiver = recorder = Recorder()
        one.sendall(b"GET / HTTP/1.1\r\n\r\n")
        self.reactor.run()
        self.assertEqual(str(recorder.reason), "http request")
        self.assertEqual(take(one), b"")
        self.assert_nothing_left()

    def test_untrusted(self) -> None:
        """An unverified server is rejected, with a readable reason."""
        near, far = Recorder(), Recorder()
        self.join(near, far, client={"context": client_context(trusting=False)})
        self.reactor.run()
        self.assertIsInstance(near.reason, TLSFailed)
        self.assertEqual(str(near.reason), "certificate verify failed: self-signed certificate")
        self.assertIn("unknown ca", str(far.reason))
        self.assertNotIsInstance(far.reason, CertificateRejected)
        self.assert_nothing_left()

    def test_untrusted_client(self) -> None:
        """An unverified client is rejected, with a readable reason; its address is known afterwards."""
        stranger = client_context(showing=True)
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            context = server_context(version, trusting=False)
            one, two = socket_pair()
            client = self.over(one, server=False, context=stranger)
            server = self.over(InternetSocket(fileno=two.detach()), server=True, context=context)
            client.receiver, server.receiver = Recorder(), (far := Recorder())
            client.resume()
            self.reactor.run()
            self.assertIsInstance(far.reason, CertificateRejected)
            self.assertEqual(str(far.reason), "certificate verify failed: self-signed certificate")
            self.assertEqual(server.getPeer().host, "192.0.2.7")

    def test_cut(self) -> None:
        """A connection that ends during the handshake was cut."""
        one, two = socket_pair()
        client = self.over(one, server=False)
        client.receiver = recorder = Recorder()
        self.reactor.run()
        two.close()
        self.reactor.run()
        self.assertEqual(recorder.log, ["closed"])
        self.assert_nothing_left()

    def test_abort_before_hello(self) -> None:
        """A client that is aborted at once leaves nothing behind."""
        one, two = socket_pair()
        self.addCleanup(two.close)
        self.over(one, server=False).abort()
        self.assert_nothing_left()

    def test_on_secure(self) -> None:
        """on_secure may do anything: abort, close, send, set another receiver."""

        def act(name: str) -> Callable[[], None]:
            def on_secure() -> None:
                late = Recorder()
                connections[0].receiver = late
                if name == "send":
                    connections[0].send(b"hello")
                    connections[0].resume()
                else:
                    getattr(connections[0], name)()
                receivers.append(late)

            return on_secure

        for name in ("abort", "close", "finish", "send", "pause"):
            receivers: list[Recorder] = []
            far = Recorder()
            connections = self.join(Recorder(), far, client={"on_secure": act(name)})
            connections[0].send(b"first ")
            self.reactor.run()
            self.assertEqual(
                receivers[0].log,
                ["closed"] if name in ("abort", "close") else ["drained"] * (name != "finish"),
            )
            self.assertEqual(far.got, {"abort": b"", "send": b"first hello"}.get(name, b"first "))


class Talkative:
    """A context whose sessions send an answer to each record that they read.

    :ivar answer: the bytes of an answer.
    """

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        self.answer = b""

    def wrap_bio(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, **options: Any) -> Any:
        """Return a session."""
        self._outgoing = outgoing
        self._object = self._context.wrap_bio(incoming, outgoing, **options)
        return self

    def read(self, *arguments: Any) -> Any:
        """Read, and answer."""
        self._outgoing.write(self.answer)
        return self._object.read(*arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._object, name)


class SecuredEnds(Ends):
    """Two ends after the handshake, or one and a manual peer."""

    def secured(self, near: Recorder, far: Recorder, **options: Any) -> tuple[TLSConnection, TLSConnection]:
        """Return both ends after the handshake."""
        ends = self.join(near, far, **options)
        self.reactor.run()
        return ends

    def shake(self, peer: TLSSession, sock: socket.socket) -> None:
        """Shake hands by hand."""
        while not peer.handshake():
            sock.sendall(peer.take())
            self.reactor.run()
            peer.feed(memoryview(take(sock) or b""))
        sock.sendall(peer.take())
        self.reactor.run()

    def by_hand(self) -> tuple[TLSSession, socket.socket, TLSConnection, Recorder]:
        """Return a client's session and socket, and the server's connection and receiver."""
        one, two = socket_pair()
        self.addCleanup(one.close)
        server = self.over(two, server=True)
        server.receiver = recorder = Recorder()
        server.resume()
        peer = TLSSession(client_context(), server_side=False, server_hostname=HOST)
        self.shake(peer, one)
        return peer, one, server, recorder


class StreamTests(SecuredEnds):
    """Carries bytes."""

    def test_both_ways(self) -> None:
        """Bulk goes both ways, whole, through small socket buffers; drained comes once each time."""
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            near, far = Recorder(), BufferRecorder(100_000)
            client, server = self.secured(near, far, send_buffer=4096, version=version)
            for _ in range(2):
                self.assertFalse(client.send(BULK))
                self.assertFalse(client.send(b"x"))
                self.assertFalse(server.send(memoryview(BULK)[: 1 << 20]))
                self.reactor.run()
            self.assertTrue(far.got == (BULK + b"x") * 2)
            self.assertTrue(near.got == BULK[: 1 << 20] * 2)
            self.assertEqual((near.log.count("drained"), far.log.count("drained"), far.lent), (2, 2, 0))
            self.assertEqual((client.queued, server.queued), (0, 0))
            self.assertTrue(client.send(b""))

    def test_partial_cipher_text(self) -> None:
        """Ciphertext that the kernel accepts in part is not encrypted twice."""
        near, far = Recorder(), Recorder()
        client, server = self.secured(near, far, send_buffer=1)
        server.pause()
        sent = 0
        while client.send(BULK[sent : sent + 5000]):
            sent += 5000
        sent += 5000
        self.assertEqual(client.queued, 0)  # TLS has it
        self.assertFalse(client.send(BULK[sent : sent + 100]))
        self.assertEqual(client.queued, 100)
        server.resume()
        self.reactor.run()
        self.assertTrue(far.got == BULK[: sent + 100])
        self.assertEqual(near.log, ["drained"])

    def test_answers_that_nobody_takes(self) -> None:
        """TLS's own output does not accumulate for a peer that does not read it."""
        one, two = socket_pair(1)
        self.addCleanup(one.close)
        context: Any = Talkative(server_context())
        server = TLSConnection(self.reactor, two, context)
        server.receiver = recorder = Recorder()
        server.resume()
        peer = TLSSession(client_context(), server_side=False, server_hostname=HOST)
        self.shake(peer, one)
        context.answer = b"k" * 5000
        for _ in range(100):
            wire = peer.encrypt(b"x")
            for piece in (wire[:10], wire[10:]):
                if recorder.reason is None:
                    one.sendall(piece)
                    self.reactor.run()
        self.assertEqual(str(recorder.reason), "the peer requests TLS messages but does not read them")
        self.assert_nothing_left()

    def test_pause(self) -> None:
        """While paused nothing is delivered, not even what TLS holds; it comes after resume."""
        near, far = Recorder(), BufferRecorder(1000)
        client, server = self.secured(near, far)
        far.on["received"] = server.pause
        client.send(BULK[:5500])
        client.finish()
        for count in range(1, 7):
            self.reactor.run()
            self.assertEqual(len(far.got), min(count * 1000, 5500))
            self.assertEqual(far.log, ["received"])
            self.assertNotIn(server, self.reactor.readers)
            server.resume()
            server.pause()
            server.resume()
        self.reactor.run()
        self.assertEqual((far.got, far.log, far.lent), (BULK[:5500], ["received", "ended"], 0))

    def test_no_room(self) -> None:
        """A receiver without room gets the bytes when it has."""
        near, far = Recorder(), BufferRecorder(None)
        client, server = self.secured(near, far)
        client.send(BULK[:5000])
        self.reactor.run()
        self.assertEqual((far.log, server in self.reactor.readers), ([], False))
        far.room = 777
        server.resume()
        self.reactor.run()
        self.assertEqual((far.got, far.lent), (BULK[:5000], 0))

    def test_part_of_a_record(self) -> None:
        """An incomplete record leaves no buffer lent and causes no busy loop."""
        one, two = socket_pair()
        self.addCleanup(one.close)
        server = self.over(two, server=True)
        server.receiver = far = BufferRecorder(1000)
        server.resume()
        peer = TLSSession(client_context(), server_side=False, server_hostname=HOST)
        self.shake(peer, one)
        wire = peer.encrypt(BULK[:1000])
        for i in range(0, len(wire), 100):
            one.sendall(wire[i : i + 100])
            turns = self.reactor.turns
            self.reactor.run()
            self.assertLess(self.reactor.turns - turns, 4)
            self.assertEqual(far.lent, 0)
        self.assertEqual(far.got, BULK[:1000])

    def test_truncated(self) -> None:
        """A connection that ends without close_notify was cut, and ended() is not called."""
        for last in (b"", b"\x17\x03\x03\x00"):
            peer, sock, _, recorder = self.by_hand()
            sock.sendall(peer.encrypt(b"part") + last)
            sock.shutdown(socket.SHUT_WR)
            self.reactor.run()
            self.assertEqual((recorder.got, recorder.log), (b"part", ["received", "closed"]))
            self.assertIsInstance(recorder.reason, ConnectionEnded)
            self.assert_nothing_left()

    def test_truncated_while_paused(self) -> None:
        """Bytes before the cut are delivered before it."""
        peer, sock, server, recorder = self.by_hand()
        server.pause()
        sock.sendall(peer.encrypt(BULK[:50_000]))
        sock.close()
        self.reactor.run()
        self.assertEqual(recorder.log, [])
        server.resume()
        self.reactor.run()
        self.assertEqual((recorder.got, recorder.log), (BULK[:50_000], ["received", "closed"]))

    def test_tampered(self) -> None:
        """Ciphertext that is not authentic ends the connection; bytes before were delivered."""
        peer, sock, _, recorder = self.by_hand()
        good, wire = peer.encrypt(b"good"), bytearray(peer.encrypt(b"bad"))
        wire[-1] ^= 1
        sock.sendall(good)
        self.reactor.run()
        sock.sendall(wire)
        self.reactor.run()
        self.assertEqual((recorder.got, recorder.log), (b"good", ["received", "closed"]))
        self.assertIsInstance(recorder.reason, TLSFailed)
        self.assert_nothing_left()

    def test_abort_in_callbacks(self) -> None:
        """Every callback may abort or close, and no other follows."""
        for action in ("abort", "close"):
            for event in ("received", "ended", "drained"):
                near, far = Recorder(), BufferRecorder(10)
                client, server = self.secured(near, far)
                far.on[event] = getattr(server, action)
                if event == "drained":
                    server.send(BULK)
                else:
                    client.send(b"x" * 1000)
                    client.finish()
                self.reactor.run()
                self.assertEqual((far.log[-2:], far.lent), ([event, "closed"], 0))
                client.abort()
                self.reactor.advance(LINGER)
                self.reactor.run()
                self.assert_nothing_left()

    def test_broken_while_sending(self) -> None:
        """Send notices a peer that disconnected; its last bytes are read first."""
        for size in (10, len(BULK)):
            _, sock, server, recorder = self.by_hand()
            sock.close()
            self.assertFalse(server.send(BULK[:size]))
            self.assertFalse(server.send(b"x"))
            self.assertEqual(recorder.log, [])
            self.reactor.run()
            self.assertEqual(recorder.log, ["closed"])
            self.assert_nothing_left()

    def test_many_turns(self) -> None:
        """One connection with much to decrypt lets others have their turn in between."""
        near, far = Recorder(), BufferRecorder(100)
        client, server = self.secured(near, far)
        client.send(BULK[:10_000])
        server.doRead()
        self.assertEqual(len(far.got), 100 * TLS_TURNS)
        self.reactor.run()
        self.assertEqual(far.got, BULK[:10_000])


class EndTests(SecuredEnds):
    """Ends one side or both.  A half close is a close_notify without a FIN."""

    def test_half_close(self) -> None:
        """Either side may end first; the other continues, and is read to its end."""
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            for order in (1, -1):
                recorders = [Recorder(), Recorder()]
                ends = self.secured(*recorders, version=version)[::order]
                near, far = recorders[::order]
                ends[0].send(b"question")
                ends[0].finish()
                self.assertFalse(ends[0].send(b"dropped"))
                self.reactor.run()
                self.assertEqual((far.got, far.log), (b"question", ["received", "ended"]))
                self.assertFalse(ends[1].send(BULK))
                self.reactor.run()
                self.assertTrue(near.got == BULK)
                ends[1].finish()
                self.reactor.run()
                self.assertEqual((near.log[-2:], far.log[-1]), (["ended", "closed"], "closed"))
                self.assert_nothing_left()

    def test_half_close_with_bytes_waiting(self) -> None:
        """Ending our side while a paused session holds bytes loses none of them."""
        for room in (1000, 100_000):
            near, far = Recorder(), BufferRecorder(room)
            client, server = self.secured(near, far)
            far.on["received"] = server.pause
            client.send(BULK[:50_000])
            self.reactor.run()
            server.finish()
            self.reactor.run()
            self.assertEqual(near.log, ["ended"])
            client.send(b"more")
            client.finish()
            far.on.clear()
            server.resume()
            self.reactor.run()
            self.assertTrue(far.got == BULK[:50_000] + b"more")
            self.assertEqual(far.log, ["received", "ended", "closed"])
            self.assert_nothing_left()

    def test_finish_at_once(self) -> None:
        """A client that ends its side before the session tickets came still reads."""
        near, far = Recorder(), Recorder()
        client, server = self.join(near, far)
        client.finish()
        self.reactor.run()
        server.send(b"answer")
        server.close()
        self.reactor.run()
        self.assertEqual((near.got, near.log), (b"answer", ["received", "ended", "closed"]))

    def test_end_with_the_handshake(self) -> None:
        """Bytes after the handshake are delivered, even if the peer has disconnected by then."""
        for data in (b"", b"all"):
            near, far = Recorder(), Recorder()
            client, server = self.join(near, far)
            server.pause()
            client.send(data)
            client.finish()
            server.finish()
            self.reactor.run()
            self.assertEqual((near.log[-1], far.log), ("closed", []))
            server.resume()
            self.reactor.run()
            self.assertEqual((far.got, far.log), (data, ["received"] * bool(data) + ["ended", "closed"]))
            self.assert_nothing_left()

    def test_finish_with_a_full_socket(self) -> None:
        """close_notify waits for room, then for the peer's."""
        near, far = Recorder(), Recorder()
        client, server = self.secured(near, far, send_buffer=1)
        server.pause()
        client.send(BULK)
        client.finish()
        self.reactor.run()
        server.resume()
        self.reactor.run()
        self.assertEqual((far.got == BULK, far.log), (True, ["received", "ended"]))
        self.assertEqual(near.log, [])
        server.finish()
        self.reactor.run()
        self.assertEqual((near.log, far.log[-1]), (["ended", "closed"], "closed"))
        self.assert_nothing_left()

    def test_close(self) -> None:
        """Close notifies TLS and TCP, and lingers until the peer is done."""
        near, far = Recorder(), Recorder()
        client, server = self.secured(near, far)
        client.send(b"bye")
        client.close()
        self.assertEqual(near.log, ["closed"])
        server.send(BULK)
        self.reactor.run()
        self.assertEqual((far.got, far.log), (b"bye", ["received", "ended", "drained"]))
        server.close()
        self.reactor.run()
        self.assertEqual(far.log[-1], "closed")
        self.assert_nothing_left()

    def test_close_flushes(self) -> None:
        """The queue is sent first; a peer that reads nothing is aborted."""
        near, far = Recorder(), Recorder()
        client, server = self.secured(near, far, send_buffer=1)
        server.pause()
        client.send(BULK)
        client.close()
        self.reactor.advance(STALLED - 1)
        self.assertEqual(near.log, [])
        server.resume()
        self.reactor.run()
        self.assertEqual((far.got == BULK, far.log, near.log), (True, ["received", "ended"], ["closed"]))
        client, server = self.secured(near, far, send_buffer=1)
        server.pause()
        client.send(BULK)
        client.close()
        self.reactor.run()
        self.reactor.advance(STALLED)
        self.assertEqual(near.log, ["closed", "closed"])

    @settings(max_examples=60, deadline=None)
    @given(
        st.lists(
            st.tuples(st.booleans(), st.sampled_from(["send", "finish", "pause", "resume"])), max_size=14
        ),
        st.integers(1, 5000),
    )
    def test_any_order(self, script: list[tuple[bool, str]], room: int) -> None:
        """Whatever the order of sends, pauses and ends, each side gets all that the other sent."""
        self.reactor = SocketReactor()
        recorders = [Recorder(), BufferRecorder(room)]
        ends = self.join(recorders[0], recorders[1], send_buffer=1)
        sent = [bytearray(), bytearray()]
        for step, (who, what) in enumerate(script):
            if what == "send":
                data = BULK[step * 20_000 : step * 20_000 + 30_000]
                ends[who].send(data)
                if (who, "finish") not in script[:step]:
                    sent[who] += data
            else:
                getattr(ends[who], what)()
            for _ in range(step % 3):
                self.reactor.run_once()
        ends[0].resume()
        ends[1].resume()
        self.reactor.run()
        for who, recorder in ((False, recorders[0]), (True, recorders[1])):
            self.assertEqual(recorder.got, sent[not who])
            self.assertEqual("ended" in recorder.log, (not who, "finish") in script)
        for end in ends:
            end.finish()
        self.reactor.run()
        self.assert_nothing_left()
        self.assertEqual([recorder.log[-1] for recorder in recorders], ["closed", "closed"])

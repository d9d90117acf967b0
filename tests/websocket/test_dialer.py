"""Tests of `tower.websocket.dialer`."""

from __future__ import annotations

import gc
import ssl
import weakref
from base64 import b64encode
from functools import partial
from hashlib import sha1
from typing import Any, cast

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.testing import MemoryReactorClock
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.chains import family, server_context
from tests.fakes.pipes import FakePipe
from tower.member.reconnecting import Backoff
from tower.net.connect_proxy import LONGEST_HEAD
from tower.net.connecting import ConnectFailed
from tower.net.proxy_environment import HTTPProxy, parse_server_url
from tower.net.tls.ca_pinning import key_hash
from tower.net.tls.session import TLSSession
from tower.reactor.interfaces import ISocketReactor
from tower.websocket.client_handshake import LONGEST_ANSWER
from tower.websocket.dialer import ANSWER_TIMEOUT, Dialer, DialFailed, SubprotocolRefused


def answer(request: bytes, protocol: bytes = b"Sec-WebSocket-Protocol: tower-v2\r\n") -> bytes:
    """Return a proxy's response to a handshake."""
    key = request.split(b"Sec-WebSocket-Key: ")[1].split(b"\r\n")[0]
    accept = b64encode(sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())  # RFC 6455 section 4.2.2
    return (
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: " + accept + b"\r\n" + protocol + b"\r\n"
    )


class Rest:
    """The receiver that comes after the handshake."""

    def __init__(self) -> None:
        self.data = b""

    def received(self, data: memoryview) -> None:
        """Keep it."""
        self.data += bytes(data)

    def ended(self) -> None:
        """Not of interest."""

    def drained(self) -> None:
        """Not of interest."""

    def closed(self, reason: Exception) -> None:
        """Not of interest."""


class BackoffTests(SynchronousTestCase):
    def test_growth(self) -> None:
        """Waits grow by 1.4 from 100 ms to two minutes."""
        backoff = Backoff(chance=lambda: 1.0)
        waits = [backoff.wait() for _ in range(40)]
        self.assertAlmostEqual(waits[0], 0.1)
        self.assertAlmostEqual(waits[1], 0.14)
        self.assertAlmostEqual(waits[2], 0.196)
        self.assertEqual(waits[-1], 120.0)

    def test_jitter(self) -> None:
        """Half of each wait is left to chance."""
        self.assertAlmostEqual(Backoff(chance=lambda: 0.0).wait(), 0.05)
        self.assertTrue(all(0.05 <= Backoff().wait() <= 0.1 for _ in range(100)))

    def test_reset(self) -> None:
        """Valid connections after a failure."""
        backoff = Backoff(chance=lambda: 1.0)
        for _ in range(10):
            backoff.wait()
        backoff.reset()
        self.assertAlmostEqual(backoff.wait(), 0.1)

    def test_longest(self) -> None:
        """A small limit holds from the first wait on."""
        self.assertAlmostEqual(Backoff(longest=0.05, chance=lambda: 1.0).wait(), 0.05)


class DialerTests(SynchronousTestCase):
    def setUp(self) -> None:
        """Make a network on which every connection succeeds."""
        self.clock = MemoryReactorClock()
        self.reactor = cast(ISocketReactor, self.clock)
        self.asked: list[tuple[str, int, dict[str, Any]]] = []
        self.pipes: list[FakePipe] = []
        self.failure: ConnectFailed | None = None
        self.failures: list[ConnectFailed] = []

    def connect(self, reactor: Any, host: str, port: int, **options: Any) -> Deferred[Any]:
        """Be `tower.net.connecting.connect`."""
        self.asked.append((host, port, options))
        if self.failure is not None:
            return fail(self.failure)
        if self.failures:
            return fail(self.failures.pop(0))
        self.pipes.append(FakePipe())
        return succeed(self.pipes[-1])

    def dial(
        self, url: str = "ws://tower.example:8080/agent?a=b", protocol: str = "tower-v2", **options: Any
    ) -> Deferred[Any]:
        """Begin to dial."""
        dialer = Dialer(self.reactor, parse_server_url(url), connect=self.connect, **options)
        return Deferred.fromCoroutine(dialer.dial(protocol))

    def failed(self, dialed: Deferred[Any]) -> str:
        """Return why it failed, having made sure that nothing is left."""
        text = str(self.failureResultOf(dialed, DialFailed).value)
        self.assertTrue(all(pipe.lost for pipe in self.pipes))
        self.assertEqual(self.clock.getDelayedCalls(), [])
        return text

    def test_handshake(self) -> None:
        """The request is what RFC 6455 wants, with our subprotocol and the URL's path."""
        dialed = self.dial()
        (pipe,) = self.pipes
        request = bytes(pipe.sent)
        self.assertTrue(request.startswith(b"GET /agent?a=b HTTP/1.1\r\nUser-Agent: tower-agent/"))
        for line in (
            b"Host: tower.example:8080",
            b"Sec-WebSocket-Protocol: tower-v2",
            b"Sec-WebSocket-Version: 13",
        ):
            self.assertIn(b"\r\n" + line + b"\r\n", request)
        self.assertNotIn(b"Extensions", request)
        pipe.deliver(answer(request))
        self.assertEqual(self.successResultOf(dialed), (pipe, b""))
        self.assertTrue(pipe.paused)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_freed(self) -> None:
        """Nothing of the handshake holds the connection after it; no collector is needed."""
        gc.disable()
        self.addCleanup(gc.enable)
        dialed = self.dial()
        pipe = self.pipes.pop()
        pipe.deliver(answer(bytes(pipe.sent)))
        self.successResultOf(dialed)
        del pipe.receiver  # a tunnel sets its own
        held = weakref.ref(pipe)
        del pipe, dialed
        self.assertIsNone(held())

    def test_splits(self) -> None:
        """The response may come in any pieces; the bytes after it are returned."""
        for step in (1, 7, 1000):
            dialed = self.dial()
            pipe = self.pipes[-1]
            wire = answer(bytes(pipe.sent)) + b"\x82\x05SSH-2"
            for i in range(0, len(wire), step):
                pipe.deliver(wire[i : i + step])
            leftover = self.successResultOf(dialed)[1]
            rest = Rest()
            pipe.receiver = rest
            pipe.resume()
            self.assertEqual(leftover + rest.data, b"\x82\x05SSH-2")

    def test_ipv6(self) -> None:
        """An IPv6 address is in brackets in the request, and without them where we connect."""
        self.dial("ws://[fd00::1]:8080")
        self.assertEqual(self.asked[0][:2], ("fd00::1", 8080))
        self.assertIn(b"\r\nHost: [fd00::1]:8080\r\n", bytes(self.pipes[0].sent))

    def test_refused(self) -> None:
        """The error of a failed connection has the address and the reason."""
        self.pipes = []
        self.failure = ConnectFailed("refused", "tower.example:8080: connection refused")
        self.assertEqual(
            self.failed(self.dial("ws://tower.example:8080")),
            "cannot reach ws://tower.example:8080: connection refused: check --proxy-server, and that the "
            "proxy runs there",
        )

    def test_status(self) -> None:
        """The error for a response other than 101 has its status."""
        dialed = self.dial()
        self.pipes[0].deliver(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
        self.assertIn("HTTP status 404", self.failed(dialed))

    def test_not_spoken(self) -> None:
        """A refusal is distinguished from a temporary failure."""
        refusals = dict.fromkeys((200, 301, 400, 403, 404, 426, 500), True)
        for status, refused in {**refusals, **dict.fromkeys((429, 502, 503, 504), False)}.items():
            dialed = self.dial()
            pipe = self.pipes[-1]
            for byte in b"HTTP/1.0 %d Reason\r\nContent-Length: 0\r\n\r\n" % status:
                if not pipe.lost:
                    pipe.deliver(bytes([byte]))
            error = self.failureResultOf(dialed, DialFailed).value
            self.assertEqual((status, isinstance(error, SubprotocolRefused)), (status, refused))
            self.assertIn(str(status), str(error))
            self.assertNotIn("Whatever", str(error))
        dialed = self.dial()
        self.pipes[-1].deliver(answer(bytes(self.pipes[-1].sent), b""))
        self.failureResultOf(dialed, SubprotocolRefused)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_v1(self) -> None:
        """kubesphere-v1 is requested alone, and needs no confirmation, which old proxies do not send."""
        for echo in (b"", b"Sec-WebSocket-Protocol: kubesphere-v1\r\n"):
            dialed = self.dial("http://tower.example/tower/", protocol="kubesphere-v1")
            pipe = self.pipes[-1]
            request = bytes(pipe.sent)
            self.assertTrue(request.startswith(b"GET /tower/ HTTP/1.1\r\n"))
            self.assertEqual(request.count(b"Sec-WebSocket-Protocol: kubesphere-v1\r\n"), 1)
            self.assertNotIn(b"tower-v2", request)
            pipe.deliver(answer(request, echo) + b"\x82\x05SSH-k")
            self.assertEqual(self.successResultOf(dialed), (pipe, b"\x82\x05SSH-k"))
        dialed = self.dial(protocol="kubesphere-v1")
        self.pipes[-1].deliver(answer(bytes(self.pipes[-1].sent)))
        self.assertIn("kubesphere-v1", str(self.failureResultOf(dialed, SubprotocolRefused).value))

    def test_bad_answers(self) -> None:
        """A 101 of another protocol is not accepted."""
        for protocol in (b"", b"Sec-WebSocket-Protocol: kubesphere-v1\r\n"):
            dialed = self.dial()
            self.pipes[-1].deliver(answer(bytes(self.pipes[-1].sent), protocol))
            self.failed(dialed)
        dialed = self.dial()
        self.pipes[-1].deliver(answer(b"Sec-WebSocket-Key: other\r\n"))
        text = self.failed(dialed)
        self.assertTrue(text.endswith("Sec-WebSocket-Accept bogus value"), text)
        for nonsense in (
            b"SSH-2.0-OpenSSH_9",
            b"HTTP/1.1 101 \xff\xfe",
            b"HTTP/1.1 101 x\r\n\xff: \xfe",
            b"\xff",
        ):
            dialed = self.dial()
            self.pipes[-1].deliver(nonsense + b"\r\n\r\n\r\n")
            self.failed(dialed)

    def test_endless(self) -> None:
        """An answer that does not end is cut off."""
        dialed = self.dial()
        for _ in range(LONGEST_ANSWER // 1024 + 1):
            if not self.pipes[0].lost:
                self.pipes[0].deliver(b"x" * 1024)
        self.assertIn("too long", self.failed(dialed))

    def test_cut(self) -> None:
        """A connection that is cut during the handshake is a failure; without TLS, it may be a TLS port."""
        for url, cure in (("ws://tower.example:8443", True), ("wss://tower.example:8443", False)):
            dialed = self.dial(url, context=ssl.create_default_context())
            self.pipes[-1].lose()
            text = self.failed(dialed)
            self.assertIn("closed the connection during the WebSocket handshake", text)
            self.assertEqual("use wss://" in text, cure)

    def test_other_authority(self) -> None:
        """A certificate that the system's CAs did not issue: the options for the proxy's CA are named."""
        self.failure = ConnectFailed("tls", "certificate verify failed: self-signed certificate")
        self.assertIn("--ca-hash", self.failed(self.dial("wss://tower.example")))
        self.failure = ConnectFailed("tls", "certificate verify failed: Hostname mismatch")
        self.assertIn(
            "--publish-service-address tower.example", self.failed(self.dial("wss://tower.example"))
        )
        self.failure = ConnectFailed("tls", "wrong version number")
        text = self.failed(self.dial("wss://tower.example:8080", context=ssl.create_default_context()))
        self.assertNotIn("set --ca-hash", text)
        self.assertIn("this port does not use TLS: use the port in the proxy's --secure-port, or,", text)
        self.assertTrue(text.endswith("ws://tower.example:8080 without --ca-hash and --ca-cert"), text)

    def test_permanent(self) -> None:
        """Errors that only an operator can end are marked; a proxy that is down is not one of them."""
        for text, permanent in (
            ("certificate verify failed: self-signed certificate", True),
            ("wrong version number", True),
            ("the TLS handshake took too long", False),
        ):
            self.failure = ConnectFailed("tls", text)
            error = self.failureResultOf(self.dial("wss://tower.example"), DialFailed).value
            self.assertEqual((text, error.permanent), (text, permanent))
        self.failure = ConnectFailed("refused", "tower.example:443: connection refused")
        self.assertFalse(self.failureResultOf(self.dial("wss://tower.example"), DialFailed).value.permanent)

    def test_clock(self) -> None:
        """A certificate that is not valid now is read by another connection, and compared with the clock."""
        leaf = family()[2][0]
        for text, moment, expected in (
            ("certificate is not yet valid", leaf.not_valid_before_utc.timestamp() - 4800, "80m earlier"),
            ("certificate has expired", leaf.not_valid_after_utc.timestamp() + 90000, "25h later"),
        ):
            error = ConnectFailed("tls", f"certificate verify failed: {text}")
            self.failure = error
            shown = self.failed(self.dial("wss://tower.example", context=ssl.create_default_context()))
            self.assertIn("set the clock of this machine", shown)
            self.assertNotIn("--ca-hash", shown)
            self.failure = None
            dialer = Dialer(
                self.reactor,
                parse_server_url("wss://tower.example"),
                context=ssl.create_default_context(),
                connect=self.first_fails(error),
                epoch=partial(float, moment),
            )
            dialed = Deferred.fromCoroutine(dialer.dial())
            self.show_chain(self.pipes[-1])
            shown = self.failed(dialed)
            self.assertIn(expected, shown)
            self.assertNotIn("\n", shown)

    def first_fails(self, error: ConnectFailed) -> Any:
        """Return a `connect` whose first connection fails."""
        errors = [error]

        def connect(*arguments: Any, **options: Any) -> Deferred[Any]:
            return fail(errors.pop()) if errors else self.connect(*arguments, **options)

        return connect

    def test_dead_http_proxy(self) -> None:
        """An HTTP proxy that cannot be reached is named with its variable."""
        self.failure = ConnectFailed("refused", "squid:3128: connection refused")
        proxy = HTTPProxy("squid", 3128, variable="HTTPS_PROXY")
        text = self.failed(
            self.dial("wss://tower.example", context=ssl.create_default_context(), proxy=proxy)
        )
        self.assertIn("the HTTP proxy squid:3128 (HTTPS_PROXY) cannot be reached", text)
        self.assertIn("correct or unset HTTPS_PROXY, or add tower.example to NO_PROXY", text)

    def test_silence(self) -> None:
        """No answer is a failure after a time."""
        dialed = self.dial()
        self.assertNoResult(dialed)
        self.clock.advance(ANSWER_TIMEOUT)
        self.assertIn("did not answer", self.failed(dialed))

    def test_cancel(self) -> None:
        """Cancelling leaves nothing behind."""
        dialed = self.dial()
        dialed.cancel()
        self.failureResultOf(dialed)
        self.assertTrue(self.pipes[0].lost)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_tls(self) -> None:
        """With wss, the context is used and the host name verified."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.dial("wss://tower.example", context=context)
        host, port, options = self.asked[0]
        self.assertEqual((host, port), ("tower.example", 443))
        self.assertIs(options["tls"], context)
        self.assertEqual(options["server_hostname"], "tower.example")

    def show_chain(self, pipe: FakePipe) -> None:
        """Be a TLS server that shows the whole family."""
        root, middle, leaf = family()
        server = TLSSession(server_context(leaf, middle[0], root[0]), server_side=True)
        for _ in range(2):
            server.feed(memoryview(pipe.taken()))
            server.handshake()
            if wire := server.take():
                pipe.deliver(wire)

    def test_learns_the_ca(self) -> None:
        """With a hash, the CA is learned once, on another connection, and is the only one then."""
        dialer = Dialer(
            self.reactor,
            parse_server_url("wss://tower.example"),
            hashes=[key_hash(family()[0][0])],
            connect=self.connect,
        )
        Deferred.fromCoroutine(dialer.dial())
        self.assertIsNone(self.asked[0][2]["tls"])
        self.show_chain(self.pipes[0])
        self.assertTrue(self.pipes[0].lost)
        learnt = self.asked[1][2]["tls"]
        self.assertEqual(learnt.verify_mode, ssl.CERT_REQUIRED)
        self.assertTrue(learnt.check_hostname)
        Deferred.fromCoroutine(dialer.dial())
        self.assertIs(self.asked[2][2]["tls"], learnt)
        self.failure = ConnectFailed("tls", "certificate verify failed")
        self.failureResultOf(Deferred.fromCoroutine(dialer.dial()), DialFailed)
        self.failure = None
        Deferred.fromCoroutine(dialer.dial())
        self.assertIsNone(self.asked[4][2]["tls"])  # another CA may be there by now: look again

    def test_announced_ca(self) -> None:
        """If the proxy's certificate no longer fits, a CA that it announced is found at once."""
        given, announced = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), [key_hash(family()[0][0])]
        dialer = Dialer(
            self.reactor,
            parse_server_url("wss://tower.example"),
            context=given,
            connect=self.connect,
            announced=lambda: announced,
        )
        self.failures = [ConnectFailed("tls", "certificate verify failed")]
        Deferred.fromCoroutine(dialer.dial())
        self.assertIs(self.asked[0][2]["tls"], given)
        self.assertIsNone(self.asked[1][2]["tls"])
        with capturedLogs() as events:
            self.show_chain(self.pipes[0])
        (line,) = map(formatEvent, events)
        self.assertIn(f"using CA {announced[0]} of wss://tower.example:443, which", str(line))
        learnt = self.asked[2][2]["tls"]
        Deferred.fromCoroutine(dialer.dial())
        self.assertIs(self.asked[3][2]["tls"], learnt)

    def test_announced_ca_is_not_there(self) -> None:
        """If no announced CA is present, the error is that of the configured CA."""
        self.failures = [ConnectFailed("tls", "certificate verify failed")]
        dialed = self.dial(
            "wss://tower.example",
            context=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
            announced=lambda: ["sha256:" + "0" * 64],
        )
        self.show_chain(self.pipes[0])
        self.assertIn("certificate verify failed", self.failed(dialed))

    def test_other_ca(self) -> None:
        """A proxy whose CA has another hash is left alone; nothing was sent to it."""
        dialed = self.dial("wss://tower.example", hashes=["sha256:" + "0" * 64])
        self.show_chain(self.pipes[0])
        self.assertIn("--ca-hash", self.failed(dialed))
        self.assertEqual(len(self.asked), 1)

    def test_no_tls_there(self) -> None:
        """A server without TLS is a failure too."""
        dialed = self.dial("wss://tower.example", hashes=["sha256:" + "0" * 64])
        self.pipes[0].deliver(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        self.failed(dialed)

    def test_http_proxy(self) -> None:
        """An HTTP proxy is asked first, and the handshake goes through it."""
        dialed = self.dial(proxy=HTTPProxy("squid", 3128, b"Basic abc"))
        (pipe,) = self.pipes
        self.assertEqual(self.asked[0][:2], ("squid", 3128))
        self.assertEqual(
            pipe.taken(),
            b"CONNECT tower.example:8080 HTTP/1.1\r\nHost: tower.example:8080\r\n"
            b"Proxy-Authorization: Basic abc\r\n\r\n",
        )
        for byte in b"HTTP/1.0 200 Connection established\r\nVia: x\r\n\r\n":
            pipe.deliver(bytes([byte]))
        pipe.deliver(answer(pipe.taken()))
        self.assertEqual(self.successResultOf(dialed), (pipe, b""))

    def test_http_proxy_refuses(self) -> None:
        """The error of a refusing HTTP proxy has its response and address, without the credential."""
        proxy = HTTPProxy("squid", 3128, b"Basic abc")
        for said, words in (
            (b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "407 Proxy Authentication Required"),
            (b"HTTP/1.1 403\r\n\r\n", "CONNECT with 403"),
            (b"SSH-2.0\r\n\r\n", "as an HTTP proxy does"),
            (b"HTTP/1.1 200 OK\r\n\r\nmore", "more than its answer"),
            (b"x" * (LONGEST_HEAD + 1), "too long"),
        ):
            dialed = self.dial(proxy=proxy)
            self.pipes[-1].deliver(said)
            text = self.failed(dialed)
            self.assertIn("squid:3128", text)
            self.assertIn(words, text)
            self.assertNotIn("abc", text)

    def test_http_proxy_gone(self) -> None:
        """An HTTP proxy that closes or does not answer is a failure."""
        for event in (FakePipe.end, FakePipe.lose):
            dialed = self.dial(proxy=HTTPProxy("squid", 3128))
            event(self.pipes[-1])
            self.assertIn("closed", self.failed(dialed))
        dialed = self.dial(proxy=HTTPProxy("squid", 3128))
        self.clock.advance(ANSWER_TIMEOUT)
        self.assertIn("did not answer", self.failed(dialed))

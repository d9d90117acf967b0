"""Tests of `tower.member.apiserver_relay` and `response_relay`, and of the agent's own answers."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.gateway import Kit, get, ok
from tests.fakes.muxes import MuxPair
from tests.fakes.pipes import FakePipe
from tests.fakes.receivers import Recorder
from tests.fakes.relay import passed, relayed, request
from tower.http.requests import HEAD_LIMIT
from tower.member.response_relay import DirectResponseRelay


class EndCase(SynchronousTestCase):
    """An agent's end in memory."""

    def setUp(self) -> None:
        """Start."""
        self.channel, self.upstream = FakePipe(), FakePipe()
        relayed(self.channel, self.upstream)

    def assert_refused(self, words: str = "", code: int = 403) -> None:
        """Check that *code* was answered and the API server's connection let go."""
        head, _, body = self.channel.taken().partition(b"\r\n\r\n")
        self.assertTrue(head.startswith(b"HTTP/1.1 %d " % code), head)
        self.assertIn(b"\r\nConnection: close", head)
        self.assertIn(words, json.loads(body)["message"])
        self.assertTrue(self.channel.finished)
        self.assertTrue(self.upstream.closing or self.upstream.aborted)


class RequestTests(EndCase):
    """Requests."""

    def test_credential(self) -> None:
        """A head goes on with the agent's credential."""
        self.channel.deliver(request(b"A: b"))
        self.assertEqual(self.upstream.taken(), passed(b"A: b"))

    def test_any_split(self) -> None:
        """Requests with bodies of all kinds pass however the stream was cut."""
        chunked = b"3\r\nabc\r\n0\r\nX: y\r\n\r\n"
        parts = [
            ({"line": b"GET /1 HTTP/1.1"}),
            ({"line": b"PUT /2 HTTP/1.1", "framing": b"Content-Length: 4\r\n", "body": b"GET "}),
            ({"line": b"PUT /3 HTTP/1.1", "framing": b"Transfer-Encoding: chunked\r\n", "body": chunked}),
            ({"line": b"POST /4 HTTP/1.1", "framing": b"Content-Length: 0\r\n"}),
        ]
        wire = b"".join(request(**part) for part in parts)
        expected = b"".join(passed(**part) for part in parts)
        for cut in range(len(wire)):
            self.setUp()
            self.channel.deliver(wire[:cut])
            self.channel.deliver(wire[cut:])
            self.assertEqual(self.upstream.taken(), expected)

    def test_byte_by_byte(self) -> None:
        """The same one byte at a time."""
        for value in request(framing=b"Content-Length: 2\r\n", body=b"ab") + request():
            self.channel.deliver(bytes((value,)))
        self.assertEqual(
            self.upstream.taken(), passed(framing=b"Content-Length: 2\r\n", body=b"ab") + passed()
        )

    def test_behind_a_body(self) -> None:
        """Data after a body is checked like any head: no request is smuggled."""
        for framing, body in (
            (b"Content-Length: 2\r\n", b"ab"),
            (b"Transfer-Encoding: chunked\r\n", b"0\r\n\r\n"),
        ):
            self.setUp()
            smuggled = b"GET /secret HTTP/1.1\r\nHost: tower\r\n\r\n"
            self.channel.deliver(request(framing=framing, body=body) + smuggled)
            self.assertEqual(self.upstream.taken(), passed(framing=framing, body=body))
            self.assert_refused("impersonates no user")

    def test_refused(self) -> None:
        """A request rejected by the policy is answered by the agent; data after it aborts the channel."""
        self.channel.deliver(b"GET /api HTTP/1.1\r\nHost: tower\r\n\r\n")
        self.assertEqual(self.upstream.taken(), b"")
        self.assert_refused("impersonates no user")
        self.channel.deliver(request())
        self.assertEqual(self.upstream.taken(), b"")
        self.assertTrue(self.channel.aborted)

    def test_warning(self) -> None:
        """A rejected discovery request has the reason in a warning for kubectl; others have none."""
        for line, warned in ((b"GET /api HTTP/1.1", True), (b"GET /api/v1/pods HTTP/1.1", False)):
            self.setUp()
            self.channel.deliver(line + b"\r\nHost: tower\r\n\r\n")
            self.assertEqual(b'\r\nWarning: 299 tower "' in self.channel.taken(), warned)

    def test_refused_behind_a_full_one(self) -> None:
        """A rejection is answered even if the API server's connection is full."""
        self.upstream.full = True
        body = request(framing=b"Content-Length: 2\r\n", body=b"ab")
        self.channel.deliver(body + b"GET /secret HTTP/1.1\r\nHost: tower\r\n\r\n")
        self.assert_refused("impersonates no user")
        self.assertFalse(self.channel.paused)

    def test_broken_chunks(self) -> None:
        """Broken framing goes no further."""
        self.channel.deliver(request(framing=b"Transfer-Encoding: chunked\r\n", body=b"3\r\nabcd"))
        self.assertNotIn(b"abcd", self.upstream.taken())
        self.assert_refused("chunk")

    def test_long_head(self) -> None:
        """A head without an end is refused."""
        self.channel.deliver(b"GET /" + b"a" * 70_000)
        self.assert_refused("longer than 65536 B", 431)

    def test_long_whole_head(self) -> None:
        """A head that is too long is refused, too, if it comes in one piece, alone or with others."""
        longest = request(b"X: " + b"a" * (HEAD_LIMIT - len(request(b"X: "))))
        self.assertEqual(len(longest), HEAD_LIMIT)
        for behind in (b"", request(), b"GET"):
            self.setUp()
            self.channel.deliver(longest + behind)
            self.assertIn(b"\r\nX: aaa", self.upstream.taken())
            self.assertEqual(self.channel.taken(), b"")
            for before in (b"", request()):
                self.setUp()
                self.channel.deliver(before + longest.replace(b"aaa", b"aaaa") + behind)
                self.assertEqual(self.upstream.taken(), passed() if before else b"")
                self.assert_refused("longer than 65536 B", 431)

    def test_bulk_body_is_not_copied_or_read(self) -> None:
        """A body may contain anything."""
        body = b"GET /x HTTP/1.1\r\n\r\n" * 1000
        self.channel.deliver(request(framing=b"Content-Length: %d\r\n" % len(body)))
        self.upstream.taken()
        for start in range(0, len(body), 997):
            self.channel.deliver(body[start : start + 997])
        self.assertEqual(self.upstream.taken(), body)

    def test_back_pressure(self) -> None:
        """Each side that is full stops the other."""
        self.upstream.full = True
        self.channel.deliver(request(framing=b"Content-Length: 9\r\n"))
        self.assertTrue(self.channel.paused)
        self.upstream.drain()
        self.assertFalse(self.channel.paused)
        self.channel.full = True
        self.upstream.deliver(ok())
        self.assertTrue(self.upstream.paused)
        self.channel.drain()
        self.assertFalse(self.upstream.paused)


class AnswerTests(EndCase):
    """Answers and ends."""

    def test_unparsed(self) -> None:
        """Answers pass as they come."""
        self.channel.deliver(request())
        for data in (b"HT", b"TP/1.1 101 whatever\r\n\r\n", b"\0"):
            self.upstream.deliver(data)
            self.assertEqual(self.channel.taken(), data)

    def test_upstream_ends(self) -> None:
        """The API server's end is relayed as an end, a cut as a cut."""
        self.upstream.end()
        self.assertTrue(self.channel.finished)
        self.assertFalse(self.channel.closing)
        self.upstream.lose()
        self.assertTrue(self.channel.closing)
        self.setUp()
        self.upstream.lose()
        self.assertTrue(self.channel.closing)
        self.assertFalse(self.channel.finished)

    def test_breaks_behind_its_answer(self) -> None:
        """An API server that answers an upload early, ends and breaks leaves nothing of it behind."""
        muxes, proxy, upstream = MuxPair(), Recorder(), FakePipe()
        there, here = muxes.open(proxy, Recorder())
        relayed(here, upstream)
        there.send(request(framing=b"Content-Length: 100000\r\n", body=b"a" * 9000))
        muxes.pump()
        upstream.deliver(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
        upstream.end()
        there.send(b"a" * 1000)
        upstream.broken = True
        muxes.pump()
        self.assertTrue(here._paused)
        there.send(b"a" * 1000)
        muxes.pump()
        upstream.lose()
        muxes.pump()
        self.assertEqual(proxy.log, ["received", "ended", "closed"])
        self.assertEqual((muxes.far.mux.channels, muxes.far.budget.lent), ({}, 0))

    def test_channel_ends(self) -> None:
        """If the proxy closes the channel, the connection is aborted at once."""
        for end in ("end", "lose"):
            self.setUp()
            getattr(self.channel, end)()
            self.assertTrue(self.upstream.aborted)


class LendingPipe(FakePipe):
    """A channel that lends its buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.lent = bytearray(100)

    def lease(self) -> memoryview | None:
        """Lend, unless full."""
        return None if self.full else memoryview(self.lent)

    def commit(self, size: int) -> None:
        """Send."""
        self.send(self.lent[:size])


class DirectTests(SynchronousTestCase):
    """Answers that are received where the channel wants them."""

    def test_direct(self) -> None:
        """The connection is offered the channel's own buffer."""
        channel, upstream = LendingPipe(), FakePipe()
        relayed(channel, upstream)
        answers = upstream.receiver
        assert isinstance(answers, DirectResponseRelay)
        place = answers.buffer()
        assert place is not None
        place[:3] = b"abc"
        answers.filled(3)
        self.assertEqual(channel.taken(), b"abc")
        channel.full = True
        self.assertIsNone(answers.buffer())
        upstream.pause()
        channel.drain()
        self.assertFalse(upstream.paused)


class UpgradeTests(EndCase):
    """SPDY and WebSocket."""

    ASKED = (b"Connection: Upgrade", b"Upgrade: SPDY/3.1")
    SWITCHED = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n"

    def setUp(self) -> None:
        """Request an upgrade."""
        super().setUp()
        self.channel.deliver(request(*self.ASKED))
        self.assertEqual(self.upstream.taken(), passed(*self.ASKED))

    def test_raw_after_101(self) -> None:
        """After the 101, in any split, bytes pass both ways."""
        for cut in range(len(self.SWITCHED)):
            self.setUp()
            self.upstream.deliver(self.SWITCHED[:cut])
            self.upstream.deliver(self.SWITCHED[cut:] + b"first")
            self.assertEqual(self.channel.taken(), self.SWITCHED + b"first")
            self.channel.deliver(b"GET / HTTP/1.1\r\n\r\n")
            self.assertEqual(self.upstream.taken(), b"GET / HTTP/1.1\r\n\r\n")
            self.upstream.deliver(b"\0")
            self.assertEqual(self.channel.taken(), b"\0")
            self.channel.end()
            self.assertTrue(self.upstream.finished)

    def test_interim(self) -> None:
        """An interim answer before the 101 passes."""
        interim = b"HTTP/1.1 100 Continue\r\n\r\n"
        self.upstream.deliver(interim + self.SWITCHED)
        self.assertEqual(self.channel.taken(), interim + self.SWITCHED)
        self.channel.deliver(b"raw")
        self.assertEqual(self.upstream.taken(), b"raw")

    def test_interim_held_back(self) -> None:
        """Interim answers that the proxy does not take are not piled up here."""
        self.channel.full = True
        self.upstream.deliver(b"HTTP/1.1 100 Continue\r\n\r\n")
        self.assertTrue(self.upstream.paused)
        self.channel.drain()
        self.assertFalse(self.upstream.paused)

    def test_waits(self) -> None:
        """Data before the 101 waits in the channel."""
        self.assertTrue(self.channel.paused)
        self.channel.deliver(b"early")
        self.assertEqual(self.upstream.taken(), b"")
        self.upstream.deliver(self.SWITCHED)
        self.assertEqual(self.upstream.taken(), b"early")

    def test_refused(self) -> None:
        """A refusal passes in any split; after it nothing more goes to the API server."""
        for answer in (
            b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno",
            b"garbage without any HTTP",
        ):
            for cut in range(len(answer)):
                self.setUp()
                self.upstream.deliver(answer[:cut])
                self.upstream.deliver(answer[cut:])
                self.assertEqual(self.channel.taken(), answer)
                self.channel.deliver(request())
                self.assertEqual(self.upstream.taken(), b"")
                self.assertTrue(self.channel.aborted)
                self.assertTrue(self.upstream.aborted)

    def test_only_first(self) -> None:
        """An upgrade behind another request is refused: the 101 that comes could be the first one's body."""
        self.setUp()
        EndCase.setUp(self)
        self.channel.deliver(request())
        self.upstream.taken()
        self.channel.deliver(request(*self.ASKED))
        self.assertEqual(self.upstream.taken(), b"")
        self.assert_refused("the only request on its channel")

    def test_alone(self) -> None:
        """An upgrade has no body and nothing behind it."""
        for wire in (
            request(*self.ASKED, framing=b"Content-Length: 1\r\n"),
            request(*self.ASKED, framing=b"Transfer-Encoding: chunked\r\n"),
            request(*self.ASKED) + b"x",
        ):
            EndCase.setUp(self)
            self.channel.deliver(wire)
            self.assertEqual(self.upstream.taken(), b"")
            self.assert_refused("the only request on its channel")

    def test_endless_head(self) -> None:
        """An answer that never ends its head is passed on as what it is, no 101."""
        self.upstream.deliver(b"HTTP/1.1 101 " + b"a" * 70_000)
        self.assertEqual(len(self.channel.taken()), 70_013)
        self.channel.deliver(b"x")
        self.assertTrue(self.upstream.aborted)


class BothEndsTests(SynchronousTestCase):
    """The two ends of the relay with each other."""

    def test_gateway_and_agent(self) -> None:
        """Whatever the gateway writes, the agent takes."""
        for wire in (
            get(),
            get(b"/clusters/alpha/x?a=b&c", b"accept:*/*", b"Via: 1.0 x", b"Connection: close"),
            get(b"/clusters/alpha/x", b"Content-Length: 3", method=b"PUT", body=b"abc"),
            get(b"/clusters/alpha/x", b"transfer-encoding: CHUNKED", method=b"PUT", body=b"0\r\n\r\n"),
            get(
                b"/clusters/alpha/x",
                b"connection: upgrade",
                b"upgrade: websocket",
                b"Sec-WebSocket-Protocol: a",
            ),
            get(
                b"/clusters/alpha/x",
                b"Connection: Upgrade",
                b"Upgrade: SPDY/3.1",
                b"Content-Length: 0",
                method=b"POST",
            ),
            b"GET /clusters/alpha/ HTTP/1.0\r\n\r\n",
            get(
                b"/clusters/alpha/x",
                b"Connection: Upgrade, HTTP2-Settings",
                b"Upgrade: h2c",
                b"HTTP2-Settings: A",
            ),
            get(b"/clusters/alpha/x", b"Expect: 100-continue", b"Content-Length: 3", method=b"PUT"),
        ):
            kit = Kit()
            kit.user.deliver(wire)
            channel, upstream = FakePipe(), FakePipe()
            relayed(channel, upstream)
            channel.deliver(kit.pipe.taken())
            self.assertEqual(channel.taken(), b"")
            sent = upstream.taken()
            self.assertIn(b"\r\nAuthorization: Bearer member-secret\r\n", sent)
            self.assertEqual(sent.count(b"\r\nHost: "), 1)

    @settings(deadline=None, max_examples=50)
    @given(
        st.lists(
            st.tuples(st.sampled_from(["none", "empty", "sized", "chunked"]), st.binary(max_size=60)),
            max_size=6,
        ),
        st.integers(1, 80),
        st.integers(1, 80),
    )
    def test_any_requests_in_any_cut(self, bodies: list[tuple[str, bytes]], cut: int, other_cut: int) -> None:
        """The API server receives the user's requests, however the data was split."""
        kit = Kit()
        channel, upstream = FakePipe(), FakePipe()
        relayed(channel, upstream)
        wire, expected = b"", []
        for number, (kind, body) in enumerate(bodies):
            fields: tuple[bytes, ...] = ()
            if kind == "chunked":
                body = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
                body += b"0\r\nX-Last: 1\r\n\r\n"
                fields = (b"Transfer-Encoding: chunked",)
            elif kind == "sized":
                fields = (b"Content-Length: %d" % len(body),)
            else:
                fields = (b"Content-Length: 0",) if kind == "empty" else ()
                body = b""
            wire += get(b"/clusters/alpha/%d" % number, *fields, method=b"PUT", body=body)
            expected.append((b"PUT /%d HTTP/1.1" % number, body))
        for start in range(0, len(wire), cut):
            kit.user.deliver(wire[start : start + cut])
        for number, (line, body) in enumerate(expected):
            sent = kit.pipe.taken()
            for start in range(0, len(sent), other_cut):
                channel.deliver(sent[start : start + other_cut])
            arrived = upstream.taken()
            self.assertTrue(arrived.startswith(line + b"\r\n"), arrived)
            self.assertEqual(arrived.partition(b"\r\n\r\n")[2], body)
            kit.pipe.deliver(ok(b"%d" % number))
            self.assertEqual(kit.user.taken(), ok(b"%d" % number))
        self.assertEqual(channel.taken(), b"")
        self.assertLessEqual(len(kit.tunnel.pipes), 1)

"""Tests for `tower.web.gateway.relay`: requests to a cluster, and their answers."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred, fail
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.gateway import FORWARDING, IDENTITY, FakeUser, Jane, Kit, get, ok
from tests.fakes.tunnels import FakeTunnel, Unread
from tower.errors import StreamRefused, TunnelLost
from tower.kube.member_status import Check, MemberStatus
from tower.kube.status import StatusError
from tower.net.pipes import Buffer
from tower.web.access.authentication.identity import ANONYMOUS
from tower.web.gateway.http_channel import HTTPChannel
from tower.web.gateway.proxy_client import ProxyClient, relative_target
from tower.web.gateway.relay import ProxyClientFactory
from tower.web.gateway.request import Request
from tower.web.gateway.upstream.channel_pool import SENT_WAIT
from tower.web.gateway.upstream.late_servers import LATE
from tower.web.outcome import RawStream, Relay

SWITCHED = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n"


class LostTunnel(FakeTunnel):
    """A tunnel that is lost, but still registered."""

    def open(self, target: str) -> Any:
        """Fail at once."""
        return fail(TunnelLost("gone"))


def status_of(answer: bytes) -> dict[str, Any]:
    """Return the Status in *answer*."""
    result: dict[str, Any] = json.loads(answer.partition(b"\r\n\r\n")[2])
    return result


class RequestTests(SynchronousTestCase):
    """Requests to the agent."""

    def setUp(self) -> None:
        """Connect."""
        self.kit = Kit()
        self.user = self.kit.user

    def sent(self) -> bytes:
        """Return the bytes sent to the agent since the last call."""
        return self.kit.pipe.taken()

    def test_canonical_head(self) -> None:
        """The agent gets request line, identity, the user's fields in canonical form, and the proxy's."""
        self.user.deliver(
            get(b"/clusters/alpha/api?x=%2F", b"accept:*/*  ", b"Authorization: Bearer tower-x")
        )
        self.assertEqual(
            self.sent(),
            b"GET /api?x=%2F HTTP/1.1\r\n"
            + IDENTITY
            + b"Host: tower:8443\r\naccept: */*\r\n"
            + FORWARDING
            + b"\r\n",
        )

    def test_framing_first(self) -> None:
        """The framing field is right after the request line, and a small body is sent with the head."""
        self.user.deliver(get(b"/clusters/alpha/x", b"Content-Length: 3", method=b"POST", body=b"abc"))
        sent = self.sent()
        self.assertTrue(
            sent.startswith(b"POST /x HTTP/1.1\r\nContent-Length: 3\r\nImpersonate-User: jane\r\n")
        )
        self.assertTrue(sent.endswith(b"\r\n\r\nabc"))

    def test_target_byte_for_byte(self) -> None:
        """The path after the prefix is unchanged; the bare prefix means the root."""
        for target, expected in (
            (b"/clusters/alpha//a/%2f%2F/b%20c;d?e=/../", b"//a/%2f%2F/b%20c;d?e=/../"),
            (b"/clusters/alpha/", b"/"),
            (b"/clusters/alpha", b"/"),
            (b"/clusters/alpha?a=b", b"/?a=b"),
        ):
            kit = Kit()
            kit.user.deliver(get(target))
            self.assertEqual(kit.pipe.taken().split(b" ")[1], expected)

    def test_prefix_mismatch(self) -> None:
        """A wrong prefix from the router causes a 500, not a request to another path."""
        for target in (b"/clusters/alphabet/x", b"/other"):
            self.assertRaises(StatusError, relative_target, target, b"/clusters/alpha")

    def test_no_identity(self) -> None:
        """A request without an identity is rejected, whatever the router returns."""
        kit = Kit(lambda request: Relay("alpha"))
        kit.user.deliver(get(b"/api"))
        self.assertIn(b" 401 ", kit.user.taken())
        self.assertEqual(kit.tunnel.pipes, [])

    def test_foreign_identity(self) -> None:
        """A request with an impersonation header is rejected with a Status, not sent without it."""
        for field in (
            b"Impersonate-User: root",
            b"impersonate-group: system:masters",
            b"X-Remote-User: root",
            b"x-remote-extra-a: b",
            b"Impersonate_User: root",
        ):
            kit = Kit()
            kit.user.deliver(get(b"/clusters/alpha/api", field))
            answer = kit.user.taken()
            self.assertIn(b" 403 ", answer)
            self.assertEqual(status_of(answer)["reason"], "Forbidden")
            self.assertEqual(kit.tunnel.pipes, [])

    def test_forwarding_is_ours(self) -> None:
        """The user's own forwarding fields are dropped."""
        self.user.deliver(get(b"/clusters/alpha/api", b"X-Forwarded-For: 10.0.0.1", b"X-Real-IP: 10.0.0.1"))
        sent = self.sent()
        self.assertNotIn(b"10.0.0.1", sent)
        self.assertEqual(sent.count(b"X-Forwarded-For"), 1)

    def test_hop_by_hop(self) -> None:
        """Hop-by-hop fields and those that Connection names are not forwarded."""
        self.user.deliver(
            get(
                b"/clusters/alpha/api",
                b"Connection: keep-alive, X-Mine",
                b"X-Mine: 1",
                b"TE: trailers",
                b"A: b",
            )
        )
        sent = self.sent()
        for name in (b"onnection", b"X-Mine", b"TE:"):
            self.assertNotIn(name, sent)
        self.assertIn(b"\r\nA: b\r\n", sent)

    def test_body_streams(self) -> None:
        """A long body is streamed unchanged, and the bytes after it are the next request."""
        self.user.deliver(get(b"/clusters/alpha/x", b"Content-Length: 9", method=b"PUT", body=b"abc"))
        self.sent()
        self.user.deliver(b"def")
        self.assertEqual(self.sent(), b"def")
        self.user.deliver(b"ghi" + get(b"/clusters/alpha/second"))
        self.assertEqual(self.sent(), b"ghi")
        self.kit.pipe.deliver(ok())
        self.assertIn(b"GET /second ", self.sent())
        self.assertEqual(len(self.kit.tunnel.pipes), 1)

    def test_chunked_streams(self) -> None:
        """A chunked body passes byte for byte, with extensions and trailers, whatever the fragmentation."""
        body = b"3;ext=1\r\nabc\r\n0\r\nX-Sum: 1\r\n\r\n"
        for cut in range(len(body) + 1):
            kit = Kit()
            head = get(b"/clusters/alpha/x", b"Transfer-Encoding: chunked", method=b"POST")
            kit.user.deliver(head + body[:cut])
            kit.user.deliver(body[cut:])
            self.assertTrue(kit.pipe.taken().endswith(b"\r\n\r\n" + body))
            kit.pipe.deliver(ok())
            self.assertEqual(kit.user.taken(), ok())
            kit.user.deliver(get())
            self.assertEqual(len(kit.tunnel.pipes), 1)

    def test_broken_chunks(self) -> None:
        """A chunked body with invalid framing ends the connection and the channel."""
        self.user.deliver(
            get(b"/clusters/alpha/x", b"Transfer-Encoding: chunked", method=b"POST", body=b"3\r\nabc\r\n")
        )
        self.user.deliver(b"zz\r\n")
        self.assertIn(b" 400 ", self.user.taken())
        self.assertTrue(self.user.closing)
        self.assertTrue(self.kit.pipe.aborted)

    def test_upload_back_pressure(self) -> None:
        """A full channel pauses the user, a drained one resumes it."""
        self.user.deliver(get(b"/clusters/alpha/x", b"Content-Length: 100", method=b"PUT"))
        self.assertFalse(self.user.paused)
        self.kit.pipe.full = True
        self.user.deliver(b"x" * 10)
        self.assertTrue(self.user.paused)
        self.user.deliver(b"y" * 90)
        self.kit.pipe.taken()
        self.kit.pipe.drain()
        self.assertFalse(self.user.paused)
        self.assertEqual(self.kit.pipe.taken(), b"y" * 90)

    def test_full_with_the_head(self) -> None:
        """A channel that is full after the head pauses the user at once."""
        kit = Kit()
        kit.tunnel.at_once = False
        kit.user.deliver(get(b"/clusters/alpha/x", b"Content-Length: 100", method=b"PUT", body=b"abc"))
        self.assertTrue(kit.user.paused)  # the body has no taker yet
        kit.user.deliver(b"d")
        kit.tunnel.confirm()
        self.assertFalse(kit.user.paused)
        self.assertTrue(kit.pipe.taken().endswith(b"\r\n\r\nabcd"))

    def test_http10(self) -> None:
        """An HTTP/1.0 request is sent as HTTP/1.1; its answer has no chunks and ends by closing."""
        self.user.deliver(b"GET /clusters/alpha/api HTTP/1.0\r\n\r\n")
        self.assertIn(b"\r\nHost: kubernetes\r\n", self.sent())
        self.kit.pipe.deliver(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde")
        self.kit.pipe.deliver(b"\r\n0\r\n\r\n")
        self.assertEqual(self.user.taken(), b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nabcde")
        self.assertTrue(self.user.closing)


class AnswerTests(SynchronousTestCase):
    """Answers to the user."""

    def setUp(self) -> None:
        """Send a request."""
        self.kit = Kit()
        self.user = self.kit.user
        self.user.deliver(get())
        self.pipe = self.kit.pipe

    def test_any_split(self) -> None:
        """An answer is forwarded unchanged whatever the fragmentation, and the channel is reused."""
        for wire in (
            ok(b"x" * 20, b"Audit-Id: 1", b"Content-Type: application/json"),
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX: y\r\n\r\n",
            b"HTTP/1.1 204 No Content\r\nA: b\r\n\r\n",
            b"HTTP/1.1 304 Not Modified\r\nContent-Length: 10\r\n\r\n",
            b"HTTP/1.1 100 Continue\r\n\r\n" + ok(),
            b"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n" + ok(b""),
        ):
            for cut in range(len(wire)):
                kit = Kit()
                kit.user.deliver(get())
                kit.pipe.deliver(wire[:cut])
                kit.pipe.deliver(wire[cut:])
                self.assertEqual(kit.user.taken(), wire)
                kit.user.deliver(get())
                self.assertEqual(len(kit.tunnel.pipes), 1, (wire, cut))

    def test_byte_by_byte(self) -> None:
        """The same in single bytes."""
        wire = ok(b"abc", b"A: b")
        for value in wire:
            self.pipe.deliver(bytes((value,)))
        self.assertEqual(self.user.taken(), wire)

    def test_head_request(self) -> None:
        """The answer to a HEAD has no body, with any Content-Length."""
        self.pipe.deliver(ok())
        self.user.taken()
        self.user.deliver(get(method=b"HEAD"))
        for wire in (
            b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nA: b\r\n\r\n",
        ):
            self.pipe.deliver(wire)
            self.assertEqual(self.user.taken(), wire)
            self.user.deliver(get(method=b"HEAD"))
        self.assertEqual(len(self.kit.tunnel.pipes), 1)

    def test_events_at_once(self) -> None:
        """Each piece of an endless answer is forwarded when it arrives."""
        head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        self.pipe.deliver(head)
        self.assertEqual(self.user.taken(), head)
        for event in (b"3\r\nab\n\r\n", b"3\r\ncd\n\r\n"):
            self.pipe.deliver(event)
            self.assertEqual(self.user.taken(), event)

    def test_back_pressure(self) -> None:
        """A user who does not read pauses the channel, until the user reads again."""
        self.user.full = True
        self.pipe.deliver(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n" + b"a" * 50)
        self.assertTrue(self.pipe.paused)
        self.user.drain()
        self.assertFalse(self.pipe.paused)

    def test_full_at_the_end(self) -> None:
        """After a complete answer the channel serves others; the user's next request waits."""
        self.user.full = True
        self.pipe.deliver(ok())
        self.assertFalse(self.pipe.paused)
        self.user.deliver(get(b"/clusters/alpha/second"))
        self.pipe.taken()
        self.user.drain()
        self.assertIn(b"GET /second", self.pipe.taken())

    def test_connection_close_of_the_upstream(self) -> None:
        """The upstream's Connection field closes only its channel; the user's connection is kept."""
        self.pipe.deliver(ok(b"{}", b"Connection: close, X-Hop", b"Keep-Alive: timeout=5", b"X-Hop: 1"))
        self.assertEqual(self.user.taken(), ok())
        self.assertTrue(self.pipe.aborted)
        self.assertFalse(self.user.closing)

    def test_connection_close_of_the_user(self) -> None:
        """A user who requests a close gets it, with the field; the channel is kept."""
        self.pipe.deliver(ok())
        self.user.taken()
        self.user.deliver(get(b"/clusters/alpha/api", b"Connection: close"))
        self.pipe.deliver(ok(b"{}", b"Connection: keep-alive"))
        self.assertEqual(
            self.user.taken(), b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"
        )
        self.assertTrue(self.user.closing)
        self.assertFalse(self.pipe.aborted)

    def test_until_close(self) -> None:
        """A body delimited by its connection ends with the user's connection; a cut one is cut."""
        wire = b"HTTP/1.1 200 OK\r\nA: b\r\n\r\nabc"
        self.pipe.deliver(wire)
        self.assertEqual(self.user.taken(), b"HTTP/1.1 200 OK\r\nA: b\r\nConnection: close\r\n\r\nabc")
        self.pipe.end()
        self.assertTrue(self.user.closing)
        kit = Kit()
        kit.user.deliver(get())
        kit.pipe.deliver(wire)
        kit.pipe.lose()
        self.assertTrue(kit.user.aborted)

    def test_truncated(self) -> None:
        """An incomplete answer is cut for the user too, never completed."""
        for wire in (ok(b"abc")[:-1], b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"):
            for end in ("end", "lose"):
                kit = Kit()
                kit.user.deliver(get())
                kit.pipe.deliver(wire)
                getattr(kit.pipe, end)()
                self.assertTrue(kit.user.aborted)
                self.assertEqual(kit.user.taken(), wire)

    def test_extra_bytes(self) -> None:
        """Bytes after an answer are dropped, and the channel is closed."""
        self.pipe.deliver(ok() + ok(b"evil"))
        self.assertEqual(self.user.taken(), ok())
        self.assertTrue(self.pipe.aborted)
        self.user.deliver(get())
        self.assertEqual(len(self.kit.tunnel.pipes), 2)
        self.kit.pipe.deliver(ok())
        self.kit.pipe.deliver(ok(b"evil"))  # while idle
        self.assertEqual(self.user.taken(), ok())
        self.assertTrue(self.kit.pipe.aborted)
        self.user.deliver(get())
        self.assertEqual(len(self.kit.tunnel.pipes), 3)

    def test_no_http(self) -> None:
        """An answer that is not HTTP, or has ambiguous framing, is a 502, and the channel is closed."""
        for wire in (
            b"SSH-2.0-OpenSSH\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 1, 1\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length : 1\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nA: b\r\n folded\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nA: b\nC: d\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nA: \0\r\n\r\n",
            b"HTTP/2 200 OK\r\nContent-Length: 1\r\n\r\n",
            b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nA: " + b"a" * 70_000,
        ):
            kit = Kit()
            kit.user.deliver(get())
            kit.pipe.deliver(wire)
            answer = kit.user.taken()
            self.assertTrue(answer.startswith(b"HTTP/1.1 502 "), (wire[:80], answer))
            self.assertIn("alpha", status_of(answer)["message"])
            self.assertTrue(kit.pipe.aborted)
            self.assertFalse(kit.user.closing)

    def test_bad_chunks(self) -> None:
        """An answer with invalid chunks is cut."""
        self.pipe.deliver(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n")
        self.assertTrue(self.user.aborted)
        self.assertTrue(self.pipe.aborted)

    def test_bad_chunks_later(self) -> None:
        """So is one whose chunks become invalid after the first."""
        self.pipe.deliver(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
        self.pipe.deliver(b"xyz\r\n")
        self.assertTrue(self.user.aborted)
        self.assertTrue(self.pipe.aborted)

    def test_many_interim_answers(self) -> None:
        """Interim answers obey back-pressure; a channel that was paused is not kept."""
        self.user.full = True
        self.pipe.deliver(b"HTTP/1.1 103 Early Hints\r\n\r\n")
        self.assertTrue(self.pipe.paused)
        self.user.drain()
        self.assertFalse(self.pipe.paused)
        self.user.full = True
        self.pipe.deliver(b"HTTP/1.1 103 Early Hints\r\n\r\n" + ok())
        self.assertTrue(self.pipe.aborted)
        self.assertFalse(self.user.aborted)

    def test_endless_interim_answers(self) -> None:
        """A hundred interim answers pass; more are a 502 with the reason."""
        interim = b"HTTP/1.1 100 Continue\r\n\r\n"
        for _ in range(100):
            self.pipe.deliver(interim)
        self.assertEqual(self.user.taken(), interim * 100)
        self.assertFalse(self.pipe.aborted)
        self.pipe.deliver(interim)
        answer = self.user.taken()
        self.assertTrue(answer.startswith(b"HTTP/1.1 502 "), answer)
        self.assertIn("more than 100 interim answers", status_of(answer)["message"])
        self.assertTrue(self.pipe.aborted)

    def test_204_with_framing(self) -> None:
        """A 204 is forwarded without framing fields, which it must not have."""
        self.pipe.deliver(b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n")
        self.assertEqual(self.user.taken(), b"HTTP/1.1 204 No Content\r\n\r\n")

    def test_location(self) -> None:
        """Location is rewritten to the user's path."""
        for location, expected in (
            (b"/login", b"/clusters/alpha/login"),
            (b"https://tower:8443/login?a", b"/clusters/alpha/login?a"),
            (b"relative", b"relative"),
            (b"https://10.0.0.1:6443/login?a", b"/clusters/alpha/login?a"),
        ):
            kit = Kit()
            kit.user.deliver(get())
            kit.pipe.deliver(b"HTTP/1.1 302 Found\r\nLocation: %b\r\nContent-Length: 0\r\n\r\n" % location)
            self.assertEqual(
                kit.user.taken(),
                b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: %b\r\n\r\n" % expected,
            )

    def test_redirect_away(self) -> None:
        """A redirect out of the cluster is refused: a program would follow it with its credential."""
        for location in (b"https://elsewhere/login", b"//elsewhere/login", b"../beta/api", b"/../beta/api"):
            kit = Kit()
            kit.user.deliver(get())
            kit.pipe.deliver(b"HTTP/1.1 307 No\r\nLocation: %b\r\nContent-Length: 0\r\n\r\n" % location)
            answer = kit.user.taken()
            self.assertTrue(answer.startswith(b"HTTP/1.1 502 "), answer)
            self.assertNotIn(location, answer)
            self.assertIn("attempted to redirect this request", status_of(answer)["message"])
            self.assertTrue(kit.pipe.aborted)

    def test_redirect_elsewhere(self) -> None:
        """It is forwarded to a browser that shows it, to clients of a port without authentication, and if
        programs do not follow it.
        """
        location = b"https://elsewhere/login"
        for field, identity, status in (
            (b"Sec-Fetch-Mode: navigate", Jane(), b"302 Found"),
            (b"A: b", ANONYMOUS, b"302 Found"),
            (b"A: b", Jane(), b"201 Created"),
        ):
            kit = Kit()
            if identity is ANONYMOUS:
                kit._relay = Relay("alpha", target="kubesphere", plain=True)
            kit.jane = identity
            kit.user.deliver(get(b"/clusters/alpha/api", field))
            kit.pipe.deliver(b"HTTP/1.1 %b\r\nLocation: %b\r\nContent-Length: 0\r\n\r\n" % (status, location))
            self.assertIn(b"\r\nLocation: %b\r\n" % location, kit.user.taken())

    def test_location_without_prefix(self) -> None:
        """On the cluster's own port Location is unchanged."""
        kit = Kit(prefix=b"")
        kit.user.deliver(get(b"/api"))
        kit.pipe.deliver(b"HTTP/1.1 302 Found\r\nLocation: /login\r\nContent-Length: 0\r\n\r\n")
        self.assertIn(b"\r\nLocation: /login\r\n", kit.user.taken())
        kit.user.deliver(get(b"/api"))
        kit.pipe.deliver(
            b"HTTP/1.1 302 Found\r\nLocation: https://10.0.0.1:6443/login\r\nContent-Length: 0\r\n\r\n"
        )
        self.assertIn(b"\r\nLocation: /login\r\n", kit.user.taken())

    def test_early_answer_to_an_upload(self) -> None:
        """An answer before the end of the upload is forwarded; then connection and channel are closed."""
        self.pipe.deliver(ok())
        self.user.taken()
        self.user.deliver(get(b"/clusters/alpha/x", b"Content-Length: 100", method=b"PUT", body=b"abc"))
        self.pipe.deliver(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\n{}")
        self.assertEqual(
            self.user.taken(), b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"
        )
        self.assertTrue(self.user.closing)
        self.assertTrue(self.pipe.aborted)

    def test_user_gone(self) -> None:
        """A user who disconnects, or half-closes, ends the channel, so that the far end stops."""
        for end in ("end", "lose"):
            kit = Kit()
            kit.user.deliver(get())
            getattr(kit.user, end)()
            self.assertTrue(kit.pipe.aborted)
            self.assertEqual(kit.gateway.connections, 0)
            self.assertEqual(kit.sessions.inside, [])

    def test_expect_continue(self) -> None:
        """The expectation is forwarded to the API server, and its 100 comes back before the body is sent."""
        self.pipe.deliver(ok())
        self.user.taken()
        self.pipe.taken()
        self.user.deliver(
            get(b"/clusters/alpha/x", b"Expect: 100-continue", b"Content-Length: 3", method=b"PUT")
        )
        self.assertIn(b"\r\nExpect: 100-continue\r\n", self.pipe.taken())
        self.pipe.deliver(b"HTTP/1.1 100 Continue\r\n\r\n")
        self.assertEqual(self.user.taken(), b"HTTP/1.1 100 Continue\r\n\r\n")
        self.user.deliver(b"abc")
        self.assertEqual(self.pipe.taken(), b"abc")
        self.pipe.deliver(ok())
        self.assertEqual(self.user.taken(), ok())
        self.assertFalse(self.user.closing)


class PipeliningTests(SynchronousTestCase):
    """Several requests at once."""

    def test_in_order(self) -> None:
        """Pipelined requests are sent one at a time, in order, on one channel."""
        kit = Kit()
        kit.user.deliver(get(b"/clusters/alpha/1") + get(b"/clusters/alpha/2") + get(b"/clusters/alpha/3"))
        for number in (b"1", b"2", b"3"):
            sent = kit.pipe.taken()
            self.assertEqual(sent.count(b" HTTP/1.1\r\n"), 1)
            self.assertIn(b"GET /" + number, sent)
            kit.pipe.deliver(ok(number))
            self.assertEqual(kit.user.taken(), ok(number))
        self.assertEqual(len(kit.tunnel.pipes), 1)

    def test_bounded(self) -> None:
        """A user who pipelines too far ahead is paused until its next turn."""
        kit = Kit()
        kit.user.deliver(get())
        request = get(b"/clusters/alpha/" + b"a" * 1000)
        for _ in range(80):
            kit.user.deliver(request)
        self.assertTrue(kit.user.paused)
        for _ in range(81):
            kit.pipe.deliver(ok())
        self.assertFalse(kit.user.paused)
        self.assertEqual(kit.user.taken(), ok() * 81)

    def test_many_answered_at_once(self) -> None:
        """A thousand pipelined requests with immediate answers do not exhaust the stack."""
        kit = Kit()
        kit.user.deliver(get())
        pipe = kit.pipe
        kit.user.deliver(get() * 1000)
        for _ in range(1001):
            pipe.deliver(ok())
        self.assertEqual(kit.user.taken(), ok() * 1001)


class UpgradeTests(SynchronousTestCase):
    """SPDY and WebSocket."""

    def setUp(self) -> None:
        """Use a channel, so that one is in the pool, then request an upgrade."""
        self.kit = Kit()
        self.user = self.kit.user
        self.user.deliver(get())
        self.kit.pipe.deliver(ok())
        self.user.taken()
        self.user.deliver(
            get(
                b"/clusters/alpha/exec",
                b"Connection: Upgrade",
                b"Upgrade: SPDY/3.1",
                b"Content-Length: 0",
                method=b"POST",
            )
        )
        self.pipe = self.kit.pipe

    def test_asks_on_a_channel_of_its_own(self) -> None:
        """The request is sent on a new channel, with Connection and Upgrade last."""
        self.assertEqual(len(self.kit.tunnel.pipes), 2)
        self.assertTrue(
            self.pipe.taken().endswith(FORWARDING + b"Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n")
        )

    def test_raw_after_101(self) -> None:
        """After the 101 bytes pass both ways unparsed, including those that arrived early."""
        self.pipe.taken()
        self.user.deliver(b"early")
        self.assertEqual(self.pipe.taken(), b"")
        switched = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n"
        self.pipe.deliver(switched + b"first")
        self.assertEqual(self.user.taken(), switched + b"first")
        self.assertEqual(self.pipe.taken(), b"early")
        self.user.deliver(get())
        self.assertEqual(self.pipe.taken(), get())
        self.pipe.deliver(b"\0\1")
        self.assertEqual(self.user.taken(), b"\0\1")

    def test_raw_flow_control_and_half_close(self) -> None:
        """After the 101, back-pressure and half close pass both ways."""
        self.pipe.deliver(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
        self.user.full = True
        self.pipe.deliver(b"x")
        self.assertTrue(self.pipe.paused)
        self.user.drain()
        self.assertFalse(self.pipe.paused)
        self.user.end()
        self.assertTrue(self.pipe.finished)
        self.assertFalse(self.pipe.closing)

    def test_raw_end(self) -> None:
        """The end of an upgraded connection ends its session and its channel."""
        self.pipe.deliver(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
        self.assertEqual(len(self.kit.sessions.inside), 1)
        self.user.lose()
        self.assertTrue(self.pipe.aborted)
        self.assertEqual(self.kit.sessions.inside, [])
        self.assertEqual(self.kit.gateway.connections, 0)

    def test_raw_revoked(self) -> None:
        """A revoked credential ends an upgraded connection."""
        self.pipe.deliver(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
        self.kit.sessions.inside[0][2]("revoked")
        self.assertTrue(self.user.aborted)
        self.assertTrue(self.pipe.aborted)

    def test_raw_has_no_deadline(self) -> None:
        """An upgraded connection has no deadline."""
        self.pipe.deliver(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
        self.kit.sweep(10_000)
        self.assertFalse(self.user.aborted)

    def test_refused(self) -> None:
        """A rejection passes with status and body; neither that channel nor that connection is reused."""
        self.pipe.taken()
        self.pipe.deliver(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno")
        self.assertEqual(
            self.user.taken(), b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno"
        )
        self.assertTrue(self.user.closing)
        self.assertTrue(self.pipe.aborted)

    def test_body_refused(self) -> None:
        """An upgrade with a body is rejected."""
        kit = Kit()
        kit.user.deliver(
            get(
                b"/clusters/alpha/x",
                b"Connection: Upgrade",
                b"Upgrade: a",
                b"Content-Length: 1",
                method=b"POST",
            )
        )
        self.assertIn(b" 400 ", kit.user.taken())

    def test_bearer_in_the_subprotocol(self) -> None:
        """A token in a WebSocket subprotocol is used, and not forwarded."""
        kit = Kit()
        token = b"base64url.bearer.authorization.k8s.io.dG93ZXIteA"
        kit.user.deliver(
            get(
                b"/clusters/alpha/exec",
                b"Connection: Upgrade",
                b"Upgrade: websocket",
                b"Sec-WebSocket-Protocol: %b, v5.channel.k8s.io" % token,
            )
        )
        self.assertEqual(kit.requests[0].fields.bearer, b"tower-x")
        sent = kit.pipe.taken()
        self.assertIn(b"\r\nSec-WebSocket-Protocol: v5.channel.k8s.io\r\n", sent)
        self.assertNotIn(b"bearer", sent)

    def test_h2c_is_no_upgrade(self) -> None:
        """An offer of h2c is ignored, as is allowed for a server."""
        kit = Kit()
        kit.user.deliver(
            get(
                b"/clusters/alpha/x",
                b"Connection: Upgrade, HTTP2-Settings",
                b"Upgrade: h2c",
                b"HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA",
            )
        )
        sent = kit.pipe.taken()
        self.assertNotIn(b"pgrade", sent)
        self.assertNotIn(b"HTTP2", sent)


class OpeningTests(SynchronousTestCase):
    """Opening a channel, and the errors."""

    def test_retried_once(self) -> None:
        """A GET on an idle channel that is just closing is retried on a new one, once."""
        kit = Kit()
        kit.user.deliver(get())
        kit.pipe.deliver(ok())
        kit.user.taken()
        kit.user.deliver(get(b"/clusters/alpha/again"))
        kit.pipe.lose()
        self.assertEqual(len(kit.tunnel.pipes), 2)
        self.assertIn(b"GET /again", kit.pipe.taken())
        kit.pipe.lose()
        self.assertEqual(len(kit.tunnel.pipes), 2)
        answer = kit.user.taken()
        self.assertIn(b" 502 ", answer)
        self.assertIn("was lost before its answer", status_of(answer)["message"])

    def test_not_retried(self) -> None:
        """A request that may have had an effect is not retried: a POST, or one whose answer has begun."""
        for method, begun in ((b"POST", b""), (b"DELETE", b""), (b"GET", b"HTTP/1.1 2")):
            kit = Kit()
            kit.user.deliver(get())
            kit.pipe.deliver(ok())
            kit.user.taken()
            kit.user.deliver(get(method=method))
            kit.pipe.deliver(begun)
            kit.pipe.lose()
            self.assertEqual(len(kit.tunnel.pipes), 1)
            self.assertIn(b" 502 ", kit.user.taken())

    def test_retried_while_the_body_is_to_come(self) -> None:
        """A POST is retried if no byte of its body was sent."""
        for sent, pipes in ((b"", 2), (b"a", 1)):
            kit = Kit()
            kit.user.deliver(get())
            kit.pipe.deliver(ok())
            kit.user.taken()
            kit.user.deliver(get(b"/clusters/alpha/x", b"Content-Length: 3", method=b"POST"))
            if sent:
                kit.user.deliver(sent)
            kit.pipe.lose()
            self.assertEqual(len(kit.tunnel.pipes), pipes)
        self.assertIn(b" 502 ", kit.user.taken())
        self.assertFalse(kit.user.closing)
        kit.user.deliver(b"bc" + get())
        self.assertEqual(len(kit.tunnel.pipes), 2)

    def test_retried_with_the_body(self) -> None:
        """The body is sent on the new channel."""
        kit = Kit()
        kit.user.deliver(get())
        kit.pipe.deliver(ok())
        kit.user.deliver(get(b"/clusters/alpha/x", b"Content-Length: 3", method=b"POST"))
        kit.tunnel.at_once = False
        kit.pipe.lose()
        kit.user.deliver(b"abc")
        kit.tunnel.confirm()
        self.assertTrue(kit.pipe.taken().endswith(b"\r\n\r\nabc"))

    def test_waits_for_an_agent(self) -> None:
        """A request waits for an agent that is reconnecting."""
        kit = Kit()
        kit.tunnels.tunnels.clear()
        kit.user.deliver(get())
        self.assertEqual(kit.user.taken(), b"")
        tunnel = FakeTunnel()
        kit.tunnels.waiting[0].callback(tunnel)
        self.assertIn(b"GET /api", tunnel.pipes[0].taken())

    def test_waits_five_seconds(self) -> None:
        """After 5 s the user gets the time of the agent's last connection, and the request ID."""
        kit = Kit()
        kit.tunnels.tunnels.clear()
        kit.user.deliver(get())
        kit.clock.advance(5.1)
        answer = kit.user.taken()
        self.assertIn(b" 503 ", answer)
        self.assertIn(
            "no agent of cluster alpha is connected; one was last seen 42 s ago (request ",
            status_of(answer)["message"],
        )
        self.assertFalse(kit.user.closing)

    def test_patience_is_spent_once(self) -> None:
        """Further requests of the same client fail at once, until the cluster was reached."""
        kit = Kit()
        kit.tunnels.tunnels.clear()
        kit.user.deliver(get())
        kit.clock.advance(5.1)
        kit.user.taken()
        user = kit.connect()
        for _ in range(4):
            user.deliver(get())
            kit.clock.advance(0)
            self.assertIn(b" 503 ", user.taken())
        kit.tunnels.tunnels.append(kit.tunnel)
        user.deliver(get())
        kit.pipe.deliver(ok())
        self.assertIn(b" 200 ", user.taken())
        kit.pipe.lose()
        kit.tunnels.tunnels.clear()
        user.deliver(get())
        kit.clock.advance(4.9)
        self.assertEqual(user.taken(), b"")

    def silence(self, kit: Kit) -> None:
        """Let a request wait for a silent agent."""
        for _ in range(5):
            kit.clock.advance(1)
            kit.sweep(1)

    def test_silent_agent(self) -> None:
        """A silent agent fails a request within 5 s, and further ones at once until it sends something."""
        kit = Kit()
        kit.tunnel.at_once = False
        kit.user.deliver(get())
        self.silence(kit)
        answer = kit.user.taken()
        self.assertIn(b" 503 ", answer)
        self.assertIn(b'\r\nWarning: 299 tower "cluster alpha: its agent is connected but ', answer)
        kit.user.deliver(get())
        self.assertIn(b" 503 ", kit.user.taken())
        self.assertEqual(len(kit.tunnel.openings), 1)
        self.assertTrue(kit.tunnel.confirm().aborted)
        kit.tunnel.bytes_in = 100
        kit.user.deliver(get())
        kit.tunnel.confirm().deliver(ok())
        self.assertIn(b" 200 ", kit.user.taken())

    def test_frozen_api_server(self) -> None:
        """An API server known not to answer fails a request within 5 s, and further ones at once."""
        kit = Kit()
        kit.tunnel.at_once = False
        kit.tunnel.member_status = MemberStatus(Check("False", "Timeout", "API server a:6443 did not answer"))
        kit.user.deliver(get())
        for number in range(4):
            kit.clock.advance(1)
            kit.tunnel.bytes_in = number  # the agent answers probes
            kit.sweep(1)
            self.assertEqual(kit.user.taken(), b"")
        kit.clock.advance(1)
        kit.sweep(1)
        answer = kit.user.taken()
        self.assertIn(b" 503 ", answer)
        self.assertIn("cluster alpha: API server a:6443 did not answer", status_of(answer)["message"])
        kit.user.deliver(get())
        self.assertIn(b" 503 ", kit.user.taken())
        self.assertEqual(len(kit.tunnel.openings), 1)
        kit.tunnel.member_status = MemberStatus(Check("True", "Answering", ""))
        kit.user.deliver(get())
        kit.tunnel.confirm().deliver(ok())
        self.assertIn(b" 200 ", kit.user.taken())

    def test_api_server_freezes(self) -> None:
        """After a timeout further requests fail at once with the same text, until the agent has checked."""
        kit = Kit()
        kit.tunnel.at_once = False
        kit.user.deliver(get())
        kit.tunnel.openings[0].errback(StreamRefused("timeout", "a:6443: no answer within 10 s"))
        first = status_of(kit.user.taken())["message"].partition(" (request ")[0]
        self.assertIn("check that the API server runs, and its address", first)
        kit.tunnel.member_status = MemberStatus(Check("False", "Timeout", "API server a:6443 did not answer"))
        kit.user.deliver(get())
        again = kit.user.taken()
        self.assertIn(b" 504 ", again)
        self.assertEqual(status_of(again)["message"].partition(" (request ")[0], first)
        self.assertEqual(len(kit.tunnel.openings), 1)
        kit.clock.advance(LATE)
        kit.user.deliver(get())
        self.assertIn(b" 503 ", kit.user.taken())
        kit.tunnel.member_status = MemberStatus(Check("True", "Reachable", ""))
        kit.user.deliver(get())
        kit.tunnel.confirm().deliver(ok())
        self.assertIn(b" 200 ", kit.user.taken())

    def test_api_server_freezes_for_a_moment(self) -> None:
        """A stream that opens after a timeout ends the repetition of the error."""
        kit = Kit()
        kit.tunnel.at_once = False
        kit.user.deliver(get())
        kit.tunnel.openings[0].errback(StreamRefused("timeout", "a:6443: no answer within 10 s"))
        kit.user.taken()
        other = kit.connect()
        kit.jane = Jane("joe")
        other.deliver(get())
        kit.tunnel.confirm().deliver(ok())
        self.assertIn(b" 200 ", other.taken())
        kit.user.deliver(get())
        kit.pipe.deliver(ok())
        self.assertIn(b" 200 ", kit.user.taken())

    def test_api_server_freezes_after_the_request(self) -> None:
        """A request that was sent to an API server known not to answer fails after 25 s, the next at once."""
        effect = "; check whether the request had an effect, then retry"
        for method, code, end in ((b"GET", b" 503 ", ""), (b"POST", b" 504 ", effect)):
            kit = Kit()
            kit.user.deliver(get(method=method))
            for number in range(int(SENT_WAIT)):
                self.assertEqual(kit.user.taken(), b"")
                kit.tunnel.bytes_in = number  # the agent answers probes
                if number == 20:
                    kit.tunnel.member_status = MemberStatus(Check("False", "Timeout", "a:6443 is late"))
                kit.sweep(1)
            answer = kit.user.taken()
            self.assertIn(code, answer)
            message = status_of(answer)["message"].partition(" (request ")[0]
            self.assertEqual(message, f"cluster alpha: a:6443 is late{end}")
            self.assertTrue(kit.pipe.aborted)

    def test_series_at_a_frozen_api_server(self) -> None:
        """Further requests of the client on idle channels fail within a second, but watches wait."""
        kit = Kit()
        users = [kit.user, kit.connect(), kit.connect()]
        for user in users:
            user.deliver(get())
        for pipe in list(kit.tunnel.pipes):
            pipe.deliver(ok())
        for user in users:
            user.taken()
        kit.tunnel.member_status = MemberStatus(Check("False", "Timeout", "a:6443 is late"))
        kit.user.deliver(get())
        for number in range(int(SENT_WAIT)):
            kit.tunnel.bytes_in = number
            kit.sweep(1)
        self.assertIn(b" 503 ", kit.user.taken())
        users[1].deliver(get())
        users[2].deliver(get(b"/clusters/alpha/api/v1/pods?watch=1"))
        kit.tunnel.bytes_in = 100
        kit.sweep(1)
        self.assertIn(b" 503 ", users[1].taken())
        self.assertEqual(users[2].taken(), b"")

    def test_slow_api_server(self) -> None:
        """An API server whose state is unknown, or failed for another reason, has the usual time."""
        for status in (None, MemberStatus(Check("False", "NotReady", "API server a:6443 is not ready"))):
            kit = Kit()
            kit.tunnel.at_once = False
            kit.tunnel.member_status = status
            kit.user.deliver(get())
            for number in range(9):
                kit.clock.advance(1)
                kit.tunnel.bytes_in = number
                kit.sweep(1)
            kit.tunnel.confirm().deliver(ok())
            self.assertIn(b" 200 ", kit.user.taken())

    def test_silent_agent_after_the_request(self) -> None:
        """A request that was sent fails too; one that may have had an effect as 504."""
        for method, code in ((b"GET", b" 503 "), (b"POST", b" 504 ")):
            kit = Kit()
            kit.user.deliver(get(method=method))
            pipe = kit.pipe
            self.silence(kit)
            self.assertIn(code, kit.user.taken())
            self.assertTrue(pipe.aborted)

    def test_idle_channel_of_a_silent_agent(self) -> None:
        """Idle channels of a silent agent are not used."""
        kit = Kit()
        other = kit.connect()
        for user in (kit.user, other):
            user.deliver(get())
        for pipe in list(kit.tunnel.pipes):
            pipe.deliver(ok())
        kit.user.deliver(get())
        self.silence(kit)
        kit.user.taken()
        other.taken()
        other.deliver(get())
        self.assertIn(b" 503 ", other.taken())
        self.assertEqual([pipe.aborted for pipe in kit.tunnel.pipes], [True, True])

    def test_other_agent_of_a_cluster(self) -> None:
        """A request that may be repeated goes through another agent of the cluster."""
        for at_once in (False, True):
            kit = Kit()
            kit.tunnel.at_once = at_once
            kit.user.deliver(get())
            other = FakeTunnel()
            kit.tunnels.tunnels.insert(0, other)
            self.silence(kit)
            other.pipes[0].deliver(ok())
            self.assertIn(b" 200 ", kit.user.taken())

    def test_slow_agent(self) -> None:
        """An agent that answers probes is not silent, however long the API server takes."""
        kit = Kit()
        kit.user.deliver(get())
        for _ in range(50):
            kit.clock.advance(1)
            kit.sweep(1)
            kit.tunnel.bytes_in = kit.tunnel.nudges
        kit.pipe.deliver(ok())
        self.assertIn(b" 200 ", kit.user.taken())
        self.assertEqual(kit.tunnel.nudges, 50)

    def test_gone_while_waiting(self) -> None:
        """A user who disconnects while a channel is being opened leaves none behind."""
        kit = Kit()
        kit.tunnel.at_once = False
        kit.user.deliver(get())
        kit.user.lose()
        self.assertTrue(kit.tunnel.confirm().aborted)

    def test_refusals(self) -> None:
        """Each reason of the far end has its own status, and the text names the cluster."""
        for code, status in (
            ("refused", b"503"),
            ("unreachable", b"503"),
            ("name", b"503"),
            ("tls", b"503"),
            ("timeout", b"504"),
            ("not-allowed", b"403"),
            ("no-such-target", b"404"),
            ("busy", b"503"),
        ):
            kit = Kit()
            kit.tunnel.at_once = False
            kit.user.deliver(get())
            kit.tunnel.openings[0].errback(StreamRefused(code, "this is why"))
            answer = kit.user.taken()
            self.assertTrue(answer.startswith(b"HTTP/1.1 %b " % status), answer)
            message = status_of(answer)["message"]
            self.assertIn("alpha", message)
            self.assertIn("this is why", message)

    def test_tunnel_lost_while_opening(self) -> None:
        """A tunnel that is lost while a channel is being opened has no effect on the request, once."""
        kit = Kit()
        kit.tunnel.at_once = False
        kit.user.deliver(get())
        kit.tunnel.openings[0].errback(TunnelLost("gone"))
        kit.tunnel.confirm()
        self.assertIn(b"GET /api", kit.pipe.taken())
        kit = Kit()
        kit.tunnel.at_once = False
        kit.user.deliver(get())
        kit.tunnel.openings[0].errback(TunnelLost("gone"))
        kit.tunnel.openings[1].errback(TunnelLost("gone"))
        self.assertIn(b" 503 ", kit.user.taken())

    def test_no_answer(self) -> None:
        """A cluster that does not answer in time is a 504, and the channel is closed."""
        kit = Kit()
        kit.user.deliver(get(b"/clusters/alpha/api/v1/pods"))
        kit.sweep(60)
        self.assertEqual(kit.user.taken(), b"")
        kit.sweep(1)
        self.assertIn(
            b'"Timeout: request did not complete within the allotted timeout: cluster alpha did not answer '
            b"within 60 s: check its load (request",
            kit.user.taken(),
        )
        self.assertTrue(kit.pipe.aborted)

    def test_long_running(self) -> None:
        """A log without output has no deadline."""
        kit = Kit()
        kit.user.deliver(get(b"/clusters/alpha/api/v1/namespaces/a/pods/b/log?follow=true"))
        kit.sweep(1000)
        self.assertEqual(kit.user.taken(), b"")
        self.assertFalse(kit.pipe.aborted)

    def test_revoked_while_waiting(self) -> None:
        """A credential that ends before the answer begins is a 401, after that a cut."""
        kit = Kit()
        kit.user.deliver(get())
        kit.sessions.inside[0][2]("the credential of jane was revoked")
        self.assertIn(b" 401 ", kit.user.taken())
        self.assertTrue(kit.user.closing)
        self.assertTrue(kit.pipe.aborted)
        kit = Kit()
        kit.user.deliver(get())
        kit.pipe.deliver(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        kit.sessions.inside[0][2]("the credential of jane was revoked")
        self.assertTrue(kit.user.aborted)
        self.assertTrue(kit.pipe.aborted)

    def test_no_longer_admitted_while_waiting(self) -> None:
        """A policy that ends before the answer begins is a 403 with the reason."""
        kit = Kit()
        kit.user.deliver(get())
        end: Any = kit.sessions.inside[0][2]
        end("jane is not admitted to cluster alpha", 403)
        answer = kit.user.taken()
        self.assertIn(b" 403 ", answer)
        self.assertIn(b"jane is not admitted to cluster alpha", answer)
        self.assertTrue(kit.user.closing)

    def test_one_session(self) -> None:
        """Requests of one user to one cluster are one session of the connection, idle or not."""
        kit = Kit()
        for _ in range(3):
            kit.user.deliver(get())
            kit.pipe.deliver(ok())
        self.assertEqual(kit.sessions.entered, 1)
        kit.sessions.inside[0][2]("revoked")
        self.assertTrue(kit.user.closing)


class ExtensionTests(SynchronousTestCase):
    """The extension points of ``twisted.web.proxy``."""

    def test_proxy_client_factory_class(self) -> None:
        """A request's proxyClientFactoryClass makes the receiver of the answer."""
        parts: list[bytes] = []

        class Client(ProxyClient):
            __slots__ = ()

            def handleResponseHead(self, status: int, head: bytes) -> bytes:
                return head[:-2] + b"X-Status: %d\r\n\r\n" % status

            def handleResponsePart(self, data: Buffer) -> Buffer:
                parts.append(bytes(data))
                return bytes(data).upper()

            def handleResponseEnd(self) -> None:
                parts.append(b"end")

        class ClientFactory(ProxyClientFactory):
            protocol = Client

        class Asking(Request):
            proxyClientFactoryClass = ClientFactory

        class Channel(HTTPChannel):
            requestFactory = Asking

        kit = Kit()
        kit.gateway.protocol = Channel
        user = kit.connect()
        user.deliver(get())
        kit.pipe.deliver(ok(b"abcdef")[:-3])
        kit.pipe.deliver(b"def")
        self.assertEqual(user.taken(), b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nX-Status: 200\r\n\r\nABCDEF")
        self.assertEqual(parts, [b"abc", b"def", b"end"])

    def test_one_hook(self) -> None:
        """Without overridden methods, answers pass unchanged."""
        ends: list[bytes] = []

        class Client(ProxyClient):
            __slots__ = ()

            def handleResponseEnd(self) -> None:
                ends.append(self.request.path)

        class ClientFactory(ProxyClientFactory):
            protocol = Client

        class Asking(Request):
            proxyClientFactoryClass = ClientFactory

        class Channel(HTTPChannel):
            requestFactory = Asking

        kit = Kit()
        kit.gateway.protocol = Channel
        user = kit.connect()
        user.deliver(get())
        kit.pipe.deliver(ok())
        self.assertEqual(user.taken(), ok())
        self.assertEqual(ends, [b"/clusters/alpha/api"])

    def test_request_factory(self) -> None:
        """A channel's requestFactory makes the requests."""
        seen: list[bytes] = []

        class Noting(Request):
            def process(self) -> None:
                seen.append(self.path)
                super().process()

        class Channel(HTTPChannel):
            requestFactory = Noting

        kit = Kit()
        kit.gateway.protocol = Channel
        user = kit.connect()
        user.deliver(get())
        self.assertEqual(seen, [b"/clusters/alpha/api"])
        kit.pipe.deliver(ok())
        self.assertEqual(user.taken(), ok())


class GarbageTests(SynchronousTestCase):
    """Memory after requests."""

    def test_no_cycles(self) -> None:
        """Requests and answers are freed at their end, without the garbage collector."""
        kit = Kit()
        kit.gateway.router = kit.relay_it
        for method in (b"GET", b"HEAD"):
            kit.user.deliver(get(method=method))
            kit.pipe.deliver(ok() if method == b"GET" else ok(b""))

        def ask() -> None:
            kit.user.deliver(get())
            kit.pipe.deliver(ok())

        self.assertNoGarbage(ask)

    def test_users_who_go(self) -> None:
        """A user who disconnects leaves nothing behind: in an upload, a download, or before the channel."""
        kit = Kit()

        def go(request: bytes, answer: bytes = b"") -> None:
            user = kit.connect()
            user.deliver(request)
            if answer:
                kit.pipe.deliver(answer)
            user.lose()

        upload = get(b"/clusters/alpha/x", b"Content-Length: 9", method=b"POST", body=b"abc")
        self.assertNoGarbage(partial(go, upload))
        self.assertNoGarbage(partial(go, get(), b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc"))
        kit.tunnel.at_once = False
        self.assertNoGarbage(partial(go, upload))

    def test_lost_channel(self) -> None:
        """A channel that is lost during a request leaves nothing behind."""
        kit = Kit()

        def broken() -> None:
            user = kit.connect()
            user.deliver(get())
            kit.pipe.lose()
            user.lose()
            kit.tunnel.pipes.clear()
            kit.tunnel.openings.clear()

        self.assertNoGarbage(broken)

    def test_streams(self) -> None:
        """Upgraded connections leave nothing behind when they end."""
        kit = Kit()

        def end(user: FakeUser) -> None:
            user.lose()
            user.receiver = kit.pipe.receiver = Unread()  # as with a real pipe
            kit.tunnel.pipes.clear()
            kit.tunnel.openings.clear()
            kit.requests.clear()

        def upgrade() -> None:
            user = kit.connect()
            user.deliver(get(b"/clusters/alpha/exec", b"Connection: Upgrade", b"Upgrade: SPDY/3.1"))
            kit.pipe.deliver(SWITCHED)
            end(user)

        self.assertNoGarbage(upgrade)

        def to_a_target(request: Request) -> RawStream:
            request.identity = kit.jane
            return RawStream("alpha", "db")

        kit = Kit(to_a_target)

        def stream() -> None:
            user = kit.connect()
            user.deliver(get(b"/clusters/alpha/targets/db", b"Connection: Upgrade", b"Upgrade: tower-stream"))
            end(user)

        self.assertNoGarbage(stream)

    def test_no_way(self) -> None:
        """Answers for unreachable clusters leave nothing behind."""
        kit = Kit()

        def refused() -> None:
            kit.user.deliver(get())
            kit.tunnel.openings.pop().errback(StreamRefused("refused", "not now"))
            kit.user.taken()

        kit.tunnel.at_once = False
        self.assertNoGarbage(refused)

        def lost() -> None:
            kit.user.deliver(get())
            kit.user.taken()

        kit.tunnels.tunnels[:] = [LostTunnel()]
        self.assertNoGarbage(lost)

        def nobody() -> None:
            kit.user.deliver(get())
            kit.tunnels.waiting.clear()
            kit.tunnels.clock.advance(60)
            kit.user.taken()

        kit.tunnels.tunnels.clear()
        self.assertNoGarbage(nobody)

    def assertNoGarbage(self, deed: Callable[[], None]) -> None:
        """Check that repeating *deed* leaves none of Tower's objects to the garbage collector."""
        deed()
        gc.collect()
        gc.disable()
        gc.set_debug(gc.DEBUG_SAVEALL)
        try:
            for _ in range(20):
                deed()
            gc.collect()
            left = [each for each in gc.garbage if type(each).__module__.startswith("tower.")]
            self.assertEqual(left, [])
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()


class DecidingTests(SynchronousTestCase):
    """Routers that answer later."""

    def test_deferred(self) -> None:
        """A decision may come later; the body waits for it."""
        verdict: Deferred[Any] = Deferred()
        kit = Kit(lambda request: verdict)
        kit.user.deliver(get(b"/x", b"Content-Length: 6", method=b"POST", body=b"abc"))
        self.assertTrue(kit.user.paused)
        kit.requests[0].identity = kit.jane
        verdict.callback(Relay("alpha"))
        self.assertFalse(kit.user.paused)
        kit.user.deliver(b"def")
        self.assertTrue(kit.pipe.taken().endswith(b"abcdef"))

    def test_user_gone(self) -> None:
        """A pending decision is cancelled when the client disconnects."""
        verdict: Deferred[Any] = Deferred()
        kit = Kit(lambda request: verdict)
        kit.user.deliver(get())
        kit.user.lose()
        self.assertTrue(verdict.called)

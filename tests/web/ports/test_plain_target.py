"""Tests for relays that do not change the header, and for heads that the proxy makes for the API server."""

from __future__ import annotations

import json
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.gateway import IDENTITY, Jane, Kit, get, ok
from tests.fakes.pipes import FakePipe
from tests.fakes.tunnels import FakeTunnel
from tower.kube.status import StatusError
from tower.net.connection_slots import Slots
from tower.web.access.authentication.identity import ANONYMOUS
from tower.web.gateway.request import Request
from tower.web.outcome import Outcome, Relay
from tower.web.ports.kubesphere_port import KubeSpherePort

#: The field that a KubeSphere port adds.
CLIENT = b"X-Forwarded-For: 192.0.2.7"

HEAD = (
    b"POST /login?x=%2F HTTP/1.1\r\n",
    b"Host: ks.example:30880\r\n",
    b"X-Forwarded-For: 203.0.113.9\r\n",
    b"accept: */*\r\n",
    b"Authorization: Bearer eyJhbGciOi\r\n",
    b"Cookie: token=abc; lang=de\r\n",
    b"Impersonate-User: root\r\n",
    b"X-Remote-Group: system:masters\r\n",
    b"Via: 1.1 other\r\n",
)


def status_of(answer: bytes) -> tuple[int, str]:
    """Return code and message of the Status in *answer*."""
    status: dict[str, Any] = json.loads(answer.partition(b"\r\n\r\n")[2])
    return status["code"], status["message"]


class Machine:
    """Rewrites heads for an API server.

    :ivar seen: the heads with their plain flag.
    """

    def __init__(self) -> None:
        self.seen: list[tuple[bytes, bool]] = []
        self.refuse = False

    def __call__(self, head: bytes, plain: bool) -> bytes:
        """Record and number the heads."""
        self.seen.append((head, plain))
        if self.refuse:
            raise StatusError(403, "the agent's rights are not lent for this")
        return b"#%d " % len(self.seen) + head


class ToKubelets(FakeTunnel):
    """Rewrites heads for kubelets too."""

    def rewrite_for(self, target: str) -> Any:
        """Return the same rewriter for all targets."""
        return self.rewrite


class KubeSpherePortTests(SynchronousTestCase):
    """Requests to a KubeSphere port."""

    def setUp(self) -> None:
        """Make a gateway for alpha."""
        self.kit = Kit(KubeSpherePort("alpha"))
        self.user = self.kit.user

    def test_untouched(self) -> None:
        """Every field is forwarded unchanged, identities and credentials too; only the address is added."""
        self.user.deliver(b"".join(HEAD) + b"Content-Length: 3\r\n\r\nabc")
        self.assertEqual(self.kit.tunnel.targets, ["kubesphere"])
        line, host, _, *fields = HEAD
        address = b"X-Forwarded-For: 203.0.113.9, 192.0.2.7\r\n"
        self.assertEqual(
            self.kit.pipe.taken(),
            line + b"Content-Length: 3\r\n" + host + b"".join(fields) + address + b"\r\nabc",
        )
        self.kit.pipe.deliver(ok(b"{}", b"Set-Cookie: token=abc", b"Location: http://ks.example:30880/x"))
        answer = self.user.taken()
        for line in (b"Set-Cookie: token=abc\r\n", b"Location: http://ks.example:30880/x\r\n"):
            self.assertIn(line, answer)

    def test_slot(self) -> None:
        """A client of the port keeps its slot without authentication."""
        self.user.slot = slot = Slots(self.kit.clock).take(None)  # type: ignore[attr-defined]
        self.user.deliver(get(b"/kapis"))
        assert slot is not None
        self.assertTrue(slot.proven)

    def test_channels_are_used_again(self) -> None:
        """Requests of all users share the channels, but only those to KubeSphere."""
        for fields in ((), (b"Cookie: a=b",), (b"Authorization: Basic YTpi",)):
            self.user.deliver(get(b"/kapis", *fields))
            self.assertEqual(self.kit.pipe.taken(), get(b"/kapis", *fields, CLIENT))
            self.kit.pipe.deliver(ok())
            self.user.taken()
        self.assertEqual(self.kit.tunnel.targets, ["kubesphere"])
        self.assertIsNone(self.kit.pool.take("alpha", "kubernetes"))

    def test_chunked(self) -> None:
        """A chunked body stays chunked."""
        self.user.deliver(
            get(b"/x", b"Transfer-Encoding: chunked", method=b"PUT", body=b"3\r\nabc\r\n0\r\n\r\n")
        )
        self.assertEqual(
            self.kit.pipe.taken(),
            b"PUT /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\nHost: tower:8443\r\n"
            + CLIENT
            + b"\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        )

    def test_websocket(self) -> None:
        """A WebSocket gets its handshake unchanged, and raw bytes both ways after the 101."""
        fields = (b"Sec-WebSocket-Key: a", b"Sec-WebSocket-Protocol: x", b"Cookie: token=a")
        self.user.deliver(get(b"/ws", b"Connection: keep-alive, Upgrade", b"Upgrade: websocket", *fields))
        self.assertEqual(
            self.kit.pipe.taken(), get(b"/ws", *fields, CLIENT, b"Connection: Upgrade", b"Upgrade: websocket")
        )
        switched = b"HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Accept: b\r\n"
        upgrade = b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
        self.kit.pipe.deliver(switched + upgrade + b"frame")
        self.assertEqual(self.user.taken(), switched + upgrade + b"frame")
        self.user.deliver(b"other")
        self.assertEqual(self.kit.pipe.taken(), b"other")

    def test_shapes(self) -> None:
        """Ambiguous requests are rejected, and nothing of them is forwarded."""
        for wire, status in (
            (get(b"/", b"Content-Length: 1", b"Transfer-Encoding: chunked"), b" 400 "),
            (get(b"/", b"Content-Length: 1", b"Content-Length: 2"), b" 400 "),
            (get(b"/", b"Transfer-Encoding: chunked, chunked"), b" 501 "),
            (get(b"/", b"Transfer-Encoding : chunked"), b" 400 "),
            (get(b"/", b"A: b\r\n c: d"), b" 400 "),
            (get(b"/", b"Host: other"), b" 400 "),
            (get(b"/", b"Connection: Content-Length", b"Content-Length: 1"), b" 400 "),
            (get(b"/", b"Connection: Cookie", b"Cookie: a"), b" 400 "),
            (get(b"/a/../b"), b" 400 "),
            (b"GET http://other/ HTTP/1.1\r\nHost: a\r\n\r\n", b" 400 "),
            (get(b"/", b"Connection: Upgrade", b"Upgrade: websocket", b"Content-Length: 1"), b" 400 "),
        ):
            kit = Kit(KubeSpherePort("alpha"))
            kit.user.deliver(wire)
            self.assertIn(status, kit.user.taken(), wire)
            self.assertEqual(kit.tunnel.pipes, [], wire)

    def test_nobody_there(self) -> None:
        """Without an agent there is a Status with the time of the last connection."""
        self.kit.tunnels.tunnels.clear()
        self.user.deliver(get(b"/kapis"))
        self.kit.clock.advance(5)
        self.assertEqual(
            status_of(self.user.taken())[0:1],
            (503,),
        )

    def test_cut(self) -> None:
        """Its connections end with the cluster."""
        self.user.deliver(get(b"/kapis"))
        ((identity, cluster, abort),) = self.kit.sessions.inside
        self.assertEqual((identity, cluster), (ANONYMOUS, "alpha"))
        abort("cluster alpha was removed")
        self.assertIn(b" 401 ", self.user.taken())
        self.assertTrue(self.user.closing)


class TargetTests(SynchronousTestCase):
    """Requests of authenticated users to a target through the front door."""

    relay = Relay("alpha", b"/clusters/alpha/targets/wiki", "wiki", plain=True)

    def setUp(self) -> None:
        """Add jane, with a token."""
        self.jane: Any = Jane(token=b"towerk-secret")
        self.kit = Kit(self.route)

    def route(self, request: Request) -> Outcome:
        """Relay the request of jane to the wiki."""
        request.identity = self.jane
        return self.relay

    def sent(self, target: bytes, *fields: bytes) -> bytes:
        """Return the bytes that the wiki receives for a request of jane."""
        self.kit.user.deliver(get(b"/clusters/alpha/targets/wiki" + target, *fields))
        sent = self.kit.pipe.taken()
        self.kit.pipe.deliver(ok())
        return sent

    def test_path(self) -> None:
        """The wiki receives its own paths, byte for byte, and no fields of Tower."""
        for target, seen in ((b"/a%2fb//c?d=/../", b"/a%2fb//c?d=/../"), (b"", b"/"), (b"?a", b"/?a")):
            self.assertEqual(self.sent(target, b"Cookie: a=b"), get(seen, b"Cookie: a=b"))

    def test_our_credential_stays_here(self) -> None:
        """The token for Tower is not forwarded, however it was sent; other credentials are."""
        for ours in (
            b"Authorization: Bearer towerk-secret",
            b"authorization:bearer   towerk-secret ",
            b"Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.dG93ZXJrLXNlY3JldA, v4.channel",
        ):
            sent = self.sent(b"/x", ours, b"Cookie: a=b", b"X-Api-Key: c")
            self.assertNotIn(b"towerk", sent)
            self.assertNotIn(b"uthorization", sent)
            self.assertNotIn(b"bearer", sent)
            self.assertIn(b"\r\nCookie: a=b\r\nX-Api-Key: c\r\n", sent)

    def test_credentials_of_the_wiki(self) -> None:
        """With a client certificate, the request's Authorization is for the wiki."""
        for field in (b"Authorization: Bearer eyJ", b"Authorization: Basic YTpi"):
            self.assertEqual(self.sent(b"/x", field), get(b"/x", field))

    def test_location(self) -> None:
        """The wiki's Location is rewritten to the front door with TLS; other hosts are unchanged."""
        for said, told in (
            (b"/login", b"/clusters/alpha/targets/wiki/login"),
            (b"http://tower:8443/login?a", b"/clusters/alpha/targets/wiki/login?a"),
            (b"http://tower:8443", b"/clusters/alpha/targets/wiki/"),
            (b"https://other/login", b"https://other/login"),
            (b"//other/login", b"//other/login"),
            (b"login", b"login"),
        ):
            self.kit.user.deliver(get(b"/clusters/alpha/targets/wiki/"))
            self.kit.pipe.deliver(ok(b"{}", b"Location: " + said))
            self.assertIn(b"\r\nLocation: " + told + b"\r\n", self.kit.user.taken())

    def test_nobody(self) -> None:
        """A request without an identity is rejected, plain or not."""
        kit = Kit(lambda request: self.relay)
        kit.user.deliver(get())
        self.assertIn(b" 401 ", kit.user.taken())
        self.assertEqual(kit.tunnel.pipes, [])

    def test_in_turn(self) -> None:
        """On one connection, requests to the wiki and to the API server use their own channels."""
        kit = Kit()
        wanted = [Relay("alpha", b"/clusters/alpha"), self.relay] * 2
        relays = iter(wanted)

        def route(request: Request) -> Outcome:
            request.identity = self.jane
            return next(relays)

        kit.gateway.router = route
        for relay in wanted:
            kit.user.deliver(get(relay.prefix + b"/x", b"Authorization: Bearer towerk-secret"))
            pipe = kit.tunnel.pipes[1 if relay.plain else 0]
            sent = pipe.taken()
            self.assertEqual(sent.startswith(b"GET /x HTTP/1.1\r\n" + IDENTITY), not relay.plain)
            self.assertEqual(b"Via:" in sent, not relay.plain)
            self.assertNotIn(b"towerk", sent)
            pipe.deliver(ok())
        self.assertEqual(kit.tunnel.targets, ["kubernetes", "wiki"])
        self.assertEqual(kit.sessions.entered, 1)


class RewritingTests(SynchronousTestCase):
    """Tunnels for which the proxy makes the heads for the API server."""

    def setUp(self) -> None:
        """Add a rewriter to the tunnel."""
        self.machine = Machine()
        self.open = False
        self.kit = Kit(self.route)
        self.kit.tunnel.rewrite = self.machine
        self.user = self.kit.user

    def route(self, request: Request) -> Outcome:
        """Authenticate as jane, or anonymously while `open` is set."""
        if self.open:
            request.identity = ANONYMOUS
            return Relay("alpha", plain=True)
        return self.kit.relay_it(request)

    def test_users(self) -> None:
        """The canonical head is rewritten right before it is sent; the body is not."""
        self.user.deliver(get(b"/clusters/alpha/x", b"Content-Length: 3", method=b"PUT", body=b"abc"))
        ((head, plain),) = self.machine.seen
        self.assertTrue(head.startswith(b"PUT /x HTTP/1.1\r\nContent-Length: 3\r\n" + IDENTITY))
        self.assertTrue(head.endswith(b"\r\n\r\n"))
        self.assertFalse(plain)
        self.assertEqual(self.kit.pipe.taken(), b"#1 " + head + b"abc")
        self.kit.pipe.deliver(ok())
        self.user.deliver(get())
        self.assertTrue(self.kit.pipe.taken().startswith(b"#2 GET "))

    def test_plain(self) -> None:
        """On an open port the head is passed unchanged, with the plain flag."""
        self.open = True
        self.user.deliver(b"".join(HEAD) + b"\r\n")
        self.assertEqual(self.machine.seen, [(b"".join(HEAD) + b"\r\n", True)])
        self.assertTrue(self.kit.pipe.taken().startswith(b"#1 POST "))

    def test_refused(self) -> None:
        """A rejected request gets the reason; nothing was sent, and the channel serves the next request."""
        for fields in ((), (b"Connection: Upgrade", b"Upgrade: SPDY/3.1")):
            self.machine.refuse = True
            self.user.deliver(get(b"/clusters/alpha/x", *fields))
            code, text = status_of(self.user.taken())
            self.assertEqual((code, "the agent's rights are not lent for this" in text), (403, True))
            self.assertEqual(self.kit.pipe.taken(), b"")
            self.machine.refuse = False
            self.user.deliver(get(b"/clusters/alpha/y"))
            self.assertIn(b" GET /y ", self.kit.pipe.taken())
            self.kit.pipe.deliver(ok())
            self.assertEqual(self.user.taken(), ok())
        self.assertEqual(len(self.kit.tunnel.pipes), 2)  # an upgrade uses a new one

    def test_refused_with_a_body(self) -> None:
        """After a rejection before the end of the body, nothing is forwarded."""
        self.machine.refuse = True
        self.user.deliver(get(b"/clusters/alpha/x", b"Content-Length: 9", method=b"PUT", body=b"abc"))
        self.assertEqual(status_of(self.user.taken())[0], 403)
        self.user.deliver(b"GET /x")
        self.assertEqual(self.kit.pipe.taken(), b"")
        self.assertFalse(self.user.closing)

    def test_refused_when_it_opens(self) -> None:
        """A channel that opens late is kept, and one that has closed meanwhile is ignored."""
        for ended in (False, True):
            kit = Kit()
            kit.tunnel.rewrite, kit.tunnel.at_once = self.machine, False
            self.machine.refuse = True
            kit.user.deliver(get())
            pipe = FakePipe()
            if ended:
                pipe.end()
            kit.tunnel.openings[-1].callback(pipe)
            self.assertEqual(status_of(kit.user.taken())[0], 403)
            self.assertEqual(kit.pool.take("alpha", "kubernetes") is None, ended)
            self.assertEqual(pipe.closing, ended)

    def test_again(self) -> None:
        """A retried request is rewritten again by its new tunnel."""
        self.user.deliver(get())
        self.kit.pipe.deliver(ok())
        self.user.taken()
        self.user.deliver(get())
        other = Machine()
        later = FakeTunnel(rewrite=other)
        self.kit.tunnels.tunnels.append(later)
        self.kit.pipe.lose()
        self.assertEqual(len(self.machine.seen), 2)
        self.assertEqual(other.seen, self.machine.seen[:1])
        self.assertEqual(later.pipes[-1].taken(), b"#1 " + other.seen[0][0])

    def test_credential_not_known(self) -> None:
        """If the API server rejects the proxy's credential, the text does not blame the user."""
        for answer in (
            b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 4\r\n\r\nUnau",
            b"HTTP/1.1 401 No\r\nConnection: close\r\nLocation: /x\r\nContent-Length: 4\r\n\r\nUnau",
        ):
            self.user.deliver(get())
            pipe = self.kit.pipe
            pipe.deliver(answer)
            taken = self.user.taken()
            self.assertTrue(taken.startswith(b"HTTP/1.1 502 "), taken)
            self.assertIn(b"must renew it", taken)
            self.assertNotIn(b"Unau", taken)
            self.assertTrue(pipe.aborted)
        self.open = True
        self.user.deliver(get())
        self.kit.pipe.deliver(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n")
        self.assertTrue(self.user.taken().startswith(b"HTTP/1.1 401 "))

    def test_credential_not_known_to_a_kubelet(self) -> None:
        """The same for a kubelet, which has other authentication methods."""

        def route(request: Request) -> Outcome:
            kit.relay_it(request)
            return Relay("alpha", b"", "kubelet/n1", plain=True)

        kit = Kit(route)
        tunnel = ToKubelets(rewrite=self.machine)
        kit.tunnels.tunnels[:] = [tunnel]
        for fields in ((), (b"Connection: Upgrade", b"Upgrade: SPDY/3.1")):
            user = kit.connect()
            user.deliver(get(b"/x", *fields))
            tunnel.pipes[-1].deliver(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 4\r\n\r\nUnau")
            code, text = status_of(user.taken())
            self.assertEqual((code, "--authentication-token-webhook" in text), (502, True))

    def test_other_targets(self) -> None:
        """Only requests to the API server are rewritten."""
        kit = Kit(KubeSpherePort("alpha"))
        kit.tunnel.rewrite = self.machine
        kit.user.deliver(get(b"/kapis"))
        self.assertEqual((kit.pipe.taken(), self.machine.seen), (get(b"/kapis", CLIENT), []))

    def test_agents_that_lend_nothing(self) -> None:
        """On an open port, an agent without its own credential rejects anonymous requests."""
        self.open = True
        self.kit.tunnel.rewrite = None
        for fields in ((), (b"Impersonate-User: jane",), (b"Connection: Upgrade", b"Upgrade: SPDY/3.1")):
            self.user.deliver(get(b"/api", *fields))
            answer = self.user.taken()
            self.assertIn(b"\r\nWWW-Authenticate: Bearer", answer)
            code, text = status_of(answer)
            self.assertEqual((code, "tower kubeconfig" in text), (401, True))
            self.assertEqual(
                [pipe.taken() for pipe in self.kit.tunnel.pipes], [b""] * len(self.kit.tunnel.pipes)
            )
        self.assertIsNotNone(self.kit.pool.take("alpha", "kubernetes"))

    def test_anybody_is_nobody(self) -> None:
        """An anonymous user is never impersonated, whatever the router returns."""

        def route(request: Request) -> Outcome:
            request.identity = ANONYMOUS
            return Relay("alpha")

        kit = Kit(route)
        kit.user.deliver(get(b"/api"))
        self.assertIn(b" 422 ", kit.user.taken())
        self.assertEqual(kit.tunnel.pipes, [])

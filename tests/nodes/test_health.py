"""Tests of `tower.nodes.health`."""

from __future__ import annotations

import ssl
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.muxes import KIND, MuxPair
from tests.fakes.node_tunnels import FakeNodeDialer
from tests.fakes.pipes import FakePipe
from tests.fakes.sockets import client_context, server_context
from tower.clusters.node import Node
from tower.errors import ConfigurationError, StreamRefused, TunnelLost
from tower.kube.head_fields import Upstream
from tower.net.connecting import ConnectFailed
from tower.net.tls.session import TLSEnded, TLSSession
from tower.nodes.health import TIMEOUT, Unhealthy, kubelet_health, member_health


class HealthTunnel(FakeNodeDialer):
    """Leads to one pipe, unless another answer is set.

    :ivar deaf: addresses where nothing listens.
    """

    def __init__(self, answer: Any = None) -> None:
        super().__init__(answer)
        self.pipe = FakePipe()
        self.node = Node("192.0.2.1")
        self.bytes_in = 1000
        self.deaf: set[str] = set()

    def answer_to(self, host: str, port: int) -> Any:
        """Return the pipe, the set answer, or an error."""
        if host in self.deaf:
            return StreamRefused("refused", "connection refused", 2)
        return self.pipe if self.answer is None else self.answer


class HealthCase(SynchronousTestCase):
    """Looks through a tunnel."""

    def setUp(self) -> None:
        """A clock."""
        self.clock = Clock()

    def look(self, tunnel: HealthTunnel) -> Deferred[str]:
        """Begin.  Override."""
        raise NotImplementedError

    def answered(self, data: bytes) -> Deferred[str]:
        """Answer with *data*; nothing is left of the pipe."""
        tunnel = HealthTunnel()
        looking = self.look(tunnel)
        tunnel.pipe.deliver(data)
        self.assertTrue(tunnel.pipe.aborted)
        self.assertEqual(self.clock.getDelayedCalls(), [])
        return looking

    def code(self, code: int) -> str:
        """Return what is made of a status."""
        return self.successResultOf(self.answered(b"HTTP/1.1 %d Reason\r\n\r\n" % code))


class KubeletHealthTests(HealthCase):
    def look(self, tunnel: HealthTunnel) -> Deferred[str]:
        """Ask a kubelet."""
        check = kubelet_health("http://127.0.0.1:10255/healthz", self.clock)
        return Deferred.fromCoroutine(check(tunnel))  # type: ignore[arg-type]

    def test_what_is_asked(self) -> None:
        """One GET of the URL's path, with the URL's host and no secret."""
        tunnel = HealthTunnel()
        self.look(tunnel)
        self.assertEqual(tunnel.dialed, [("127.0.0.1", 10255)])
        self.assertEqual(
            bytes(tunnel.pipe.sent),
            b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:10255\r\nUser-Agent: tower-proxy\r\n"
            b"Accept: */*\r\nConnection: close\r\n\r\n",
        )

    def test_answers(self) -> None:
        """Any answer except an error is healthy; one that requires a credential is healthy too."""
        for code in (200, 204, 401, 403):
            self.assertEqual(self.code(code), "")
        for code in (404, 429, 500, 503):
            self.assertEqual(self.code(code), f"the kubelet answered {code}")

    def test_in_pieces(self) -> None:
        """An answer may come byte by byte."""
        tunnel = HealthTunnel()
        looking = self.look(tunnel)
        for byte in b"HTTP/1.1 200 OK\r":
            tunnel.pipe.deliver(bytes([byte]))
        self.assertEqual(self.successResultOf(looking), "")

    def test_no_http(self) -> None:
        """An answer that is not HTTP fails at once, before its end."""
        for data in (b"SSH-2.0-OpenSSH_9.2\r\n", b"\n", b"x" * 5000, b"HTTP/1.1 9999 No\r\n"):
            failure = self.failureResultOf(self.answered(data), Unhealthy)
            self.assertIn("the answer is not HTTP", str(failure.value))

    def test_no_connection(self) -> None:
        """A port without a listener is a dead tunnel, as in kube-apiserver."""
        for error in (StreamRefused("refused", "connection refused", 2), TunnelLost("gone")):
            failure = self.failureResultOf(self.look(HealthTunnel(error)), Unhealthy)
            self.assertEqual(str(failure.value), f"Get http://127.0.0.1:10255/healthz: {error}")

    def test_own_address(self) -> None:
        """A kubelet that listens at its node's own address alone is as healthy as any."""
        tunnel = HealthTunnel()
        tunnel.deaf = {"127.0.0.1"}
        looking = self.look(tunnel)
        tunnel.pipe.deliver(b"HTTP/1.1 200 OK\r\n\r\n")
        self.assertEqual(self.successResultOf(looking), "")
        self.assertEqual(tunnel.dialed, [("127.0.0.1", 10255), (tunnel.node.host, 10255)])

    def test_closed_without_an_answer(self) -> None:
        """So is one that ends or breaks."""
        tunnel = HealthTunnel()
        looking = self.look(tunnel)
        tunnel.pipe.end()
        self.failureResultOf(looking, Unhealthy)
        tunnel = HealthTunnel()
        looking = self.look(tunnel)
        tunnel.pipe.lose()
        self.failureResultOf(looking, Unhealthy)

    def test_silence(self) -> None:
        """So is a server that does not answer, connected or not."""
        for tunnel in (HealthTunnel(), HealthTunnel(Deferred())):
            looking = self.look(tunnel)
            self.clock.advance(TIMEOUT)
            failure = self.failureResultOf(looking, Unhealthy)
            self.assertEqual(str(failure.value), "Get http://127.0.0.1:10255/healthz: no answer within 8 s")
            self.assertEqual(self.clock.getDelayedCalls(), [])
            self.assertEqual(tunnel.pipe.aborted, tunnel.answer is None)

    def test_urls(self) -> None:
        """An invalid URL is rejected before any request."""
        for url in ("ftp://x/", "https://", "127.0.0.1:10250", "http://x/\r\n", "http://ü/"):
            with self.assertRaises(ConfigurationError):
                kubelet_health(url, self.clock)

    def test_ipv6(self) -> None:
        """An IPv6 address goes without brackets to the node and with them into the head."""
        tunnel = HealthTunnel()
        Deferred.fromCoroutine(kubelet_health("http://[::1]:10255/x?y", self.clock)(tunnel))  # type: ignore[arg-type]
        self.assertEqual(tunnel.dialed, [("::1", 10255)])
        self.assertTrue(bytes(tunnel.pipe.sent).startswith(b"GET /x?y HTTP/1.1\r\nHost: [::1]:10255\r\n"))


class Kubelet:
    """Speaks TLS on a channel and answers what it is asked."""

    def __init__(self, channel: Any) -> None:
        self.channel = channel
        self.session = TLSSession(server_context(ssl.TLSVersion.TLSv1_3), server_side=True)
        self.got = b""
        self.is_ready = False
        channel.receiver = self

    def received(self, data: memoryview) -> None:
        """Shake hands, then answer."""
        self.session.feed(memoryview(bytes(data)))
        try:
            if not self.is_ready:
                self.is_ready = self.session.handshake()
                self.channel.send(self.session.take())
            if self.is_ready:
                buffer = memoryview(bytearray(4096))
                while count := self.session.read_into(buffer):
                    self.got += buffer[:count]
        except (TLSEnded, ssl.SSLError):
            return
        if self.got.endswith(b"\r\n\r\n"):
            self.channel.send(self.session.encrypt(b"HTTP/1.1 401 Unauthorized\r\n\r\n"))

    def ended(self) -> None:
        """Nothing to do."""

    def drained(self) -> None:
        """Nothing to do."""

    def closed(self, reason: Exception) -> None:
        """Nothing to do."""


class KubeletTLSTests(SynchronousTestCase):
    def look(self, url: str, authority: ssl.SSLContext | None) -> Deferred[str]:
        """Look at a kubelet with TLS, at the far end of a channel."""
        muxes = MuxPair()
        opening = muxes.near.mux.open(KIND, b"")
        muxes.pump()
        far = muxes.far.incoming.pop().accept()
        muxes.pump()
        Kubelet(far)
        far.resume()
        tunnel = HealthTunnel(opening)
        check: Any = kubelet_health(url, muxes.clock, authority)
        looking: Deferred[str] = Deferred.fromCoroutine(check(tunnel))
        muxes.pump()
        self.assertEqual((muxes.clock.getDelayedCalls(), muxes.near.mux.channels), ([], {}))
        return looking

    def test_without_verification(self) -> None:
        """Without authorities any certificate will do, for any name."""
        self.assertEqual(self.successResultOf(self.look("https://127.0.0.1:10250/healthz", None)), "")

    def test_verified(self) -> None:
        """With authorities the certificate must be valid; an invalid one degrades the tunnel only."""
        good = self.look("https://tower.example:10250/healthz", client_context())
        self.assertEqual(self.successResultOf(good), "")
        bad = self.successResultOf(self.look("https://other.example:10250/healthz", client_context()))
        self.assertTrue(bad.startswith("the kubelet's TLS: "), bad)


class FakeAPIServer:
    """An API server without TLS.

    :ivar error: what it fails with, behind the node.
    """

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.is_closed = False

    def upstream(self) -> Upstream:
        """Return the same always."""
        return Upstream(b"/k8s", b"Host: api.example\r\n", b"Authorization: Bearer secret\r\n")

    async def open(self, dialler: Any) -> Any:
        """Open it through the node."""
        if self.is_closed:
            raise StreamRefused("failed", "no credential")
        channel = await dialler.dial("api.example", 6443)
        if self.error is not None:
            raise self.error
        return channel


class MemberHealthTests(HealthCase):
    def setUp(self) -> None:
        """An API server."""
        super().setUp()
        self.apiserver = FakeAPIServer()

    def look(self, tunnel: HealthTunnel) -> Deferred[str]:
        """Ask the API server."""
        return Deferred.fromCoroutine(member_health(self.apiserver, self.clock)(tunnel))  # type: ignore[arg-type]

    def test_what_is_asked(self) -> None:
        """The request is sent as users' requests are, with the server's name and no secret."""
        tunnel = HealthTunnel()
        self.look(tunnel)
        self.assertEqual(tunnel.dialed, [("api.example", 6443)])
        self.assertTrue(
            bytes(tunnel.pipe.sent).startswith(b"GET /k8s/healthz HTTP/1.1\r\nHost: api.example\r\n")
        )
        self.assertNotIn(b"secret", bytes(tunnel.pipe.sent))

    def test_answers(self) -> None:
        """Any answer except an error is healthy; one that requires a credential is healthy too."""
        for code in (200, 401, 403):
            self.assertEqual(self.code(code), "")
        for code in (404, 500, 503):
            self.assertEqual(self.code(code), f"the API server answered {code}")

    def test_the_node_refuses(self) -> None:
        """A node that refuses a stream is alive: its tunnel is degraded."""
        for code in ("refused", "not-allowed", "name", "timeout", "unreachable", "busy", "failed"):
            trouble = self.successResultOf(self.look(HealthTunnel(StreamRefused(code, "refused", 2))))
            self.assertEqual(trouble, "cannot reach the API server: refused")

    def test_the_node_is_silent(self) -> None:
        """A node that does not answer is dead, no matter which timeout ends first."""
        self.failureResultOf(self.look(HealthTunnel(StreamRefused("timeout", "in 8 s"))), StreamRefused)
        looking = self.look(HealthTunnel(Deferred()))
        self.clock.advance(TIMEOUT)
        failure = self.failureResultOf(looking, Unhealthy)
        self.assertEqual(str(failure.value), "the node did not answer within 8 s")

    def test_the_api_server_is_a_black_hole(self) -> None:
        """A node that answers SSH's keepalives while it connects is alive, whichever timeout ends first."""
        for tells_itself in (False, True):
            dialing: Deferred[Any] = Deferred()
            tunnel = HealthTunnel(dialing)
            looking = self.look(tunnel)
            tunnel.bytes_in += 40
            if tells_itself:
                dialing.errback(StreamRefused("timeout", "in 8 s"))
            else:
                self.clock.advance(TIMEOUT)
            self.assertIn("cannot reach the API server: ", self.successResultOf(looking))

    def test_the_tunnel_is_lost(self) -> None:
        """A lost tunnel is dead."""
        self.failureResultOf(self.look(HealthTunnel(TunnelLost("gone"))), TunnelLost)

    def test_behind_the_node(self) -> None:
        """A problem of the API server does not close the tunnel."""
        for error, cure in (
            (StreamRefused("tls", "bad certificate"), "'tower cluster set … --member-kubeconfig FILE'"),
            (ConnectFailed("timeout", "too slow"), ""),
        ):
            self.apiserver.error = error
            trouble = self.successResultOf(self.look(HealthTunnel()))
            self.assertTrue(trouble.startswith(f"cannot reach the API server: {error}"), trouble)
            self.assertTrue(trouble.endswith(cure or str(error)), trouble)

    def test_no_credential(self) -> None:
        """A cluster without a usable credential keeps its tunnels."""
        self.apiserver.is_closed = True
        tunnel = HealthTunnel()
        trouble = self.successResultOf(self.look(tunnel))
        self.assertEqual(trouble, "cannot reach the API server: no credential")
        self.assertEqual(tunnel.dialed, [])

    def test_the_api_server_is_silent(self) -> None:
        """Silence behind a node that connected is not the node's."""
        tunnel = HealthTunnel()
        looking = self.look(tunnel)
        self.clock.advance(TIMEOUT)
        self.assertEqual(self.successResultOf(looking), "cannot reach the API server: no answer within 8 s")
        self.assertTrue(tunnel.pipe.aborted)

    def test_the_api_server_hangs_up(self) -> None:
        """A connection that ends without an answer is degraded."""
        tunnel = HealthTunnel()
        looking = self.look(tunnel)
        tunnel.pipe.end()
        self.assertIn("closed without an answer", self.successResultOf(looking))

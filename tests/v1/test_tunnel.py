"""Tests of tunnels that old agents opened."""

from __future__ import annotations

import time
from collections.abc import Coroutine
from typing import Any, cast

from attrs import evolve
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.chains import family, pem
from tests.fakes.tls_servers import MisdatedServer
from tests.fakes.tunnels import FakeSSHTunnel
from tests.fakes.v1_pairs import GOOD, TOKEN_ID
from tower.errors import StreamRefused
from tower.kube.member_cures import SYNCHRONIZE
from tower.kube.member_status import MemberStatus
from tower.kube.status import StatusError
from tower.tunnels.replicas import preferred
from tower.v1.member_credential import MemberCredential
from tower.v1.server import V1Agent
from tower.v1.tunnel import V1Tunnel

HEAD = b"GET /api/v1/pods HTTP/1.1\r\n"
JANE = b"Impersonate-User: jane\r\nImpersonate-Group: dev\r\n"
REST = b"Accept: */*\r\nHost: tower.example\r\n\r\n"


def rewritten(tunnel: V1Tunnel, head: bytes, plain: bool) -> bytes:
    """Return a head as it goes to the API server."""
    rewrite = tunnel.rewrite_for("kubernetes")
    assert rewrite is not None
    return rewrite(head, plain)


class V1TunnelTests(SynchronousTestCase):
    """V1Tunnel."""

    def setUp(self) -> None:
        """Create a tunnel of a valid agent."""
        self.clock = Clock()
        self.under = FakeSSHTunnel("192.0.2.1:4321")
        self.under.streams = 3
        self.tunnel = self.made()

    def made(self, impersonate: bool = True, **changes: Any) -> V1Tunnel:
        """Return a tunnel whose agent sent that config."""
        config = evolve(GOOD, **changes)
        agent = V1Agent("alpha", TOKEN_ID, config, MemberCredential(config))
        under: Any = self.under
        return V1Tunnel(under, agent, self.clock, self.clock.seconds, impersonate=impersonate)

    def test_what_it_is(self) -> None:
        """It has the attributes that the control plane needs of any tunnel."""
        tunnel = self.tunnel
        self.assertEqual(
            (tunnel.name, tunnel.fingerprint, tunnel.version, tunnel.peer, tunnel.server, tunnel.protocol),
            ("alpha", TOKEN_ID, "v0.2.1", "192.0.2.1:4321", b"10.96.0.1", "kubesphere-v1"),
        )
        self.assertEqual((tunnel.round_trip, tunnel.streams, tunnel.draining), (0.1, 3, False))
        self.assertNotIn("bearer", repr(vars(tunnel)))
        tunnel.close("enough")
        self.assertEqual(self.under.closings, ["enough"])

    def test_kubernetes(self) -> None:
        """A stream to the API server is a channel to the address that the agent sent, with TLS inside."""
        opening = self.tunnel.open("kubernetes")
        self.assertEqual(self.under.opened, [(b"kubesphere", b"10.96.0.1:443")])
        self.assertEqual(self.under.pipe.sent[:1], b"\x16")
        self.assertNoResult(opening)
        self.under.pipe.lose()
        error = self.failureResultOf(opening, StreamRefused).value
        assert isinstance(error, StreamRefused)
        self.assertEqual(error.code, "unreachable")

    def test_not_tls(self) -> None:
        """An API server without TLS leads to a refusal with that reason."""
        opening = self.tunnel.open("kubernetes")
        self.under.pipe.deliver(b"HTTP/1.0 400 Bad Request\r\n\r\n")
        error = self.failureResultOf(opening, StreamRefused).value
        assert isinstance(error, StreamRefused)
        self.assertEqual(error.code, "tls")

    def test_silent_server(self) -> None:
        """A server that sends nothing is given up after ten seconds."""
        opening = self.tunnel.open("kubernetes")
        self.clock.advance(10.1)
        error = self.failureResultOf(opening, StreamRefused).value
        assert isinstance(error, StreamRefused)
        self.assertEqual(error.code, "timeout")

    def test_kubesphere(self) -> None:
        """The port that old agents leave out by default is added before the channel is opened."""
        for given, dialed in (
            ("ks-apiserver.kubesphere-system.svc", b"ks-apiserver.kubesphere-system.svc:80"),
            ("ks-apiserver:9090", b"ks-apiserver:9090"),
            ("[2001:db8::1]:9090", b"[2001:db8::1]:9090"),
            ("2001:db8::1", b"[2001:db8::1]:80"),
            ("[2001:db8::1]", b"[2001:db8::1]:80"),
        ):
            tunnel = self.made(kubesphere=given)
            self.assertIs(self.successResultOf(tunnel.open("kubesphere")), self.under.pipe)
            self.assertEqual(self.under.opened[-1], (b"kubesphere", dialed))

    def test_other_targets(self) -> None:
        """Other targets are refused, although an old agent would dial any address."""
        for tunnel, target in (
            (self.tunnel, "127.0.0.1:22"),
            (self.tunnel, "database"),
            (self.made(kubesphere=""), "kubesphere"),
        ):
            error = self.failureResultOf(tunnel.open(target), StreamRefused).value
            assert isinstance(error, StreamRefused)
            self.assertEqual(error.code, "no-such-target")
        self.assertEqual(self.under.opened, [])

    def test_impersonation(self) -> None:
        """A request has the agent's credential and impersonates the user."""
        self.assertEqual(
            rewritten(self.tunnel, HEAD + JANE + REST, False),
            HEAD + JANE + b"Accept: */*\r\nHost: 10.96.0.1\r\nAuthorization: Bearer bearer-of-alpha\r\n\r\n",
        )

    def test_nobody(self) -> None:
        """A request without a user, or of the system itself, is rejected: it would use the agent's rights."""
        for head in (
            HEAD + REST,
            HEAD + b"Impersonate-User: jane\r\nImpersonate-Group: system:masters\r\n" + REST,
            HEAD + JANE + b"Authorization: Bearer other\r\n" + REST,
        ):
            with self.assertRaises(StatusError) as caught:
                rewritten(self.tunnel, head, False)
            self.assertEqual(caught.exception.code, 403)
            self.assertNotIn("bearer-of-alpha", str(caught.exception))

    def test_no_credential(self) -> None:
        """Without a credential each request fails at once, on every kind of port, with the cure."""
        for tunnel in (self.made(bearer=b""), self.made(impersonate=False, bearer=b"")):
            self.assertFalse(tunnel.sent_credential)
            for plain in (False, True):
                with self.assertRaises(StatusError) as caught:
                    rewritten(tunnel, HEAD + JANE + REST, plain)
                self.assertEqual(caught.exception.code, 502)
                self.assertIn("alpha cannot be used: its kubesphere-v1 agent", str(caught.exception))
                self.assertIn("client-key-data", str(caught.exception))
        self.assertTrue(self.tunnel.sent_credential)

    def test_two_agents(self) -> None:
        """Requests avoid an agent without a credential while another one has a credential."""
        bare = self.made(bearer=b"")
        assert bare.member_status is not None
        self.assertEqual(bare.member_status.credential.reason, "CredentialMissing")
        for tunnels in ([self.tunnel, bare], [bare, self.tunnel]):
            self.assertEqual(preferred(tunnels), [self.tunnel])
        self.assertEqual(preferred([bare]), [bare])

    def test_anonymous_member(self) -> None:
        """An API server that serves requests without a credential makes no difference."""
        under: Any = self.under
        under.open_channel = MisdatedServer(self.clock.seconds()).open
        bare = self.made(kubernetes="tower.example:6443", authority=pem(family()[0][0]), bearer=b"")
        assert bare.check_member is not None
        checking = Deferred.fromCoroutine(cast(Coroutine[Any, Any, MemberStatus], bare.check_member()))
        self.clock.pump([1.0] * 60)
        status = self.successResultOf(checking)
        self.assertEqual((status.credential.status, status.credential.reason), ("False", "CredentialMissing"))

    def test_no_impersonation(self) -> None:
        """With --v1-no-impersonation the agent's own credential is used for every authenticated user."""
        tunnel = self.made(impersonate=False)
        head = rewritten(tunnel, HEAD + JANE + REST, False)
        self.assertNotIn(b"Impersonate", head)
        self.assertIn(b"Authorization: Bearer bearer-of-alpha\r\n", head)

    def test_plain(self) -> None:
        """A plain request keeps all but Host and Authorization, which are the agent's."""
        head = HEAD + b"authorization: Basic x\r\nImpersonate-User: joe\r\nHOST: a\r\nCookie: b\r\n\r\n"
        self.assertEqual(
            rewritten(self.tunnel, head, True),
            HEAD
            + b"Host: 10.96.0.1\r\nAuthorization: Bearer bearer-of-alpha\r\n"
            + b"Impersonate-User: joe\r\nCookie: b\r\n\r\n",
        )

    def test_misdated(self) -> None:
        """If the API server's certificate is not valid yet, its clock is read without a credential."""
        self.clock.advance(time.time())
        server = MisdatedServer(self.clock.seconds())
        under: Any = self.under
        under.open_channel = server.open
        tunnel = self.made(kubernetes="tower.example:6443", authority=pem(family()[0][0]))
        assert tunnel.check_member is not None
        checking = Deferred.fromCoroutine(cast(Coroutine[Any, Any, MemberStatus], tunnel.check_member()))
        server.serve()
        status = self.successResultOf(checking)
        self.assertEqual(status.api_server.reason, "CertificateNotYetValid")
        self.assertIn("the clock of the proxy, which is 60m behind", status.api_server.message)
        self.assertEqual(status.api_server.cure, SYNCHRONIZE)
        verified, unverified = server.pipes
        self.assertEqual(verified.requests, b"")
        self.assertTrue(unverified.requests.startswith(b"GET /version "))
        self.assertNotIn(b"Authorization", unverified.requests)
        self.assertTrue(all(pipe.lost or pipe.closing for pipe in server.pipes))

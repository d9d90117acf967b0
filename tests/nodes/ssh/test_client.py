"""Tests of `tower.nodes.ssh.client` and `tower.nodes.ssh.auth`, with a node in memory."""

from __future__ import annotations

from typing import Any

from cryptography.hazmat.primitives.asymmetric import ed25519
from twisted.conch.ssh.common import NS
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.receivers import Recorder
from tests.fakes.ssh_keys import KEYS
from tests.fakes.ssh_node import EVERY_SIGNATURE, NODE, FarNode, extensions, failure
from tower.clusters.node import Node
from tower.conch.transport.ciphers import CIPHERS
from tower.conch.transport.fields import Malformed
from tower.conch.transport.keys import ED25519
from tower.conch.transport.limits import Disconnected
from tower.conch.transport.signatures import (
    ECDSA_P256,
    ECDSA_P384,
    RSA,
    RSA_SHA2_256,
    RSA_SHA2_512,
    SIGNATURES,
)
from tower.errors import PeerError
from tower.nodes.ssh.auth import AuthRefused, read_extensions, signatures_for
from tower.nodes.ssh.client import NodeTransport, NothingInCommon
from tower.nodes.ssh.client_key import ClientKey
from tower.nodes.ssh.failures import OpenFailed
from tower.nodes.ssh.host_keys import AnyHostKey, HostKeyRefused, key_mismatch
from tower.nodes.tunnels.tunnel import NodeTunnel


class Remembering(AnyHostKey):
    """Records its calls.

    :ivar asked: method and key.
    :param known: types of the known keys.
    :ivar refuse: refuses all.
    """

    def __init__(self, *known: bytes) -> None:
        self.known = known
        self.asked: list[tuple[str, Node, bytes]] = []
        self.refuse = False

    def kinds(self, node: Node) -> tuple[bytes, ...]:
        """See HostKeys."""
        return self.known

    def judge(self, node: Node, blob: bytes) -> None:
        """See HostKeys."""
        self.asked.append(("judge", node, blob))
        if self.refuse:
            raise key_mismatch(node, blob, "another (known_hosts:7)")

    def accepted(self, node: Node, blob: bytes) -> None:
        """See HostKeys."""
        self.asked.append(("accepted", node, blob))


class ClientTestCase(SynchronousTestCase):
    """A client of one node."""

    def setUp(self) -> None:
        """Make the node."""
        self.far = FarNode()

    def open(self, **named: Any) -> NodeTunnel:
        """Return a tunnel that is open."""
        tunnel = self.far.tunnel(**named)
        opening = tunnel.open()
        self.far.pump()
        self.successResultOf(opening)
        return tunnel

    def refused(self, **named: Any) -> Exception:
        """Return why there is none."""
        opening = self.far.tunnel(**named).open()
        self.far.pump()
        error: OpenFailed = self.failureResultOf(opening, OpenFailed).value
        self.far.wait(6)
        self.assertEqual(self.far.clock.getDelayedCalls(), [])
        return error.cause

    def told(self) -> str:
        """Return the reason that the node received when we disconnected."""
        reasons: list[Exception] = []
        self.far.servers[-1].tunnel.lost.addCallback(reasons.append)
        assert isinstance(reasons[0], Disconnected), reasons
        return str(reasons[0])


class HandshakeTests(ClientTestCase):
    """Negotiation of versions and algorithms."""

    def ssh(self, tunnel: NodeTunnel) -> NodeTransport:
        """Return our end."""
        assert tunnel._tunnel is not None
        ssh: Any = tunnel._tunnel._ssh
        return ssh  # type: ignore[no-any-return]

    def test_ciphers(self) -> None:
        """AES-128-GCM is wanted first, and each of the three will do; key exchange is strict."""
        self.assertEqual(self.ssh(self.open()).sealer.__class__.__name__, "GCMSealer")
        for cipher in CIPHERS:
            self.far.offers = {"supportedCiphers": [cipher]}
            ssh = self.ssh(self.open())
            self.assertTrue(ssh._order.strict)
            self.assertEqual(ssh.sealer.__class__.__name__.startswith("ChaCha"), b"chacha" in cipher)

    def test_versions(self) -> None:
        """Any SSH 2 program is accepted, and so are lines before its version."""
        for version, preface in (
            (b"SSH-2.0-dropbear_2022.83", b""),
            (b"SSH-1.99-OpenSSH_5.3", b"Unauthorized use is prohibited.\r\nYou have been warned.\n"),
            (b"SSH-2.0-Go", b"\r\n"),
        ):
            self.far.version, self.far.preface = version, preface
            self.assertEqual(self.open().version, version.decode())

    def test_not_ssh(self) -> None:
        """Something else than SSH 2 is refused."""
        self.far.version = b"SSH-1.5-old"
        self.assertIn("unsupported SSH version", str(self.refused()))
        self.far.version, self.far.preface = b"x", b"HTTP/1.1 400 Bad Request\r\n" * 400
        self.assertIn("no SSH version line", str(self.refused()))

    def test_host_key_types(self) -> None:
        """A server may prove its key by every signature that we know."""
        for kind, names in SIGNATURES.items():
            for name in names:
                self.far.host_key_algorithms = [name]
                self.assertEqual(self.open().host_key, KEYS[kind].fingerprint)

    def test_host_key_order(self) -> None:
        """A server that has several keys shows the one of the type that is known."""
        self.far.host_key_algorithms = EVERY_SIGNATURE.split(b",")
        for kind in SIGNATURES:
            known = Remembering(kind)
            self.assertEqual(self.open(host_keys=known).host_key, KEYS[kind].fingerprint)
            self.assertEqual(known.asked[0], ("judge", NODE, KEYS[kind].blob))

    def test_macs(self) -> None:
        """A server whose only MAC is one that we lack: no MAC is used with our ciphers anyway."""
        for mac in (b"umac-64@openssh.com", b"umac-128-etm@openssh.com", b"hmac-sha1-etm@openssh.com"):
            self.far.offers = {"supportedMACs": [mac]}
            self.open()

    def test_nothing_in_common(self) -> None:
        """The error has the server's list, ours, and the option that would change it."""
        for name, offered, option in (
            ("supportedKeyExchanges", b"diffie-hellman-group14-sha1", "KexAlgorithms"),
            ("supportedPublicKeys", b"ssh-dss", "HostKeyAlgorithms"),
            ("supportedCiphers", b"3des-cbc", "Ciphers"),
            ("supportedMACs", b"hmac-md5", "MACs"),
            ("supportedCompressions", b"zlib", "Compression"),
        ):
            self.far.offers = {name: [offered]}
            error = self.refused()
            self.assertIsInstance(error, NothingInCommon)
            self.assertIn(f'its SSH server offers "{offered.decode()}', str(error))
            self.assertIn(f"to {option} in its sshd_config", str(error))

    def test_extensions_asked_for(self) -> None:
        """We request extensions in the first key exchange only."""
        tunnel = self.open()
        server: Any = self.far.servers[0]
        seen: list[bytes] = []
        original = server.check_kexinit

        def note(packet: bytes) -> None:
            seen.append(packet)
            original(packet)

        server.check_kexinit = note
        self.assertTrue(server._peerSupportsExtensions)
        self.ssh(tunnel).start_rekey()
        self.far.pump()
        self.assertEqual(len(seen), 1)
        self.assertNotIn(b"ext-info-c", seen[0])
        self.assertNotIn(b"kex-strict", seen[0])

    def test_rekey(self) -> None:
        """Either side may change keys while streams go on."""
        tunnel = self.open()
        dialing = tunnel.dial("a", 1)
        self.far.pump()
        channel, recorder = self.successResultOf(dialing), Recorder()
        channel.receiver = recorder
        channel.resume()
        for end in (self.ssh(tunnel), self.far.servers[0]):
            before = self.ssh(tunnel).sealer
            end.start_rekey()
            channel.send(b"during")
            self.far.pump()
            self.assertIsNot(self.ssh(tunnel).sealer, before)
        self.assertEqual(recorder.got, b"duringduring")

    def test_left(self) -> None:
        """The node does not receive the reason for which we disconnect."""
        tunnel = self.open()
        lost: list[Exception] = []
        tunnel.lost.addCallback(lost.append)
        tunnel.close("its health check failed: the API server at 10.0.0.1 is not well")
        self.far.pump()
        self.assertIn("10.0.0.1", str(lost[0]))
        self.assertEqual(self.told(), 'the peer reports: "closed"')

    def test_other_key_later(self) -> None:
        """A server that shows another key at a later exchange is left."""
        tunnel = self.open()
        self.far.servers[0].supportedPublicKeys = [ED25519]
        lost: list[Exception] = []
        tunnel.lost.addCallback(lost.append)
        self.far.servers[0].start_rekey()
        self.far.pump()
        self.assertIn("has changed since", str(lost[0]))

    def test_global_requests(self) -> None:
        """Requests that are not known are refused if they want an answer; Tower's own mean nothing here."""
        tunnel = self.open()
        server: Any = self.far.servers[0]
        answers: list[tuple[int, bytes]] = []
        server.connection.packetReceived = lambda kind, body: answers.append((kind, body))
        for name, wanted in ((b"nothing@example.org", 82), (b"drain@tower.kubesphere.io", 82)):
            server.sendPacket(80, NS(name) + b"\1")
            self.far.pump()
            self.assertEqual(answers.pop(), (wanted, b""))
        server.sendPacket(80, NS(b"keepalive@openssh.com") + b"\1")
        self.far.pump()
        self.assertEqual(answers.pop(), (81, b""))
        self.assertFalse(tunnel.draining)
        self.assertTrue(tunnel.is_open)

    def test_no_drain(self) -> None:
        """A node receives none of Tower's own requests."""
        tunnel = self.open()
        packets = self.far.servers[0].opener.packets
        assert tunnel._tunnel is not None
        tunnel._tunnel.drain()
        self.far.pump()
        self.assertEqual(self.far.servers[0].opener.packets, packets)


class TrustTests(ClientTestCase):
    """Host keys."""

    def test_order(self) -> None:
        """A key is judged once, before its use, and accepted once, after the login; never at rekeying."""
        known = Remembering()
        tunnel = self.open(host_keys=known)
        self.far.servers[0].start_rekey()
        self.far.pump()
        self.assertTrue(tunnel.is_open)
        self.assertEqual([word for word, *_ in known.asked], ["judge", "accepted"])
        self.assertEqual({blob for *_, blob in known.asked}, {KEYS[RSA].blob})

    def test_refused(self) -> None:
        """A rejected key ends the connection before any secret is sent, and is not pinned."""
        known = Remembering()
        known.refuse = True
        error = self.refused(host_keys=known)
        self.assertIsInstance(error, HostKeyRefused)
        self.assertIn(KEYS[RSA].fingerprint, str(error))
        self.assertIn("known_hosts:7", str(error))
        self.assertEqual((self.far.asked, len(known.asked)), ([], 1))
        self.assertEqual(self.told(), 'the peer reports: "host key not accepted"')

    def test_login_rejected(self) -> None:
        """The key of a server that rejects the login is not pinned."""
        known = Remembering()
        self.far.refuse_with = failure()
        self.refused(host_keys=known)
        self.assertEqual([word for word, *_ in known.asked], ["judge"])

    def test_false_signature(self) -> None:
        """A server that shows a key which it does not hold is left."""
        other = ClientKey(ed25519.Ed25519PrivateKey.generate())
        known = Remembering()
        self.far.host_key_algorithms = [ED25519]
        tunnel = self.far.tunnel(host_keys=known)
        opening = tunnel.open()
        server: Any = self.far.servers[0]
        true_keys = server._getHostKeys

        def false_keys(algorithm: bytes) -> Any:
            from twisted.conch.ssh.keys import Key

            return Key.fromString(other.blob), true_keys(algorithm)[1]

        server._getHostKeys = false_keys
        self.far.pump()
        error = self.failureResultOf(opening, OpenFailed).value
        self.assertIn("did not sign with its host key", str(error))
        self.assertEqual([word for word, *_ in known.asked], ["judge"])


class AuthTests(ClientTestCase):
    """The login."""

    def test_kinds(self) -> None:
        """Every kind of key, with the preferred signature of those that the server takes."""
        for kind, key in KEYS.items():
            self.open(key=key)
            asked = self.far.asked.pop()
            self.assertTrue(asked.good)
            self.assertEqual((asked.algorithm, asked.line), (SIGNATURES[kind][0], key.authorized_key))

    def test_signature_algorithms(self) -> None:
        """RSA: the best signature that the server accepts; SHA-256 if it does not list any."""
        for said, algorithm in (
            (extensions(b"ssh-ed25519,rsa-sha2-256,rsa-sha2-512"), RSA_SHA2_512),
            (extensions(b"ssh-ed25519,rsa-sha2-256,ssh-rsa"), RSA_SHA2_256),
            ((1).to_bytes(4, "big") + NS(b"other") + NS(b""), RSA_SHA2_256),
            (None, RSA_SHA2_256),
        ):
            self.far.extensions = said
            self.open(key=KEYS[RSA])
            self.assertEqual(self.far.asked.pop().algorithm, algorithm)

    def test_other_signature(self) -> None:
        """A server that accepts less than it lists gets the other signature of an RSA key, then no more."""
        self.far.refuse_with = failure()
        self.refused(key=KEYS[RSA])
        self.assertEqual([asked.algorithm for asked in self.far.asked], [RSA_SHA2_512, RSA_SHA2_256])
        self.far.asked.clear()
        self.far.refuse_first = 1
        self.far.refuse_with = None
        self.open(key=KEYS[RSA])
        self.assertEqual([asked.algorithm for asked in self.far.asked], [RSA_SHA2_512, RSA_SHA2_256])

    def test_not_taken(self) -> None:
        """A server that accepts no signature of our key receives no request; the error has its list."""
        self.far.extensions = extensions(b"ssh-ed25519,ssh-rsa")
        error = self.refused(key=KEYS[RSA])
        self.assertIsInstance(error, AuthRefused)
        self.assertIn('only "ssh-ed25519,ssh-rsa"', str(error))
        self.assertIn("PubkeyAcceptedAlgorithms", str(error))
        self.assertEqual(self.far.asked, [])

    def test_refused(self) -> None:
        """A rejected login: the error has user, key, methods and cure; the key is offered once."""
        self.far.refuse_with = failure(b"publickey,password")
        error = self.refused(key=KEYS[ECDSA_P256], user="admin")
        for word in (
            "user admin",
            f"ecdsa-sha2-nistp256 {KEYS[ECDSA_P256].fingerprint}",
            'it offers "publickey,password"',
            "authorized_keys",
        ):
            self.assertIn(word, str(error))
        self.assertEqual(len(self.far.asked), 1)
        self.assertEqual(self.told(), 'the peer reports: "login rejected"')

    def test_no_keys(self) -> None:
        """A server that accepts no keys at all."""
        self.far.refuse_with = failure(b"password,keyboard-interactive")
        self.assertIn("accepts no keys", str(self.refused()))
        self.far.refuse_with = failure(b"")
        self.assertIn("only nothing", str(self.refused()))

    def test_partly(self) -> None:
        """A server that wants more than a key."""
        self.far.refuse_with = failure(b"keyboard-interactive", partly=True)
        error = self.refused()
        self.assertIn('also requires "keyboard-interactive"', str(error))
        self.assertIn("AuthenticationMethods", str(error))

    def test_banners(self) -> None:
        """Banners are ignored."""
        self.far.greetings = [b"hello\r\n"] * 5
        self.open()

    def test_disconnected(self) -> None:
        """A server that disconnects sends the reason."""
        self.far.greetings = ()
        opening = self.far.tunnel().open()
        server: Any = self.far.servers[0]
        reason = b"Too many authentication failures"
        server.auth.packetReceived = lambda kind, body: server.sendDisconnect(2, reason)
        self.far.pump()
        error = self.failureResultOf(opening, OpenFailed).value.cause
        self.assertIsInstance(error, Disconnected)
        self.assertIn("Too many authentication failures", str(error))

    def test_stray(self) -> None:
        """Anything else than an answer is against the protocol."""
        opening = self.far.tunnel().open()
        server: Any = self.far.servers[0]
        server.auth.packetReceived = lambda kind, body: server.sendPacket(60, b"")
        self.far.pump()
        self.assertIn(
            "message 60 before authentication", str(self.failureResultOf(opening, OpenFailed).value)
        )


class ReadTests(SynchronousTestCase):
    """Without a connection."""

    def test_extensions(self) -> None:
        """Extensions are read strictly, and there is an end to them."""
        self.assertEqual(read_extensions(extensions(b"a,b"))[b"server-sig-algs"], b"a,b")
        self.assertEqual(read_extensions(bytes(4)), {})
        for body in (b"", b"\0\0\0\1", extensions(b"a") + b"x", extensions(b"a")[:-1]):
            self.assertRaises(Malformed, read_extensions, body)
        self.assertRaises(PeerError, read_extensions, b"\xff\xff\xff\xff")

    def test_choose(self) -> None:
        """The choice of signatures; a list with rubbish in it is shown in part, printable."""
        self.assertEqual(signatures_for(KEYS[ECDSA_P384], None), [ECDSA_P384])
        self.assertEqual(signatures_for(KEYS[ED25519], [b"x", ED25519]), [ED25519])
        self.assertEqual(signatures_for(KEYS[RSA], None), [RSA_SHA2_256, RSA_SHA2_512])
        error = self.assertRaises(AuthRefused, signatures_for, KEYS[ED25519], [b"\x1b[31m", b"y" * 9000])
        self.assertNotIn("\x1b", str(error))
        self.assertLess(len(str(error)), 1000)

"""Holes 1 to 6: authentication, and the answers to unknown peers."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from cryptography.x509 import load_pem_x509_certificate
from twisted.internet.testing import MemoryReactorClock
from twisted.logger import capturedLogs, eventAsText
from twisted.python.usage import UsageError

from tests.fakes.agent_options import Unresolving, line
from tests.fakes.certificates import NOW, PUBLISHED, authority, pair
from tests.fakes.gateway import get
from tests.fakes.ssh_pairs import HOST_KEY as OTHER_KEY
from tests.holes.agentkit import MemoryAgent
from tests.holes.case import HoleTestCase
from tests.holes.towerkit import done, status_of
from tower.agent import Agent, Options, makeService
from tower.errors import ConfigurationError, StreamRefused
from tower.net.tls.published_authorities import PUBLISHED_AUTHORITIES
from tower.store.kinds import KINDS
from tower.trust.authorities import given_authority
from tower.trust.pki import public_key_hash


class UnauthenticatedTests(HoleTestCase):
    """Hole 1, with every port that users can reach."""

    def test_hole_01_no_user_without_a_credential(self) -> None:
        """Hole 1: no credential, garbage and unknown certificates get 401 everywhere, without the cluster."""
        agent = self.agent()
        for port, target in ((None, b"/clusters/alpha/api"), (None, b"/api"), (6000, b"/api")):
            for certificate in (None, b"DER"):
                for fields in ((), (b"Authorization: Bearer garbage",), (b"Authorization: Basic YTpi",)):
                    user = self.tower.user(port)
                    user.certificate = certificate
                    answer = self.tower.ask(user, get(target, *fields))
                    self.assertEqual(status_of(answer), 401, (port, target, certificate, fields))
        self.assertEqual(agent.dialed, [])
        jane = self.tower.credential("alpha")
        asked = self.through(agent, self.tower.user(6000), b"/api", jane)
        self.assertIn(b"\r\nImpersonate-User: jane\r\nImpersonate-Group: dev\r\n", asked)
        self.assertNotIn(jane, asked)

    def test_hole_01_no_user_acts_as_another(self) -> None:
        """Hole 1: `Impersonate-*` of a caller does not pass, however it is spelt; no other cluster opens."""
        agent = self.agent()
        self.tower.add("beta")
        jane = self.tower.credential("alpha")
        for claim in (b"Impersonate-User: root", b"impersonate_group: system:masters", b"X-Remote-User: a"):
            answer = self.tower.ask(self.tower.user(6000), get(b"/api", jane, claim))
            self.assertEqual(status_of(answer), 403, claim)
        for port, target in ((6001, b"/api"), (None, b"/clusters/beta/api")):
            self.assertEqual(status_of(self.tower.ask(self.tower.user(port), get(target, jane))), 403)
        self.assertEqual(agent.dialed, [])


class AuthorityTests(HoleTestCase):
    """Hole 2."""

    def test_hole_02_the_published_authority_is_refused(self) -> None:
        """Hole 2: the CA whose key is in upstream's repository is refused, alone or above another."""
        folder = Path(self.mktemp())
        folder.mkdir()
        certificate, key = pair(folder, own := authority())
        given_authority(certificate, key, NOW)
        for pem in (PUBLISHED.encode(), own.pem + PUBLISHED.encode()):
            certificate.write_bytes(pem)
            error = self.assertRaises(ConfigurationError, given_authority, certificate, key, NOW)
            self.assertIn("private key of this CA is public", str(error))

    def test_hole_02_no_agent_takes_it_for_a_proxys(self) -> None:
        """Hole 2: an agent does not accept it as its proxy's either, by its hash."""
        certificate = load_pem_x509_certificate(PUBLISHED.encode())
        for pinned in (public_key_hash(certificate), *PUBLISHED_AUTHORITIES):
            options = Options({})
            error = self.assertRaises(UsageError, options.parse, line(ca_hash=f"sha256:{pinned}"))
            self.assertIn("public", str(error))


class ServerTests(HoleTestCase):
    """Hole 3."""

    def test_hole_03_nothing_secret_for_a_server_that_is_not_proven(self) -> None:
        """Hole 3: a proxy with another host key does not get a token, a hello, or anything of the cluster."""
        token = self.tower.token("alpha")
        agent = MemoryAgent(self.tower, token=token, pinned=OTHER_KEY.fingerprint).start()
        self.addCleanup(agent.service.stopService)
        self.assertIn("not your proxy", agent.service.state)
        self.assertEqual(self.tower.tunnels.live("alpha"), [])
        (ticket,) = self.tower.store.snapshot("jointokens").values()
        self.assertEqual(ticket.value["uses"], 1)
        self.assertEqual(dict(self.tower.store.snapshot("agentkeys")), {})


class DialTests(HoleTestCase):
    """Hole 4, both ways."""

    def test_hole_04_no_agent_has_the_proxy_dial(self) -> None:
        """Hole 4: a channel that an agent opens is refused, with any type; nothing is connected."""
        agent = self.agent()
        connected = len(self.tower.machine.tcpClients)
        for kind in (b"kubesphere", b"direct-tcpip", b"session", b"stream@tower.kubesphere.io"):
            opening = agent.tunnel.open_channel(kind, b"127.0.0.1:6443")
            self.tower.pump()
            self.failureResultOf(opening, StreamRefused)
        self.assertEqual(len(self.tower.machine.tcpClients), connected)
        self.assertEqual(self.tower.tunnels.live("alpha")[0].streams, 0)

    def test_hole_04_no_proxy_names_an_address(self) -> None:
        """Hole 4: our agent dials the targets of its owner alone, and no address that the proxy names."""
        agent = self.agent()
        (tunnel,) = self.tower.tunnels.live("alpha")
        for target in ("169.254.169.254:80", "10.0.0.1:6443", "localhost:22", "db", ""):
            opening = tunnel.open(target)
            self.tower.pump()
            self.failureResultOf(opening, StreamRefused)
        self.assertEqual(agent.dialed, [])


class RevocationTests(HoleTestCase):
    """Hole 5: an agent, a port, a user with a watch, and a user between two requests."""

    def setUp(self) -> None:
        """Start them all."""
        super().setUp()
        self.connected = self.agent()
        jane = self.tower.credential("alpha")
        self.idle, self.watching = self.tower.user(6000), self.tower.user()
        self.through(self.connected, self.idle, b"/api", jane)
        self.tower.ask(self.watching, get(b"/clusters/alpha/api/v1/pods?watch=1", jane))
        self.server(self.connected).deliver(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        self.tower.pump()
        self.assertEqual(status_of(self.watching.taken()), 200)

    def assert_cut(self) -> None:
        """Assert that nothing of alpha goes on, and that its agent does not get in again."""
        self.tower.pump()
        self.assertEqual(self.tower.tunnels.live("alpha"), [])
        self.assertEqual(list(self.tower.machine.open), [])
        self.assertTrue(self.idle.lost or self.idle.closing)
        self.assertTrue(self.watching.lost)
        self.assertTrue(self.server(self.connected).lost)
        self.tower.sweep(3)
        self.assertEqual(self.tower.tunnels.live("alpha"), [])

    def test_hole_05_removed(self) -> None:
        """Hole 5: removing a cluster ends its tunnels, its port and its users' requests, at once."""
        done(self.tower.clusters.remove("alpha"))
        self.assert_cut()

    def test_hole_05_disabled(self) -> None:
        """Hole 5: so does disabling it, which is what `joinFederation: false` was meant to do."""
        done(self.tower.clusters.set_enabled("alpha", False))
        self.assert_cut()

    def test_hole_05_key_revoked(self) -> None:
        """Hole 5: revoking an agent's key ends its tunnel at once, and it does not come back."""
        (key,) = self.tower.tokens.agent_keys("alpha")
        done(self.tower.tokens.revoke("alpha", key.fingerprint))
        self.tower.pump()
        self.assertEqual(self.tower.tunnels.live("alpha"), [])
        self.assertTrue(self.server(self.connected).lost)
        self.tower.sweep(3)
        self.assertEqual(self.tower.tunnels.live("alpha"), [])
        self.assertIn("rejected this agent for cluster", self.connected.service.state)

    def test_hole_05_credential_revoked(self) -> None:
        """Hole 5: revoking a user's credential ends the user's watch and idle connection."""
        (credential,) = self.tower.credentials.list("alpha")
        done(self.tower.credentials.revoke(credential.id))
        self.assertTrue(self.watching.lost)
        self.assertTrue(self.idle.lost or self.idle.closing)


class TokenTests(HoleTestCase):
    """Hole 6."""

    def test_hole_06_tokens_cannot_be_guessed(self) -> None:
        """Hole 6: a token does not depend on the clock or the generator's seed, and it is long enough."""
        tokens = set()
        for _ in range(2):
            random.seed(1)
            tokens.add(self.tower.token("alpha"))
        self.assertEqual(len(tokens), 2)
        self.assertTrue(all(len(token) >= len("tower-") + 43 for token in tokens))  # 256 bits in base64

    def test_hole_06_tokens_are_not_stored(self) -> None:
        """Hole 6: neither a join token nor a user's token is in any record; one like it opens nothing."""
        token = self.tower.token("alpha")
        bearer = self.tower.credential("alpha").rpartition(b" ")[2].decode()
        kept = json.dumps([dict(r.value) for kind in KINDS for r in self.tower.store.snapshot(kind).values()])
        for secret in (token, bearer):
            self.assertNotIn(secret, kept)
            self.assertNotIn(secret.partition("-")[2], kept)
        almost = token[:-1] + ("A" if token[-1] != "A" else "B")
        refused = MemoryAgent(self.tower, token=almost).start()
        self.addCleanup(refused.service.stopService)
        self.assertEqual(self.tower.tunnels.live("alpha"), [])

    def test_hole_06_no_token_in_the_agents_log(self) -> None:
        """Hole 6: an agent's log at its start does not hold the token, from any source."""
        folder = Path(self.mktemp()).absolute()
        folder.mkdir()
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(json.dumps(KUBECONFIG))
        for number, (arguments, environ) in enumerate(
            ((["--token=t0ken"], {}), ([], {"TOWER_TOKEN": "t0ken"}))
        ):
            options = Options(environ)
            options.parse(
                [*line(), f"--kubeconfig={kubeconfig}", f"--state-dir={folder / str(number)}", *arguments]
            )
            reactor: Any = MemoryReactorClock()
            self.patch(reactor, "nameResolver", Unresolving())
            with capturedLogs() as events:
                agent = makeService(options, reactor)
                assert isinstance(agent, Agent)
                agent.startService()
            self.successResultOf(agent.stopService())
            self.assertGreater(len(events), 0)
            text = "".join(map(eventAsText, events)) + repr(events)
            self.assertNotIn("t0ken", text)
            self.assertNotIn("s3cret", text)


KUBECONFIG = {
    "current-context": "c",
    "clusters": [{"name": "c", "cluster": {"server": "https://10.0.0.1:6443"}}],
    "users": [{"name": "u", "user": {"token": "s3cret"}}],
    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
}

"""Tower's SSH against golang.org/x/crypto/ssh, both ways; it has ML-KEM, which old OpenSSH lacks."""

from __future__ import annotations

import random
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any
from unittest import SkipTest

from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.trial.unittest import TestCase

from tests.integration.closed_sockets import sockets_closed
from tests.integration.ssh_ends import CLUSTER, LOOPBACK, MIB, AgentEnd, Echoed, Proxy, dial, finish
from tests.integration.ssh_programs import Program
from tower.conch.connection.mux import Mux
from tower.conch.transport.ciphers import CIPHERS
from tower.conch.transport.kex import EXCHANGES
from tower.conch.transport.keys import KeyPair
from tower.conch.transport.limits import TransportLimits

reactor: Any = _reactor

GO = shutil.which("go")
SOURCE = Path(__file__).parent / "xcrypto"
SIZE = 16 * MIB
DATA = random.Random(2).randbytes(SIZE)
ROOMY = TransportLimits(handshake=30)
OFTEN = TransportLimits(handshake=30, rekey_bytes=MIB)


class XCryptoTests(TestCase):
    """One program for both roles, built from source."""

    timeout = 1800

    def setUp(self) -> None:
        """Build the program, which Go does once, and make keys."""
        self.addCleanup(sockets_closed)
        if GO is None:
            raise SkipTest("no Go")
        self.folder = Path(tempfile.mkdtemp(prefix="tower-xcrypto-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.program = str(self.folder / "xcrypto")
        subprocess.run([GO, "build", "-o", self.program, "."], cwd=SOURCE, check=True, timeout=1200)
        self.key, self.host_key = KeyPair.generate(), KeyPair.generate()

    def finish(self, end: AgentEnd) -> Deferred[None]:
        """Close our end."""
        return Deferred.fromCoroutine(finish(reactor, end))

    def arguments(self, key: KeyPair, peer: KeyPair, **flags: object) -> list[str]:
        """Return the program and its flags."""
        path = self.folder / "key"
        path.write_bytes(key.to_openssh())
        flags |= {"key": path, "peer": peer.fingerprint}
        return [self.program, *(f"-{name}={value}" for name, value in flags.items())]

    async def client(self, limits: TransportLimits, **flags: object) -> Proxy:
        """Let the client talk to a proxy, and check that it succeeds."""
        proxy = Proxy(reactor, limits)
        self.addCleanup(lambda: Deferred.fromCoroutine(proxy.stop()))
        proxy.gate.enrolled.add((CLUSTER, self.key.fingerprint))
        argv = self.arguments(self.key, proxy.host_key, user=CLUSTER, size=SIZE, **flags)
        client = Program([*argv, "client", f"{LOOPBACK}:{proxy.port}"])
        self.assertEqual(await client.ended, 0, client.err.decode())
        self.assertEqual(client.out.decode().split(), ["ok", proxy.ends[0].kexAlg.decode()])
        return proxy

    async def test_client(self) -> None:
        """Every exchange with every cipher, with both sides changing keys each MiB, strictly."""
        for exchange in EXCHANGES:
            for cipher in CIPHERS:
                for limits, rekey in ((OFTEN, 0), (ROOMY, MIB), (OFTEN, MIB)):
                    proxy = await self.client(
                        limits, kex=exchange.decode(), cipher=cipher.decode(), rekey=rekey
                    )
                    (end,) = proxy.ends
                    self.assertEqual(end.kexAlg, exchange)
                    self.assertTrue(end._order.strict)
                    self.assertGreater(len(end.changes), 1)

    async def test_client_with_defaults(self) -> None:
        """Left to themselves both take the hybrid exchange and our preferred cipher."""
        proxy = await self.client(ROOMY)
        self.assertEqual(proxy.ends[0].kexAlg, b"mlkem768x25519-sha256")
        self.assertEqual(type(proxy.ends[0].sealer).__name__, "GCMSealer")

    async def server(self, **flags: object) -> int:
        """Start the server; return its port."""
        server = Program([*self.arguments(self.host_key, self.key, **flags), "server"])
        self.addCleanup(lambda: Deferred.fromCoroutine(server.stop()))
        while b"\n" not in server.out:
            self.assertFalse(server.ended.called, server.err.decode())
            await deferLater(reactor, 0.02, lambda: None)
        return int(server.out.decode().rpartition(":")[2])

    async def dial(self, port: int, limits: TransportLimits, **lists: list[bytes]) -> AgentEnd:
        """Connect to the server as an agent would."""
        end = await dial(reactor, port, self.key, "root", self.host_key.fingerprint, limits, **lists)
        self.addCleanup(self.finish, end)
        return end

    async def test_server(self) -> None:
        """Every exchange with every cipher, with both sides changing keys each MiB, strictly."""
        for limits, rekey in ((OFTEN, 0), (ROOMY, MIB), (OFTEN, MIB)):
            port = await self.server(rekey=rekey)
            for exchange in EXCHANGES:
                for cipher in CIPHERS:
                    end = await self.dial(
                        port, limits, supportedKeyExchanges=[exchange], supportedCiphers=[cipher]
                    )
                    mux = end.tunnel.mux
                    assert isinstance(mux, Mux)
                    back = await Echoed(await mux.open(b"echo", b""), DATA).done
                    self.assertTrue(back == DATA)
                    self.assertTrue(end._order.strict)
                    self.assertGreater(len(end.changes), 1)
                    self.assertIsNotNone(end.round_trip)

    async def test_server_refuses(self) -> None:
        """A key that it does not know is refused."""
        port = await self.server()
        self.key = KeyPair.generate()
        with self.assertRaisesRegex(Exception, "rejected this agent for cluster"):
            await self.dial(port, ROOMY)

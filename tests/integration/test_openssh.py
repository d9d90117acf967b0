"""Tower's SSH against OpenSSH's: `ssh` as an agent would be, `sshd` as a proxy would be."""

from __future__ import annotations

import base64
import os
import pwd
import random
import shutil
import tempfile
from pathlib import Path
from typing import Any
from unittest import SkipTest

from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.trial.unittest import TestCase

from tests.integration.closed_sockets import sockets_closed
from tests.integration.ports import free_port
from tests.integration.ssh_ends import (
    CLUSTER,
    KEEPALIVE,
    LOOPBACK,
    MIB,
    AgentEnd,
    Proxy,
    dial,
    echoed,
    finish,
)
from tests.integration.ssh_programs import Program
from tower.conch.transport.ciphers import CIPHERS
from tower.conch.transport.keys import KeyPair
from tower.conch.transport.limits import TransportLimits
from tower.net.connecting import ConnectFailed, connect
from tower.net.listening import listen
from tower.net.pipes import Splice

reactor: Any = _reactor

SSH = shutil.which("ssh")
SSHD = shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin:/usr/local/sbin")
EXCHANGES = (b"curve25519-sha256", b"curve25519-sha256@libssh.org")
DATA = random.Random(1).randbytes(16 * MIB)
ROOMY = TransportLimits(handshake=30)
OFTEN = TransportLimits(handshake=30, rekey_bytes=MIB)
UNANSWERED = 3  # keepalives after which ssh gives us up


class FolderTestCase(TestCase):
    """Makes a new folder, passable for every user."""

    timeout = 900

    def setUp(self) -> None:
        """Make the folder."""
        self.addCleanup(sockets_closed)
        self.folder = Path(tempfile.mkdtemp(prefix="tower-ssh-"))
        self.folder.chmod(0o711)
        self.addCleanup(shutil.rmtree, self.folder)

    def write(self, name: str, content: bytes, uid: int | None = None) -> str:
        """Write a private file; return its path."""
        path = self.folder / name
        path.write_bytes(content)
        path.chmod(0o600)
        if uid is not None:
            os.chown(path, uid, -1)
        return str(path)


def public_line(key: KeyPair) -> str:
    """Return a public key as OpenSSH writes it in its files."""
    return "ssh-ed25519 " + base64.b64encode(key.blob).decode()


class ClientTests(FolderTestCase):
    """OpenSSH's client, which forwards its standard streams through a channel (``ssh -W``)."""

    def setUp(self) -> None:
        """Make a key."""
        if SSH is None:
            raise SkipTest("no OpenSSH client")
        super().setUp()
        self.key = KeyPair.generate()
        self.key_file = self.write("key", self.key.to_openssh())

    def proxy(self, limits: TransportLimits, keepalive: float = KEEPALIVE) -> Proxy:
        """Start a proxy that knows the key."""
        proxy = Proxy(reactor, limits, keepalive)
        self.addCleanup(lambda: Deferred.fromCoroutine(proxy.stop()))
        proxy.gate.enrolled.add((CLUSTER, self.key.fingerprint))
        return proxy

    def ssh(self, proxy: Proxy, data: bytes | None, *options: str) -> Program:
        """Start ``ssh -W`` towards the proxy."""
        known = self.write("known", f"[{LOOPBACK}]:{proxy.port} {public_line(proxy.host_key)}\n".encode())
        fixed = (
            "BatchMode=yes",
            "IdentitiesOnly=yes",
            "StrictHostKeyChecking=yes",
            f"UserKnownHostsFile={known}",
            *options,
        )
        assert SSH is not None
        return Program(
            [
                *(SSH, "-F", "/dev/null", "-i", self.key_file, "-p", str(proxy.port), "-l", CLUSTER),
                *(word for option in fixed for word in ("-o", option)),
                *("-W", "echo:7", LOOPBACK),
            ],
            data,
        )

    async def test_ciphers_and_exchanges(self) -> None:
        """Every cipher with every exchange, with the client changing keys each MiB, strictly."""
        for cipher in CIPHERS:
            for exchange in EXCHANGES:
                proxy = self.proxy(ROOMY)
                ssh = self.ssh(
                    proxy,
                    DATA,
                    f"Ciphers={cipher.decode()}",
                    f"KexAlgorithms={exchange.decode()}",
                    "RekeyLimit=1M",
                )
                self.assertEqual(await ssh.ended, 0, ssh.err.decode())
                self.assertTrue(ssh.out == DATA)
                (end,) = proxy.ends
                self.assertEqual(end.kexAlg, exchange)
                self.assertTrue(end._order.strict)
                self.assertGreater(len(end.changes), 2)

    async def test_server_changes_keys(self) -> None:
        """Changes of keys that the proxy begins, in the middle of bulk both ways."""
        for cipher in CIPHERS:
            proxy = self.proxy(OFTEN)
            ssh = self.ssh(proxy, DATA, f"Ciphers={cipher.decode()}")
            self.assertEqual(await ssh.ended, 0, ssh.err.decode())
            self.assertTrue(ssh.out == DATA)
            self.assertGreater(len(proxy.ends[0].changes), 2)

    async def test_both_change_keys(self) -> None:
        """Changes of keys that both begin, often in the same moment."""
        proxy = self.proxy(OFTEN)
        ssh = self.ssh(proxy, DATA, "RekeyLimit=1M")
        self.assertEqual(await ssh.ended, 0, ssh.err.decode())
        self.assertTrue(ssh.out == DATA)

    async def test_keepalives(self) -> None:
        """Both sides' keepalives are answered, so an idle connection lives and its round trip is known."""
        proxy = self.proxy(ROOMY, 1.0)
        ssh = self.ssh(proxy, None, "ServerAliveInterval=1", f"ServerAliveCountMax={UNANSWERED}")
        while not (proxy.ends and hasattr(proxy.ends[0], "changes")):  # authenticated
            await deferLater(reactor, 0.05, lambda: None)
        (end,) = proxy.ends
        before = end.opener.packets
        await deferLater(reactor, UNANSWERED + 2.0, lambda: None)  # long enough for either to give up
        while end.opener.packets < before + UNANSWERED + 2:
            await deferLater(reactor, 0.05, lambda: None)
        self.assertFalse(ssh.ended.called, ssh.err.decode())
        self.assertIsNotNone(end.round_trip)
        await ssh.stop()

    async def test_unknown_key(self) -> None:
        """A key that is not enrolled is refused, without any details for the client."""
        proxy = self.proxy(ROOMY)
        proxy.gate.enrolled.clear()
        ssh = self.ssh(proxy, b"x")
        self.assertEqual(await ssh.ended, 255)
        self.assertIn(b"Permission denied (publickey,enrol@tower.kubesphere.io)", ssh.err)

    async def test_other_host_key(self) -> None:
        """A proxy with another host key than the known one is refused by the client."""
        proxy = self.proxy(ROOMY)
        ssh = self.ssh(proxy, b"x")
        proxy.host_key = KeyPair.generate()
        self.assertEqual(await ssh.ended, 255)
        self.assertIn(b"Host key verification failed", ssh.err)
        self.assertEqual(proxy.gate.asked, [])


class ServerTests(FolderTestCase):
    """OpenSSH's server, unprivileged, which forwards channels to an echo service (``direct-tcpip``)."""

    def setUp(self) -> None:
        """Make keys, and choose the server's user: not root, which requires a prepared system."""
        if SSHD is None:
            raise SkipTest("no OpenSSH server")
        super().setUp()
        self.uid = pwd.getpwnam("nobody").pw_uid if os.geteuid() == 0 else None
        owner = self.uid if self.uid is not None else os.geteuid()
        self.user = pwd.getpwuid(owner).pw_name
        self.key, self.host_key = KeyPair.generate(), KeyPair.generate()
        echo: Any = listen(reactor, 0, LOOPBACK, lambda connection: Splice(connection, connection))
        self.addCleanup(echo.stopListening)
        self.echo_port = echo.getHost().port

    def finish(self, end: AgentEnd) -> Deferred[None]:
        """Close our end."""
        return Deferred.fromCoroutine(finish(reactor, end))

    async def sshd(self, *lines: str) -> int:
        """Start a server with these lines in its configuration; return its port when it listens."""
        port = free_port()
        host_key = self.write("host-key", self.host_key.to_openssh(), self.uid)
        keys = self.write("authorized", public_line(self.key).encode() + b"\n", self.uid)
        config = "\n".join(
            (
                f"ListenAddress {LOOPBACK}:{port}",
                f"HostKey {host_key}",
                f"AuthorizedKeysFile {keys}",
                "StrictModes no",
                "UsePAM yes",
                "PidFile none",
                "AllowTcpForwarding yes",
                *lines,
                "",
            )
        )
        config_file = self.write("config", config.encode(), self.uid)
        assert SSHD is not None
        self.program = Program([SSHD, "-D", "-e", "-f", config_file], uid=self.uid)
        self.addCleanup(lambda: Deferred.fromCoroutine(self.program.stop()))
        for _ in range(600):
            try:
                (await connect(reactor, LOOPBACK, port)).abort()
            except ConnectFailed:
                await deferLater(reactor, 0.1, lambda: None)
            else:
                return port
        raise AssertionError(f"sshd does not listen: {self.program.err.decode()}")

    async def test_ciphers_and_exchanges(self) -> None:
        """Every cipher with every exchange, with both sides changing keys each MiB, strictly."""
        for limits, rekey in ((OFTEN, "none"), (ROOMY, "1M"), (OFTEN, "1M")):
            port = await self.sshd(f"RekeyLimit {rekey if rekey != 'none' else 'default'} none")
            for cipher in CIPHERS:
                for exchange in EXCHANGES:
                    end = await dial(
                        reactor,
                        port,
                        self.key,
                        self.user,
                        self.host_key.fingerprint,
                        limits,
                        supportedCiphers=[cipher],
                        supportedKeyExchanges=[exchange],
                    )
                    self.addCleanup(self.finish, end)
                    self.assertTrue(await echoed(end, self.echo_port, DATA) == DATA)
                    self.assertTrue(end._order.strict)
                    self.assertGreater(len(end.changes), 2)
                    self.assertIsNotNone(end.round_trip)
                    await finish(reactor, end)
            await self.program.stop()

    async def test_refused(self) -> None:
        """A server that does not know the key refuses it, and the error names that."""
        port = await self.sshd()
        unknown = KeyPair.generate()
        with self.assertRaisesRegex(Exception, "rejected this agent for cluster"):
            await dial(reactor, port, unknown, self.user, self.host_key.fingerprint, ROOMY)

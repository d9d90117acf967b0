"""Our agent at old proxies (kubesphere-v1): a real one in Go, and ones that do what that one does not."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import socket
import ssl
import time

from twisted.conch.ssh.common import NS

from tests.integration import harness
from tests.integration.old_peers import OldProxy
from tests.integration.old_proxy_kit import (
    ANYBODY,
    BEARER,
    CLUSTER,
    MIB,
    TOKEN,
    Listener,
    OldProxyTestCase,
    copy_both_directions,
)
from tests.integration.ports import free_port
from tests.integration.programs import LOOPBACK, wait_for
from tests.integration.raw_old_proxy import RawOldPeer, RawOldProxy
from tests.integration.raw_peer import CLOSE, CONFIRM, DATA, END, OPEN, REFUSE, Gone, number
from tower.agent import REFRESH


def pod_token(issued: int) -> str:
    """Return the token of a service account in a pod, valid for a year; *issued* is in s since the epoch."""
    claims = {
        "iss": "k",
        "sub": "system:serviceaccount:t:a",
        "iat": issued,
        "exp": issued + 365 * 86400,
        "kubernetes.io": {"serviceaccount": {"name": "a", "uid": "u"}, "pod": {"name": "p", "uid": "v"}},
    }
    parts = (b"{}", json.dumps(claims).encode(), b"s")
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts)


class RealProxyTests(OldProxyTestCase):
    """The proxy is written in Go with the libraries of deployed ones."""

    def setUp(self) -> None:
        """Make a proxy that is not started."""
        super().setUp()
        self.proxy = OldProxy(self.folder, CLUSTER, TOKEN)
        self.addCleanup(self.proxy.program.stop)

    def ask(self, *, kubesphere: bool = False) -> tuple[int, bytes]:
        """Ask the proxy's front for the cluster."""
        context = ssl.create_default_context(cafile=str(self.proxy.authority))
        connection: http.client.HTTPConnection = (
            http.client.HTTPConnection(LOOPBACK, self.proxy.kubesphere_port, timeout=20)
            if kubesphere
            else http.client.HTTPSConnection(
                LOOPBACK, self.proxy.kubernetes_port, timeout=20, context=context
            )
        )
        try:
            connection.request("GET", "/version")
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def test_requests(self) -> None:
        """Both ports work, with the agent's credential; the agent logs that it sent it, without its value."""

        def kubesphere(sock: socket.socket) -> None:
            sock.recv(4096)
            sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nks")
            sock.recv(1)

        plain = Listener(kubesphere)
        self.addCleanup(plain.close)
        self.proxy.start()
        self.start_agent(self.proxy.url, ANYBODY, f"--kubesphere-service={LOOPBACK}:{plain.port}")
        self.wait_until_ready()
        self.assertEqual(self.ask(), (200, b"ok"))
        self.assertEqual(self.api.seen, [f"Bearer {BEARER}"])
        self.assertEqual(self.ask(kubesphere=True), (200, b"ks"))
        logged = self.agent.output()
        self.assertIn("sends its credential for the API server (a bearer token)", logged)
        self.assertIn("ANY server that answers", logged)
        self.assertIn("trying kubesphere-v1", logged)

    def test_unreachable_target(self) -> None:
        """Hole 18: a service that does not exist is refused, and the agent's log has the reason."""
        self.proxy.start()
        port = free_port()
        self.start_agent(self.proxy.url, ANYBODY, "--protocol=v1", f"--kubesphere-service={LOOPBACK}:{port}")
        self.wait_until_ready()
        self.assertEqual(self.ask(kubesphere=True)[0], 502)
        self.assertIn(f"stream to '{LOOPBACK}:{port}' rejected", self.agent.output())
        self.assertEqual(self.ask(), (200, b"ok"))

    def test_kubernetes_service(self) -> None:
        """Hole 19: --kubernetes-service is honoured."""
        self.proxy.start()
        config = json.loads(self.api.kubeconfig.read_text())
        config["clusters"][0]["cluster"]["server"] = "https://192.0.2.1:6443"
        self.api.kubeconfig.write_text(json.dumps(config))
        service = f"--kubernetes-service={LOOPBACK}:{self.api.port}"
        self.start_agent(self.proxy.url, ANYBODY, service)
        self.wait_until_ready()
        self.assertEqual(self.ask(), (200, b"ok"))

    def refused(self, **words: str) -> None:
        """The proxy refuses this agent repeatedly, which logs it once, and nothing accumulates."""
        self.proxy.start()
        agent = self.start_agent(self.proxy.url, ANYBODY, "--protocol=v1", **words)
        self.wait_for_line(
            r'attempt 1 to connect failed: .*reports: "Unauthorized agent"\): check --name and --token'
        )
        self.wait_for_refusals(10)
        before = agent.descriptors()
        self.wait_for_refusals(30)
        self.assertLessEqual(agent.descriptors(), before + 3)
        self.assertFalse(self.is_ready())

    def wait_for_refusals(self, count: int) -> None:
        """Return when the proxy has refused *count* attempts."""
        output = self.proxy.program.output
        wait_for(f"{count} attempts", lambda: output().count("agent rejected") >= count)

    def test_unauthorized(self) -> None:
        """Holes 12 and 16: a wrong token."""
        self.refused(token="another-token-0123456789")

    def test_unknown_cluster(self) -> None:
        """Holes 12 and 16: a wrong name."""
        self.refused(name="beta")

    def test_token_rotated(self) -> None:
        """When the cluster's token changes at the proxy, the agent logs errors until its file changes."""
        self.proxy.start()
        self.start_agent(self.proxy.url, ANYBODY)
        self.wait_until_ready()
        self.proxy.program.kill()
        other = OldProxy(self.folder, CLUSTER, "new-token-0123456789", label="other", port=self.proxy.port)
        other.start()
        self.addCleanup(other.program.stop)
        self.wait_for_line("Unauthorized agent")
        self.assertFalse(self.is_ready())
        self.token_file.write_text("new-token-0123456789\n")
        self.wait_until_ready()
        self.assertNotIn("new-token", self.agent.output())

    def test_restarted(self) -> None:
        """A proxy that was killed and comes back, with another host key, gets its agent back."""
        self.proxy.start()
        self.start_agent(self.proxy.url, ANYBODY)
        for _ in range(2):
            self.wait_until_ready()
            self.assertEqual(self.ask(), (200, b"ok"))
            self.proxy.program.kill()
            self.wait_until_ready(ready=False)
            self.proxy.start()
        self.wait_until_ready()
        self.assertEqual(self.ask(), (200, b"ok"))

    def test_stopped(self) -> None:
        """Hole 11: a proxy that stands still is noticed within three keepalive intervals."""
        self.proxy.start()
        self.start_agent(self.proxy.url, ANYBODY)
        self.wait_until_ready()
        self.proxy.program.pause()
        self.addCleanup(self.proxy.program.resume)
        self.wait_until_ready(ready=False)
        self.wait_for_line("three keepalive intervals")
        self.proxy.program.resume()
        self.wait_until_ready()
        self.assertEqual(self.ask(), (200, b"ok"))

    def test_pinned(self) -> None:
        """A pinned key that the proxy does not hold is refused before anything is sent."""
        self.proxy.start()
        self.start_agent(self.proxy.url, "--protocol=v1", "--host-key=SHA256:" + "A" * 43)
        self.wait_for_line(r"attempt 1 to connect failed: the proxy's host key is SHA256:\S+, not SHA256:A+")
        self.assertEqual(self.proxy.agents(), 0)

    def test_never_a_step_down(self) -> None:
        """With --host-key the agent does not use the old protocol; the error names the options for it."""
        self.proxy.start()
        self.start_agent(self.proxy.url, "--host-key=SHA256:" + "A" * 43)
        self.wait_for_line(r"attempt 1 to connect failed: .*404.*--protocol v1")
        self.assertEqual(self.proxy.agents(), 0)

    def test_tls(self) -> None:
        """With wss the proxy's certificate is verified, by its CA alone."""
        self.proxy.start()
        pair = (self.folder / "backend.crt", self.folder / "backend.key")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*pair)

        def serve(sock: socket.socket) -> None:
            with context.wrap_socket(sock, server_side=True) as near:
                copy_both_directions(near, socket.create_connection((LOOPBACK, self.proxy.port), 10))

        front = Listener(serve)
        self.addCleanup(front.close)
        url = f"https://{LOOPBACK}:{front.port}"
        agent = self.start_agent(url, ANYBODY, f"--ca-cert={self.proxy.authority}")
        self.wait_for_line(r"attempt 1 to connect failed: .*certificate verify failed")
        agent.stop()
        self.assertEqual(self.proxy.agents(), 0)
        agent.argv[-1] = f"--ca-cert={self.folder / 'backend-ca.crt'}"
        agent.start()
        self.wait_until_ready()
        self.assertEqual(self.ask(), (200, b"ok"))
        self.assertIn("its TLS certificate", agent.output())

    def test_credential_rotated(self) -> None:
        """Hole 10: a token file that changes is sent again, within the interval of checks."""
        self.proxy.start()
        self.start_agent(self.proxy.url, ANYBODY, harness.PATIENT)
        self.wait_until_ready()
        self.api.token.write_text("the-next-bearer-0123456789")
        self.wait_for_line("reconnecting to send the changed credential to the proxy")
        wait_for("a second registration", lambda: self.proxy.program.output().count("agent connected") == 2)
        self.wait_until_ready()
        self.assertEqual(self.ask(), (200, b"ok"))
        self.assertEqual(self.api.seen, ["Bearer the-next-bearer-0123456789"])
        logged = self.proxy.program.output()
        self.assertLess(logged.index("agent disconnected"), logged.rindex("agent connected"))
        self.assertNotIn("the-next-bearer", self.agent.output())

    def test_renewed_in_a_pod(self) -> None:
        """Renewals of a token that stays valid cause no new connection; one that is rejected does."""
        now = int(time.time())
        first, second, third = (pod_token(now + 3600 * hour) for hour in range(3))
        self.proxy.start()
        self.api.token.write_text(first)
        self.start_agent(self.proxy.url, ANYBODY, "--protocol=v1", harness.PATIENT)
        self.wait_until_ready()
        self.api.token.write_text(second)
        time.sleep(1.5 * REFRESH)
        self.assertEqual(self.proxy.program.output().count("agent connected"), 1)
        self.api.rejected = f"Bearer {first}"
        self.api.token.write_text(third)
        wait_for("a second registration", lambda: self.proxy.program.output().count("agent connected") == 2)
        self.wait_until_ready()
        self.assertEqual(self.ask(), (200, b"ok"))
        self.assertEqual(self.api.seen[-1], f"Bearer {third}")


class TowerTests(OldProxyTestCase):
    """A Tower proxy."""

    def test_needs_host_key(self) -> None:
        """Without a host key, an agent is not connected by the old protocol; the error names the fix."""
        tower = harness.Tower(self.folder)
        self.addCleanup(tower.stop)
        tower.start()
        self.start_agent(f"ws://{LOOPBACK}:{tower.port}", ANYBODY)
        self.wait_for_line(r"attempt 1 to connect failed: .*speaks tower-v2.*--host-key")
        self.assertFalse(self.is_ready())


class RawProxyTestCase(OldProxyTestCase):
    """The proxy is the test.

    :cvar options: of the agent, in addition to the usual.
    """

    options: tuple[str, ...] = ()

    def setUp(self) -> None:
        """Start a proxy, and a service behind the agent."""
        super().setUp()
        self.proxy = RawOldProxy()
        self.addCleanup(self.proxy.close)
        self.tail = b"".join(i.to_bytes(4, "big") for i in range(MIB))
        self.heard: list[bytes] = []
        self.service = Listener(self._answer_after_all)
        self.addCleanup(self.service.close)
        self.start_agent(
            f"http://{LOOPBACK}:{self.proxy.port}",
            ANYBODY,
            "--protocol=v1",
            f"--kubesphere-service={LOOPBACK}:{self.service.port}",
            *self.options,
        )

    def _answer_after_all(self, sock: socket.socket) -> None:
        """Read everything, then send more than fits into any buffer."""
        data = b""
        while piece := sock.recv(65536):
            data += piece
        self.heard.append(data)
        sock.sendall(self.tail)

    def accept(self) -> RawOldPeer:
        """Return the agent's next connection, closed at the end."""
        peer = self.proxy.accept()
        self.addCleanup(peer.close)
        return peer

    def registered(self) -> RawOldPeer:
        """Return the agent's next tunnel."""
        peer = self.accept()
        self.assertEqual(peer.config().token, TOKEN)
        peer.answer(good=True)
        return peer

    def serve(self) -> None:
        """The agent comes back, and does its work."""
        peer = self.registered()
        self.wait_until_ready()
        peer.open(f"{LOOPBACK}:{self.api.port}".encode())
        self.assertEqual(peer.next(CONFIRM, REFUSE)[0], CONFIRM)
        peer.close()


class RawProxyTests(RawProxyTestCase):
    """The messages of a proxy, at any pace: its silence does not mean anything to the agent."""

    options = (harness.PATIENT,)

    def test_empty_failure(self) -> None:
        """A refusal without a text is ignored, as by deployed agents."""
        peer = self.accept()
        peer.config()
        peer.answer(good=False)
        self.wait_until_ready()

    def test_texts(self) -> None:
        """Any text in the answer is an error: it is logged, without our secrets, and the agent closes."""
        for good, text, error in (
            (False, b"Unauthorized agent", r'the proxy reports: "Unauthorized agent"\)'),
            (True, b"but not today", r'the proxy reports: "but not today"\)'),
            (False, b"no: " + TOKEN.encode(), "redacted"),
            (False, b"\x1b[2J\n\0", r'the proxy reports: "\[2J"\)'),
            (False, b"x" * 200_000, r'the proxy reports: "x{200}"\)'),
        ):
            peer = self.accept()
            peer.config()
            peer.answer(good=good, text=text)
            peer.end()
            self.wait_for_line(
                r"attempt \d+ to connect failed: the proxy rejected the registration .*" + error
            )
        self.serve()

    def test_silent(self) -> None:
        """A proxy that never answers the config is given up after ten seconds, as is one without SSH."""
        peer = self.accept()
        began = time.monotonic()
        peer.config()
        peer.end()
        self.assertGreater(time.monotonic() - began, 9)
        self.wait_for_line(
            r"attempt \d+ to connect failed: the proxy did not answer the registration within 10 s"
        )
        peer = self.accept()
        peer.end()
        self.wait_for_line(r"attempt \d+ to connect failed: not authenticated within 10 s")
        self.serve()

    def test_garbage(self) -> None:
        """Hole 16: garbage in place of SSH is a failed try, and does not leak anything."""
        descriptors = 0
        for count in range(20):
            peer = self.accept()
            with contextlib.suppress(OSError):
                peer.frame((b"SSH-2.0-x\r\n" if count % 2 else b"") + bytes(range(256)) * 40)
                if count % 3 == 0:
                    peer.raw(b"\xff" * 100)
            with contextlib.suppress(TimeoutError, OSError):
                peer.socket.settimeout(12)
                while peer.socket.recv(4096):
                    pass
            peer.close()
            if count == 5:
                descriptors = self.agent.descriptors()
        self.assertLessEqual(self.agent.descriptors(), descriptors + 3)
        self.serve()

    def test_wrong_messages(self) -> None:
        """A reply to nothing, channels before authentication: the connection ends, the agent does not."""
        for offend in (
            lambda peer: peer.say(b"\x51", b"\x51", b"\x51"),
            lambda peer: peer.say(b"\x52why"),
            lambda peer: peer.say(b"\x5e" + number(99) + NS(b"data without a channel")),
            lambda peer: peer.say(bytes((OPEN,)) + b"\0\0"),
            lambda peer: peer.frame(b"x" * 1000),
        ):
            peer = self.registered()
            self.wait_until_ready()
            peer.answer(good=True)  # if it has asked: one ping may be in flight
            offend(peer)
            with contextlib.suppress(Gone):
                peer.end()
            peer.close()
        self.serve()

    def test_refused_tries(self) -> None:
        """Hole 12: a hundred refused registrations leave no descriptor behind."""
        descriptors = memory = 0
        for count in range(100):
            peer = self.accept()
            peer.config()
            peer.answer(good=False, text=b"Unauthorized agent")
            with contextlib.suppress(Gone):
                peer.end()
            peer.close()
            if count == 40:
                descriptors, memory = self.agent.descriptors(), self.agent.memory()
        self.assertLessEqual(self.agent.descriptors(), descriptors + 2)
        self.assertLess(self.agent.memory(), memory + 8 * MIB)
        self.serve()

    def test_other_addresses(self) -> None:
        """Hole 4: the agent dials the two addresses that it sent, and nothing else, by no type of channel."""
        trap = Listener(lambda sock: sock.recv(1))
        self.addCleanup(trap.close)
        peer = self.registered()
        for address in (f"{LOOPBACK}:{trap.port}", f"localhost:{self.api.port}", "169.254.169.254:80", ""):
            peer.open(address.encode())
            refusal = peer.next(CONFIRM, REFUSE)
            self.assertEqual((refusal[0], b"not-allowed" in refusal), (REFUSE, True), address)
        kind = b"direct-tcpip"
        body = NS(LOOPBACK.encode()) + number(trap.port) + NS(b"x") + number(1)
        peer.say(b"\x5a" + NS(kind) + number(5, MIB, 32 << 10) + body)
        self.assertEqual(peer.next(CONFIRM, REFUSE)[0], REFUSE)
        self.assertEqual(trap.connections, 0)

    def test_early_channel(self) -> None:
        """A channel that comes before the answer to the config is opened, as old proxies expect."""
        peer = self.accept()
        config = peer.config()
        peer.open(config.kubernetes.encode())
        self.assertEqual(peer.next(CONFIRM, REFUSE)[0], CONFIRM)
        peer.answer(good=True)
        self.wait_until_ready()

    def test_half_close(self) -> None:
        """Hole 17: our side has ended, and all of a long answer still comes."""
        peer = self.registered()
        peer.open(f"{LOOPBACK}:{self.service.port}".encode(), ours=5, window=64 * MIB)
        answer = peer.next(CONFIRM, REFUSE)
        self.assertEqual(answer[0], CONFIRM, answer)
        stream = int.from_bytes(answer[5:9], "big")
        for _ in range(10):
            peer.data(stream, b"q" * 10_000)
        peer.say(bytes((END,)) + number(stream))
        got = bytearray()
        while (message := peer.next(DATA, END))[0] == DATA:
            got += message[9:]
        self.assertEqual(self.heard, [b"q" * 100_000])
        self.assertEqual(len(got), len(self.tail))
        self.assertEqual(bytes(got), self.tail)
        self.assertEqual(peer.next(CLOSE)[0], CLOSE)

    def test_cut_in_the_middle(self) -> None:
        """A proxy that goes while bytes flow costs those streams, and no descriptor."""
        before = 0
        for count in range(6):
            peer = self.registered()
            for ours in range(10):
                peer.open(f"{LOOPBACK}:{self.service.port}".encode(), ours=ours)
                stream = int.from_bytes(peer.next(CONFIRM)[5:9], "big")
                peer.data(stream, b"x" * 10_000)
                peer.say(bytes((END,)) + number(stream))
            peer.next(DATA)
            peer.close()
            if count == 1:
                before = self.agent.descriptors()
        self.serve()
        wait_for("closed streams", lambda: self.agent.descriptors() <= before + 3, 15)

    def test_flood_of_channels(self) -> None:
        """Ten thousand channels without a target, and hundreds to one: the agent stays alive, and small."""
        peer = self.registered()
        memory, log = self.agent.memory(), len(self.agent.output())
        evil = b"\x5a" + NS(b"kubesphere") + number(5, MIB, 32 << 10) + b"evil.example:80"
        good = b"\x5a" + NS(b"kubesphere") + number(5, MIB, 32 << 10)
        good += f"{LOOPBACK}:{self.service.port}".encode()
        for _ in range(50):
            peer.say(*[evil] * 200)
        for _ in range(3):
            peer.say(*[good] * 100)
        answers = {CONFIRM: 0, REFUSE: 0}
        while sum(answers.values()) < 10_300:
            answers[peer.next(CONFIRM, REFUSE)[0]] += 1
        self.assertGreaterEqual(answers[REFUSE], 10_000)
        self.assertGreater(answers[CONFIRM], 0)
        self.assertTrue(self.is_ready())
        self.assertLess(self.agent.memory(), memory + 32 * MIB)
        self.assertLess(len(self.agent.output()) - log, 100_000)
        peer.close()
        self.serve()

    def test_flood_of_requests(self) -> None:
        """Global requests without end end the connection; the agent comes back."""
        peer = self.registered()
        self.wait_until_ready()
        peer.storm(b"\x50" + NS(b"config") + b"\1{}", 20_000)
        with contextlib.suppress(Gone):
            peer.end()
        self.wait_for_line("too many global requests")
        self.serve()


class RotatedTests(RawProxyTestCase):
    """A proxy that the agent gives up only after a while."""

    options = ("--keepalive=6s",)

    def test_credential_rotated_with_a_stream(self) -> None:
        """A running stream may end before the tunnel is closed and replaced."""
        peer = self.registered()
        peer.open(f"{LOOPBACK}:{self.service.port}".encode(), ours=5, window=64 * MIB)
        stream = int.from_bytes(peer.next(CONFIRM)[5:9], "big")
        self.api.token.write_text("the-next-bearer-0123456789")
        deadline = time.monotonic() + 60
        while "when all streams have ended" not in self.agent.output():
            self.assertLess(time.monotonic(), deadline)
            peer.next(80)
            peer.answer(good=True)
        peer.data(stream, b"still here")
        peer.say(bytes((END,)) + number(stream))
        got = 0
        while (message := peer.next(DATA, END))[0] == DATA:
            got += len(message) - 9
        self.assertEqual((self.heard, got), ([b"still here"], len(self.tail)))
        peer.say(bytes((CLOSE,)) + number(stream))
        self.assertIn("is reconnecting", peer.end())
        peer.close()
        self.assertEqual(self.accept().config().bearer, b"the-next-bearer-0123456789")


class WatchedRawProxyTests(RawProxyTestCase):
    """A proxy that the agent probes often."""

    def test_config(self) -> None:
        """The config has the form that old proxies read."""
        peer = self.accept()
        config = peer.config()
        self.assertEqual((config.name, config.token), (CLUSTER, TOKEN))
        self.assertEqual(config.kubernetes, f"{LOOPBACK}:{self.api.port}")
        self.assertEqual(config.kubesphere, f"{LOOPBACK}:{self.service.port}")
        self.assertEqual(config.bearer.decode(), BEARER)
        self.assertIn(b"BEGIN CERTIFICATE", config.authority)
        peer.answer(good=True)
        self.wait_until_ready()
        self.assertEqual(peer.next(80)[1:], NS(b"ping") + b"\1")
        peer.answer(good=True)
        self.assertEqual(peer.next(80)[1:], NS(b"ping") + b"\1")

    def test_frozen(self) -> None:
        """A peer that answers no ping and takes nothing is given up within three intervals."""
        peer = self.registered()
        self.wait_until_ready()
        self.wait_until_ready(ready=False)
        self.wait_for_line("three keepalive intervals")
        peer.close()
        self.serve()


class AutoTests(OldProxyTestCase):
    """The proxy is the test, and the agent does not know which."""

    def test_asks_first(self) -> None:
        """Each connection offers tower-v2 first, and kubesphere-v1 after a 404."""
        proxy = RawOldProxy()
        self.addCleanup(proxy.close)
        self.start_agent(f"ws://{LOOPBACK}:{proxy.port}/some/path", ANYBODY)
        for count in (1, 2):
            peer = proxy.accept()
            peer.config()
            peer.answer(good=True)
            self.wait_until_ready()
            self.assertEqual(proxy.others, ["tower-v2"] * count)
            peer.close()

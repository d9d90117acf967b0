"""Other entries than HTTP and indirect exits; Tower's own API serves as the agent's cluster."""

from __future__ import annotations

import contextlib  # trial takes a name `suppress` in a module for its own
import hashlib
import os
import signal
import socket
import ssl
import threading

from tests.integration import harness
from tests.integration.connect_proxy import MIB, NAME, TIMEOUT, Server, connect_proxy
from tests.integration.ports import free_port
from tests.integration.programs import LOOPBACK, Program, has_ipv6, script, wait_for


def answer_with_digest(connection: socket.socket) -> None:
    """Read up to the end that the other side sends; only then answer, with the SHA-256 of it."""
    digest = hashlib.sha256()
    while data := connection.recv(MIB):
        digest.update(data)
    connection.sendall(digest.hexdigest().encode())


class ForwardTests(harness.TowerTestCase):
    """``tower forward`` to targets that the agent's owner has listed."""

    def setUp(self) -> None:
        """Put an agent with three targets behind the proxy; nothing listens at one of them."""
        super().setUp()
        self.server = Server(answer_with_digest)
        self.addCleanup(self.server.close)
        targets = {"digest": self.server.port, "nobody": free_port()}
        options = [f"--target={name}={LOOPBACK}:{port}" for name, port in targets.items()]
        self.tower.add("alpha", self.tower.state / "admin.kubeconfig", "--no-impersonation", *options)

    def forward(self, target: str) -> tuple[Program, int]:
        """Run ``tower forward`` for a target; return it and its port."""
        port = free_port()
        argv = [script("tower"), "--state-dir", str(self.tower.state), "forward", "alpha", target]
        program = Program(f"forward-{target}", [*argv, "--listen", f"{LOOPBACK}:{port}"], self.folder)
        self.addCleanup(program.stop)
        program.start()
        wait_for("the forward", lambda: accepts(port) or not program.running())
        return program, port

    def ask(self, port: int, data: bytes) -> bytes:
        """Send data, end our side, and return the answer."""
        with socket.create_connection((LOOPBACK, port), TIMEOUT) as connection:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            answer = b""
            while more := connection.recv(4096):
                answer += more
            return answer

    def test_half_close(self) -> None:
        """An end that we send arrives, and the answer to it comes back; many at once, small and large."""
        program, port = self.forward("digest")
        for size in (0, 1, 64 * MIB):
            data = os.urandom(size)
            self.assertEqual(self.ask(port, data).decode(), hashlib.sha256(data).hexdigest())
        answers: list[bool] = []

        def one() -> None:
            data = os.urandom(MIB)
            answers.append(self.ask(port, data).decode() == hashlib.sha256(data).hexdigest())

        threads = [threading.Thread(target=one, daemon=True) for _ in range(20)]
        for each in threads:
            each.start()
        for each in threads:
            each.join(TIMEOUT)
        self.assertEqual(answers, [True] * 20)
        program.signal(signal.SIGINT)
        program.wait(TIMEOUT)
        self.assertNotIn("Traceback", program.output())

    def refused(self, target: str) -> str:
        """Open a target that is not available; the connection ends, and the command reports the reason."""
        program, port = self.forward(target)
        if program.running():
            with contextlib.suppress(ConnectionError):
                self.assertEqual(self.ask(port, b"hello"), b"")
        wait_for("a word about it", lambda: target in program.output())
        self.assertNotIn("Traceback", program.output())
        return program.output()

    def test_refused(self) -> None:
        """If nothing listens, the error is exactly that."""
        self.assertIn("refused", self.refused("nobody"))

    def test_no_such_target(self) -> None:
        """A target that the owner did not list cannot be reached, and has its own error."""
        self.refused("other")
        self.assertEqual(self.server.served, 0)

    def test_kubernetes_is_not_a_raw_target(self) -> None:
        """The API server cannot be reached without authentication."""
        self.refused("kubernetes")


def accepts(port: int) -> bool:
    """Return whether a loopback port accepts connections."""
    try:
        socket.create_connection((LOOPBACK, port), TIMEOUT).close()
    except OSError:
        return False
    return True


class NetworkTests(harness.TowerTestCase):
    """Agents that come by other ways."""

    def check(self, agent: harness.Agent) -> None:
        """The agent gets through."""
        agent.program.start()
        agent.wait_until_ready()

    def agent(self, *extra: str) -> harness.Agent:
        """Return an agent for a new cluster alpha."""
        self.tower.tower("cluster", "add", "alpha")
        admin = self.tower.state / "admin.kubeconfig"
        return self.tower.agent("alpha", admin, "--no-impersonation", *extra)

    def restart(self, *options: str) -> None:
        """Start the proxy again with more options."""
        self.tower.proxy.stop()
        self.tower.proxy = self.tower.proxy_program(*options)
        self.tower.start()

    def test_connect_proxy(self) -> None:
        """The agent comes through an HTTP proxy by CONNECT, and resolves no names on its own."""
        self.restart(f"--publish-service-address={NAME}")
        between = Server(connect_proxy)
        self.addCleanup(between.close)
        agent = self.agent()
        way = {"HTTPS_PROXY": f"http://{LOOPBACK}:{between.port}", "NO_PROXY": LOOPBACK}
        environment = {**agent.environment, **way}
        agent.program = Program(agent.name, agent.argv, self.folder, environment)
        self.check(agent)
        self.assertGreater(between.served, 0)

    def test_plain(self) -> None:
        """The agent comes without TLS at the plain port: the host key is what it trusts."""
        agent = self.agent()
        argv = [word for word in agent.argv if not word.startswith("sha256:") and word != "--ca-hash"]
        secure, plain = f"wss://{LOOPBACK}:{self.tower.secure_port}", f"ws://{LOOPBACK}:{self.tower.port}"
        argv = [word.replace(secure, plain) for word in argv]
        agent.program = Program(agent.name, argv, self.folder, agent.environment)
        self.check(agent)

    def test_wrong_host_key(self) -> None:
        """An agent never sends its token to a proxy with another host key."""
        agent = self.agent()
        argv = ["SHA256:" + "A" * 43 if word.startswith("SHA256:") else word for word in agent.argv]
        wrong = Program("wrong", argv, self.folder, agent.environment)
        self.addCleanup(wrong.stop)
        wrong.start()
        wait_for("a complaint", lambda: "host key" in wrong.output())
        self.assertNotIn("SHA256:", self.tower.tower("cluster", "agents", "alpha"))
        wrong.stop()
        self.check(agent)  # the token was not spent

    def test_wrong_ca(self) -> None:
        """An agent goes no further with a proxy whose CA is not the pinned one."""
        agent = self.agent()
        argv = ["sha256:" + "0" * 64 if word.startswith("sha256:") else word for word in agent.argv]
        wrong = Program("wrong", argv, self.folder, agent.environment)
        self.addCleanup(wrong.stop)
        wrong.start()
        wait_for("a complaint", lambda: "--ca-hash" in wrong.output() or "CA" in wrong.output())
        self.assertNotIn("SHA256:", self.tower.tower("cluster", "agents", "alpha"))

    def test_ipv6(self) -> None:
        """Proxy, agent and users communicate over ::1."""
        if not has_ipv6():
            self.skipTest("this machine has no ::1")
        self.tower.proxy.stop()
        self.tower.proxy = self.tower.proxy_program("--host=::1")
        self.tower.proxy.start()
        wait_for("the proxy", lambda: self.tower.try_tower("cluster", "list")[0] == 0)
        agent = self.agent()
        self.assertIn(f"wss://[::1]:{self.tower.secure_port}", agent.argv)
        self.check(agent)
        for via in ("front-door", "port"):
            jane = self.tower.person("alpha", "jane", "--via", via)
            self.assertEqual(jane.host, "::1")
            wait_for("an answer", lambda jane=jane: jane.get("/version").status == 200)  # type: ignore[misc]

    def test_http1_only(self) -> None:
        """ALPN offers HTTP/1.1 and nothing else."""
        self.tower.tower("cluster", "add", "alpha")
        jane = self.tower.person("alpha", "jane")
        jane.tls.set_alpn_protocols(["h2", "http/1.1"])
        old = jane.new_tls()
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        old.set_alpn_protocols(["h2", "http/1.1"])
        for context, version in ((jane.tls, "TLSv1.3"), (old, "TLSv1.2")):
            plain = socket.create_connection((LOOPBACK, self.tower.secure_port), TIMEOUT)
            with context.wrap_socket(plain, server_hostname=LOOPBACK) as secure:
                self.assertEqual((secure.selected_alpn_protocol(), secure.version()), ("http/1.1", version))

"""The agent's way out of a network in which only an HTTP proxy leads anywhere."""

from __future__ import annotations

import contextlib
import shutil
import socket
import tempfile
import threading
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.integration import harness
from tests.integration.programs import LOOPBACK, Program, wait_for
from tests.integration.threaded import ThreadedServer

#: How others know the proxy.
NAME = "tower.test"


class ConnectProxy(ThreadedServer):
    """An HTTP proxy that knows CONNECT alone, and for which every name is this machine.

    :ivar asked: what it was asked to connect to.
    """

    def __init__(self) -> None:
        self.asked: list[str] = []
        super().__init__()

    def serve(self, near: socket.socket) -> None:
        """See `ThreadedServer.serve`."""
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            byte = near.recv(1)
            if not byte:
                return
            head += byte
        method, target, _ = head.split(b" ", 2)
        self.asked.append(f"{method.decode()} {target.decode()}")
        far = socket.create_connection((LOOPBACK, int(target.rpartition(b":")[2])))
        near.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        threading.Thread(target=self._copy, args=(near, far), daemon=True).start()
        self._copy(far, near)

    def _copy(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(64 * 1024):
                sink.sendall(data)
        for each in (source, sink):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


class HTTPProxyTests(SynchronousTestCase):
    """``HTTPS_PROXY`` and ``NO_PROXY`` of the agent; the proxy's name means nothing to the agent itself."""

    def setUp(self) -> None:
        """Start an HTTP proxy, and a Tower whose own API stands in for the cluster."""
        folder = Path(tempfile.mkdtemp(prefix="tower-test-"))
        self.addCleanup(shutil.rmtree, folder, True)
        self.proxy = ConnectProxy()
        self.addCleanup(self.proxy.close)
        self.tower = harness.Tower(folder)
        self.tower.proxy = self.tower.proxy_program(f"--publish-service-address={NAME}")
        self.addCleanup(self.tower.stop)
        self.tower.start()
        self.tower.tower("cluster", "add", "alpha")
        (member,) = self.tower.state.glob("admin*.kubeconfig")
        self.folder = folder
        self.agent = self.tower.agent("alpha", member)

    def start(self, **environment: str) -> None:
        """Start the agent with the HTTP proxy and with these variables."""
        proxy = f"http://{LOOPBACK}:{self.proxy.port}"
        variables = {**self.agent.environment, "HTTPS_PROXY": proxy, **environment}
        self.agent.program = Program(self.agent.name, self.agent.argv, self.folder, variables)
        self.agent.program.start()

    def test_connect(self) -> None:
        """TLS, pinned by the join line, goes through a CONNECT that the HTTP proxy resolves."""
        self.start()
        self.agent.wait_until_ready()
        self.assertIn(f"CONNECT {NAME}:{self.tower.secure_port}", self.proxy.asked)

    def test_no_proxy(self) -> None:
        """A name in NO_PROXY is dialled directly, which here leads nowhere, and the agent says so."""
        self.start(NO_PROXY="example.org, .test")
        wait_for("the agent to say what it cannot find", lambda: NAME in self.agent.program.tail())
        self.assertFalse(self.agent.ready())
        self.assertEqual(self.proxy.asked, [])

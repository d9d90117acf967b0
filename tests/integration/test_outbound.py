"""The agent's connections from a network with an HTTP proxy as the only exit."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.integration import harness
from tests.integration.outbound_proxy import NAME, ConnectProxy
from tests.integration.programs import LOOPBACK, Program, wait_for


class HTTPProxyTests(SynchronousTestCase):
    """``HTTPS_PROXY`` and ``NO_PROXY`` of the agent; the proxy's name means nothing to the agent itself."""

    def setUp(self) -> None:
        """Start an HTTP proxy, and a Tower whose own API serves as the cluster."""
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
        """A name in NO_PROXY is dialed directly, which fails here, and the agent logs it."""
        self.start(NO_PROXY="example.org, .test")
        wait_for("the agent to log the unknown name", lambda: NAME in self.agent.program.tail())
        self.assertFalse(self.agent.ready())
        self.assertEqual(self.proxy.asked, [])

"""`create_node_dialer` with real OpenSSH servers as nodes and treq as its client."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import treq
from attrs import evolve
from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.error import ConnectError
from twisted.internet.interfaces import IListeningPort
from twisted.internet.ssl import PrivateCertificate
from twisted.internet.task import deferLater
from twisted.protocols.policies import WrappingFactory
from twisted.protocols.tls import TLSMemoryBIOFactory
from twisted.trial.unittest import SkipTest, TestCase
from twisted.web.resource import Resource
from twisted.web.server import Request, Site

from tests.fakes.certificates import common_name
from tests.integration.closed_sockets import sockets_closed
from tests.integration.programs import LOOPBACK
from tests.integration.sshd import SSHD, Sshd, write_key
from tower.nodes.dialer import NodeDialerOptions, create_node_dialer
from tower.nodes.http_agent import NodeAgent
from tower.nodes.node_sources import file_nodes
from tower.nodes.tunneler import SSHTunneler
from tower.trust.pki import Authority, self_signed

reactor: Any = _reactor

PATIENCE = 300.0  # s for one test
CAME_UP = 60.0  # s for what should be there to be there
DAY = 86400.0


class Page(Resource):
    """Records requests, and answers with method and body."""

    isLeaf = True

    def __init__(self) -> None:
        super().__init__()
        self.paths: list[bytes] = []

    def render(self, request: Request) -> bytes:
        """Answer."""
        self.paths.append(request.path)
        content: Any = request.content
        return b"%b %b" % (request.method, content.read())


class NodeDialerTests(TestCase):
    """Two nodes, and behind them a web server with TLS and without."""

    timeout = PATIENCE

    def setUp(self) -> None:
        """Start all of it."""
        self.addCleanup(sockets_closed)
        if SSHD is None:
            raise SkipTest("no OpenSSH server")
        self.folder = Path(tempfile.mkdtemp(prefix="tower-dialer-"))
        self.addCleanup(shutil.rmtree, self.folder, True)
        self.ports: list[IListeningPort] = []
        self.connections: list[Any] = []
        self.page = Page()
        self.authority = self_signed(common_name("kubelets"), DAY, time.time())
        self.plain = self.serve(None)
        self.secure = self.serve(self.authority)
        self.addCleanup(lambda: Deferred.fromCoroutine(self.stop_serving()))
        line = write_key(self.folder / "key")
        self.nodes = [
            Sshd(self.folder / f"node-{number}", host=f"127.0.1.{number}", authorized=[line])
            for number in (1, 2)
        ]
        for node in self.nodes:
            self.addCleanup(node.kill)
            node.start()
        (self.folder / "known_hosts").write_text("".join(node.known_hosts_line() for node in self.nodes))
        (self.folder / "ca").write_bytes(self.authority.pem)
        self.options = NodeDialerOptions(
            ssh_user=self.nodes[0].user,
            ssh_keyfile=str(self.folder / "key"),
            known_hosts=str(self.folder / "known_hosts"),
            kubelet_port=self.secure,
            kubelet_authority=str(self.folder / "ca"),
        )

    def serve(self, authority: Authority | None) -> int:
        """Serve the page, as a kubelet or a pod does; return the port."""
        factory: Any = Site(self.page)
        if authority is not None:
            issued = authority.server_certificate([LOOPBACK], DAY, time.time())
            certificate = PrivateCertificate.loadPEM(issued.certificate_pem + issued.key_pem)
            factory = TLSMemoryBIOFactory(certificate.options(), False, factory)
        factory = WrappingFactory(factory)
        self.connections.append(factory)
        port = reactor.listenTCP(0, factory, interface=LOOPBACK)
        self.ports.append(port)
        number: int = port.getHost().port
        return number

    async def stop_serving(self) -> None:
        """End the page, with all connections."""
        for port in self.ports:
            await maybeDeferred(port.stopListening)
        for factory in self.connections:
            for connection in list(factory.protocols):
                connection.transport.abortConnection()
            while factory.protocols:
                await deferLater(reactor, 0.01)

    def create(self, nodes: str | None = None, **options: Any) -> tuple[SSHTunneler, NodeAgent]:
        """Return tunneler and agent, which end with the test.

        :param nodes: of a file; all without it.
        """
        listed = self.folder / "nodes"
        listed.write_text("\n".join(node.address for node in self.nodes) if nodes is None else nodes)
        tunneler, agent = create_node_dialer(
            evolve(self.options, **options), reactor, lister=file_nodes(listed)
        )
        assert tunneler is not None
        self.addCleanup(agent.close_idle_connections)
        self.addCleanup(lambda: Deferred.fromCoroutine(tunneler.close()))
        return tunneler, agent

    async def wait_for_nodes(self, tunneler: SSHTunneler, count: int) -> None:
        """Return once so many nodes are open."""
        deadline = time.monotonic() + CAME_UP
        while [node.state for node in tunneler.tunnels.states()].count("open") != count:
            assert time.monotonic() < deadline, tunneler.tunnels.states()
            await deferLater(reactor, 0.05)

    async def get(self, agent: NodeAgent, path: str, *, tls: bool = False) -> bytes:
        """Request a page."""
        scheme, port = ("https", self.secure) if tls else ("http", self.plain)
        response = await treq.get(f"{scheme}://{LOOPBACK}:{port}{path}", agent=agent, timeout=CAME_UP)
        self.assertEqual(response.code, 200)
        return await treq.content(response)

    async def why_not(self, agent: NodeAgent, *, tls: bool = False) -> str:
        """Send a request that fails; return the reason."""
        try:
            await self.get(agent, "/", tls=tls)
        except ConnectError as e:
            return str(e)
        raise AssertionError("there was an answer")

    async def test_requests(self) -> None:
        """Requests go through the nodes once they are there, and only through them."""
        tunneler, agent = self.create()
        self.assertIn("was not started", await self.why_not(agent))
        tunneler.run()
        self.assertIn("No SSH tunnels currently open.", await self.why_not(agent))
        await self.wait_for_nodes(tunneler, 2)
        self.assertEqual(await self.get(agent, "/a"), b"GET ")
        url = f"http://{LOOPBACK}:{self.plain}/b"
        response = await treq.post(url, data=b"x" * 100_000, agent=agent)
        self.assertEqual(await treq.content(response), b"POST " + b"x" * 100_000)
        self.assertEqual(self.page.paths, [b"/a", b"/b"])
        agent.close_idle_connections()
        await tunneler.close()
        self.assertIn("No SSH tunnels currently open.", await self.why_not(agent))

    async def test_tls(self) -> None:
        """Kubelets are verified by their CA; the system's know them not; a flag turns that off."""
        tunneler, agent = self.create()
        tunneler.run()
        await self.wait_for_nodes(tunneler, 2)
        self.assertEqual(await self.get(agent, "/secure", tls=True), b"GET ")
        other, agent = self.create(kubelet_authority="")
        other.run()
        await self.wait_for_nodes(other, 2)
        self.assertIn("certificate verify failed", await self.why_not(agent, tls=True))
        other, agent = self.create(kubelet_authority="", insecure_skip_tls_verify=True)
        other.run()
        await self.wait_for_nodes(other, 2)
        self.assertEqual(await self.get(agent, "/insecure", tls=True), b"GET ")
        self.assertEqual(self.page.paths, [b"/secure", b"/insecure"])

    async def test_node_dies(self) -> None:
        """When a node dies requests go through another."""
        tunneler, agent = self.create()
        tunneler.run()
        await self.wait_for_nodes(tunneler, 2)
        self.nodes[0].kill()
        for number in range(10):
            agent.close_idle_connections()
            self.assertEqual(await self.get(agent, f"/{number}"), b"GET ")

    async def test_health(self) -> None:
        """Nodes with a healthy kubelet keep their tunnels; a node that rejects the login is counted."""
        tunneler, _ = self.create()
        tunneler.run()
        await self.wait_for_nodes(tunneler, 2)
        tunneler.tunnels.check()
        deadline = time.monotonic() + CAME_UP
        while b"/healthz" not in self.page.paths:
            assert time.monotonic() < deadline, "no health check of the kubelet"
            await deferLater(reactor, 0.05)
        await self.wait_for_nodes(tunneler, 2)
        self.assertEqual(tunneler.tunnels.counters.open_count, 2)
        self.assertEqual(tunneler.tunnels.counters.open_fail_count, 0)

    async def test_cloud(self) -> None:
        """A cloud lists the nodes and installs a new key; then the nodes accept the login."""
        config = self.folder / "cloud.conf"
        lines = [f"instance = node-{number} {node.address}" for number, node in enumerate(self.nodes, 1)]
        keys = self.folder / "%h" / "authorized_keys"
        config.write_text("\n".join(["[fake]", *lines, f"authorized-keys = {keys}", ""]))
        options = evolve(
            self.options,
            cloud_provider="fake",
            cloud_config=str(config),
            ssh_keyfile=str(self.folder / "made"),
        )
        tunneler, agent = create_node_dialer(options, reactor)
        assert tunneler is not None
        self.addCleanup(agent.close_idle_connections)
        self.addCleanup(lambda: Deferred.fromCoroutine(tunneler.close()))
        tunneler.run()
        await self.wait_for_nodes(tunneler, 2)
        self.assertEqual(await self.get(agent, "/by-cloud"), b"GET ")
        self.assertEqual((self.folder / "made").stat().st_mode & 0o777, 0o600)

    async def test_without_user(self) -> None:
        """Without a user the agent asks by itself, and verifies all the same."""
        tunneler, agent = create_node_dialer(evolve(self.options, ssh_user=""), reactor)
        self.addCleanup(agent.close_idle_connections)
        self.assertIsNone(tunneler)
        self.assertEqual(await self.get(agent, "/direct"), b"GET ")
        self.assertEqual(await self.get(agent, "/direct", tls=True), b"GET ")
        _, strict = create_node_dialer(NodeDialerOptions(), reactor)
        self.assertIn("certificate verify failed", await self.why_not(strict, tls=True))
        await maybeDeferred(self.ports[0].stopListening)
        agent.close_idle_connections()
        self.assertIn("connection refused", await self.why_not(agent))

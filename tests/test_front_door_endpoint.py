"""Tests for `tower.endpoint.FrontDoorEndpoint` and the endpoint string ``tower:``."""

from __future__ import annotations

import ast
import inspect
import json
import os
from pathlib import Path
from typing import Any, cast

from twisted.application.service import IServiceMaker
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.endpoints import clientFromString
from twisted.internet.error import ConnectError
from twisted.internet.interfaces import (
    IHalfCloseableProtocol,
    IStreamClientEndpoint,
    IStreamClientEndpointStringParserWithReactor,
)
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import Clock
from twisted.plugin import getPlugins
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer
from zope.interface.verify import verifyObject

from tests.fakes.certificates import authority
from tests.fakes.pipes import FakePipe
from tower.endpoint import DescriptionInvalid, FrontDoorEndpoint, parse_description
from tower.errors import ConfigurationError
from tower.kube.kubeconfig import KubeAccess, kubeconfig
from tower.net.connecting import ConnectFailed
from tower.reactor.interfaces import ISocketReactor
from tower.streamclient import FrontDoorAddress
from twisted.plugins import tower_plugins

SERVER = "https://tower.example.org:8443/clusters/alpha"
SWITCHED = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: tower-stream\r\n\r\n"
STATUS = json.dumps({"kind": "Status", "message": 'the agent has no target "pg"'}).encode()


@implementer(IHalfCloseableProtocol)
class Recorder(Protocol):
    """Records what happens.

    :ivar events: in order.
    """

    def __init__(self, events: list[Any]) -> None:
        self.events = events

    def connectionMade(self) -> None:
        """Record it."""
        self.events.append("made")

    def dataReceived(self, data: bytes) -> None:
        """Record it."""
        self.events.append(data)

    def readConnectionLost(self) -> None:
        """Record it."""
        self.events.append("ended")

    def writeConnectionLost(self) -> None:
        """Record it."""

    def connectionLost(self, reason: Failure = Failure(ConnectError())) -> None:  # noqa: B008
        """Record it."""
        self.events.append("lost")


class Pausing(Recorder):
    """Wants nothing at first."""

    def connectionMade(self) -> None:
        """Pause."""
        transport: Any = self.transport
        transport.pauseProducing()


class ConnectTests(SynchronousTestCase):
    """Connecting by a front door in memory."""

    def setUp(self) -> None:
        """Make an endpoint, and record the events of its protocol."""
        self.clock = Clock()
        self.reactor = cast(ISocketReactor, self.clock)
        self.access = KubeAccess(SERVER, token="t0ken")
        self.dialed: list[tuple[FrontDoorAddress, Deferred[Any]]] = []
        self.events: list[Any] = []
        self.protocol: type[Protocol] | None = Recorder
        self.endpoint = FrontDoorEndpoint(self.reactor, lambda: self.access, "alpha", "pg", self.dial)

    def dial(self, way: FrontDoorAddress) -> Deferred[Any]:
        """Record the dial."""
        self.dialed.append((way, Deferred()))
        return self.dialed[-1][1]

    def connect(self) -> Deferred[Any]:
        """Start to connect; the result is recorded."""
        factory = Factory()
        protocol: Any = self.protocol
        make: Any = lambda _: None if protocol is None else protocol(self.events)  # noqa: E731
        factory.buildProtocol = make  # type: ignore[method-assign]

        def connected(result: Any) -> Any:
            self.events.append("connected")
            return result

        return self.endpoint.connect(factory).addCallback(connected)

    def reach(self) -> FakePipe:
        """Connect the newest attempt to the front door."""
        pipe = FakePipe()
        self.dialed[-1][1].callback(pipe)
        return pipe

    def refused(self, connecting: Deferred[Any], *parts: str) -> None:
        """Fail unless connecting failed with these parts in the text, and nothing is left."""
        text = str(self.failureResultOf(connecting, ConnectError).value)
        for part in ("alpha/pg", *parts):
            self.assertIn(part, text)
        self.assertNotIn("t0ken", text)
        self.assertEqual((self.events, self.clock.getDelayedCalls()), ([], []))

    def test_endpoint(self) -> None:
        """It is an endpoint of Twisted."""
        verifyObject(IStreamClientEndpoint, self.endpoint)

    def test_stream(self) -> None:
        """The credential goes out, and bytes pass both ways; the first come after the result."""
        connecting = self.connect()
        pipe = self.reach()
        head = pipe.taken()
        self.assertTrue(head.startswith(b"GET /clusters/alpha/targets/pg HTTP/1.1\r\n"))
        self.assertIn(b"\r\nAuthorization: Bearer t0ken\r\n", head)
        pipe.deliver(SWITCHED + b"220 ready")
        protocol = self.successResultOf(connecting)
        pipe.deliver(b"more")
        self.assertEqual(self.events, ["made", "connected", b"220 ready", b"more"])
        protocol.transport.write(b"hello")
        self.assertEqual(pipe.taken(), b"hello")
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_half_close(self) -> None:
        """Each side's end is passed on by itself."""
        connecting = self.connect()
        pipe = self.reach()
        pipe.deliver(SWITCHED)
        protocol = self.successResultOf(connecting)
        protocol.transport.loseWriteConnection()
        self.assertTrue(pipe.finished)
        pipe.deliver(b"answer")
        pipe.end()
        self.assertFalse(pipe.closing)
        pipe.lose()
        self.assertEqual(self.events, ["made", "connected", b"answer", "ended", "lost"])

    def test_paused(self) -> None:
        """A protocol that pauses gets nothing, and then the first bytes first."""
        self.protocol = Pausing
        connecting = self.connect()
        pipe = self.reach()
        pipe.deliver(SWITCHED + b"one")
        pipe.deliver(b"two")
        transport: Any = self.successResultOf(connecting).transport
        self.assertEqual(self.events, ["connected"])
        transport.resumeProducing()
        self.assertEqual(self.events, ["connected", b"one", b"two"])

    def test_closed_at_once(self) -> None:
        """A protocol that closes when connected receives nothing."""
        connecting = self.connect()
        connecting.addCallback(lambda protocol: protocol.transport.loseConnection())
        pipe = self.reach()
        pipe.deliver(SWITCHED + b"one")
        self.assertTrue(pipe.closing)
        self.assertEqual(self.events, ["made", "connected"])

    def test_refused(self) -> None:
        """The error of a refusal has the message of the proxy's Status."""
        connecting = self.connect()
        pipe = self.reach()
        pipe.deliver(b"HTTP/1.1 404 Not Found\r\n\r\n" + STATUS)
        self.refused(connecting, 'the agent has no target "pg"')
        self.assertTrue(pipe.aborted)

    def test_unreachable(self) -> None:
        """So is why the front door was not reached."""
        connecting = self.connect()
        self.dialed[0][1].errback(ConnectFailed("refused", "tower.example.org:8443: connection refused"))
        self.refused(connecting, "tower.example.org:8443: connection refused")

    def test_credential(self) -> None:
        """The kubeconfig is read for each connection; its errors are reported."""
        self.connect()
        self.access = KubeAccess(SERVER, token="new")
        self.connect()
        self.assertIn(b"Bearer new", self.dialed[1][0].request)
        self.access = KubeAccess(SERVER, token_file=Path("/nonexistent/token"))
        self.refused(self.connect(), "/nonexistent/token")

    def test_cancelled(self) -> None:
        """Cancelling leaves nothing, whether the front door was reached yet or not."""
        connecting = self.connect()
        connecting.cancel()
        self.failureResultOf(connecting, CancelledError)
        self.assertTrue(self.dialed[0][1].called)
        connecting = self.connect()
        pipe = self.reach()
        connecting.cancel()
        self.failureResultOf(connecting, CancelledError)
        self.assertTrue(pipe.aborted)
        self.assertEqual((self.events, self.clock.getDelayedCalls()), ([], []))

    def test_no_protocol(self) -> None:
        """A factory that wants none gets none."""
        self.protocol = None
        connecting = self.connect()
        pipe = self.reach()
        pipe.deliver(SWITCHED)
        self.failureResultOf(connecting, ConnectError)
        self.assertTrue(pipe.aborted)

    def test_broken_protocol(self) -> None:
        """A protocol that raises ends its stream; on its first bytes too, and that is logged."""

        class Broken(Recorder):
            def dataReceived(self, data: bytes) -> None:
                raise ZeroDivisionError

        self.protocol = Broken
        connecting = self.connect()
        pipe = self.reach()
        pipe.deliver(SWITCHED + b"one")
        self.successResultOf(connecting)
        self.assertTrue(pipe.aborted)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)


class DescriptionTests(SynchronousTestCase):
    """``tower:cluster=…``."""

    def setUp(self) -> None:
        """Write jane's kubeconfig."""
        self.clock = Clock()
        self.reactor = cast(ISocketReactor, self.clock)
        self.path = self.write("jane", SERVER)

    def write(self, name: str, server: str) -> str:
        """Write a kubeconfig; return its path."""
        path = os.path.abspath(f"{self.mktemp()}-{name}")
        text = kubeconfig(server=server, ca_pem=authority().pem, cluster="alpha", user=name, token="t0ken")
        Path(path).write_text(text, encoding="utf-8")
        return path

    def parse(self, environ: dict[str, str] | None = None, **arguments: str) -> FrontDoorEndpoint:
        """Parse arguments."""
        return parse_description(self.reactor, (), arguments, environ or {})

    def wrong(self, *parts: str, environ: dict[str, str] | None = None, **arguments: str) -> None:
        """Fail unless the arguments are refused with all of *parts*, as ValueError and as ours."""
        error = self.assertRaises(DescriptionInvalid, self.parse, environ, **arguments)
        self.assertIsInstance(error, ValueError)
        self.assertIsInstance(error, ConfigurationError)
        for part in ("tower: ", *parts):
            self.assertIn(part, str(error))

    def test_client_from_string(self) -> None:
        """Twisted finds the parser by its prefix."""
        endpoint = clientFromString(self.clock, f"tower:cluster=alpha:target=pg:kubeconfig={self.path}")
        assert isinstance(endpoint, FrontDoorEndpoint)
        address = endpoint.address()
        self.assertEqual((address.host, address.port), ("tower.example.org", 8443))
        self.assertTrue(address.request.startswith(b"GET /clusters/alpha/targets/pg HTTP/1.1\r\n"))

    def test_default(self) -> None:
        """The default is the file in KUBECONFIG; several need a choice."""
        self.parse({"KUBECONFIG": self.path}, cluster="alpha", target="pg")
        both = {"KUBECONFIG": f"{self.path}:/other"}
        self.wrong("2 files", "add kubeconfig=FILE", environ=both, cluster="alpha", target="pg")
        self.parse(both, cluster="alpha", target="pg", kubeconfig=self.path)
        gone = {"KUBECONFIG": "/nonexistent/k"}
        self.wrong("/nonexistent/k", "KUBECONFIG", environ=gone, cluster="alpha", target="pg")

    def test_home(self) -> None:
        """And else the one in the home directory."""
        self.patch(os, "environ", {**os.environ, "HOME": "/nonexistent"})
        self.wrong("/nonexistent/.kube/config", "add kubeconfig=FILE", cluster="alpha", target="pg")

    def test_arguments(self) -> None:
        """Missing, unknown and unnamed arguments are named."""
        self.wrong("cluster is missing", "cluster=NAME", target="pg")
        self.wrong("target is missing", "--target", cluster="alpha")
        self.wrong("unknown argument port", "kubeconfig", cluster="alpha", target="pg", port="1")
        for description, part in (("tower:alpha:pg", "'alpha'"), ("tower:reactor=x:environ=y", "reactor")):
            error = self.assertRaises(ValueError, clientFromString, self.clock, description)
            self.assertIn(part, str(error))

    def test_kubernetes(self) -> None:
        """The API server has no raw streams."""
        self.wrong("target=kubernetes", "HTTPS", cluster="alpha", target="kubernetes", kubeconfig=self.path)

    def test_kubeconfig(self) -> None:
        """The error about a file that is missing, or for another server, has the cure."""
        self.wrong(
            "kubeconfig=/nonexistent/k", "add", cluster="alpha", target="pg", kubeconfig="/nonexistent/k"
        )
        self.wrong(self.path, "'x'", cluster="alpha", target="pg", kubeconfig=self.path, context="x")
        self.wrong(self.path, "'tower kubeconfig beta", cluster="beta", target="pg", kubeconfig=self.path)
        for server in ("https://h:6000", "http://h:8443/clusters/alpha", "https://h/clusters/xalpha"):
            path = self.write("port", server)
            self.wrong(path, server, "--via front-door", cluster="alpha", target="pg", kubeconfig=path)

    def test_proxy_url(self) -> None:
        """An HTTP proxy is not passed by in silence."""
        text = (
            Path(self.path)
            .read_text()
            .replace(f"server: {SERVER}", f"server: {SERVER}\n    proxy-url: http://p:1")
        )
        Path(self.path).write_text(text)
        self.wrong(self.path, "proxy-url", cluster="alpha", target="pg", kubeconfig=self.path)


class PluginTests(SynchronousTestCase):
    """The plugin that Twisted loads."""

    def test_interface(self) -> None:
        """The parser provides what it must."""
        verifyObject(IStreamClientEndpointStringParserWithReactor, tower_plugins.tower_endpoint)

    def test_nothing_of_tower(self) -> None:
        """Loading the plugins, which every twistd does, imports nothing of Tower."""
        tree = ast.parse(inspect.getsource(tower_plugins))
        imported = [
            name
            for node in tree.body
            if isinstance(node, ast.Import | ast.ImportFrom)
            for name in (getattr(node, "module", None), *(alias.name for alias in node.names))
        ]
        self.assertIn("twisted.plugin", imported)
        self.assertEqual([name for name in imported if name and name.startswith("tower")], [])

    def test_all(self) -> None:
        """The services are in the same plugin."""
        names = [maker.tapname for maker in getPlugins(IServiceMaker)]
        self.assertIn("tower-proxy", names)
        self.assertIn("tower-agent", names)

"""A proxy of kubesphere-v1 in memory, and a Tower agent that may use its protocol."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.v1_proxies import ACCEPTED, OldProxyEnd, Reply
from tests.holes.agentkit import MemoryAgent
from tests.holes.machinekit import Line, run_dry
from tests.holes.towerkit import KEEPALIVE, UPGRADE
from tower.agent import Options
from tower.conch.connection.channel import Channel
from tower.conch.tunnel.tunnel import SSHTunnel
from tower.kube.apiserver import APIServer
from tower.kube.kubeconfig import KubeAccess
from tower.member.reconnecting import Backoff, Reconnecting
from tower.net.budget import Budget
from tower.reactor.interfaces import ISocketReactor
from tower.tunnels.targets import ServiceAddress
from tower.v1.config import CHANNEL, AgentConfig
from tower.v1.outgoing import V1Outgoing
from tower.v1.registration import Registrar
from tower.v1.token_source import TokenSource
from tower.v1.uplink import V1Uplink
from tower.websocket.dialer import Dialer
from tower.websocket.frames import FrameReader, FrameWriter

#: Without the subprotocol, as deployed proxies answer.
SWITCHED = (
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"
)

TOKEN = "the-token-of-the-cluster"
SERVER = "https://10.0.0.1:6443"


class MemoryOldProxy:
    """Takes connections of agents, one after the other.

    :ivar clock: of everything.
    :ivar lines: both ends of the connections.
    :ivar end: of the last connection: its data, and the answers.
    :ivar tunnel: the last one.
    :ivar reply: to a config.
    """

    def __init__(self, reply: Reply = ACCEPTED) -> None:
        self.clock = Clock()
        self.clock.advance(1000.0)
        self.lines: list[Line] = []
        self.reply = reply
        self.end: OldProxyEnd
        self.tunnel: SSHTunnel

    def line(self) -> Line:
        """Connect an agent; return its end."""
        agents, near = Line.pair()
        self.lines += [agents, near]
        near.receiver = _Upgraded(lambda: self._serve(near))
        near.resume()
        return agents

    def _serve(self, line: Line) -> None:
        line.send(SWITCHED)
        self.end = end = OldProxyEnd(self.clock, self.reply)
        self.tunnel = tunnel = SSHTunnel(
            self.clock, line, end, FrameReader(from_client=True), FrameWriter(to_server=False)
        )
        end.before_reply = lambda: tunnel.open_up("alpha", "", "", 0.0, Budget(32 << 20))
        tunnel.start()

    @property
    def configs(self) -> list[AgentConfig]:
        """The configs that the last connection's agent sent."""
        return [AgentConfig.decode(data) for name, data in self.end.requests if name == b"config"]

    def open(self, address: str, kind: bytes = CHANNEL) -> Deferred[Channel]:
        """Open a channel to *address*, and carry its data."""
        opening = self.tunnel.open_channel(kind, address.encode())
        self.pump()
        return opening

    def pump(self) -> None:
        """Carry all data, and make the calls that are due now, until nothing moves."""
        run_dry(self.clock, lambda: self.lines)
        self.lines = [line for line in self.lines if not line.gone]

    def wait(self, seconds: int) -> None:
        """Let time pass."""
        for _ in range(10 * seconds):
            self.clock.advance(0.1)
            self.pump()


class MemoryV1Agent(MemoryAgent):
    """Our agent, with kubesphere-v1.

    :param pinned: fingerprints of the host key that the proxy has to have; None takes every key.
    """

    def __init__(
        self,
        proxy: MemoryOldProxy,
        *,
        access: Callable[[], KubeAccess] | None = None,
        service: str = "",
        pinned: tuple[str, ...] | None = None,
        max_retry: int = 0,
        token: str = TOKEN,
    ) -> None:
        self._begin()
        self._proxy = proxy
        found = access or (lambda: KubeAccess(server=SERVER, token="agents-own-token", insecure=True))
        self.member = APIServer(found, service)
        self.outgoing_v1 = V1Outgoing(cast(ISocketReactor, proxy.clock), connect=self._connect)
        self.old = V1Uplink(
            proxy.clock,
            cast(Dialer, self),
            Registrar(self.member, "alpha", TokenSource(token), ServiceAddress("ks-apiserver", 80)),
            pinned,
            self.outgoing_v1,
            Budget(32 << 20),
            keepalive=KEEPALIVE,
            epoch=proxy.clock.seconds,
        )
        self.service = Reconnecting(
            proxy.clock,
            self.old.connect,
            Backoff(chance=lambda: 1.0),
            max_retry=max_retry,
            gave_up=self._give_up,
            grace=1.0,
        )

    def start(self) -> MemoryV1Agent:
        """Connect."""
        self.service.startService()
        self._proxy.pump()
        return self

    def reach_proxy(self) -> Line:
        """Return a connection to the old proxy; a test may have another."""
        return self._proxy.line()


class _Upgraded:
    """Waits for the request of the WebSocket handshake."""

    def __init__(self, served: Callable[[], None]) -> None:
        self._served = served

    def received(self, data: memoryview) -> None:
        """Answer; an agent does not send more before."""
        assert bytes(data) == UPGRADE.replace(b"tower-v2", b"kubesphere-v1")
        self._served()

    def ended(self) -> None:
        """Not to happen."""

    def drained(self) -> None:
        """Nothing waits."""

    def closed(self, reason: Exception) -> None:
        """No-op."""


class OldProxyTestCase(SynchronousTestCase):
    """Each test has an old proxy."""

    def setUp(self) -> None:
        """Start it."""
        self.proxy = MemoryOldProxy()

    def agent(self, **options: Any) -> MemoryV1Agent:
        """Connect a Tower agent."""
        agent = MemoryV1Agent(self.proxy, **options).start()
        self.addCleanup(self.proxy.pump)
        self.addCleanup(agent.service.stopService)
        return agent

    def parsed(self, *arguments: str) -> Options:
        """Return the options that *arguments* make, with a name, a proxy and a token."""
        options = Options({"TOWER_TOKEN": TOKEN})
        options.parse(["--name=alpha", "--proxy-server=ws://old.example", *arguments])
        return options


def kubeconfig_with(user: dict[str, str], **cluster: str) -> dict[str, Any]:
    """Return a kubeconfig."""
    return {
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": SERVER, **cluster}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    }

"""An agent of ours in memory, for `tests.holes.towerkit`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from twisted.internet.defer import Deferred, fail, succeed

from tests.fakes.pipes import FakePipe
from tests.fakes.tunnels import Unread
from tests.holes.machinekit import Line
from tests.holes.towerkit import AGENT_KEY, AGENT_TOKEN, HOST_KEY, KEEPALIVE, UPGRADE, MemoryTower
from tower.conch.transport.keys import KeyPair
from tower.conch.tunnel.tunnel import SSHTunnel
from tower.kube.apiserver import APIServer
from tower.kube.head_policy import HeadPolicy
from tower.kube.kubeconfig import KubeAccess
from tower.member.outgoing import Outgoing
from tower.member.reconnecting import Backoff, Reconnecting
from tower.member.targets import Targets
from tower.net.budget import Budget
from tower.reactor.interfaces import ISocketReactor
from tower.tunnels.targets import Target
from tower.v2.hello import AgentHello
from tower.v2.known_proxies import KnownProxies
from tower.v2.uplink import AgentIdentity, Uplink
from tower.websocket.dialer import Dialer, DialFailed


class Handshake:
    """Waits for the answer to the WebSocket handshake.

    :ivar done: fires with the bytes after it.
    """

    def __init__(self, line: Line) -> None:
        self._line = line
        self._head = b""
        self.done: Deferred[tuple[Line, bytes]] = Deferred(lambda _: line.abort())

    def received(self, data: memoryview) -> None:
        """Read."""
        self._head += data
        end = self._head.find(b"\r\n\r\n") + 4
        if end >= 4:
            self._line.pause()
            if self._head.startswith(b"HTTP/1.1 101 "):
                self.done.callback((self._line, self._head[end:]))
            else:
                self.done.errback(DialFailed("this is not a proxy"))
                self._line.abort()

    def ended(self) -> None:
        """Not to happen."""

    def drained(self) -> None:
        """Nothing waits."""

    def closed(self, reason: Exception) -> None:
        """Give up."""
        if not self.done.called:
            self.done.errback(reason)


class _Pinned:
    """Fingerprints that are in no file."""

    def __init__(self, *fingerprints: str) -> None:
        self.pinned = set(fingerprints)

    def learn(self, announced: object) -> None:
        """Keep nothing."""

    def update(self, announced: object) -> None:
        """Keep nothing."""

    def used(self, host_key: str) -> None:
        """Keep nothing."""


class MemoryAgent:
    """A Tower agent.

    :param tower: where it connects.
    :param pinned: fingerprints that it accepts as the proxy's.
    :param policy: options of its `HeadPolicy`.
    :ivar dialed: what it was asked to dial, in order: host and port.
    :ivar servers: the connections that it opened.
    :ivar reach: result of a dial: a new `FakePipe`, or an error.
    :ivar service: keeps the tunnel up.
    """

    def __init__(
        self,
        tower: MemoryTower,
        cluster: str = "alpha",
        token: str | None = None,
        *,
        key: KeyPair = AGENT_KEY,
        pinned: str = HOST_KEY.fingerprint,
        targets: tuple[Target, ...] = (),
        member: APIServer | None = None,
        max_retry: int = 0,
        policy: Mapping[str, Any] | None = None,
    ) -> None:
        self._begin()
        self._tower = tower
        self.member = member or APIServer(
            lambda: KubeAccess(server="https://10.0.0.1:6443", token=AGENT_TOKEN, insecure=True)
        )
        self.outgoing = Outgoing(
            cast(ISocketReactor, tower.machine),
            self.member,
            HeadPolicy(self.member.upstream, **(policy or {})),
            Targets(targets),
            Budget(1 << 20),
            connect=self._connect,
        )
        self.uplink = Uplink(
            tower.machine,
            cast(Dialer, self),
            AgentIdentity(cluster, key, AgentHello("9.9", "pod", ("kubernetes",)), token),
            cast(KnownProxies, _Pinned(pinned)),
            self.outgoing,
            Budget(32 << 20),
            keepalive=KEEPALIVE,
            epoch=tower.machine.seconds,
        )
        self.service = Reconnecting(
            tower.machine,
            self.uplink.connect,
            Backoff(chance=lambda: 1.0),
            max_retry=max_retry,
            gave_up=self._give_up,
            grace=1.0,
        )

    def _begin(self) -> None:
        self.dialed: list[tuple[str, int]] = []
        self.servers: list[FakePipe] = []
        self.reach: Callable[[], Any] = FakePipe
        self.gave_up = 0
        self.tries = 0

    def start(self) -> MemoryAgent:
        """Connect, and come back whenever the tunnel is lost."""
        self.service.startService()
        self._tower.pump()
        return self

    @property
    def tunnel(self) -> SSHTunnel:
        """The tunnel in use."""
        tunnel = self.service._tunnel
        assert tunnel is not None, self.service.state
        return tunnel

    def _give_up(self) -> None:
        self.gave_up += 1

    async def dial(self, protocol: str = "tower-v2") -> tuple[Line, bytes]:
        """Dial the proxy, as a `Dialer` does."""
        self.tries += 1
        line = self.reach_proxy()
        handshake = Handshake(line)
        line.receiver = handshake
        line.resume()
        line.send(UPGRADE.replace(b"tower-v2", protocol.encode()))
        return await handshake.done

    def reach_proxy(self) -> Line:
        """Return a connection to the proxy; a test may have another."""
        return self._tower.line()

    def _connect(self, reactor: Any, host: str, port: int, **_: Any) -> Deferred[Any]:
        self.dialed.append((host, port))
        try:
            server = self.reach()
        except Exception as e:  # noqa: BLE001 (the test chooses the error)
            return fail(e)
        if isinstance(server, Deferred):
            return server
        server.receiver = Unread()
        self.servers.append(server)
        return succeed(server)

"""A whole Tower in memory: the parts of `tower.proxy.Proxy` and of agents, with pipes in place of sockets.

Users are `FakeUser`s that come by the front door or by a cluster's port, API servers are `FakePipe`s that the
agents dial, and between proxy and agent run real HTTP, real frames and real SSH.  Time is the test's.
"""

from __future__ import annotations

from typing import Any, TypeVar, cast

from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from tests.fakes.credentials import authenticator
from tests.fakes.gateway import FakeUser
from tests.fakes.servers import routes_to
from tests.holes.machinekit import Line, Machine, is_due, run_dry
from tests.store.store_contract import HeldStore
from tower.clusters import Cluster, Clusters
from tower.clusters.credentials import Credentials
from tower.clusters.join_tokens import JoinTokens
from tower.clusters.v1_tokens import V1Tokens
from tower.conch.transport.keys import KeyPair
from tower.control.availability import Availability
from tower.control.revocation import Revocation
from tower.net.budget import Budget
from tower.net.connection import Connection
from tower.net.listening import ConnectionReactor
from tower.store.kinds import PORTS
from tower.tunnels import Tunnels
from tower.tunnels.drains import ClusterDrains
from tower.tunnels.silence import Silences
from tower.v1.acceptor import V1AgentAcceptor
from tower.v1.warnings import V1Warnings
from tower.v2.acceptor import AgentAcceptor
from tower.web.access.admission_cache import AdmissionGeneration
from tower.web.access.filters import authentication_chain, user_chain
from tower.web.access.sessions import Sessions
from tower.web.gateway.gateway import Gateway, Router
from tower.web.gateway.upstream.channel_pool import ChannelPool
from tower.web.outcome import Response
from tower.web.ports.cluster_ports import ClusterPort, TokenClusterPort
from tower.web.ports.cluster_proxy import ClusterProxies, KubernetesPorts
from tower.web.ports.kubesphere_port import KubeSpherePort, KubeSpherePorts
from tower.web.ports.plain_port import PlainPort
from tower.web.ports.router import FrontDoor
from tower.websocket.endpoint import AgentEndpoint

T = TypeVar("T")


KEEPALIVE = 10.0

#: How long a connection that was given up may take to be flushed, and a bit, s.
GOODBYE = 6

HOST_KEY = KeyPair.generate()
AGENT_KEY = KeyPair.generate()
AGENT_TOKEN = "agents-own-token"

UPGRADE = (
    b"GET /agent HTTP/1.1\r\nHost: tower\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Protocol: tower-v2\r\n\r\n"
)


class MemoryTower:
    """The proxy.

    :param store: of an earlier run.
    :param kubesphere_ports: of ``--kubesphere-ports``.
    :param require_v2: of ``--require-v2``.
    :ivar lines: the proxy's ends of the connections of agents, and after each the agent's end.
    """

    def __init__(
        self,
        ports: range | None = range(6000, 6010),
        store: HeldStore | None = None,
        *,
        kubesphere_ports: range | None = None,
        require_v2: bool = False,
    ) -> None:
        self.machine = machine = Machine()
        self.store = store or HeldStore()
        self.clusters = Clusters(self.store, ports, machine)
        self.credentials = Credentials(self.store, machine, 86400.0)
        self.tokens = JoinTokens(self.store, machine)
        self.tunnels = Tunnels(machine, machine.seconds)
        self.budget = Budget(32 << 20)
        methods = authenticator(self.credentials, machine)
        self.sessions = Sessions(methods)
        self.pool = ChannelPool(self.tunnels, machine.seconds, Silences(machine.seconds))
        self.acceptor = AgentAcceptor(
            machine,
            self.tunnels,
            self.tokens,
            [HOST_KEY],
            self.budget,
            keepalive=KEEPALIVE,
            epoch=machine.seconds,
        )
        self.old_tokens = V1Tokens(self.store, machine)
        old = V1AgentAcceptor(
            machine,
            self.acceptor,
            self.old_tokens,
            [HOST_KEY],
            keepalive=KEEPALIVE,
            epoch=machine.seconds,
            allows_member_tokens=lambda name: self.clusters.require(name).allows_member_tokens,
        )
        welcomes = {b"tower-v2": self.acceptor.opened, b"kubesphere-v1": old.opened}
        if require_v2:
            del welcomes[b"kubesphere-v1"]
        self.endpoint = AgentEndpoint(machine, welcomes)
        generation = AdmissionGeneration(self.store, machine.seconds)
        chain = user_chain(methods, self.clusters.get)
        self.front = self._gateway(
            FrontDoor(
                chain,
                authentication_chain(methods),
                routes_to(chain, lambda request: Response(200, b"API")),
                self.endpoint.accept,
                generation,
            )
        )
        self.plain = self._gateway(PlainPort(self.endpoint.accept))
        listening = cast(ConnectionReactor, machine)
        ports_of_clusters = KubernetesPorts(
            lambda _: listening,
            self.clusters,
            "127.0.0.1",
            lambda name: self._gateway(ClusterPort(chain, name, generation)),
            None,
            lambda name: self._gateway(TokenClusterPort(chain, name, generation)),
        )
        self.ports = ClusterProxies(self.clusters, ports_of_clusters)
        kubespheres = KubeSpherePorts(
            listening,
            self.clusters,
            "127.0.0.1",
            kubesphere_ports,
            lambda name: self._gateway(KubeSpherePort(name)),
        )
        self.availability = Availability(machine, self.clusters, self.tunnels)
        self._claims = self.store.watch(
            PORTS, lambda event: self.ports.recheck(event.record.value["cluster"])
        )
        self.lines: list[Line] = []
        self._services = [
            Revocation(
                self.store,
                self.clusters,
                self.credentials,
                self.tunnels,
                self.sessions,
                ClusterDrains(machine, self.tunnels, self.pool.close_idle),
            ),
            self.availability,
            V1Warnings(self.clusters, self.tunnels, machine.seconds),
            self.acceptor,
            self.ports,
            ClusterProxies(self.clusters, kubespheres),
        ]
        for service in self._services:
            service.startService()

    def _gateway(self, router: Router) -> Gateway:
        return Gateway(self.machine, router, self.pool, self.sessions, budget=self.budget)

    def stop(self) -> None:
        """Let go of everything."""
        for line in self.lines:
            if not line.gone:
                line.lose()
        self._claims.stop()
        for service in reversed(self._services):
            service.stopService()

    # Actions of the test

    def add(self, name: str) -> Cluster:
        """Add a cluster."""
        return done(self.clusters.add(name))

    def token(self, cluster: str, uses: int = 1) -> str:
        """Return a join token."""
        return done(self.tokens.mint(cluster, uses=uses))

    def credential(self, cluster: str, user: str = "jane") -> bytes:
        """Return a field line with the bearer token of a user of *cluster*."""
        _, secret = done(self.credentials.issue_token(cluster, user, ["dev"], 3600.0))
        return b"Authorization: Bearer " + secret.encode()

    def user(self, port: int | None = None) -> FakeUser:
        """Connect a user without a certificate, to the front door or to a cluster's port."""
        user = FakeUser()
        user.certificate = None
        self._connect(user, port)
        return user

    def _connect(self, pipe: Any, port: int | None) -> None:
        if port is not None:
            self.machine.open[port].buildProtocol(IPv4Address("TCP", "192.0.2.7", 1)).makeConnection(pipe)
            return
        pipe.receiver = self.front.accept(pipe)
        pipe.resume()

    def ask(self, user: FakeUser, request: bytes) -> bytes:
        """Send *request* as *user*; return the answer so far."""
        user.deliver(request)
        self.pump()
        return user.taken()

    def line(self) -> Line:
        """Connect an agent to the plain port; return the agent's end."""
        near, far = Line.pair()
        self.lines += [near, far]
        receiver = self.plain.accept(cast(Connection, near))
        assert receiver is not None
        near.receiver = receiver
        near.resume()
        return far

    def pump(self) -> None:
        """Carry all data, and make the calls that are due now, until nothing moves."""
        run_dry(self.machine, lambda: self.lines)
        self.lines = [line for line in self.lines if not line.gone]

    def carry(self, limit: int) -> bool:
        """Carry at most *limit* bytes; return whether nothing was left."""
        while True:
            self.machine.advance(0)
            moved = 0
            for line in self.lines:
                size = min(limit - moved, 64, len(line.waiting))
                if size and line.carry(size):
                    moved += size
            limit -= moved
            if not moved and not is_due(self.machine):
                return limit > 0

    def sweep(self, seconds: int) -> None:
        """Let time pass, with all that is done once a second."""
        for _ in range(seconds):
            self.machine.advance(1.0)
            for gateway in (self.front, self.plain, self.ports):
                gateway.sweep()
            self.pump()


def done(answer: Deferred[T]) -> T:
    """Return the result of a finished Deferred."""
    results: list[T] = []
    failures: list[Failure] = []
    answer.addCallbacks(results.append, failures.append)
    for failure in failures:
        failure.raiseException()
    (result,) = results
    return result


def status_of(answer: bytes) -> int:
    """Return the code of an HTTP answer; 0 for none."""
    return int(answer[9:12]) if answer.startswith(b"HTTP/1.1 ") else 0

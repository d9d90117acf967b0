"""Tests of the clusters' own ports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from attrs import evolve
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import CannotListenError
from twisted.internet.task import deferLater
from twisted.internet.testing import MemoryReactorClock
from twisted.logger import LogEvent, LogLevel, capturedLogs, eventAsText, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from tower.clusters import Clusters
from tower.clusters.object_meta import ALLOW_LONE_TOKENS, ALLOW_TOKENS, MEMBER_TOKENS
from tower.net.listening import ConnectionReactor
from tower.store import MemoryStore
from tower.store.records import StoreFailed
from tower.web.ports.cluster_proxy import PORT_OPEN, ClusterProxies, ClusterProxy, KubernetesPorts, OpenPorts
from tower.web.ports.kubesphere_port import KUBESPHERE_PORT_OPEN, KubeSpherePorts


class FakeGateway:
    """A gateway that records calls."""

    def __init__(self, cluster: str) -> None:
        self.cluster = cluster
        self.swept = 0
        self.farewell = ""
        self.stopped: list[float] = []
        self.stopping: Deferred[None] = succeed(None)

    def accept(self, connection: object) -> None:
        """Reject the connection."""

    def sweep(self) -> None:
        """Count."""
        self.swept += 1

    def stop(self, grace: float) -> Deferred[None]:
        """Record the grace."""
        self.stopped.append(grace)
        return self.stopping


class TakenPorts(MemoryReactorClock):
    """A reactor with ports that are in use; a closed one is free in the next turn.

    :ivar taken: their numbers.
    :ivar opened: the opened ports with their addresses.
    """

    def __init__(self) -> None:
        super().__init__()
        self.taken: set[int] = set()
        self.opened: list[tuple[int, str]] = []

    def listenTCP(self, port: int, factory: Any, backlog: int = 50, interface: str = "") -> Any:
        """Fail if the port is in use."""
        if port in self.taken:
            raise CannotListenError("", port, OSError(98, "Address already in use"))
        self.taken.add(port)
        self.opened.append((port, interface))
        return OpenPort(self, port)


class OpenPort:
    """An open port."""

    def __init__(self, reactor: TakenPorts, number: int) -> None:
        self._reactor = reactor
        self._number = number

    def stopListening(self) -> Deferred[None]:
        """Close it in the next turn, as Twisted does."""
        return deferLater(self._reactor, 0, self._reactor.taken.discard, self._number)


class Others:
    """A reactor that opens another one's ports, and records them."""

    def __init__(self, reactor: TakenPorts) -> None:
        self._reactor = reactor
        self.opened: list[int] = []

    def listenTCP(self, port: int, *arguments: Any, **named: Any) -> Any:
        """Open a port."""
        listening = self._reactor.listenTCP(port, *arguments, **named)
        self.opened.append(port)
        return listening


def listening(reactor: TakenPorts | Others) -> ConnectionReactor:
    """Return a fake reactor as the type of the real one."""
    return cast(ConnectionReactor, reactor)


def warnings(events: Sequence[LogEvent]) -> list[str]:
    """Return the warnings among the events of a log."""
    return [formatEvent(event) for event in events if event["log_level"] == LogLevel.warn]


class ProxiesTestCase(SynchronousTestCase):
    """Tests with a cluster, and a service of its ports that is not started yet."""

    kind = PORT_OPEN

    def setUp(self) -> None:
        """Start with alpha, on port 6000."""
        self.reactor = TakenPorts()
        self.clusters = Clusters(MemoryStore(), range(6000, 6003), self.reactor)
        self.gateways: dict[str, FakeGateway] = {}
        self.service = ClusterProxies(self.clusters, self.policy())
        self.successResultOf(self.clusters.add("alpha"))

    def policy(self) -> Any:
        """Return the policy."""
        return KubernetesPorts(self.listening, self.clusters, "127.0.0.1", self.gateway)

    def listening(self, cluster: str) -> Any:
        """Return the reactor for a cluster's port."""
        return listening(self.reactor)

    def gateway(self, cluster: str) -> Any:
        """Make a gateway and record it."""
        self.gateways[cluster] = FakeGateway(cluster)
        return self.gateways[cluster]

    def start(self) -> None:
        """Start, and stop after the test."""
        self.service.startService()
        self.addCleanup(self.service.stopService)

    def open_now(self) -> list[int]:
        """Return the open ports of the service."""
        return [service.spec.number for service in self.service if isinstance(service, ClusterProxy)]

    def condition(self, name: str) -> tuple[str, str]:
        """Return status and reason of the port condition."""
        found = self.clusters.require(name).condition(self.kind)
        assert found is not None
        return found.status, found.reason

    def message(self, name: str = "alpha") -> str:
        """Return its message."""
        found = self.clusters.require(name).condition(self.kind)
        assert found is not None
        return found.message


class ClusterProxiesTests(ProxiesTestCase):
    """Ports follow the clusters."""

    def test_there_at_the_start(self) -> None:
        """A cluster that exists at the start gets its port, only on the given host."""
        self.start()
        self.assertEqual(self.reactor.opened, [(6000, "127.0.0.1")])
        self.assertEqual(self.condition("alpha"), ("True", "PortOpen"))

    def test_added(self) -> None:
        """A cluster that is added later gets its port; each has its own gateway."""
        self.start()
        self.successResultOf(self.clusters.add("beta"))
        self.assertEqual(self.open_now(), [6000, 6001])
        self.service.sweep()
        self.assertEqual([g.swept for g in self.gateways.values()], [1, 1])

    def test_disk_is_full(self) -> None:
        """A condition that cannot be written is one line in the log; the port is open."""
        text = "cannot write tower.db: no space left: free space on the disk"
        self.patch(self.clusters, "set_condition", lambda *_: fail(StoreFailed(text)))
        with capturedLogs() as events:
            self.start()
        self.assertEqual(self.open_now(), [6000])
        lines = [eventAsText(event, includeTimestamp=False, includeSystem=False) for event in events]
        self.assertIn(f"cannot write the port condition of cluster alpha: {text}", lines)
        self.assertNotIn("Traceback", "".join(lines))

    def test_changed(self) -> None:
        """An unrelated change of the cluster does not affect its port."""
        self.start()
        self.successResultOf(self.clusters.set_condition("alpha", "AgentAvailable", "True", "R", "m"))
        self.service.retry()
        self.assertEqual(len(self.reactor.opened), 1)

    def test_disabled_and_enabled(self) -> None:
        """Disabling closes the port and its connections at once; enabling opens the same one again."""
        self.start()
        gateway = self.gateways["alpha"]
        self.successResultOf(self.clusters.set_enabled("alpha", False))
        self.assertEqual((self.open_now(), gateway.stopped), ([], [0]))
        self.assertEqual(self.condition("alpha"), ("False", "ClusterDisabled"))
        self.successResultOf(self.clusters.set_enabled("alpha", True))
        self.reactor.advance(0)
        self.assertEqual(self.open_now(), [6000])
        self.assertEqual(self.condition("alpha"), ("True", "PortOpen"))
        self.assertIsNot(self.gateways["alpha"], gateway)

    def test_disabled_before(self) -> None:
        """A cluster whose port was never open has no condition."""
        self.successResultOf(self.clusters.set_enabled("alpha", False))
        self.start()
        self.assertIsNone(self.clusters.require("alpha").condition(PORT_OPEN))

    def test_without_ports(self) -> None:
        """Without ports, a condition from an earlier run is updated."""
        self.start()
        self.clusters.ports.range = None
        self.service.retry()
        self.assertEqual((self.open_now(), self.condition("alpha")), ([], ("False", "Off")))

    def test_removed(self) -> None:
        """Removing the cluster closes its port."""
        self.start()
        self.successResultOf(self.clusters.remove("alpha"))
        self.assertEqual(self.open_now(), [])
        self.successResultOf(self.clusters.add("alpha"))
        self.reactor.advance(0)
        self.assertEqual(self.open_now(), [6000])

    def test_taken(self) -> None:
        """A port in use is logged and in the condition, does not affect others, and is retried."""
        self.reactor.taken.add(6000)
        self.start()
        self.successResultOf(self.clusters.add("beta"))
        self.assertEqual(self.open_now(), [6001])
        self.assertEqual(self.condition("alpha"), ("False", "PortUnavailable"))
        self.reactor.taken.clear()
        self.service.retry()
        self.assertEqual(sorted(self.open_now()), [6000, 6001])
        self.assertEqual(self.condition("alpha"), ("True", "PortOpen"))

    def test_stopped(self) -> None:
        """A stopped service has closed all ports and follows no clusters."""
        self.service.startService()
        self.service.stopService()
        self.assertEqual(self.gateways["alpha"].stopped, [0])
        self.successResultOf(self.clusters.add("beta"))
        self.service.recheck("beta")
        self.reactor.advance(0)
        self.assertEqual((len(self.reactor.opened), self.reactor.taken), (1, set()))

    def test_drained(self) -> None:
        """A drain closes the ports at once and for good, and waits for each gateway's requests."""
        self.start()
        self.successResultOf(self.clusters.add("beta"))
        for gateway in self.gateways.values():
            gateway.stopping = Deferred()
        draining = self.service.drain(10.0)
        self.assertEqual([g.stopped for g in self.gateways.values()], [[10.0], [10.0]])
        self.successResultOf(self.clusters.add("gamma"))
        self.successResultOf(self.clusters.set_enabled("alpha", False))
        self.reactor.advance(0)
        self.service.retry()
        self.assertEqual((len(self.reactor.opened), self.reactor.taken), (2, set()))
        self.service.sweep()
        self.assertEqual([g.swept for g in self.gateways.values()], [1, 1])
        for gateway in self.gateways.values():
            self.assertNoResult(draining)
            gateway.stopping.callback(None)
        self.successResultOf(draining)


class OpenPortsTests(ProxiesTestCase):
    """Ports without required authentication."""

    def policy(self) -> Any:
        """Open some clusters' ports without authentication."""
        self.opened: set[str] = set()
        self.others = Others(self.reactor)
        self.open_gateways: dict[str, FakeGateway] = {}
        opened = OpenPorts(self.opened.__contains__, lambda _: listening(self.others), self.open_gateway)
        reactor = listening(self.reactor)
        return KubernetesPorts(lambda _: reactor, self.clusters, "127.0.0.1", self.gateway, opened)

    def open_gateway(self, cluster: str) -> Any:
        """Make another gateway and record it."""
        self.open_gateways[cluster] = FakeGateway(cluster)
        return self.open_gateways[cluster]

    def test_open(self) -> None:
        """They have their own TLS and gateway; condition and log name the risk."""
        self.opened.add("alpha")
        self.successResultOf(self.clusters.add("beta"))
        with capturedLogs() as events:
            self.start()
        self.assertEqual((self.open_now(), self.others.opened), ([6000, 6001], [6000]))
        self.assertEqual((list(self.open_gateways), list(self.gateways)), (["alpha"], ["beta"]))
        self.assertEqual(self.condition("alpha"), ("True", "OpenToEverybody"))
        self.assertEqual(self.condition("beta"), ("True", "PortOpen"))
        (line,) = warnings(events)
        for text in (line, self.message()):
            for word in (
                "ort 6000 does not require authentication",
                "--v1-open-ports",
                "rights of the cluster's agent",
            ):
                self.assertIn(word, text)
        self.assertIn("cluster alpha", line)

    def test_opened_and_closed(self) -> None:
        """A port that changes is closed at once with its connections, and opened again."""
        self.start()
        self.service.recheck("alpha")
        self.service.recheck("nobody")
        self.assertEqual(len(self.reactor.opened), 1)
        for now_open, gateways in ((True, self.gateways), (False, self.open_gateways)):
            self.opened ^= {"alpha"}
            self.service.recheck("alpha")
            self.assertEqual((self.open_now(), gateways["alpha"].stopped), ([], [0]))
            self.assertIn("the port of cluster alpha is being closed", gateways["alpha"].farewell)
            self.service.retry()
            self.assertEqual(self.condition("alpha")[0], "True")  # no attempt while it is being closed
            self.reactor.advance(0)
            self.assertEqual(self.open_now(), [6000])
            self.assertEqual(self.condition("alpha")[1], "OpenToEverybody" if now_open else "PortOpen")
        self.assertEqual(self.others.opened, [6000])
        self.service.sweep()
        self.assertEqual((self.gateways["alpha"].swept, self.open_gateways["alpha"].swept), (1, 0))


class LoneTokenPortsTests(ProxiesTestCase):
    """Ports that accept tokens of the cluster's own accounts."""

    def policy(self) -> Any:
        """Return the policy."""
        reactor = listening(self.reactor)
        return KubernetesPorts(
            lambda _: reactor, self.clusters, "127.0.0.1", self.gateway, None, self.other_gateway
        )

    def other_gateway(self, cluster: str) -> Any:
        """Make another gateway and record it."""
        self.accepting = FakeGateway(cluster)
        return self.accepting

    def test_setting(self) -> None:
        """The cluster's setting opens the port again, with a warning and a condition; and back."""
        self.start()
        self.assertEqual(self.condition("alpha"), ("True", "PortOpen"))
        with capturedLogs() as events:
            self.change({MEMBER_TOKENS: ALLOW_LONE_TOKENS})
        self.assertEqual(self.gateways["alpha"].stopped, [0])
        self.assertEqual(self.condition("alpha"), ("True", "AcceptsMemberTokens"))
        (line,) = warnings(events)
        self.assertIn("only its API server authenticates", line)
        self.change({MEMBER_TOKENS: ALLOW_TOKENS})
        self.assertEqual(self.accepting.stopped, [0])
        self.assertEqual(self.condition("alpha"), ("True", "PortOpen"))

    def change(self, annotations: dict[str, str]) -> None:
        """Change the setting of alpha."""
        changing = self.clusters.change("alpha", lambda cluster: evolve(cluster, annotations=annotations))
        self.successResultOf(changing)
        self.reactor.advance(0)


class KubeSpherePortsTests(ProxiesTestCase):
    """KubeSphere ports."""

    kind = KUBESPHERE_PORT_OPEN
    range: range | None = range(16000, 16002)

    def policy(self) -> Any:
        """Return the policy."""
        return KubeSpherePorts(listening(self.reactor), self.clusters, "127.0.0.9", self.range, self.gateway)

    def test_open(self) -> None:
        """They are 10,000 higher; condition and log have the address and the missing authentication."""
        with capturedLogs() as events:
            self.start()
        self.assertEqual(self.reactor.opened, [(16000, "127.0.0.9")])
        self.assertEqual(self.condition("alpha"), ("True", "PortOpen"))
        (line,) = warnings(events)
        for text in (line, self.message()):
            for word in ("port 16000 of 127.0.0.9", "clients are not authenticated", "plain HTTP"):
                self.assertIn(word, text)

    def test_follow(self) -> None:
        """They follow their clusters."""
        self.start()
        gateway = self.gateways["alpha"]
        self.successResultOf(self.clusters.set_enabled("alpha", False))
        self.assertEqual((self.open_now(), gateway.stopped), ([], [0]))
        self.assertEqual(self.condition("alpha"), ("False", "ClusterDisabled"))
        self.reactor.advance(0)
        self.successResultOf(self.clusters.add("beta"))
        self.assertEqual(self.open_now(), [16001])
        self.successResultOf(self.clusters.remove("beta"))
        self.assertEqual(self.open_now(), [])

    def test_taken(self) -> None:
        """A port in use is retried."""
        self.reactor.taken.add(16000)
        self.start()
        self.assertEqual(self.condition("alpha"), ("False", "PortUnavailable"))
        self.reactor.taken.clear()
        self.service.retry()
        self.assertEqual(self.condition("alpha"), ("True", "PortOpen"))

    def test_out_of_range(self) -> None:
        """Only ports in the range are opened, and the condition has the range."""
        for name in ("beta", "gamma"):
            self.successResultOf(self.clusters.add(name))
        self.start()
        self.assertEqual(self.open_now(), [16000, 16001])
        self.assertEqual(self.condition("gamma"), ("False", "OutOfRange"))
        self.assertIn("16002 is not within --kubesphere-ports 16000-16001", self.message("gamma"))

    def test_no_port(self) -> None:
        """A cluster without a Kubernetes port has no KubeSphere port."""
        self.clusters.ports.range = None
        self.successResultOf(self.clusters.add("beta"))
        self.start()
        self.assertEqual(self.condition("beta"), ("False", "NoPort"))

    def test_off(self) -> None:
        """Without the option there are no ports; only an existing condition is updated."""
        self.range = None
        self.service = ClusterProxies(self.clusters, self.policy())
        self.successResultOf(self.clusters.add("beta"))
        self.successResultOf(self.clusters.set_condition("beta", self.kind, "True", "PortOpen", "Open."))
        self.start()
        self.assertEqual(self.reactor.opened, [])
        self.assertIsNone(self.clusters.require("alpha").condition(self.kind))
        self.assertEqual(self.condition("beta"), ("False", "Off"))

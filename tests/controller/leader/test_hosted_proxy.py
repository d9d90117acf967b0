"""Tests of `tower.controller.leader.hosted_proxy`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from prometheus_client.registry import Collector
from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.testing import MemoryReactorClock
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from tests.kube.rest.fake_host import FakeHost
from tower.control.admin_kubeconfig import FILE as ADMIN_KUBECONFIG
from tower.control.state_files import HOSTED
from tower.controller.leader.election_metrics import ElectionCollector
from tower.controller.leader.fenced_host import FencedHost
from tower.controller.leader.hosted_proxy import HostedProxy
from tower.controller.leader.leader_election import ElectionTimes, LeaderElection
from tower.controller.leader.leader_label import LABEL, LeaderLabel
from tower.controller.leader.lease_events import LeaseEvents
from tower.controller.leader.state_secret import StateSecret
from tower.errors import ConfigurationError
from tower.kube.client import APIError
from tower.kube.rest.well_known import EVENTS, LEASES, PODS, SECRETS
from tower.reactor.signals import Reloads
from tower.store import IStore, MemoryStore
from tower.store.kinds import SETTINGS
from tower.store.records import StoreStopped
from tower.trust.statedir import StateDir

NAMESPACE = "kubesphere-system"
KEY = "ssh_host_ed25519_key"


class ServedProxy(Service):
    """A proxy whose stop the test controls."""

    def __init__(self, state: StateDir, store: IStore) -> None:
        self.state, self.store = state, store
        self.on_ready: Callable[[], None] = lambda: None
        self.grace = 10.0
        self.reason = ""
        self.hand_over: Callable[[], Awaitable[None]] | None = None
        self.drained: Deferred[None] = Deferred()
        self.stops = 0
        self.host_problems: Sequence[str] = ()
        self.metrics: list[Collector] = []
        if state.read(KEY) is None:
            state.write(KEY, b"a new key")

    def stopService(self) -> Deferred[None]:
        """Hand over, then wait for the test."""
        super().stopService()
        self.stops += 1
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        if self.hand_over is not None:
            await self.hand_over()
        if self.grace:
            await self.drained

    def add_metrics(self, collector: Collector) -> None:
        """Keep the metrics."""
        self.metrics.append(collector)

    def summary(self) -> str:
        """Return its state."""
        return "2 clusters"


class Replica:
    """A replica in a pod.

    :ivar proxy: the last one that was created.
    :ivar ends: exit codes with which it ended.
    :ivar forbidden: why it cannot load its records; empty: it can.
    """

    def __init__(
        self, host: FakeHost, reactor: Any, name: str, state: StateDir, *, is_only: bool = False
    ) -> None:
        self.host, self.state = host, state
        self.proxy: ServedProxy | None = None
        self.ends: list[object] = []
        self.failures: list[str] = []
        self.forbidden = ""
        self.is_ready = 0
        host.put(PODS, {"metadata": {"name": name, "namespace": NAMESPACE}})
        self.election = LeaderElection(
            host,
            reactor,
            name,
            NAMESPACE,
            ElectionTimes(),
            is_only=is_only,
            epoch=reactor.seconds,
            chance=lambda: 0.5,
        )
        self.api = FencedHost(host, lambda: self.election.is_leader)
        self.hosted = HostedProxy(
            reactor,
            self.election,
            state,
            StateSecret(self.api, NAMESPACE, state, name),
            LeaderLabel(self.api, NAMESPACE, name, host),
            self._load,
            self._create,
            Reloads(),
            failures=lambda: self.failures,
            collector=ElectionCollector(self.election),
            announce=LeaseEvents(host, self.election.lock, reactor.seconds).record,
            fail=lambda _: self.ends.append("failed"),
            end=self.ends.append,
        )
        self.hosted.on_ready = self._ready
        self.hosted.startService()

    async def _load(self) -> IStore:
        if self.forbidden:
            raise APIError("GET", "/secrets", 403, self.forbidden)
        await self.api.list(SECRETS, NAMESPACE)
        return MemoryStore()

    def _create(self, store: IStore) -> ServedProxy:
        self.proxy = ServedProxy(self.state, store)
        return self.proxy

    def _ready(self) -> None:
        self.is_ready += 1


class HostedProxyTests(SynchronousTestCase):
    """Replicas of one proxy."""

    def setUp(self) -> None:
        """Make the API server."""
        self.reactor: Any = MemoryReactorClock()
        self.host = FakeHost()
        self.replicas: list[Replica] = []

    def replica(self, name: str) -> Replica:
        """Start a replica."""
        made = Replica(self.host, self.reactor, name, StateDir(Path(self.mktemp())))
        self.replicas.append(made)
        return made

    def tearDown(self) -> None:
        """Stop all."""
        self.host.thaw()
        for each in self.replicas:
            if each.proxy is not None and not each.proxy.drained.called:
                each.proxy.drained.callback(None)
            if each.hosted.running:
                each.hosted.stopService()

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.reactor.pump([0.1] * round(seconds * 10))

    def leading(self, name: str) -> tuple[Replica, ServedProxy]:
        """Return a replica that serves, and its proxy."""
        replica = self.replica(name)
        proxy = replica.proxy
        assert proxy is not None
        proxy.on_ready()
        return replica, proxy

    def holder(self) -> object:
        """Return the holder of the Lease."""
        lease = self.host.object(LEASES, "tower", NAMESPACE)
        assert lease is not None
        return lease["spec"]["holderIdentity"]

    def labeled(self) -> list[str]:
        """Return the pods with the leader's label."""
        pods = self.host.objects(PODS, NAMESPACE)
        return [each["metadata"]["name"] for each in pods if LABEL in (each["metadata"].get("labels") or {})]

    def test_first_leader(self) -> None:
        """The first replica saves its new keys before it starts, and serves with the label on its pod."""
        replica = self.replica("a")
        proxy = replica.proxy
        assert proxy is not None
        secret = self.host.object(SECRETS, "tower-state", NAMESPACE)
        assert secret is not None
        self.assertEqual(set(secret["data"]), {KEY, "secrets.key"})
        self.assertTrue(proxy.running)
        self.assertEqual(replica.state.source, "Secret kubesphere-system/tower-state")
        self.assertEqual((replica.hosted.problem, self.labeled()), ("the proxy is starting", []))
        proxy.on_ready()
        self.assertEqual((replica.hosted.problem, self.labeled(), replica.is_ready), ("", ["a"], 1))
        self.assertEqual(replica.hosted.summary(), "2 clusters")
        self.assertIn("leader: this proxy holds the Lease kubesphere-system/tower", replica.hosted.role)

    def test_standby(self) -> None:
        """A standby is ready, names the leader, creates no proxy, and changes nothing."""
        self.leading("a")
        writes = len(self.host.writes)
        standby = self.replica("b")
        self.advance(1.0)
        self.assertEqual((standby.proxy, standby.hosted.problem, standby.is_ready), (None, "", 1))
        self.assertEqual(standby.hosted.role, "standby: a holds the Lease kubesphere-system/tower")
        self.assertEqual(standby.hosted.summary(), standby.hosted.role)
        self.assertEqual(len(self.host.writes), writes)

    def test_note_of_the_role(self) -> None:
        """The state directory names the role and the leader; a standby has no administrator's kubeconfig."""
        first, _ = self.leading("a")
        leader = b"leader: this proxy holds the Lease kubesphere-system/tower\n"
        self.assertEqual(first.state.read(HOSTED), leader)
        path = self.mktemp()
        state = StateDir(Path(path))
        state.write(ADMIN_KUBECONFIG, b"written earlier")
        self.host.freeze()
        standby = Replica(self.host, self.reactor, "b", state)
        self.assertEqual(state.read(HOSTED), b"starting: this proxy has not seen the Lease yet\n")
        self.host.thaw()
        self.advance(1.0)
        self.assertEqual(state.read(HOSTED), b"standby: a holds the Lease kubesphere-system/tower\n")
        self.assertIsNone(state.read(ADMIN_KUBECONFIG))
        self.successResultOf(standby.hosted.stopService())

    def test_hand_over(self) -> None:
        """At a stop the next replica leads while requests of the first one go on; it has the same keys."""
        first, proxy = self.leading("a")
        second = self.replica("b")
        stopping = first.hosted.stopService()
        self.assertTrue(second.election.is_leader)
        self.assertNoResult(stopping)
        following = second.proxy
        assert following is not None
        self.assertEqual(following.state.read(KEY), b"a new key")
        following.on_ready()
        self.assertEqual(self.labeled(), ["b"])
        proxy.drained.callback(None)
        self.successResultOf(stopping)
        self.assertEqual((first.ends, second.ends, proxy.stops), ([], [], 1))

    def test_events_and_metrics(self) -> None:
        """Events of the Lease name the leaders; a serving leader's page has the metrics of the election."""
        first, proxy = self.leading("a")
        (collector,) = proxy.metrics
        self.assertIsInstance(collector, ElectionCollector)
        self.replica("b")
        self.advance(1.0)
        proxy.drained.callback(None)
        self.successResultOf(first.hosted.stopService())
        events = self.host.objects(EVENTS, NAMESPACE)
        texts = ["a became leader", "a stopped leading", "b became leader"]
        self.assertEqual(sorted(event["message"] for event in events), texts)

    def test_label_of_killed_leader(self) -> None:
        """The pod of a leader that was killed and restarted is not selected while it is a standby."""
        first, _ = self.leading("a")
        self.assertEqual(self.labeled(), ["a"])
        self.replica("a")  # the restarted container: another identity would take the Lease later
        self.assertEqual(self.labeled(), [])
        self.assertTrue(first.election.is_leader)

    def test_label_at_stop(self) -> None:
        """A stop removes the label first, and does not wait long for it."""
        first, proxy = self.leading("a")
        self.assertEqual(self.labeled(), ["a"])
        proxy.hand_over = None
        first.hosted.stopService()
        self.assertEqual(self.labeled(), [])

    def test_lost(self) -> None:
        """A lost Lease stops the proxy at once, without a grace period, and ends the program."""
        first, proxy = self.leading("a")
        self.host.freeze()
        with capturedLogs() as events:
            self.advance(15.1)
        self.assertEqual((proxy.running, proxy.grace, proxy.stops), (False, 0.0, 1))
        self.assertIn("it lost its Lease", proxy.reason)
        stopped = self.failureResultOf(proxy.store.create(SETTINGS, "x", {}), StoreStopped)
        self.assertIn("has stopped", str(stopped.value))
        self.assertEqual(first.ends, ["failed"])
        self.assertIn("the proxy ends", formatEvent(events[-1]))
        stopping = first.hosted.stopService()
        self.host.thaw()
        self.successResultOf(stopping)
        self.assertEqual(proxy.stops, 1)
        self.advance(5.0)
        self.assertEqual(first.ends, ["failed", 1])

    def test_fence(self) -> None:
        """The records' API server rejects writes once the replica does not lead."""
        first, _ = self.leading("a")
        self.host.freeze()
        self.advance(15.1)
        self.host.thaw()
        self.failureResultOf(
            Deferred.fromCoroutine(first.api.create(PODS, {"metadata": {"name": "x"}}, NAMESPACE))
        )

    def test_missing_rights(self) -> None:
        """A leader that cannot read its records tries again, keeps the Lease for some time, is not ready."""
        self.host.fail_next(403, "secrets is forbidden", verbs=["list"], count=2)
        replica = self.replica("a")
        self.assertIn(
            "secrets is forbidden\": grant the rights of 'tower rbac host | kubectl apply -f -'",
            replica.hosted.problem,
        )
        self.assertIsNone(replica.proxy)
        self.advance(10.5)
        self.assertIsNotNone(replica.proxy)
        self.assertEqual((replica.hosted.problem, replica.ends), ("the proxy is starting", []))

    def test_step_aside(self) -> None:
        """A leader that cannot start lets another replica lead, which can, and warns as a standby."""
        self.host.fail_next(403, "secrets is forbidden", verbs=["list"], count=1)
        first = self.replica("a")
        first.forbidden = "secrets is forbidden"
        second = self.replica("b")
        self.advance(14.5)
        self.assertTrue(first.election.is_leader)
        with capturedLogs() as events:
            self.advance(3.0)
        self.assertIn("releases the Lease for another proxy", " ".join(map(str, map(formatEvent, events))))
        following = second.proxy
        assert following is not None
        following.on_ready()
        self.assertIn("secrets is forbidden: grant the rights", first.hosted.problem)
        self.advance(6.0)
        self.assertEqual((first.hosted.problem, self.holder()), ("", "b"))
        (warning,) = first.hosted.warnings
        self.assertIn("this proxy could not lead: GET /secrets: answered 403", warning)
        self.advance(120.0)
        self.assertEqual((self.holder(), first.ends, second.ends), ("b", [], []))

    def test_return(self) -> None:
        """A single replica is a candidate again after a pause, and serves soon after its rights came."""
        self.host.fail_next(403, "secrets is forbidden", verbs=["list"], count=1)
        replica = self.replica("a")
        replica.forbidden = "secrets is forbidden"
        self.advance(200.0)
        self.assertIn("secrets is forbidden", replica.hosted.problem)
        replica.forbidden = ""
        self.advance(25.0)
        proxy = replica.proxy
        assert proxy is not None
        proxy.on_ready()
        self.assertEqual((replica.hosted.problem, replica.hosted.warnings, self.holder()), ("", [], "a"))

    def test_stop_during_pause(self) -> None:
        """A replica that stepped aside stops at once, and takes nothing afterwards."""
        self.host.fail_next(403, "secrets is forbidden", verbs=["list"], count=1)
        replica = self.replica("a")
        replica.forbidden = "secrets is forbidden"
        self.advance(18.0)
        self.assertEqual(self.holder(), "")
        self.successResultOf(replica.hosted.stopService())
        self.advance(60.0)
        self.assertEqual((self.holder(), replica.proxy, replica.ends), ("", None, []))

    def test_short_failures(self) -> None:
        """Reasons that come and go do not add up."""
        replica = self.replica("a")
        for _ in range(10):
            replica.failures = ["no answer"]
            self.advance(4.0)
            replica.failures = []
            self.advance(2.0)
        self.assertTrue(replica.election.is_leader)

    def test_records_not_read(self) -> None:
        """Records that cannot be read are the problem of a leader that starts, and a warning later."""
        replica = self.replica("a")
        proxy = replica.proxy
        assert proxy is not None
        replica.failures = ["no kind JoinToken: apply deploy/crds"]
        self.assertEqual((replica.hosted.problem, replica.hosted.warnings), (replica.failures[0], ()))
        proxy.on_ready()
        self.assertEqual((replica.hosted.problem, replica.hosted.warnings), ("", replica.failures))

    def test_current_reason(self) -> None:
        """While records are loaded, the current reason is shown in place of that of the last attempt."""
        self.host.fail_next(403, "transactions is forbidden", verbs=["list"], count=99)
        replica = self.replica("a")
        self.assertIn("transactions is forbidden", replica.hosted.problem)
        replica.failures = ["secrets is forbidden"]
        self.assertEqual(replica.hosted.problem, "secrets is forbidden")

    def test_keys_not_saved(self) -> None:
        """New keys that cannot be saved do not come into use."""
        self.host.fail_next(403, "secrets is forbidden", verbs=["patch"], plural="secrets", count=2)
        replica = self.replica("a")
        proxy = replica.proxy
        assert proxy is not None
        self.assertFalse(proxy.running)
        self.advance(10.5)
        self.assertIs(replica.proxy, proxy)
        self.assertTrue(proxy.running)

    def test_keys_never_saved(self) -> None:
        """A proxy whose keys can never be saved ends its program, and another replica leads."""
        self.host.fail_next(403, "secrets is forbidden", verbs=["patch"], plural="secrets", count=99)
        replica = self.replica("a")
        self.assertEqual(replica.state.read(KEY), b"a new key")
        self.advance(20.0)
        self.assertEqual((replica.ends, replica.state.read(KEY)), (["failed"], None))
        replica.hosted.stopService()
        self.assertEqual(self.holder(), "")

    def test_configuration_error(self) -> None:
        """A proxy that cannot start ends the program with one line, and the Lease is released."""
        with capturedLogs() as events:
            broken = BrokenReplica(self.host, self.reactor, "a", StateDir(Path(self.mktemp())))
        self.replicas.append(broken)
        self.assertEqual(broken.ends, ["failed"])
        self.assertIn("the proxy cannot start: --ca-cert x: no such file", [formatEvent(it) for it in events])
        broken.hosted.stopService()
        self.assertEqual(self.holder(), "")

    def test_stop_during_start(self) -> None:
        """A stop during the start cancels it, and releases the Lease."""
        self.host.fail_next(403, verbs=["list"], count=99)
        replica = self.replica("a")
        self.successResultOf(replica.hosted.stopService())
        self.advance(60.0)
        self.assertIsNone(replica.proxy)
        self.assertFalse(replica.election.is_leader)
        self.assertEqual(self.holder(), "")

    def test_later_change(self) -> None:
        """A file that changes without a rotation, such as a renewed certificate, is saved soon."""
        replica, _ = self.leading("a")
        replica.state.write("serving.pem", b"a certificate")
        self.advance(10.5)
        secret = self.host.object(SECRETS, "tower-state", NAMESPACE)
        assert secret is not None
        self.assertIn("serving.pem", secret["data"])
        self.host.fail_next(403, "secrets is forbidden", verbs=["patch"], plural="secrets")
        replica.state.write("serving.pem", b"another certificate")
        self.advance(10.0)
        (warning,) = replica.hosted.warnings
        self.assertIn("cannot save serving.pem in Secret kubesphere-system/tower-state", warning)

    def test_only_replica(self) -> None:
        """The only replica serves while it cannot renew its Lease, and warns; a second one is not ready."""
        first = Replica(self.host, self.reactor, "a", StateDir(Path(self.mktemp())), is_only=True)
        second = Replica(self.host, self.reactor, "b", StateDir(Path(self.mktemp())), is_only=True)
        self.replicas += [first, second]
        proxy = first.proxy
        assert proxy is not None
        proxy.on_ready()
        self.assertEqual((first.hosted.problem, first.hosted.warnings), ("", []))
        self.assertIn("a holds the Lease kubesphere-system/tower, although this proxy", second.hosted.problem)
        self.assertEqual((second.proxy, second.is_ready), (None, 0))
        self.host.freeze()
        self.advance(25.0)
        self.assertTrue(proxy.running)
        (warning,) = first.hosted.warnings
        self.assertIn("cannot use the Lease kubesphere-system/tower: no answer", warning)
        self.host.thaw()
        self.advance(6.0)
        self.assertEqual((first.hosted.warnings, first.ends), ([], []))


class BrokenReplica(Replica):
    """A replica whose proxy cannot be created."""

    def _create(self, store: IStore) -> ServedProxy:
        raise ConfigurationError("--ca-cert x: no such file")

"""The number of writes to the host cluster while agents reconnect."""

from __future__ import annotations

from collections import Counter
from typing import cast

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock, LoopingCall
from twisted.trial.unittest import SynchronousTestCase

from tests.control.bench import Bench
from tests.fakes.tunnels import FakeTunnel
from tests.kube.rest.fake_host import FakeHost
from tests.store.kubernetes.kit import opened
from tower.clusters.agent_keys import AgentKeys
from tower.clusters.cluster_events import ClusterEvents
from tower.control.availability import Availability
from tower.control.event_recorder import EventRecorder
from tower.control.last_seen import LastSeen
from tower.kube.member_status import Check, MemberStatus

_GOOD = Check("True", "Reachable")
_STATUS = MemberStatus(_GOOD, _GOOD, _GOOD, version="v1.36.0")

#: Clusters, and minutes before and during the measurement.
_CLUSTERS, _BEFORE, _MINUTES = 20, 20, 10


class SteadyStateTests(SynchronousTestCase):
    """Agents that reconnect every 30 s."""

    def test_writes(self) -> None:
        """A cluster costs fewer than 5 writes in 10 minutes; its last agent is known after a restart."""
        host = FakeHost()
        bench = Bench(range(6000, 6100), lambda clock: opened(host, clock))
        clock, names = bench.clock, [f"c{number}" for number in range(_CLUSTERS)]
        for name in names:
            self.successResultOf(bench.clusters.add(name))
            token = self.successResultOf(bench.tokens.mint(name))
            self.successResultOf(bench.tokens.enrol(name, token, "SHA256:agent", b"blob"))
        keys = AgentKeys(bench.store, clock)
        events = ClusterEvents(bench.store, clock)
        seen = LastSeen(bench.store, bench.clusters, bench.tunnels, keys)
        services = (
            seen,
            Availability(clock, bench.clusters, bench.tunnels),
            EventRecorder(bench.store, bench.clusters, bench.tunnels, events),
        )
        for service in services:
            service.startService()
        for period, work in ((max(300.0, bench.store.quiet_period), seen.write), (60.0, events.sweep)):
            timer = LoopingCall(work)
            timer.clock = clock
            timer.start(period, now=False)
            self.addCleanup(timer.stop)

        def half_a_minute(number: int) -> None:
            tunnels = [FakeTunnel(name, peer=f"192.0.2.1:{number}", member_status=_STATUS) for name in names]
            for tunnel in tunnels:
                bench.tunnels.add(tunnel)
                keys.connected(tunnel.name, tunnel.fingerprint)
            clock.pump([1.0] * 29)
            for tunnel in tunnels:
                bench.tunnels.remove(tunnel)
            clock.advance(1)

        for number in range(2 * _BEFORE):
            half_a_minute(number)
        host.requests.clear()
        for number in range(2 * _MINUTES):
            half_a_minute(number)
        found = Counter(plural for _, plural, _ in host.writes)
        self.assertGreater(len(host.writes), 0)
        self.assertLess(len(host.writes) / _CLUSTERS, 5, f"writes: {found}")
        for service in services:
            self.successResultOf(
                cast(Deferred[None], service.stopService()) or Deferred.fromCoroutine(_none())
            )
        self.successResultOf(events.flush())
        again = AgentKeys(opened(host, Clock()), clock).last("c0", "SHA256:agent")
        assert again is not None
        self.assertEqual(again.address, f"192.0.2.1:{2 * _MINUTES - 1}")


async def _none() -> None:
    """Do nothing."""

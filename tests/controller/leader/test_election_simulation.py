"""Simulation of elections: many candidates, faults at random moments, never two leaders."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.controller.leader.candidates import NAMESPACE, Candidate
from tests.kube.rest.fake_host import FakeHost
from tower.controller.leader.leader_election import ElectionTimes
from tower.kube.rest.host_api import Object, ResourceType
from tower.kube.rest.well_known import CONFIG_MAPS, LEASES

TIMES = ElectionTimes()
STEP = 0.1  # s of the simulation between two looks at all candidates
CALM = TIMES.lease + TIMES.retry + 5.0  # s without faults until there must be a leader


class Simulation:
    """Candidates, and an API server.

    :ivar leaders: candidates that led, oldest first.
    """

    def __init__(self, test: SynchronousTestCase, seed: int, candidates: int = 4) -> None:
        self.test, self.seed = test, seed
        self.random = Random(seed)
        self.clock = Clock()
        self.host = FakeHost()
        self.all: list[Candidate] = []
        self.alive: list[Candidate] = []
        self.leaders: list[str] = []
        self._thaws: dict[str, float] = {}
        for _ in range(candidates):
            self.add()

    def add(self) -> None:
        """Start a candidate."""
        made = Candidate(
            f"tower-{len(self.all)}", self.host, self.clock, self.random, TIMES, lambda: bool(self.leaders)
        )
        self.all.append(made)
        self.alive.append(made)

    def run(self, seconds: float) -> None:
        """Let time pass; check that at most one candidate leads."""
        for _ in range(round(seconds / STEP)):
            self.clock.advance(STEP)
            self.check()
            for gone in [each for each in self.alive if each.lost is not None]:
                self.alive.remove(gone)
                self.add()

    def check(self) -> list[str]:
        """Return the leaders, one at most."""
        leading = [each.name for each in self.all if each.leads]
        self.test.assertLessEqual(
            len(leading), 1, f"seed {self.seed}, at {self.clock.seconds():.1f} s: {leading}"
        )
        if leading and leading != self.leaders[-1:]:
            self.leaders += leading
        return leading

    def calm(self) -> None:
        """End all faults, and wait for a leader."""
        for each in self.alive:
            each.process.thaw(self.random)
            each.host.thaw()
        self.run(CALM)
        leading = self.check()
        self.test.assertEqual(len(leading), 1, f"seed {self.seed}: no leader")
        lease = self.host.object(LEASES, "tower", NAMESPACE)
        assert lease is not None
        self.test.assertEqual(lease["spec"]["holderIdentity"], leading[0])

    def fault_of_process(self) -> None:
        """Do one thing to a leader or another candidate, except a release, which follows the last write."""
        leading = [each for each in self.alive if each.leads]
        self._of_candidate(self.random.choice(leading or self.alive), (0, 2, 3, 4))

    def fault(self) -> None:
        """Do one thing that must not give two leaders."""
        random = self.random
        leading = [each for each in self.alive if each.leads]
        victim = random.choice(leading or self.alive) if random.random() < 0.7 else random.choice(self.alive)
        if random.random() < 0.5:
            self._of_candidate(victim)
        else:
            self._of_server(victim)

    def _of_candidate(self, victim: Candidate, faults: Sequence[int] = range(5)) -> None:
        match self.random.choice(faults):
            case 0:
                victim.kill()
                self._replace(victim)
            case 1:
                Deferred.fromCoroutine(victim.election.release())
                self._replace(victim)
            case 2:
                victim.process.freeze()
            case 3:
                victim.process.thaw(self.random)
            case 4:
                victim.process.step += self.random.choice((-86400.0, -5.0, 3600.0))

    def _of_server(self, victim: Candidate) -> None:
        random = self.random
        match random.randrange(5):
            case 0:
                for each in self.all:
                    each.host.freeze()
            case 1:
                for each in self.all:
                    each.host.thaw()
            case 2:
                victim.host.freeze()
            case 3:
                code, is_applied = random.choice((0, 409, 429, 500)), random.random() < 0.5
                self.host.fail_next(code, count=random.randint(1, 6), applied=is_applied)
            case 4:
                self.host.end_watches(random.choice((None, 0, 410)))

    def _replace(self, gone: Candidate) -> None:
        self.alive.remove(gone)
        self.add()


class SimulationTests(SynchronousTestCase):
    """Each seed is another course of events."""

    def test_faults(self) -> None:
        """With any faults there is one leader at most, and one after they end."""
        for seed in range(12):
            simulation = Simulation(self, seed)
            simulation.calm()
            for _ in range(40):
                simulation.fault()
                simulation.run(simulation.random.choice((0.1, 1.0, 10.0, 20.0)))
            simulation.calm()
            self.assertGreater(len(set(simulation.leaders)), 2, f"seed {seed}: hardly any change")

    def test_kills(self) -> None:
        """Fifty leaders are killed at random moments; each time another one leads within 36 s."""
        simulation = Simulation(self, 0, candidates=3)
        simulation.calm()
        for number in range(50):
            simulation.run(simulation.random.uniform(0.1, 12.0))
            (leader,) = (each for each in simulation.alive if each.leads)
            leader.kill()
            simulation.alive.remove(leader)
            simulation.add()
            began = simulation.clock.seconds()
            while not simulation.check():
                simulation.run(STEP)
                self.assertLess(simulation.clock.seconds() - began, 36.0, f"kill {number}")
            self.assertGreater(simulation.clock.seconds() - began, TIMES.lease - TIMES.renew)

    def test_releases(self) -> None:
        """After a release another candidate leads within 3 s, also with slow answers."""
        simulation = Simulation(self, 1, candidates=3)
        simulation.calm()
        for number in range(50):
            simulation.run(simulation.random.uniform(0.1, 12.0))
            (leader,) = (each for each in simulation.alive if each.leads)
            simulation.alive.remove(leader)
            Deferred.fromCoroutine(leader.election.release())
            simulation.add()
            began = simulation.clock.seconds()
            while not simulation.check():
                simulation.run(STEP)
                self.assertLess(simulation.clock.seconds() - began, 3.0, f"release {number}")

    def test_writes(self) -> None:
        """No write of a killed or suspended leader arrives after another one took the Lease."""
        for seed in range(4):
            simulation = Simulation(self, seed)
            simulation.calm()
            writers: list[tuple[str, str]] = []

            def check(verb: str, resource: ResourceType, obj: Object) -> None:
                if resource == CONFIG_MAPS:
                    lease = simulation.host.object(LEASES, "tower", NAMESPACE)  # noqa: B023
                    assert lease is not None
                    writers.append((obj["metadata"]["name"], lease["spec"]["holderIdentity"]))  # noqa: B023

            simulation.host.admission.append(check)
            for _ in range(30):
                simulation.fault_of_process()
                for _ in range(simulation.random.choice((1, 10, 100, 200))):
                    for each in simulation.all:
                        if each.process.runs:
                            simulation.host.put(CONFIG_MAPS, {"metadata": {"name": each.name}}, NAMESPACE)
                            each.write()
                    simulation.run(STEP)
            simulation.calm()
            self.assertGreater(len(set(writers)), 2, f"seed {seed}: hardly any change")
            self.assertEqual({pair for pair in writers if pair[0] != pair[1]}, set(), f"seed {seed}")

    def test_deleted_lease(self) -> None:
        """A Lease that is removed repeatedly does not give two leaders, also with new candidates."""
        simulation = Simulation(self, 2)
        simulation.calm()
        for _ in range(10):
            if simulation.host.object(LEASES, "tower", NAMESPACE) is not None:
                simulation.host.remove(LEASES, "tower", NAMESPACE)
            simulation.add()
            simulation.run(simulation.random.uniform(0.1, 20.0))
        simulation.calm()

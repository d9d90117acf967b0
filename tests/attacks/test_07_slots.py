"""7: thousands of silent connections do not keep users or agents out."""

from __future__ import annotations

import http.client
import resource
import sys
from typing import ClassVar

from tests.attacks.case import AttackTestCase
from tests.integration.backends import ROOT
from tests.integration.harness import Tower
from tests.integration.programs import PATIENCE, Program, wait_for

MANY = ",".join(f"127.0.0.{number}" for number in range(2, 22))
ONE = "127.0.0.2"
SPARE = 400  # descriptors that the proxy gets above its current number
ROUNDS = 30  # requests of each user during the attack


class SlotsTestCase(AttackTestCase):
    """A proxy with the test's options."""

    options: ClassVar[tuple[str, ...]] = ()

    def new_tower(self) -> Tower:
        """Return a Tower whose proxy has them."""
        tower = super().new_tower()
        tower.proxy = tower.proxy_program(*self.options)
        return tower

    def setUp(self) -> None:
        """Open a connection that is authenticated before the attack, and prepare agents for later."""
        super().setUp()
        self.first = self.jane.connect(timeout=PATIENCE)
        self.addCleanup(self.first.close)
        self.assertEqual(self.ping(self.first), 200)
        self.socket = self.first.sock
        self.late = self.arrivals()

    def ping(self, connection: http.client.HTTPSConnection) -> int:
        """Send a request on a connection; return the status."""
        answer = self.jane.ask(connection, f"{self.jane.prefix}/ping")
        answer.read()
        return answer.status

    def hold(self, *ports: int, hold: int, rate: int, sources: str) -> Program:
        """Start clients that hold connections and reconnect; return when they have opened *hold*."""
        argv = [sys.executable, "-m", "tests.attacks.holding", ",".join(map(str, ports))]
        argv += [f"--hold={hold}", f"--rate={rate}", f"--sources={sources}"]
        program = Program("holding", argv, self.folder, {"PYTHONPATH": str(ROOT)})
        self.addCleanup(program.kill)
        program.start()
        wait_for("the attack", lambda: "ready" in program.output() or not program.running(), 2 * PATIENCE)
        self.assertTrue(program.running(), program.tail())
        return program

    def withstand(self, attack: Program) -> None:
        """Let users and agents work during an attack without noticing it."""
        self.assertEqual(self.ping(self.first), 200)
        with self.bystanders() as bystanders:
            bystanders.until(ROUNDS)
            bystanders.agents_come_in(self.late)
            bystanders.until(ROUNDS)
        self.assertTrue(attack.running(), attack.tail())
        self.assertEqual(self.ping(self.first), 200)
        self.assertIs(self.first.sock, self.socket)
        self.assertNotIn("Traceback", self.tower.proxy.output())


class DefaultTests(SlotsTestCase):
    """The original attack: 10,050 connections, default options."""

    def test_front_door(self) -> None:
        """10,050 connections to the front door do not keep users out."""
        self.withstand(self.hold(self.tower.secure_port, hold=10_050, rate=100, sources=MANY))

    def test_plain_port(self) -> None:
        """10,050 connections to the plain port do not keep users out, neither there nor at the front door."""
        attack = self.hold(self.tower.port, hold=10_050, rate=100, sources=MANY)
        self.assertTrue(self.tower.healthy())
        wait_for("the log line", lambda: "running out of connections" in self.tower.proxy.output())
        self.withstand(attack)


class CountTests(SlotsTestCase):
    """A small limit, and attackers that reconnect all the time."""

    options = ("--max-connections=2000", "--max-connections-per-address=0")

    def test_many_addresses(self) -> None:
        """3,000 connections, and 200 new ones a second, from 20 addresses to both ports keep no user out."""
        before = self.tower.proxy.descriptors()
        ports = self.tower.port, self.tower.secure_port
        self.withstand(self.hold(*ports, hold=3000, rate=200, sources=MANY))
        self.assertLess(self.tower.proxy.descriptors(), before + 2000)


class ShareTests(SlotsTestCase):
    """The share of one address, by default a tenth."""

    options = ("--max-connections=2000",)

    def test_one_address(self) -> None:
        """One address that holds 3,000 and opens 200 a second has 200, and takes none of others' away."""
        before = self.tower.proxy.descriptors()
        ports = self.tower.port, self.tower.secure_port
        self.withstand(self.hold(*ports, hold=3000, rate=200, sources=ONE))
        self.assertLess(self.tower.proxy.descriptors(), before + 300)


class DescriptorTests(SlotsTestCase):
    """Descriptors are scarce."""

    options = ("--max-connections-per-address=0",)

    def test_descriptors(self) -> None:
        """With a few hundred descriptors, 1,500 connections and 30 new ones a second keep no user out."""
        proxy = self.tower.proxy
        limits = resource.prlimit(proxy.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(proxy.pid, resource.RLIMIT_NOFILE, (proxy.descriptors() + SPARE, limits[1]))
        ports = self.tower.port, self.tower.secure_port
        self.withstand(self.hold(*ports, hold=1500, rate=30, sources=MANY))
        self.assertNotIn("accepts no connections for now", proxy.output())

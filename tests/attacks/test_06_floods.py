"""Floods of handshakes, of silent agents, and of slow sockets: smaller than real ones."""

from __future__ import annotations

import resource

from tests.attacks.case import AttackTestCase

HANDSHAKES = 60  # a second
UPGRADES = 80  # a second: few enough that none has to go for another
SLOW = 600  # sockets


class FloodTests(AttackTestCase):
    """Users and agents do not notice."""

    def setUp(self) -> None:
        """Prepare agents that are to connect during it, and descriptors for the attackers."""
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))
        super().setUp()
        self.late = self.arrivals()

    def during_attack(self) -> None:
        """Work during the attack."""
        with self.bystanders() as users:
            users.until(40)
            users.agents_come_in(self.late)
            users.until(40)
        self.assertNotIn("Traceback", self.tower.proxy.output())

    def test_handshakes(self) -> None:
        """TLS handshakes, each on a new connection."""
        self.attack("handshakes", self.tower.secure_port, f"--rate={HANDSHAKES}")
        self.during_attack()

    def test_upgrades(self) -> None:
        """WebSocket upgrades of agents that then stay silent."""
        self.attack("upgrades", self.tower.port, f"--rate={UPGRADES}")
        self.during_attack()

    def test_slow(self) -> None:
        """Sockets on which a head comes byte by byte, and others with half a TLS handshake."""
        self.attack("slow", self.tower.port, f"--sockets={SLOW}")
        self.attack("open", self.tower.secure_port, f"--sockets={SLOW}", "--again")
        self.during_attack()

"""Unauthenticated clients that pipeline requests and never read the answers."""

from __future__ import annotations

import time

from tests.attacks.case import AttackTestCase
from tests.integration.programs import Program

MIB = 2**20
WATCHED = 3.0  # s after the attackers' end
IDLE = 1.0  # s of CPU that the proxy may use then


class PipeliningTests(AttackTestCase):
    """A turn serves a few requests of each connection, and none of a dead one."""

    def pipeline(self, port: int, sockets: int, size: int, *options: str) -> None:
        """Attack a port; users work on, and nothing is left to do once the attackers have disconnected."""
        proxy = self.tower.proxy
        with self.bystanders() as users:
            users.until(20)
            attack = self.attack("pipeline", port, f"--sockets={sockets}", f"--bytes={size}", *options)
            users.until(60)
            attack.kill()
        before = cpu(proxy)
        time.sleep(WATCHED)
        self.assertLess(cpu(proxy) - before, IDLE)
        with self.bystanders() as users:
            users.until(20)
        self.assertNotIn("Traceback", proxy.output())

    def test_plain_port(self) -> None:
        """100 sockets on the plain port that reconnect when they are cut off."""
        self.pipeline(self.tower.port, 100, 64 * MIB, "--again")

    def test_once(self) -> None:
        """100 sockets that send all their requests at once."""
        self.pipeline(self.tower.port, 100, 64 * MIB)

    def test_front_door(self) -> None:
        """40 sockets over TLS."""
        self.pipeline(self.tower.secure_port, 40, 32 * MIB, "--tls", "--again")


def cpu(program: Program) -> float:
    """Return the CPU time that a program has used, s."""
    with open(f"/proc/{program.pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100

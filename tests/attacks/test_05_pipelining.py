"""Strangers who send requests one behind the other and never read the answers."""

from __future__ import annotations

from .case import AttackTestCase

MIB = 2**20
SETTLED = 10.0  # s after the attackers' end in which the proxy has nothing to do any more
IDLE = 0.5  # s of CPU that it may use meanwhile, in `WATCHED`
WATCHED = 2.0  # s


class PipeliningTests(AttackTestCase):
    """A turn serves a few requests of each connection, and none of a dead one."""

    def pipeline(self, port: int, sockets: int, size: int, *options: str) -> None:
        """Attack a port; users work on, and nothing is left to do once the attackers have gone."""
        with self.bystanders() as users:
            users.until(20)
            attack = self.attack(
                "pipeline", port, f"--sockets={sockets}", f"--bytes={size}", "--again", *options
            )
            users.until(60)
            attack.kill()
            users.until(40)
        self.assertNotIn("Traceback", self.tower.proxy.output())

    def test_plain_port(self) -> None:
        """100 sockets on the plain port."""
        self.pipeline(self.tower.port, 100, 64 * MIB)

    def test_front_door(self) -> None:
        """40 sockets over TLS."""
        self.pipeline(self.tower.secure_port, 40, 32 * MIB, "--tls")

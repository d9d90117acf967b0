"""Notifications of both programs to a service manager, as systemd gets them."""

from __future__ import annotations

import signal
import socket
import time

from tests.integration import harness
from tests.integration.backends import Backend
from tests.integration.programs import LOOPBACK, PATIENCE, NotInTimeError, Program, wait_for

PERIOD = 2.0  # s; WATCHDOG_USEC


class ManagerSocket:
    """The socket of a service manager.

    :param address: path, or an abstract name that begins with a zero byte.
    """

    def __init__(self, address: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(address)
        self.environment = {
            "NOTIFY_SOCKET": address.replace("\0", "@"),
            "WATCHDOG_USEC": f"{PERIOD * 1e6:.0f}",
        }

    def close(self) -> None:
        """Listen no more."""
        self._socket.close()

    def next(self, timeout: float = PATIENCE) -> dict[str, str]:
        """Return the next notification within *timeout* s."""
        self._socket.settimeout(timeout)
        try:
            data = self._socket.recv(4096)
        except TimeoutError:
            raise NotInTimeError(f"no notification within {timeout:g} s") from None
        return dict(line.split("=", 1) for line in data.decode().split("\n"))

    def wait(self, name: str, value: str = "1") -> dict[str, str]:
        """Return the next notification of *name* whose value begins with *value*; ignore others."""
        deadline = time.monotonic() + PATIENCE
        found: dict[str, str] = {}
        while time.monotonic() < deadline:
            found = self.next()
            if found.get(name, "").startswith(value):
                return found
        raise NotInTimeError(f"no {name}={value}, but {found}")

    def drain(self) -> None:
        """Ignore what has arrived."""
        self._socket.setblocking(False)
        try:
            while True:
                self._socket.recv(4096)
        except BlockingIOError:
            pass


class NotificationTests(harness.TowerTestCase):
    """A proxy and an agent whose service manager is the test."""

    def new_tower(self) -> harness.Tower:
        """Return a proxy with a service manager."""
        self.manager = ManagerSocket(f"{self.folder}/notify")
        self.addCleanup(self.manager.close)
        tower = super().new_tower()
        tower.proxy = Program("tower-proxy", tower.proxy.argv, self.folder, self.manager.environment)
        return tower

    def life(self, manager: ManagerSocket, program: Program) -> None:
        """Check signs of life, a reload, a frozen reactor, and the stop of a program that is ready."""
        pauses = []
        for _ in range(4):
            before = time.monotonic()
            manager.wait("WATCHDOG")
            pauses.append(time.monotonic() - before)
        self.assertLess(min(pauses[1:]), 0.75 * PERIOD)
        program.signal(signal.SIGHUP)
        begun = int(manager.wait("RELOADING")["MONOTONIC_USEC"])
        self.assertLess(abs(time.monotonic_ns() // 1000 - begun), 60e6)
        manager.wait("READY")
        program.pause()
        time.sleep(0.1)
        manager.drain()
        with self.assertRaises(NotInTimeError):
            manager.next(1.5 * PERIOD)
        program.resume()
        manager.wait("WATCHDOG")
        program.ask_to_end()
        manager.wait("STOPPING")
        self.assertTrue(program.stop())
        manager.drain()

    def test_programs(self) -> None:
        """READY comes when the ports are open; the status is up to date."""
        first = self.manager.next()
        self.assertEqual(first, {"READY": "1", "STATUS": "no clusters"})
        socket.create_connection((LOOPBACK, self.tower.secure_port), PATIENCE).close()

        backend = Backend(self.folder, "alpha")
        self.addCleanup(backend.program.stop)
        backend.start()
        self.tower.tower("cluster", "add", "alpha")
        self.manager.wait("STATUS", "0 of 1 cluster available")
        agent = self.tower.agent("alpha", backend.kubeconfig("alpha"))
        manager = ManagerSocket(f"\0tower-test-{self.folder.name}")
        self.addCleanup(manager.close)
        agent.program = Program(
            agent.name, agent.argv, self.folder, {**agent.environment, **manager.environment}
        )
        agent.program.start()
        self.assertTrue(manager.next()["STATUS"].startswith("not connected to the proxy: "))
        manager.wait(
            "STATUS", f"connected to the proxy; {LOOPBACK}:{backend.ports['alpha']['https']} is not an"
        )
        self.life(manager, agent.program)
        self.life(self.manager, self.tower.proxy)

    def test_failed_start(self) -> None:
        """A proxy whose port is in use never reports READY."""
        self.tower.proxy.stop()
        self.manager.drain()
        with socket.create_server((LOOPBACK, self.tower.secure_port)):
            self.tower.proxy.start()
            self.assertEqual(self.tower.proxy.wait(), 1)
        self.assertIn("in use", self.tower.proxy.output())
        with self.assertRaises(NotInTimeError):
            self.manager.next(0.1)

    def test_agent_first(self) -> None:
        """An agent is ready without its proxy: it retries for as long as it takes."""
        self.tower.tower("cluster", "add", "alpha")
        backend = Backend(self.folder, "alpha")
        self.addCleanup(backend.program.stop)
        backend.start()
        agent = self.tower.agent("alpha", backend.kubeconfig("alpha"))
        self.tower.proxy.stop()
        self.manager.drain()
        environment = {**agent.environment, **self.manager.environment}
        agent.program = Program(agent.name, agent.argv, self.folder, environment)
        agent.program.start()
        self.assertEqual(self.manager.next()["READY"], "1")
        wait_for("an attempt", lambda: "attempt 1 to connect failed" in agent.program.output())

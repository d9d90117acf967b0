"""Continuous changes to nodes: one dies, one hangs, the list changes, the key is replaced."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

from tests.integration.harness import Tower
from tests.integration.node_fleet_kit import CLUSTER, NodeFleet, addresses
from tests.integration.sshd import Sshd

BETWEEN = 1.5  # s between two disturbances
HANGING = 7.0  # s that a node hangs, more than three keepalives


class Disturbance:
    """Disturbs the first two nodes of a fleet, in a thread; the others are not touched.

    :ivar happened: number of each disturbance.
    """

    def __init__(self, tower: Tower, fleet: NodeFleet) -> None:
        self._tower = tower
        self._fleet = fleet
        self._dying, self._hanging, *self._spared = fleet.nodes
        self._over = threading.Event()
        self._failure: BaseException | None = None
        self.happened: dict[str, int] = {}
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Leave every node up and listed; raise any error of the meantime."""
        self._over.set()
        self._thread.join(60)
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        steps = (
            ("killed", self._dying.kill),
            ("listed", lambda: self._list(self._hanging)),
            ("back", self._dying.start),
            ("listed", lambda: self._list(self._dying, self._hanging)),
            ("hung", self._hang),
            ("key", self._fleet.new_key),
            ("listed", lambda: self._list(self._dying)),
            ("listed", lambda: self._list(self._dying, self._hanging)),
        )
        try:
            while not self._over.is_set():
                for what, step in steps:
                    self._do(what, step)
        except BaseException as e:  # noqa: BLE001 - raised again where it is seen
            self._failure = e

    def _do(self, what: str, step: Callable[[], object]) -> None:
        if self._over.is_set() and what not in {"back", "listed"}:
            return
        began = time.monotonic()
        step()
        self.happened[what] = self.happened.get(what, 0) + 1
        self._over.wait(max(0.0, BETWEEN - (time.monotonic() - began)))

    def _list(self, *nodes: Sshd) -> None:
        listed: Iterable[Sshd] = [*nodes, *self._spared]
        self._tower.tower("cluster", "set", CLUSTER, "--nodes", addresses(listed))

    def _hang(self) -> None:
        self._hanging.pause()
        try:
            self._over.wait(HANGING)
        finally:
            self._hanging.resume()

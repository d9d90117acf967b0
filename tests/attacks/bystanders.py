"""Users of a cluster that is attacked, and agents that connect during the attack.

Three users send a request every `PERIOD`: one on a new connection each time, one on a kept-alive connection,
one that writes.  The latency of each request is counted from the time at which it was due, so that one long
stall cannot hide behind many quick answers.

A fourth sends requests directly to the backend, without Tower.  Its latency is the machine's, not Tower's,
and is added to the bounds a few times over, since a request through Tower passes through more processes.
"""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from twisted.logger import Logger

from tests.integration.backends import Backend
from tests.integration.harness import Agent, Tower
from tests.integration.person import Person
from tests.integration.programs import LOOPBACK, wait_for
from tests.integration.relay import Relay

_log = Logger()

PERIOD = 0.05  # s between two requests of a user
PATIENCE = 30.0  # s within which a request is answered, or has failed
P99 = 1.0  # s
ARRIVAL = 3.0  # s from an agent's first TCP connection until it serves its cluster
BODY = 64 * 1024  # B that the writer sends
HOPS = 4  # processes between a user and the answer, where the control has one


class User:
    """One user in a separate thread.

    :param ask: sends one request and returns the answer.
    :param expected: the right answer.
    :ivar latencies: of each request, from when it was due, s.
    :ivar errors: failures, in words.
    """

    def __init__(
        self, name: str, ask: Callable[[], tuple[int, bytes]], expected: bytes, period: float = PERIOD
    ) -> None:
        self.name = name
        self.latencies: list[float] = []
        self.errors: list[str] = []
        self._ask = ask
        self._expected = expected
        self._period = period
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begin to work."""
        self._thread.start()

    def end(self) -> None:
        """Send no more, and wait for running requests."""
        self._ending.set()
        self._thread.join(2 * PATIENCE)

    @property
    def p99(self) -> float:
        """The 99th percentile of the latencies, s."""
        return percentile(self.latencies, 0.99)

    def __str__(self) -> str:
        quantiles = " ".join(  # ms
            f"p{100 * q:g}={1000 * percentile(self.latencies, q):.0f}" for q in (0.5, 0.9, 0.99)
        )
        slowest = 1000 * max(self.latencies, default=0.0)
        failed = f"{len(self.errors)} failed {self.errors[:3]}" if self.errors else "none failed"
        return f"{self.name}: {len(self.latencies)} requests, ms: {quantiles} max={slowest:.0f}; {failed}"

    def _run(self) -> None:
        due = time.monotonic()
        while not self._ending.wait(max(0.0, due - time.monotonic())):
            try:
                code, body = self._ask()
                if (code, body) != (200, self._expected):
                    self.errors.append(f"{code} {body[:200]!r}")
            except (OSError, http.client.HTTPException) as e:
                self.errors.append(repr(e))
            self.latencies.append(time.monotonic() - due)
            due += self._period


class Bystanders:
    """A context manager: the users work within it, and are judged at its end.

    :param person: the owner of the users' credential.
    :param backend: the backend of the cluster *control*, for the control.
    :param writers: number of concurrent writers.
    :ivar users: all users, without the control.
    """

    def __init__(self, person: Person, backend: Backend, control: str = "alpha", writers: int = 1) -> None:
        self._person = person
        self._kept: http.client.HTTPSConnection | None = None
        self._control = User("control", _Control(backend.ports[control]["ping"]), b"pong")
        self.users = [
            User("new connection", self._ask_again, b"pong"),
            User("kept connection", self._ask_kept, b"pong"),
            *(User(f"writer {n}", self._write, bytes(BODY), period=2 * PERIOD) for n in range(writers)),
        ]
        self._arrivals: list[tuple[str, float]] = []

    def __enter__(self) -> Self:
        for user in (self._control, *self.users):
            user.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for user in (self._control, *self.users):
            user.end()
        if self._kept is not None:
            self._kept.close()
        if error is None:
            self._judge()

    @property
    def report(self) -> str:
        """The measured latencies."""
        arrivals = "".join(
            f"\n  {name} served its cluster after {took:.2f} s" for name, took in self._arrivals
        )
        return "".join(f"\n  {user}" for user in (*self.users, self._control)) + arrivals

    def until(self, count: int) -> None:
        """Return when each user has sent *count* requests more."""
        goals = [(user, len(user.latencies) + count) for user in self.users]
        patience = PATIENCE + 10 * count * PERIOD
        wait_for(
            f"{count} requests of each user: {self.report}",
            lambda: all(len(user.latencies) >= goal for user, goal in goals),
            patience,
        )

    def agents_come_in(self, agents: Sequence[Arrival]) -> None:
        """Connect agents one after another, each to be serving within `ARRIVAL`."""
        for agent in agents:
            self._arrivals.append((agent.name, agent.come_in()))

    def _judge(self) -> None:
        _log.info("bystanders:{report}", report=self.report)
        slack = HOPS * self._control.p99
        late = [
            user.name for user in self.users if user.errors or not user.latencies or user.p99 > P99 + slack
        ]
        late += [name for name, took in self._arrivals if took > ARRIVAL + slack]
        if late:
            raise AssertionError(f"bystanders noticed the attack: {', '.join(late)}{self.report}")

    def _ask_again(self) -> tuple[int, bytes]:
        connection = self._person.connect(timeout=PATIENCE)
        try:
            return self._ask(connection)
        finally:
            connection.close()

    def _ask_kept(self) -> tuple[int, bytes]:
        if self._kept is None:
            self._kept = self._person.connect(timeout=PATIENCE)
        return self._ask(self._kept)

    def _write(self) -> tuple[int, bytes]:
        connection = self._person.connect(timeout=PATIENCE)
        try:
            return self._ask(connection, "POST", bytes(BODY))
        finally:
            connection.close()

    def _ask(
        self, connection: http.client.HTTPSConnection, method: str = "GET", body: bytes | None = None
    ) -> tuple[int, bytes]:
        answer = self._person.ask(connection, f"{self._person.prefix}/ping", method, body)
        return answer.status, answer.read()


class Arrival:
    """An enrolled agent that connects on request.

    It dials through a relay, which knows the time of its first TCP connection: the time that Python takes to
    load the program does not count.
    """

    def __init__(self, tower: Tower, cluster: str, backend: Backend, like: str = "alpha") -> None:
        self._relay = Relay(tower.secure_port)
        self._agent: Agent = tower.add(cluster, backend.kubeconfig(like), via=self._relay.port)
        self._agent.program.stop()
        self._agent.forget_token()
        self.name = f"agent of {cluster}"

    def come_in(self) -> float:
        """Start it; return the time from its first connection until it serves, s."""
        before = self._relay.accepted
        self._agent.program.start()
        wait_for(f"a connection of the {self.name}", lambda: self._relay.accepted > before, every=0.01)
        began = time.monotonic()
        wait_for(f"the {self.name}", self._agent.ready, every=0.02)
        return time.monotonic() - began

    def end(self) -> None:
        """Stop it."""
        self._agent.program.stop()
        self._relay.close()


class _Control:
    """Asks the backend on a bare connection that is kept."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._socket: socket.socket | None = None

    def __call__(self) -> tuple[int, bytes]:
        if self._socket is None:
            self._socket = socket.create_connection((LOOPBACK, self._port), PATIENCE)
        self._socket.sendall(b"pong")
        return 200, self._socket.recv(16)


def percentile(values: Sequence[float], quantile: float) -> float:
    """Return a quantile of *values*; 0 if there are none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * quantile))] if ordered else 0.0

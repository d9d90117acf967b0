"""A user who uses a cluster all the time, while another cluster is attacked."""

from __future__ import annotations

import http.client
import threading
import time
from types import TracebackType
from typing import Self

from tests.integration.person import Person
from tests.integration.programs import LOOPBACK, Program

PAUSE = 0.01  # s between two requests
ENOUGH = 5  # requests that have to be answered
BOUND = 30.0  # s within which each is, on any machine
MIB = 2**20


class Pings:
    """Sends requests to a backend through Tower, on one connection that is kept alive."""

    def __init__(self, person: Person) -> None:
        self._person = person
        self._connection = person.connect(timeout=BOUND)

    def __call__(self) -> None:
        """Send a request."""
        answer = self._person.ask(self._connection, f"{self._person.prefix}/ping")
        answered = answer.status, answer.read()
        assert answered == (200, b"pong"), answered

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class HealthPage:
    """Requests an agent's health page."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection(LOOPBACK, port, timeout=BOUND)

    def __call__(self) -> None:
        """Send a request."""
        self._connection.request("GET", "/healthz")
        answer = self._connection.getresponse()
        answered = answer.status, answer.read()
        assert answered[0] == 200, answered

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class Neighbour:
    """Sends requests all the time, and watches the memory of the programs.

    Used as a context manager; at its end it is an error if a request failed or hung, or a program grew.

    :param ask: sends one request.
    :param growth: largest growth of each program's memory, at any time, B.
    """

    def __init__(self, ask: Pings | HealthPage, *programs: Program, growth: int = 32 * MIB) -> None:
        self._ask = ask
        self._before = {program: program.memory() for program in programs}
        self._growth = growth
        self._most = dict(self._before)
        self._slowest = 0.0
        self._answered = 0
        self._trouble = ""
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        """Start."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Send a few more requests, and judge."""
        deadline = time.monotonic() + BOUND
        wanted = self._answered + ENOUGH
        while self._answered < wanted and not self._trouble and time.monotonic() < deadline:
            time.sleep(PAUSE)
        self._ending.set()
        self._thread.join(BOUND)
        if error is not None:
            return
        if self._trouble or self._slowest > BOUND or self._answered < ENOUGH:
            raise AssertionError(f"a neighbour noticed: {self._trouble or self._slowest}")
        for program, before in self._before.items():
            grown = self._most[program] - before
            if grown > self._growth:
                raise AssertionError(f"{program.name} grew by {grown / MIB:.1f} MiB")

    def _run(self) -> None:
        try:
            while not self._ending.is_set():
                began = time.monotonic()
                self._ask()
                self._slowest = max(self._slowest, time.monotonic() - began)
                self._answered += 1
                for program in self._before:
                    self._most[program] = max(self._most[program], program.memory())
                self._ending.wait(PAUSE)
        except Exception as e:  # noqa: BLE001 - the test has to report any error
            self._trouble = repr(e)
        finally:
            self._ask.close()

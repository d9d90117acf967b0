"""Notifications to systemd, or another service manager with its protocol: ready, reloading, alive, stopping.

See ``sd_notify(3)``: each notification is a datagram of ``NAME=VALUE`` lines to ``NOTIFY_SOCKET``.  With
``WATCHDOG_USEC``, the manager restarts a program whose reactor does not send ``WATCHDOG=1`` in time.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, MutableMapping
from typing import TypeAlias

from attrs import define, field
from twisted.application.service import MultiService, Service
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.logger import Logger

from tower.errors import one_line
from tower.escaping import escaped, shortened
from tower.reactor.interfaces import IReactor
from tower.reactor.repeating import periodic
from tower.reactor.signals import Reloads

#: Interval of status updates without a watchdog, s.
STATUS_PERIOD = 10.0

#: Longest status that is sent, in characters.
STATUS_LIMIT = 256

#: Most notifications that wait while the manager does not take them.
_WAITING = 8

_ALIVE = "WATCHDOG=1"

#: Sends one datagram; raises `OSError`.
Send: TypeAlias = Callable[[bytes], object]


@define(frozen=True)
class Manager:
    """The service manager that started this process.

    :ivar address: of its socket; an abstract one begins with a zero byte.
    :ivar watchdog: longest time between two signs of life, s; 0: none are expected.
    """

    address: str
    watchdog: float = 0.0

    @classmethod
    def of(cls, environ: MutableMapping[str, str], pid: int) -> Manager | None:
        """Return the manager that *environ* names, or None; remove its variables, so that no child has them.

        :param pid: of this process; a watchdog for another process is ignored.
        """
        path = environ.pop("NOTIFY_SOCKET", "")
        period, watched = environ.pop("WATCHDOG_USEC", ""), environ.pop("WATCHDOG_PID", "")
        if not path.startswith(("/", "@")):
            return None
        is_watched = period.isdecimal() and watched in {"", str(pid)}
        address = path.replace("@", "\0", 1) if path.startswith("@") else path
        return cls(address, int(period) / 1e6 if is_watched else 0.0)


class NotifySocket:
    """Sends datagrams to *address* without blocking."""

    def __init__(self, address: str) -> None:
        self._address = address
        kind = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
        self._socket = socket.socket(socket.AF_UNIX, kind)

    def __call__(self, data: bytes) -> None:
        """Send *data*.

        :raise OSError: the manager does not read now (`BlockingIOError`), or does not listen.
        """
        self._socket.sendto(data, socket.MSG_NOSIGNAL, self._address)


@define(eq=False, slots=False)
class Notifications(Service):
    """Reports the states of a program to its service manager.

    :param send: sends one datagram.
    :param watchdog: see `Manager`; signs of life are sent twice as often.
    :param status: returns the program's state in one sentence.
    :param monotonic: returns the time of CLOCK_MONOTONIC, ns.
    """

    _log = Logger(namespace="tower.service_manager")

    _reactor: IReactor
    _send: Send
    _watchdog: float
    _status: Callable[[], str]
    _monotonic: Callable[[], int] = time.monotonic_ns
    _ready: bool = field(default=False, init=False)
    _stopping: bool = field(default=False, init=False)
    _shown: str = field(default="", init=False)
    _waiting: list[bytes] = field(factory=list, init=False)
    _timer: Service | None = field(default=None, init=False)
    _is_lost: bool = field(default=False, init=False)

    def startService(self) -> None:
        """Follow the reactor's end, which begins before services stop."""
        super().startService()  # type: ignore[no-untyped-call]
        self._reactor.addSystemEventTrigger("before", "shutdown", self.stopping)

    def stopService(self) -> Deferred[None]:
        """Send no more signs of life."""
        super().stopService()  # type: ignore[no-untyped-call]
        timer, self._timer = self._timer, None
        return maybeDeferred(timer.stopService if timer is not None else lambda: None)

    def ready(self) -> None:
        """Report that the program serves; begin with signs of life."""
        if self._ready or self._stopping or not self.running:
            return
        self._ready = True
        self._notify("READY=1", *self._news())
        period = self._watchdog / 2 or STATUS_PERIOD
        self._timer = periodic(self._reactor, period, self._tick)
        self._timer.startService()

    def reloading(self) -> None:
        """Report the begin of a reload; without effect before `ready`, which its end would imply."""
        if self._ready and not self._stopping:
            self._notify("RELOADING=1", f"MONOTONIC_USEC={self._monotonic() // 1000}")

    def reloaded(self) -> None:
        """Report the end of a reload."""
        if self._ready and not self._stopping:
            self._notify("READY=1", *self._news())

    def stopping(self) -> None:
        """Report that the program is stopping."""
        if not self._stopping:
            self._stopping = True
            self._notify("STOPPING=1", "STATUS=stopping")

    def _tick(self) -> None:
        waiting, self._waiting = self._waiting, []
        for data in waiting:
            self._deliver(data)
        if self._watchdog:
            self._notify(_ALIVE)
        if not self._stopping and (news := self._news()):
            self._notify(*news)

    def _news(self) -> list[str]:
        """Return the line of a changed status."""
        status = shortened(escaped(self._status()), STATUS_LIMIT)
        if status == self._shown:
            return []
        self._shown = status
        return [f"STATUS={status}"]

    def _notify(self, *lines: str) -> None:
        self._deliver("\n".join(lines).encode())

    def _deliver(self, data: bytes) -> None:
        """Send *data*; keep it for the next sign of life if the manager does not take it now."""
        try:
            self._send(data)
        except OSError as e:
            if data != _ALIVE.encode() and len(self._waiting) < _WAITING:
                self._waiting.append(data)
            if not (self._is_lost or isinstance(e, BlockingIOError)):
                self._is_lost = True
                self._log.warn("cannot notify the service manager: {reason}", reason=one_line(e))
        else:
            self._is_lost = False


def notify_manager(
    program: MultiService,
    reactor: IReactor,
    reloads: Reloads,
    status: Callable[[], str],
    environ: MutableMapping[str, str] = os.environ,
) -> Callable[[], None]:
    """Notify the service manager in *environ*, if any, of the states of *program*.

    :param reloads: reported while they run.
    :return: to be called when the program serves.
    """
    manager = Manager.of(environ, os.getpid())
    if manager is None:
        return lambda: None
    made = Notifications(reactor, NotifySocket(manager.address), manager.watchdog, status)
    made.setServiceParent(program)  # type: ignore[no-untyped-call]
    reloads.on_begin, reloads.on_end = made.reloading, made.reloaded
    return made.ready

"""Signals of a program: SIGHUP reloads, SIGTERM and SIGINT stop it, the second of them ends it at once."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any, TypeAlias

from attrs import define, field
from twisted.application.service import Service
from twisted.internet.interfaces import IReactorFromThreads
from twisted.logger import Logger

from tower.errors import TowerError, one_line

#: Reloads one thing; returns what it is now, in a few words, or an empty text if nothing changed.
Reload: TypeAlias = Callable[[], str | None]

#: Exit code at a second signal: this and the signal's number, as shells report it.
EXIT_CODE = 128


@define(eq=False)
class Reloads:
    """Reloadable parts of a program, in order.

    :ivar on_begin: called before a reload.
    :ivar on_end: called after it.
    """

    _log = Logger(namespace="tower.signals")

    _entries: dict[str, Reload] = field(factory=dict)
    on_begin: Callable[[], object] = field(default=lambda: None, init=False)
    on_end: Callable[[], object] = field(default=lambda: None, init=False)

    def add(self, name: str, reload: Reload) -> None:
        """Reload *name* too; *reload* must not disturb what is in use, and may raise."""
        self._entries[name] = reload

    def run(self) -> None:
        """Reload everything; an error is logged, and keeps what was in use."""
        done = []
        self.on_begin()
        for name, reload in self._entries.items():
            try:
                result = reload()
            except (TowerError, OSError) as e:
                self._log.error("cannot reload the {name}: {reason}", name=name, reason=one_line(e))
            except Exception:  # noqa: BLE001 - the others must be reloaded
                self._log.failure("cannot reload the {name}", name=name)
            else:
                done.append(f"{name} ({result})" if result else name)
        self._log.info("SIGHUP: reloaded {reloaded}", reloaded=", ".join(done) or "nothing")
        self.on_end()


class Signals(Service):
    """Handles the signals of a program while its reactor runs; Twisted's own handler does the stop.

    :param reloads: run in the reactor at SIGHUP.
    :param last_words: called before the program ends at once; writes the log.
    :param set_handler: sets a signal handler, as `signal.signal` does.
    :param end: ends the process with an exit code, as `os._exit` does.
    """

    _log = Logger(namespace="tower.signals")

    def __init__(
        self,
        reactor: IReactorFromThreads,
        reloads: Reloads,
        last_words: Callable[[], object],
        set_handler: Callable[..., Any] = signal.signal,
        end: Callable[[int], object] = os._exit,
    ) -> None:
        self._reactor: Any = reactor
        self._reloads = reloads
        self._last_words = last_words
        self._set_handler = set_handler
        self._end = end
        self._before: dict[int, Any] = {}
        self._stopping = False

    def startService(self) -> None:
        """Install the handlers as soon as the reactor has installed its own."""
        super().startService()  # type: ignore[no-untyped-call]
        self._set_handler(signal.SIGHUP, self._hung_up)
        self._reactor.callWhenRunning(self._install)

    def _install(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            self._before[number] = self._set_handler(number, self._told_to_stop)

    def _hung_up(self, number: int, frame: object) -> None:
        """Reload, unless the program is stopping; never end, which is the default of SIGHUP."""
        if self.running and not self._stopping:
            self._reactor.callFromThread(self._reloads.run)

    def _told_to_stop(self, number: int, frame: object) -> None:
        name = signal.Signals(number).name
        if self._stopping:
            self._log.warn("second {signal}: ending at once", signal=name)
            self._last_words()
            self._end(EXIT_CODE + number)
            return
        self._stopping = True
        self._log.info("{signal}: stopping; another one ends the program at once", signal=name)
        before = self._before[number]
        if callable(before):
            before(number, frame)
        else:  # the reactor leaves a signal alone that was ignored or handled at the start
            self._reactor.callFromThread(self._reactor.stop)

"""Runs a service of Tower as a program: options, log, reactor, exit code.

The same services are plugins of ``twistd``, which has its own options, log and end.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar, cast

from twisted.application.service import IService
from twisted.logger import globalLogBeginner

from tower.options.base import EnvironmentOptions
from tower.options.errors import one_line_errors
from tower.reactor import epoll_reactor
from tower.reactor.clock import count_steadily
from tower.reactor.interfaces import IReactor
from tower.reactor.process import forbid_dumps

O = TypeVar("O", bound=EnvironmentOptions)  # noqa: E741 (the options of one program)


def run(program: str, options: O, make_service: Callable[[O], IService]) -> int:
    """Run the service until a signal ends it; return the exit code.

    :param make_service: a ``makeService``; ends the program with one line if it cannot work.
    """
    open_standard_files()
    install_reactor()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until the program can reload
    with _output():
        options.parseOptions()
    observer = options.log_observer()
    globalLogBeginner.beginLoggingTo([observer], redirectStandardIO=False)
    log = options.log
    assert log is not None
    try:
        service = make_service(options)
        from twisted.internet import reactor

        with one_line_errors(program):
            service.privilegedStartService()
            service.startService()
        reactor.addSystemEventTrigger("before", "shutdown", service.stopService)
        reactor.run()
    finally:
        log.flush()
    return 0


@contextmanager
def _output() -> Iterator[None]:
    """End the program with 0 if its output, such as that of ``--help``, is not read to its end."""
    try:
        try:
            yield
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except BrokenPipeError:  # keeps the interpreter from flushing again when it exits
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0) from None


def install_reactor() -> None:
    """Install Tower's reactor, unless this process has one."""
    if "twisted.internet.reactor" not in sys.modules:
        epoll_reactor.install()


def installed_reactor(options: EnvironmentOptions) -> IReactor:
    """Return the reactor of this process, with a steady clock; forbid core dumps unless they are allowed."""
    from twisted.internet import reactor as installed

    reactor = cast(IReactor, installed)
    count_steadily(reactor)
    if not options["allow-core-dumps"]:
        forbid_dumps()
    return reactor


def open_standard_files() -> None:
    """Open /dev/null for each standard file that is closed.

    The next file that is opened, such as the database, would get its descriptor, and log lines with it.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free descriptor

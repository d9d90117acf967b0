"""Validation of the proxy's options, with files, state directory and ports: all errors at once."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

from tower.control.front_door.option_files import file_rules
from tower.control.proxy_options import Options
from tower.options.errors import errors_of, raise_all
from tower.reactor.interfaces import IReactor
from tower.trust.certificate_directory import make_pair
from tower.trust.statedir import StateDir


def validate(options: Options, reactor: IReactor) -> list[Exception]:
    """Return the errors of completed options and of their files.

    :param reactor: see `tower.control.front_door.option_files.file_rules`.
    """
    return [*options.validate(), *errors_of(*file_rules(options, reactor, time.time()))]


def locked_state(options: Options, errors: list[Exception]) -> StateDir:
    """Return the locked state directory; afterwards there is a certificate in ``--cert-dir``.

    :param errors: those of the options; with them, a missing directory is not created.
    :raise OptionErrors: these errors, and those of the directory and the ports; `ConfigurationError` or
        `UsageError` if there is one only.
    """
    states: list[StateDir] = []
    if errors and not Path(options["state-dir"]).exists():
        raise_all(errors)

    def lock() -> None:
        states.append(StateDir(options["state-dir"]))
        states[0].lock()
        states[0].require_complete()

    found = errors_of(lock)
    if not found and not options.is_hosted:
        # after the lock: a running proxy with this directory has the ports, too
        found = errors_of(options.check_listening)
    if not errors and not found and options.makes_pair:
        make = partial(make_pair, options["cert-dir"], options.certificate_host, time.time())
        found = errors_of(make)
    if errors or found:
        for state in states:
            state.close()
        raise_all([*errors, *found])
    return states[0]

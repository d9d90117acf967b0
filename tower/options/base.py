"""Options of Tower's programs: flag, else environment variable, else default; errors are one line.

A composition root subclasses `EnvironmentOptions` and lists its parameters with `parameter` and `secret`.
``--secure-port`` is also ``TOWER_SECURE_PORT``.  klog's flags are taken, with ``_`` or ``-`` in their names.
"""

from __future__ import annotations

import getopt
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import Any, ClassVar, TypeAlias

from twisted.internet.error import CannotListenError
from twisted.logger import ILogObserver
from twisted.python import usage
from twisted.python.reflect import accumulateClassList

import tower
from tower.errors import ConfigurationError
from tower.escaping import escaped
from tower.net.addresses import is_wildcard
from tower.options.log_levels import log_output, observer, read_modules, read_verbosity, syslog_observer
from tower.options.values import (
    format_duration,
    parse_duration,
    read_address,
    read_count,
    read_duration,
    read_file,
    read_host,
    read_port,
    read_port_range,
    read_secret_file,
    read_size,
)

__all__ = [
    "ALLOW_DUMPS",
    "EnvironmentOptions",
    "OptionError",
    "flag",
    "format_duration",
    "one_line",
    "one_line_errors",
    "parameter",
    "parse_duration",
    "public_host",
    "read_address",
    "read_count",
    "read_duration",
    "read_file",
    "read_host",
    "read_port",
    "read_port_range",
    "read_secret_file",
    "read_size",
    "secret",
]

Parameter: TypeAlias = tuple[str, str | None, Any, str, Callable[[str], object]]

_TRUE = frozenset({"1", "t", "true", "y", "yes", "on"})
_FALSE = frozenset({"0", "f", "false", "n", "no", "off"})

#: What Kubernetes puts into ``TOWER_PORT`` of every pod beside a Service named tower; not meant for us.
_SERVICE_LINK = re.compile(r"(tcp|udp|sctp)://")

#: klog's flags that have no effect here, where twistd's ``--logfile`` says where the log goes.
_KLOG_SWITCHES = frozenset(
    {
        "add-dir-header",
        "alsologtostderr",
        "legacy-stderr-threshold-behavior",
        "logtostderr",
        "one-output",
        "skip-headers",
        "skip-log-headers",
    }
)
_KLOG_VALUES = frozenset(
    {
        "log-backtrace-at",
        "log-dir",
        "log-file",
        "log-file-max-size",
        "log-flush-frequency",
        "stderrthreshold",
    }
)

#: Options of twisted.python.usage itself, which no variable may set.
_NOT_SETTINGS = frozenset({"help", "version"})


class OptionError(usage.UsageError):
    """The value of an option cannot work.

    :ivar flag: its name, without dashes.
    :ivar problem: what is wrong, and the cure; follows name and value.
    """

    def __init__(self, name: str, value: str, problem: str, place: str = "") -> None:
        super().__init__(f"{place or '--' + name} {value!r} {problem}")
        self.flag, self.value, self.problem = name, value, problem


def parameter(
    name: str, default: object, doc: str, read: Callable[[str], object] = str, short: str | None = None
) -> Parameter:
    """Return an entry for ``optParameters``.

    :param default: a text is read as if it were given; anything else is the value.
    :param read: makes the value of the text, or raises `ValueError` with what is wrong and the cure.
    """

    def coerce(text: str) -> object:
        try:
            return read(text)
        except ValueError as e:
            raise OptionError(name, text, str(e)) from None

    return (name, short, default, doc, coerce)


def flag(name: str, doc: str) -> tuple[str, None, str]:
    """Return an entry for ``optFlags``."""
    return (name, None, doc)


def secret(name: str, doc: str) -> list[Parameter]:
    """Return two entries for ``optParameters``, the value and the file that holds it.

    See `EnvironmentOptions.secret`.
    """
    return [
        parameter(name, None, doc),
        parameter(
            f"{name}-file",
            None,
            f"File that contains the value of --{name}; -: standard input.",
            read_secret_file,
        ),
    ]


#: Both programs' flag; see `tower.reactor.process.forbid_dumps`.
ALLOW_DUMPS = flag(
    "allow-core-dumps", "Allow core dumps, and other programs of this user to read the memory, keys included."
)


class EnvironmentOptions(usage.Options):
    """Options that the environment may give too.

    :param environ: in place of the process's environment.
    :cvar repeated: flags, read by an ``opt_`` method, whose variable holds several values between commas.
    :ivar given: where each option that was given came from: ``"flag"`` or ``"environment"``.
    """

    optParameters: ClassVar[Sequence[Parameter]] = [
        parameter("v", 0, "How much is logged: 0 is normal, 4 and more is debugging.", read_verbosity, "v"),
        parameter("vmodule", None, "Other levels for some modules, such as conch.mux=4.", read_modules),
    ]
    repeated: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Twisted has no annotations here
        parameters: list[Parameter] = []
        accumulateClassList(type(self), "optParameters", parameters)
        for name, _, default, _, read in parameters:
            if isinstance(default, str):
                self[name] = read(default)
        self.given: dict[str, str] = {}
        self._environ = os.environ if environ is None else environ

    def parseOptions(self, options: Sequence[str] | None = None) -> None:
        """Do `parse`, and end the program with one line and exit code 1 when an option cannot work."""
        try:
            self.parse(sys.argv[1:] if options is None else options)
        except usage.UsageError as e:
            program = getattr(self.parent, "subCommand", None) or "tower"
            raise SystemExit(f"{program}: {one_line(e)}") from None

    def parse(self, arguments: Sequence[str]) -> None:
        """Take the command line and the environment.

        :raise UsageError: naming the option, its value, and the cure.
        """
        line = self._normalized(arguments)
        try:
            chosen = getopt.getopt(line, self.shortOpt, self.longOpt)[0]
        except getopt.GetoptError as e:
            raise usage.UsageError(f"{e}: --help shows the options there are") from None
        self.given = {self._canonical(name.lstrip("-")): "flag" for name, _ in chosen}
        variables = self._variables()
        self.given.update(dict.fromkeys(variables, "environment"))
        try:
            words = [word for option in variables.values() for word in option]
            super().parseOptions([*words, *line])  # type: ignore[no-untyped-call]
        except OptionError as e:
            if self.given.get(e.flag) == "environment":
                raise OptionError(e.flag, e.value, e.problem, _variable(e.flag)) from None
            raise

    def parseArgs(self, *arguments: str) -> None:
        """Refuse what is no option."""
        if arguments:
            raise usage.UsageError(f"{arguments[0]!r} is no option: --help shows the options there are")

    def postOptions(self) -> None:
        """Have twistd log as much as ``--v`` says; call this when you override it."""
        parent: Any = self.parent
        if parent is None or parent.get("logger"):
            return
        finish = parent.postOptions

        def install() -> None:
            finish()  # it takes --logger for the name of something to import, so ours comes after it
            if parent.get("syslog"):
                parent["logger"] = partial(syslog_observer, parent.get("prefix", ""))
            else:
                parent["logger"] = self.log_observer

        parent.postOptions = install

    def opt_version(self) -> None:
        """Display Tower's version and exit."""
        sys.stdout.write(f"Tower {tower.__version__}\n")
        raise SystemExit(0)

    def secret(self, name: str) -> str | None:
        """Return the secret *name*: its flag, its file's content, its variable, or its variable's file.

        What was given by flag goes before what was given by the environment.  Empty: there was nothing at
        standard input.  None: there is none, or it was forgotten.
        """
        names = (name, f"{name}-file")
        for source in ("flag", "environment"):
            for key in names:
                if self.given.get(key) == source:
                    value = self[key]
                    return None if value is None else str(value).strip()
        return None

    def forget_secret(self, name: str) -> None:
        """Keep the secret *name* no longer; whoever needs it has it."""
        self[name] = self[f"{name}-file"] = None

    def log_observer(self) -> ILogObserver:
        """Return what logs as ``--v`` says, to where twistd's own options say, else to standard output."""
        parent: Mapping[str, Any] = {"nodaemon": True} if self.parent is None else self.parent
        out = log_output(parent.get("logfile"), bool(parent.get("nodaemon")))
        return observer(out, self["v"], self["vmodule"] or {})

    def _normalized(self, arguments: Sequence[str]) -> list[str]:
        """Return *arguments* without what Go's flags allow and getopt does not.

        That is ``_`` for ``-`` in names, ``--flag=true``, and ``-v=5``.
        """
        line: list[str] = []
        rest = iter(arguments)
        for argument in rest:
            if argument == "--" or not argument.startswith("-"):
                return [*line, argument, *rest]
            if not argument.startswith("--"):
                line.append(re.sub(r"^-v=", "-v", argument))
                if len(argument) == 2 and f"{argument[1]}:" in self.shortOpt:
                    line.extend(islice(rest, 1))
                continue
            name, equals, value = argument[2:].partition("=")
            name = name.replace("_", "-")
            if name in _KLOG_SWITCHES:
                continue
            words = [f"--{name}{equals}{value}"]
            if equals and name in self.longOpt:
                words = [f"--{name}"] if _truth(name, value) else []
            elif not equals and (f"{name}=" in self.longOpt or name in _KLOG_VALUES):
                words.extend(islice(rest, 1))
            if name not in _KLOG_VALUES:
                line.extend(words)
        return line

    def _canonical(self, name: str) -> str:
        return str(self.synonyms.get(name, name))

    def _variables(self) -> dict[str, list[str]]:
        """Return the command line words for each option that the environment alone gives."""
        words: dict[str, list[str]] = {}
        for entry in self.longOpt:
            name = entry.removesuffix("=")
            value = self._environ.get(_variable(name), "")
            if not value or name in _NOT_SETTINGS or self._canonical(name) in self.given:
                continue
            if name == "port" and _SERVICE_LINK.match(value):
                continue
            if entry == name:
                if _truth(name, value, _variable(name)):
                    words[name] = [f"--{name}"]
            elif name in self.repeated:
                words[name] = [f"--{name}={part.strip()}" for part in value.split(",") if part.strip()]
            else:
                words[name] = [f"--{name}={value}"]
        return words


def _variable(name: str) -> str:
    return "TOWER_" + name.replace("-", "_").upper()


def _truth(name: str, value: str, place: str = "") -> bool:
    if value.lower() not in _TRUE | _FALSE:
        raise OptionError(name, value, "is neither true nor false: give one of them", place)
    return value.lower() in _TRUE


def public_host(host: str, published: str | None) -> str:
    """Return the host that others reach us at: *published*, else the one that we listen on.

    :param host: ``--host``.
    :param published: ``--publish-service-address``.
    :raise ConfigurationError: *host* is a wildcard and nothing is published; names the flag.
    """
    if published:
        return published
    if is_wildcard(host):
        raise ConfigurationError(
            "the proxy listens on every address, which does not say where to reach it: "
            "start it with --publish-service-address HOST, the name or address that others know it by"
        )
    return host


@contextmanager
def one_line_errors(program: str) -> Iterator[None]:
    """End the program with one line and exit code 1 when its configuration cannot work.

    Also decorates: ``@one_line_errors("tower-proxy")`` before a ``makeService``.
    """
    try:
        yield
    except (ConfigurationError, usage.UsageError, CannotListenError) as e:
        raise SystemExit(f"{program}: {one_line(e)}") from None


def one_line(error: BaseException) -> str:
    """Return what an error of a start says, in one line, with the cure."""
    if isinstance(error, CannotListenError):
        reason = getattr(error.socketError, "strerror", None) or error.socketError
        return (
            f"cannot listen on {error.interface or '*'} port {error.port} ({reason}): "
            "stop what uses it, or choose another"
        )
    return escaped(" ".join(str(error).split()))

"""Options of Tower's programs: flag, else environment variable, else default; each error is one line.

A program subclasses `EnvironmentOptions` and lists its parameters with `tower.options.parameters`.
``--secure-port`` is also ``TOWER_SECURE_PORT``.  klog's flags are accepted, with ``_`` or ``-`` in names.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

from twisted.logger import ILogObserver
from twisted.python import usage
from twisted.python.reflect import accumulateClassList

import tower
from tower.errors import ConfigurationError, Invalid
from tower.logs.formats import read_format, syslog_observer
from tower.logs.levels import Levels, read_modules, read_verbosity
from tower.logs.program_log import ProgramLog, twistd_output
from tower.net.addresses import is_wildcard
from tower.options.command_line import CommandLine
from tower.options.errors import OptionError, one_line_errors, raise_all
from tower.options.parameters import Parameter, ValueReader, parameter
from tower.options.values import FileSecret
from tower.options.variables import NOT_SETTINGS, is_service_link, unknown_variables, variable_of

_NAMES = re.compile(r"--([a-z][-a-z0-9]*)")

#: How long a program that ends at once waits for its log, s.
LAST_LINES = 0.5


class EnvironmentOptions(usage.Options):
    """Options that environment variables can set too.

    :param environ: the variables; None: the process's.
    :cvar program: name of the program in its errors; empty: that of twistd's subcommand.
    :cvar aliases: other names of parameters, which have an entry of their own in ``optParameters``.
    :cvar repeated: flags, read by an ``opt_`` method, whose variable holds several comma-separated values.
    :ivar given: source of each option that was set: ``"flag"`` or ``"environment"``.
    :ivar log: the program's log, once it was started.
    """

    program: ClassVar[str] = ""
    optParameters: ClassVar[Sequence[Parameter]] = [
        parameter("v", "0", "Log level; 4 and above: debugging.", read_verbosity, "v"),
        parameter("vmodule", None, "Log levels of modules, such as conch=4,web.gateway=4.", read_modules),
        parameter("log-format", "text", "Log format: text or json.", read_format),
        parameter(
            "log-file", None, "Log file; SIGHUP opens it again after a rename.  [default: standard error]"
        ),
        parameter(
            "log-levels",
            None,
            "File with lines v=N and vmodule=MODULE=N that override --v and --vmodule; SIGHUP reads it "
            "again.  It may be missing.",
        ),
    ]
    aliases: ClassVar[Mapping[str, str]] = {}
    repeated: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Twisted has no annotations here
        parameters: list[Parameter] = []
        accumulateClassList(type(self), "optParameters", parameters)
        for name, _, default, _, read in parameters:
            if default is not None:
                self[name] = read(default)
            self.defaults[name] = default or None
        self._initial = dict(self)
        self._lists = [each for *_, each in parameters if isinstance(each, ValueReader) and each.adds_up]
        self._chosen: Sequence[tuple[str, str]] = ()
        self.given: dict[str, str] = {}
        self._environ = os.environ if environ is None else environ
        self._errors: list[Exception] = []
        self.log: ProgramLog | None = None

    def parseOptions(self, options: Sequence[str] | None = None) -> None:
        """Run `read`; on errors, end the program with exit code 1 and one line for each."""
        with one_line_errors(self._program):
            self.read(sys.argv[1:] if options is None else options)

    def parse(self, arguments: Sequence[str]) -> None:
        """Run `read`, `complete` and `validate`; raise the errors."""
        self.read(arguments)
        raise_all(self.complete().validate())

    def read(self, arguments: Sequence[str]) -> None:
        """Read the command line and the environment.

        :raise UsageError: with option, value and cure.
        :raise OptionErrors: the same for several options: all that are unknown or cannot be read, and the
            errors of the others that do not go together.
        """
        self._errors.clear()
        command_line = self._command_line()
        self._chosen, line = command_line.options(command_line.normalized(arguments))
        self.given = {self._canonical(name.lstrip("-")): "flag" for name, _ in self._chosen}
        variables = self._variables(command_line)
        self.given.update(dict.fromkeys(variables, "environment"))
        words = [word for option in variables.values() for word in option]
        self.check(super().parseOptions, [*words, *line])
        if found := self._found():
            raise_all([*found, *self._further(self._errors)])

    def _further(self, errors: Sequence[Exception]) -> list[Exception]:
        """Return what `find_errors` finds if the options whose values cannot be read have their defaults.

        Errors that name an option of *errors* are not returned: it, or a similar one, has no value.
        """
        unread = [name for name, value in self.items() if isinstance(value, OptionError)]
        self.update({name: self._initial[name] for name in unread})
        named = {name for each in errors for name in _NAMES.findall(str(each))}
        found = self.complete().find_errors()
        return [each for each in found if named.isdisjoint(_NAMES.findall(str(each)))]

    def complete(self) -> Self:
        """Set the defaults that depend on other options or on this machine; return the options."""
        return self

    def validate(self) -> list[Exception]:
        """Return the errors of options that do not go together: all of them."""
        self._errors.clear()
        self.check_rules()
        return self._found()

    def find_errors(self) -> list[Exception]:
        """Return all errors that can be found before the program has a reactor."""
        return self.validate()

    def check_rules(self) -> None:
        """Run every `check`; overrides call this first."""

    def check(self, rule: Callable[..., object], *arguments: object) -> None:
        """Call *rule*; collect an error that it raises, with all others."""
        try:
            rule(*arguments)
        except (usage.UsageError, ConfigurationError, Invalid) as e:
            self._errors.append(e)

    def _command_line(self) -> CommandLine:
        return CommandLine(self._program, self.shortOpt, self.longOpt, self._errors)

    def _found(self) -> list[Exception]:
        return [self._by_source(each) for each in self._errors]

    def _by_source(self, error: Exception) -> usage.UsageError:
        """Return *error* as a usage error that names the variable if the value is from one."""
        if isinstance(error, OptionError) and self.given.get(error.flag) == "environment":
            return OptionError(error.flag, error.value, error.problem, variable_of(error.flag))
        return error if isinstance(error, usage.UsageError) else usage.UsageError(str(error))

    @property
    def _program(self) -> str:
        return getattr(self.parent, "subCommand", None) or self.program or "tower"

    def getSynopsis(self) -> str:
        """Return the first line of ``--help``."""
        if self.parent is None and self.program:
            return f"Usage: {self.program} [options]"
        return str(super().getSynopsis())

    def postOptions(self) -> None:
        """Raise the errors of all values, then set up logging by ``--v``."""
        self._add_up()
        self._apply_aliases()
        self._errors += [value for value in self.values() if isinstance(value, OptionError)]
        self._errors += map(usage.UsageError, unknown_variables(self._environ, self._command_line().names))
        if self._errors:
            raise self._errors.pop()  # `read` collects it again, with the others
        parent: Any = self.parent
        if parent is None or parent.get("logger"):
            return
        finish = parent.postOptions

        def install() -> None:
            finish()  # it reads --logger as the name of an object to import, so set ours after it
            if parent.get("syslog"):
                parent["logger"] = partial(syslog_observer, parent.get("prefix", ""))
            else:
                parent["logger"] = self.log_observer

        parent.postOptions = install

    def _add_up(self) -> None:
        """Give each repeated list the values of all repeats."""
        for read in self._lists:
            texts = [text for name, text in self._chosen if name == f"--{read.name}" and text]
            if texts:
                self[read.name] = read(",".join(texts))

    def _apply_aliases(self) -> None:
        """Give each option the value of its alias; a flag takes precedence over a variable."""
        for alias, name in self.aliases.items():
            source = self.given.get(alias)
            if source is None or isinstance(self[alias], OptionError):
                continue
            if source == self.given.get(name):
                text = f"--{alias} and --{name} are the same option: omit one of them"
                self._errors.append(usage.UsageError(text))
            elif source == "flag" or name not in self.given:
                self[name] = self[alias]
                self.given[name] = source

    def opt_version(self) -> None:
        """Display the program's version and exit."""
        sys.stdout.write(f"{self._program} {tower.VERSION}\n")
        raise SystemExit(0)

    def secret(self, name: str) -> str | None:
        """Return the secret *name*: its flag, its file's content, its variable, or its variable's file.

        Flags take precedence over the environment.  Empty: standard input was empty.  None: not set.
        """
        value = self._secret(name)
        return None if value is None else str(value).strip()

    def secret_file(self, name: str) -> str:
        """Return the path of the file that `secret` was read from; empty: from no file that can be reread."""
        value = self._secret(name)
        return value.path if isinstance(value, FileSecret) else ""

    def _secret(self, name: str) -> object:
        for source in ("flag", "environment"):
            for key in (name, f"{name}-file"):
                if self.given.get(key) == source:
                    return self[key]
        return None

    def forget_secret(self, name: str) -> None:
        """Delete the secret *name* from the options."""
        self[name] = self[f"{name}-file"] = None

    def log_observer(self) -> ILogObserver:
        """Start and return the program's log; without `--log-file`, twistd's is used if twistd runs.

        An error ends the program with exit code 1 and one line.
        """
        output = None
        if self.parent is not None and not self["log-file"]:
            parent: Mapping[str, Any] = self.parent
            output = twistd_output(parent.get("logfile"), nodaemon=bool(parent.get("nodaemon")))
        levels = Levels(self["v"], self["vmodule"] or {})
        levels_file = self["log-levels"] and Path(self["log-levels"]).absolute()
        path = self["log-file"] and Path(self["log-file"]).absolute()
        with one_line_errors(self._program):
            try:
                self.log = ProgramLog(path, self["log-format"], levels, levels_file, output)
            except ValueError as e:
                raise OptionError("log-levels", self["log-levels"], str(e)) from None
            except OSError as e:
                reason = (e.strerror or str(e)).lower()
                problem = f"cannot be written ({reason}): name a file in a directory that Tower owns"
                raise OptionError("log-file", self["log-file"], problem) from None
        return self.log

    def reload_log(self) -> None:
        """Reload the log, if it was started.

        :raise ConfigurationError: the file of levels cannot be used.
        """
        try:
            if self.log is not None:
                self.log.reload()
        except ValueError as e:
            raise ConfigurationError(
                f"--log-levels {self['log-levels']}: {e}: the levels do not change"
            ) from None

    def flush_log(self) -> None:
        """Write the last lines of the log, before the program ends at once."""
        if self.log is not None:
            self.log.flush(LAST_LINES)

    def _canonical(self, name: str) -> str:
        return str(self.synonyms.get(name, name))

    def _variables(self, command_line: CommandLine) -> dict[str, list[str]]:
        """Return the command line words of each option that only the environment sets."""
        words: dict[str, list[str]] = {}
        for entry in self.longOpt:
            name = entry.removesuffix("=")
            variable = variable_of(name)
            value = self._environ.get(variable, "")
            if not value or name in NOT_SETTINGS or self._canonical(name) in self.given:
                continue
            if is_service_link(variable, value):
                continue
            if entry == name:
                if command_line.is_true(name, value, variable):
                    words[name] = [f"--{name}"]
            elif name in self.repeated:
                words[name] = [f"--{name}={part.strip()}" for part in value.split(",") if part.strip()]
            else:
                words[name] = [f"--{name}={value}"]
        return words


def public_host(host: str, published: str | None) -> str:
    """Return the host that others connect to: ``--publish-service-address``, else ``--host``.

    :raise ConfigurationError: *host* is a wildcard and nothing is published; names the flag.
    """
    if published:
        return published
    if is_wildcard(host):
        raise ConfigurationError(
            "the proxy listens on every address, and --publish-service-address is not set: "
            "restart it with --publish-service-address HOST, the address that users and agents connect to"
        )
    return host

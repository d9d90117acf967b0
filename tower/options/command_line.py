"""The command line of a program, for getopt: all errors are collected, and klog's flags are accepted."""

from __future__ import annotations

import getopt
import re
from collections.abc import Sequence
from itertools import dropwhile, islice

from attrs import define
from twisted.python import usage

from tower.options.errors import OptionError, OptionErrors
from tower.options.nearest import nearest_name
from tower.options.upstream_names import hint
from tower.options.values import read_boolean
from tower.options.variables import OPTIONS

#: klog's flags without effect.
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
    {"log-backtrace-at", "log-dir", "log-file-max-size", "log-flush-frequency", "stderrthreshold"}
)


#: Most errors of one command line: each costs a search for a similar name.
MOST_ERRORS = 20


@define(eq=False)
class CommandLine:
    """Reads the words of a command line.

    :param program: its name in errors.
    :param short: getopt's short options.
    :param long: getopt's long options; with ``=`` if they have a value.
    :param errors: takes all errors.
    """

    _program: str
    _short: str
    _long: Sequence[str]
    _errors: list[Exception]

    @property
    def names(self) -> set[str]:
        """Names of all long options."""
        return {entry.removesuffix("=") for entry in self._long}

    def normalized(self, arguments: Sequence[str]) -> list[str]:
        """Return *arguments* without Go's ``_`` in names, ``--flag=true`` and ``-v=5``, for getopt."""
        line: list[str] = []
        rest = iter(arguments)
        for argument in rest:
            if argument == "--" or not argument.startswith("-"):
                return [*line, argument, *rest]
            if not argument.startswith("--"):
                line.append(re.sub(r"^-v=", "-v", argument))
                if len(argument) == 2 and f"{argument[1]}:" in self._short:
                    line.extend(islice(rest, 1))
                continue
            name, equals, value = argument[2:].partition("=")
            name = name.replace("_", "-")
            if name in _KLOG_SWITCHES:
                continue
            words = [f"--{name}{equals}{value}"]
            if equals and name in self._long:
                words = [f"--{name}"] if self.is_true(name, value) else []
            elif not equals and (f"{name}=" in self._long or name in _KLOG_VALUES):
                words.extend(islice(rest, 1))
            if name not in _KLOG_VALUES:
                line.extend(words)
        return line

    def options(self, line: list[str]) -> tuple[list[tuple[str, str]], list[str]]:
        """Return getopt's options of *line*, and *line* without all else, which is collected as errors.

        :raise OptionErrors: there are `MOST_ERRORS` errors; the rest of *line* is not read.
        """
        while True:
            if len(self._errors) >= MOST_ERRORS:
                raise OptionErrors([*self._errors, usage.UsageError("the rest of the options was not read")])
            try:
                chosen, rest = getopt.getopt(line, self._short, self._long)
            except getopt.GetoptError as e:
                line = self._without(e, line)
                continue
            if not rest:
                return chosen, line
            self._errors.append(self._misplaced(rest[0]))
            before = [word for word in line[: -len(rest)] if word != "--"]
            line = [*before, *dropwhile(lambda word: not word.startswith("-"), rest)]

    def _without(self, error: getopt.GetoptError, line: list[str]) -> list[str]:
        """Return *line* without the word that getopt rejects, and its value if it is unknown."""
        name, text = error.opt or "", str(error)
        shown = f"--{name}" if len(name) > 1 else f"-{name}"
        at = next((i for i, word in enumerate(line) if _is_option(word, name)), len(line) - 1)
        last = at + 1
        if "not recognized" in text:
            if "=" not in line[at] and last < len(line) and not line[last].startswith("-"):
                last += 1
            text = f"{shown} is not an option of {self._program}: {self._meant(name)}"
        elif "requires argument" in text:
            at, last = len(line) - 1, len(line)
            text = f"{shown} requires a value: --help describes it"
        elif "must not have" in text:
            text = f"{shown} is a flag without a value: omit the value"
        else:
            known = ", ".join(f"--{entry}" for entry in sorted(self.names) if entry.startswith(name))
            text = f"{shown} is ambiguous: give one of {known}"
        self._errors.append(usage.UsageError(text))
        return line[:at] + line[last:]

    def _misplaced(self, word: str) -> usage.UsageError:
        """Return the error of a word that is neither an option nor a value."""
        if nearest_name(word, self.names, 0.8):
            return usage.UsageError(f"{word!r} is not an option: {self._meant(word)}")
        return usage.UsageError(
            f"{word!r} is not an option, and {self._program} has no subcommands: --help lists the options"
        )

    def _meant(self, name: str) -> str:
        if name in OPTIONS:
            return f"it is an option of {'tower-proxy' if self._program == 'tower-agent' else 'tower-agent'}"
        if self._program == "tower-proxy" and (cure := hint(name)):
            return cure
        nearest = nearest_name(name, self.names)
        return f"did you mean --{nearest}?" if nearest else "--help lists the options"

    def is_true(self, name: str, value: str, variable: str = "") -> bool:
        """Return whether *value* of the flag *name* sets it; neither true nor false is an error."""
        try:
            return read_boolean(value)
        except ValueError as e:
            self._errors.append(OptionError(name, value, str(e), variable))
            return False


def _is_option(word: str, name: str) -> bool:
    """Return whether *word* of a command line gives the option *name*, which it may abbreviate."""
    if len(name) > 1:
        given = word[2:].partition("=")[0]
        return word.startswith("--") and bool(given) and name.startswith(given)
    return word.startswith("-") and not word.startswith("--") and name in word

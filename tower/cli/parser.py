"""Parser of command lines whose errors are one line with the nearest valid word; exit code 2."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from tower.options.nearest import nearest_name

#: Exit code of a command line that cannot be parsed, or whose options contradict each other.
USAGE = 2

#: Most choices that an error lists.
_LISTED = 12

#: Options before the command; see `tower.cli.arguments.parser`.
_GLOBAL = ("--state-dir", "--kubeconfig", "--context")


Commands = argparse._SubParsersAction  # noqa: SLF001 - argparse has no public name for it


class Parser(argparse.ArgumentParser):
    """Parser whose errors are one line, with the cure."""

    def error(self, message: str) -> NoReturn:
        """Print the error and exit."""
        self.exit(USAGE, f"{self.prog}: {message}; see '{self.prog} --help'\n")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse *args*; reject unknown ones here, where the options of the command are known."""
        args = list(sys.argv[1:] if args is None else args)
        if self._subparsers is not None:
            self._check_leading(args)
        options, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(self._unknown(unknown[0]))
        return options, unknown

    def _check_leading(self, words: Sequence[str]) -> None:
        """Reject an unknown option before the command; argparse would take its value as the command."""
        remaining = iter(words)
        for word in remaining:
            name, _, value = word.partition("=")
            if not name.startswith("--") or name == "--":
                return
            if name not in self._option_string_actions:
                self.error(self._unknown(word))
            if self._option_string_actions[name].nargs is None and not value:
                next(remaining, None)

    def _unknown(self, word: str) -> str:
        """Return the error of a word that no option or argument takes."""
        if not word.startswith("-"):
            return f"unexpected argument {word!r}"
        name = word.partition("=")[0]
        if name in _GLOBAL:
            return f"{name} must precede the command, as in 'tower {name} VALUE cluster list'"
        return f"unknown option {name}{suggestion(name, self._option_string_actions)}"

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """See `argparse.ArgumentParser`; the error names the nearest choice."""
        if action.choices is None or value in action.choices:
            return
        choices = list(action.choices)
        nearest = suggestion(str(value), choices) or f": choose {_listed(choices)}"
        if isinstance(action, Commands):
            self.error(f"unknown command {value!r}{nearest}")
        self.error(f"{'/'.join(action.option_strings) or action.metavar} {value!r} is not valid{nearest}")


def add_command(commands: Commands[Parser], name: str, summary: str, more: str = "") -> Parser:
    """Return a new parser of the command *name*; *more* follows *summary* in its help text."""
    text = summary[0].upper() + summary[1:] + "."
    return commands.add_parser(name, help=summary, description=f"{text}  {more}".strip(), allow_abbrev=False)


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return ``: did you mean X?`` with the known word nearest to *word*; empty if there is none."""
    near = nearest_name(word, known)
    return f": did you mean {near}?" if near else ""


def _listed(choices: Sequence[str]) -> str:
    if len(choices) == 1:
        return choices[0]
    shown = choices[:_LISTED]
    return f"{', '.join(shown[:-1])} or {shown[-1]}"

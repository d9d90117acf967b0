"""Completion of command lines in bash, zsh and fish, by argcomplete."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import TextIO

from tower.cli.client import GROUP_PATH, TowerClient
from tower.errors import TowerError

#: Names of the command.
_PROGRAMS = ("tower", "kubectl-tower")

#: Starts zsh's completion system, which ``~/.zshrc`` may lack.
_ZSH_SYSTEM = "(( $+functions[compdef] )) || { autoload -Uz compinit && compinit -i }"

#: Paths of the API, by the argument that its objects complete.
_PATHS = {
    "NAME": f"{GROUP_PATH}/clusters",
    "CLUSTER": f"{GROUP_PATH}/clusters",
    "ID": f"{GROUP_PATH}/credentials",
    "SESSION-ID": f"{GROUP_PATH}/loginsessions",
    "TOKEN-ID": f"{GROUP_PATH}/jointokens",
}

#: Commands whose NAME is not yet a cluster.
_NEW = ("tower cluster add",)


def script(shell: str) -> str:
    """Return the lines that make *shell* complete the command."""
    from argcomplete.shell_integration import shellcode

    lines = str(shellcode(_PROGRAMS, shell=shell)).strip("\n").split("\n")
    if shell == "zsh":
        lines.insert(1, _ZSH_SYSTEM)
    return "\n".join(lines)


def complete(
    parser: argparse.ArgumentParser,
    connect: Callable[[argparse.Namespace], TowerClient],
    out: TextIO | None = None,
    end: Callable[[int], object] = os._exit,
) -> None:
    """Print the completions that the shell requests in the environment, and end the program.

    :param connect: returns the client of the API; may raise `TowerError`.
    :param out: None: file descriptor 8, which the script opens.
    """
    import argcomplete

    _set_completers(parser, connect)
    argcomplete.autocomplete(parser, always_complete_options="long", output_stream=out, exit_method=end)


def _set_completers(
    parser: argparse.ArgumentParser, connect: Callable[[argparse.Namespace], TowerClient]
) -> None:
    """Complete names of clusters and credentials by those that exist."""
    for action in parser._actions:  # noqa: SLF001 - argparse has no public list of arguments
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - nor a public name for it
            for command in action.choices.values():
                _set_completers(command, connect)
        elif parser.prog not in _NEW and _is_name(action):
            action.completer = _Names(connect, _PATHS[str(action.metavar)])  # type: ignore[attr-defined]


def _is_name(action: argparse.Action) -> bool:
    """Return whether the argument names an object of the API."""
    return action.metavar in _PATHS and (not action.option_strings or action.dest == "cluster")


class _Names:
    """Returns the names of the objects at *path*; none if the proxy does not answer."""

    def __init__(self, connect: Callable[[argparse.Namespace], TowerClient], path: str) -> None:
        self._connect = connect
        self._path = path

    def __call__(self, parsed_args: argparse.Namespace, **_: object) -> list[str]:
        """See argcomplete."""
        try:
            items = self._connect(parsed_args).call("GET", self._path)["items"]
        except (TowerError, OSError):
            return []
        return [item["metadata"]["name"] for item in items]

"""The way in: read the line, call the API, print, and say what went wrong in one line."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import tower
from tower.cli.arguments import parser
from tower.cli.client import TowerClient
from tower.cli.errors import CallFailed, CommandFailed
from tower.errors import ConfigurationError, TowerError
from tower.escaping import escaped
from tower.kube.kubeconfig import KubeAccess, load_kubeconfig

#: Where a running proxy keeps its administrator's kubeconfig, in its state directory.
ADMIN_KUBECONFIG = "admin.kubeconfig"


def main(
    argv: Sequence[str] | None = None,
    client: Callable[[KubeAccess], TowerClient] = TowerClient,
    environ: Mapping[str, str] = os.environ,
) -> int:
    """Run the command; return its exit code.

    :param argv: the words after the program's name; by default this process'.
    :param client: makes what calls the API.
    """
    options = parser(environ).parse_args(argv)
    try:
        text = _run(options, client)
    except TowerError as e:
        print(f"tower: {_told(e)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    if text:
        try:
            print(text, flush=True)
        except BrokenPipeError:  # the reader has enough; keep the interpreter from trying again at its end
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _run(options: argparse.Namespace, client: Callable[[KubeAccess], TowerClient]) -> str:
    if "version" in options:
        return _version(options, client)
    access = find_access(options)
    if "forward" in options:
        from tower.cli.forward import forward  # Twisted's reactor is for this command alone

        forward(client(access), options)
        return ""
    run: Callable[[TowerClient, argparse.Namespace], str] = options.run
    return run(client(access), options)


def find_access(options: argparse.Namespace) -> KubeAccess:
    """Return the way to the API that the options name.

    :raise CommandFailed: there is none, or no proxy has left its file there.
    """
    if options.kubeconfig:
        return load_kubeconfig(options.kubeconfig, options.context)
    if not options.state_dir:
        raise CommandFailed(
            "which proxy?  Give --state-dir S on the machine where it runs, or --kubeconfig F with an "
            "administrator's file"
        )
    path = Path(options.state_dir) / ADMIN_KUBECONFIG
    try:
        return load_kubeconfig(path, options.context)
    except ConfigurationError as e:
        if isinstance(e.__cause__, FileNotFoundError):
            raise CommandFailed(
                f"there is no {path}: tower-proxy writes it when it runs with --state-dir {options.state_dir}"
            ) from e
        raise


def _version(options: argparse.Namespace, client: Callable[[KubeAccess], TowerClient]) -> str:
    text = f"tower {tower.__version__}"
    if options.client or not (options.kubeconfig or options.state_dir):
        return text
    answer = client(find_access(options)).call("GET", "/version")
    return f"{text}\nproxy {escaped(str(answer.get('gitVersion', 'unknown')))}"


def _told(error: TowerError) -> str:
    if isinstance(error, CallFailed) and error.code == 401:
        return f"{escaped(str(error))} (the proxy renews the file in its state directory while it runs)"
    return escaped(str(error).replace("\n", " "))

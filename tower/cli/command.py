"""Entry point: parse the command line, call the API, print the result or one error line."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import tower
from tower.cli.arguments import parser
from tower.cli.client import CallFailed, CommandFailed, TowerClient
from tower.errors import ConfigurationError, TowerError
from tower.escaping import escaped
from tower.kube.kubeconfig import KubeAccess, load_kubeconfig

#: The administrator's kubeconfig in the state directory of a running proxy.
ADMIN_KUBECONFIG = "admin.kubeconfig"


def main(
    argv: Sequence[str] | None = None,
    client: Callable[[KubeAccess], TowerClient] = TowerClient,
    environ: Mapping[str, str] = os.environ,
) -> int:
    """Run the command; return its exit code.

    :param argv: arguments; default: of this process.
    :param client: makes the client of the API.
    """
    options = parser(environ).parse_args(argv)
    try:
        text = _run(options, client)
    except TowerError as e:
        print(f"tower: {_described(e)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    if text:
        try:
            print(text, flush=True)
        except BrokenPipeError:  # keeps the interpreter from flushing again when it exits
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _run(options: argparse.Namespace, client: Callable[[KubeAccess], TowerClient]) -> str:
    if "version" in options:
        return _version(options, client)
    access = find_access(options)
    if "forward" in options:
        from tower.cli.forward import forward  # installs Twisted's reactor

        forward(client(access), options)
        return ""
    run: Callable[[TowerClient, argparse.Namespace], str] = options.run
    return run(client(access), options)


def find_access(options: argparse.Namespace) -> KubeAccess:
    """Return the address of the API and the credential for it.

    :raise CommandFailed: no option gives them, or the proxy's state directory has none.
    """
    if options.kubeconfig:
        return load_kubeconfig(options.kubeconfig, options.context)
    if not options.state_dir:
        raise CommandFailed(
            "no proxy is given: give --state-dir DIR on the proxy's machine, or --kubeconfig FILE with an "
            "administrator's kubeconfig"
        )
    path = Path(options.state_dir) / ADMIN_KUBECONFIG
    try:
        return load_kubeconfig(path, options.context)
    except ConfigurationError as e:
        if isinstance(e.__cause__, FileNotFoundError):
            raise CommandFailed(
                f"{path} not found: start tower-proxy with --state-dir {options.state_dir}, which creates it"
            ) from e
        raise


def _version(options: argparse.Namespace, client: Callable[[KubeAccess], TowerClient]) -> str:
    text = f"tower {tower.__version__}"
    if options.client or not (options.kubeconfig or options.state_dir):
        return text
    answer = client(find_access(options)).call("GET", "/version")
    return f"{text}\nproxy {escaped(str(answer.get('gitVersion', 'unknown')))}"


def _described(error: TowerError) -> str:
    if isinstance(error, CallFailed) and error.code == 401:
        return f"{escaped(str(error))} (the proxy renews the file in its state directory while it runs)"
    return escaped(str(error).replace("\n", " "))

"""Arguments of ``tower store``."""

from __future__ import annotations

import argparse
import os

from tower.cli.parser import Commands, Parser, add_command

#: Names of the stores, as of ``tower-proxy --store``.
SQLITE, KUBERNETES = "sqlite", "kubernetes"

#: Default namespace, as of ``tower-proxy --namespace``.
NAMESPACE = "kubesphere-system"


def add_store_commands(commands: Commands[Parser]) -> None:
    """Add the commands."""
    command = add_command(commands, "store", "copy the records of a proxy between stores")
    inner = command.add_subparsers(title="commands", metavar="COMMAND", required=True, parser_class=Parser)
    one = add_command(
        inner,
        "copy",
        "copy all records to the other kind of store",
        "Runs on the proxy's machine with --state-dir, while no proxy runs.  The target must be empty, or a "
        "copy that was interrupted.  Copies the proxy's keys, too.",
    )
    for name in ("from", "to"):
        one.add_argument(
            f"--{name}",
            dest=f"store_{name}",
            metavar="STORE",
            choices=(SQLITE, KUBERNETES),
            required=True,
            help=f"{'source' if name == 'from' else 'target'}: {SQLITE} or {KUBERNETES}",
        )
    add_host_arguments(one)
    one.set_defaults(text=_copy)


def add_host_arguments(command: Parser) -> None:
    """Add the options that name the host cluster."""
    command.add_argument(
        "--host-kubeconfig",
        metavar="FILE",
        help="kubeconfig of the host cluster (default: the pod's service account)",
    )
    command.add_argument(
        "--namespace",
        metavar="NAMESPACE",
        default=os.environ.get("TOWER_NAMESPACE") or os.environ.get("POD_NAMESPACE") or NAMESPACE,
        help=f"namespace of the records in the host cluster (default: {NAMESPACE}, in a pod the pod's)",
    )


def _copy(options: argparse.Namespace) -> str:
    from tower.cli.records.store_copy import copy  # installs Twisted's reactor

    return copy(options)
